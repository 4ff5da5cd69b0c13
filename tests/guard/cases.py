"""Machines, policies and cases for the tests of the guard's judgement, made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from costguard.guard.action_plan import PolicyCase, RunConstraints
from costguard.guard.escalation import advance_escalation, mark_step_done
from costguard.guard.limits import Headroom
from costguard.guard.overrides import Override
from costguard.guard.policy import ASK, NOTIFY, STOP, ConditionResult, EscalationState, Policy, PolicyStep, Verdict
from costguard.guard.policy_evaluation import FactInputs, build_facts, evaluate_policy
from costguard.guard.signals import IDLE, Activity
from costguard.metering.observation import Handling, identify_incarnation
from costguard.metering.spending import LiveResource
from tests.books import live, meter

POLL = timedelta(seconds=60)
A100, H100, POD, LAMBDA = 32_770_000_000, 98_320_000_000, 2_990_000_000, 23_920_000_000
PLENTY = Headroom(acts=100, irreversible=100, why="")
STOPS = Handling(stops=True, terminates=True)


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def friday(hour: int, minute: int = 0) -> datetime:
    """Of a weekend on which a machine is forgotten."""
    return datetime(2026, 11, 20, hour, minute, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asks:
    """A condition that compares facts with what it is given; a missing one makes it unknown."""

    wants: Mapping[str, object]

    @property
    def text(self) -> str:
        return " && ".join(f"{name} == {value}" for name, value in self.wants.items())

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.wants)

    def evaluate(self, facts: Mapping[str, object]) -> ConditionResult:
        if any(facts[name] != value for name, value in self.wants.items() if name in facts):
            return ConditionResult(value=False)
        missing = tuple(sorted(self.names - set(facts)))
        return ConditionResult(value=None, missing=missing) if missing else ConditionResult(value=True)


def policy(*steps: PolicyStep, when: Mapping[str, object] | None = None, **stated: Any) -> Policy:  # noqa: ANN401 - any field
    usual: dict[str, Any] = {"name": "idle-gpu", "arm": STOP, "hold": minutes(45)}
    then = steps or (PolicyStep(do=NOTIFY), PolicyStep(do=STOP, after=minutes(15)))
    return Policy(when=Asks(wants=when or {"state": IDLE}), then=then, **{**usual, **stated})


def machine(id_: str = "i-1", nano: int = A100, **stated: Any) -> LiveResource:  # noqa: ANN401 - any field
    return live(id_, meter(nano), **{"handling": STOPS, **stated})


def idle(since: datetime, **stated: Any) -> Activity:  # noqa: ANN401 - any field
    return Activity(
        **{"state": IDLE, "confidence": 0.9, "since": since, "reasons": ("GPU duty 0 %",), "coverage": 1.0, **stated}
    )


def judged(
    one: LiveResource,
    rule: Policy,
    work: Activity,
    now: datetime,
    climb: EscalationState | None = None,
    **more: Any,  # noqa: ANN401 - any argument
) -> Verdict:
    life = identify_incarnation(one.observation)
    known = FactInputs(scheduled_on=more.pop("scheduled_on", None))
    return evaluate_policy(rule, life, build_facts(one, work, known, now), work, now, climb=climb, **more)


def case(
    one: LiveResource,
    rule: Policy,
    work: Activity,
    now: datetime,
    climb: EscalationState | None = None,
    **stated: Any,  # noqa: ANN401 - whatever the case states
) -> PolicyCase:
    found = judged(one, rule, work, now, climb)
    state = one.observation.state
    going = advance_escalation(climb, found, stopped=state == "stopped", fresh_since=stated.pop("fresh_since", None))
    usual: dict[str, Any] = {"level": rule.arm, "owner": "ada", "polls": 100}
    return PolicyCase(verdict=found, live=one, climb=going, **usual | stated)


def mark_told(climb: EscalationState, rule: Policy, number: int, now: datetime) -> EscalationState:
    """Step `number` done at `now`, its notice delivered at once."""
    done = mark_step_done(climb, rule, number, now)
    return replace(done, delivered_at=done.delivered_at or now) if rule.then[number].do in (NOTIFY, ASK) else done


def around(now: datetime, **stated: Any) -> RunConstraints:  # noqa: ANN401 - any field
    return RunConstraints(now=now, **{"interval": POLL, "room": PLENTY, **stated})


def wish(what: str, one: LiveResource, at: datetime, until: datetime | None = None, **stated: Any) -> Override:  # noqa: ANN401 - any field
    life = identify_incarnation(one.observation)
    usual: dict[str, Any] = {"id": f"{what}-{at:%d%H%M%S}", "who": "ada", "why": "", "life": life}
    return Override(what=what, at=at, until=until, **{**usual, **stated})
