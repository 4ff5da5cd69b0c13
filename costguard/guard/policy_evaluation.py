"""What a policy finds of one life of a resource: whether it concerns it, whether its condition holds, and for long enough.

Example: `state == "idle"` for 45 min of a machine that has idled since 18:05 holds from 18:50 on, whoever looks when. A
condition that asks nothing of the work holds since a run first saw it hold, which its pending climb remembers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache

from costguard.budgets.budget import ResourceFilter, matches_filter
from costguard.guard.condition import ConditionResult
from costguard.guard.facts import ACTIVITY_FACTS, drop_activity_facts
from costguard.guard.policy import DESTRUCTIVE, GRACE_MIN, SCHEDULE_RULE, Policy, PolicyTarget
from costguard.guard.verdict import CANNOT_SAY, DOES_NOT, HOLDS, NOT_YET, EscalationState, Verdict
from costguard.guard.work import UNKNOWN, Activity
from costguard.metering.observation import Observation
from costguard.values.incarnation import Incarnation, is_same_life
from costguard.values.resource import Attribution


def matches_target(target: PolicyTarget, seen: Observation, owner: str) -> bool:
    """Whether a policy with this `target` concerns a resource of `owner`: all that is stated must fit."""
    return _is_targeted(target, seen, replace(seen.attribution, owner=owner))


class PolicySelector:
    """Those of `policies` that concern a resource, asked once of all that are alike in what targets look at."""

    def __init__(self, policies: Iterable[Policy]) -> None:
        self._policies = tuple(policies)
        matches_of = [policy.target.match.labels or () for policy in self._policies]
        self._labels = frozenset(key.casefold() for labels in matches_of for key, _ in labels)
        self._by_kind: dict[tuple[object, ...], tuple[Policy, ...]] = {}

    def select(self, seen: Observation, owner: str) -> tuple[Policy, ...]:
        """Those that concern `seen` of `owner`, as `concerns` says."""
        labels = tuple([pair for pair in seen.labels if pair[0].casefold() in self._labels]) if self._labels else ()
        kind = (*seen.key[:3], seen.kind, seen.gpu, seen.gpu_count, seen.tier, owner, labels)
        alike = self._by_kind.get(kind)
        if alike is None:
            attribution = replace(seen.attribution, owner=owner)
            alike = tuple(policy for policy in self._policies if _matches_kind(policy.target, seen, attribution))
            self._by_kind[kind] = alike
        return tuple([policy for policy in alike if _matches_identity(policy.target, seen)])


def _is_targeted(target: PolicyTarget, seen: Observation, attribution: Attribution) -> bool:
    return _matches_identity(target, seen) and _matches_kind(target, seen, attribution)


def _matches_identity(target: PolicyTarget, seen: Observation) -> bool:
    if target.ids is not None and seen.key.id not in target.ids:
        return False
    return target.names is None or any(matches_pattern(pattern, seen.name) for pattern in target.names)


def _matches_kind(target: PolicyTarget, seen: Observation, attribution: Attribution) -> bool:
    if target.gpu is not None and target.gpu != bool(seen.gpu or seen.gpu_count):
        return False
    if target.match.labels is None:
        return matches_filter(target.match, attribution)
    return _matches_labels(target.match, seen.labels) and matches_filter(replace(target.match, labels=None), attribution)


def matches_pattern(pattern: str, name: str) -> bool:
    """Whether the whole of `name` fits `pattern`: `*` stands for any text, `?` for one letter, the rest for itself."""
    return _compile_pattern(pattern).fullmatch(name) is not None


@lru_cache(maxsize=1000)
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    parts = ("[\\s\\S]*" if c == "*" else "[\\s\\S]" if c == "?" else re.escape(c) for c in re.sub(r"\*+", "*", pattern))
    return re.compile("".join(parts))


def evaluate_policy(
    policy: Policy,
    life: Incarnation,
    facts: Mapping[str, object],
    work: Activity,
    now: datetime,
    *,
    climb: EscalationState | None = None,
    not_before: datetime | None = None,
    off_since: datetime | None = None,
) -> Verdict:
    """What `policy` finds at `now`. `climb`: the recorded one of this policy and resource, of whichever life.

    `not_before`: the end of the last lease, gap or start: nothing holds since before it. `off_since`: of a policy with a
    schedule, since when it should be off, or from when on, soon: people are told before that, and nothing is done before it.
    """
    if policy.rule == SCHEDULE_RULE and off_since is not None and off_since <= now + compute_notice_length(policy):
        facts = {**facts, "scheduled_on": False}
    truth = _evaluate_condition(policy, facts, work)
    finding, since = DOES_NOT if truth.value is False else CANNOT_SAY, None
    if truth.value:
        scheduled = policy.rule == SCHEDULE_RULE and off_since is not None
        since = off_since if scheduled else _find_hold_start(policy, life, work, now, climb)
        if since is not None and not_before is not None and since < not_before <= now:
            since = not_before
        finding = HOLDS if since is not None and (now - since >= policy.hold or since > now) else NOT_YET
    return Verdict(
        policy=policy,
        life=life,
        at=now,
        finding=finding,
        truth=truth,
        work=work,
        since=since,
        reasons=_list_reasons(policy, work, truth),
    )


def compute_notice_length(policy: Policy) -> timedelta:
    """How long before its schedule turns off people are told: the grace of its first act, so that the act is in time."""
    acts = [max(step.after, GRACE_MIN) for step in policy.then if step.do in DESTRUCTIVE]
    return min(acts, default=timedelta())


def _evaluate_condition(policy: Policy, facts: Mapping[str, object], work: Activity) -> ConditionResult:
    """What its condition says. Where work is unknown, what is false for that reason alone is unknown as well."""
    truth = policy.when.evaluate(facts)
    asks = not ACTIVITY_FACTS.isdisjoint(policy.when.names)
    lacking = tuple(sorted(set(policy.needs) - set(work.families))) if policy.needs else ()
    if truth.value and asks and lacking and work.state != UNKNOWN:
        return ConditionResult(value=None, missing=("state",), why=f"not measured well enough: {', '.join(lacking)}")
    if (
        truth.value is False
        and asks
        and work.state == UNKNOWN
        and policy.when.evaluate(drop_activity_facts(facts)).value is None
    ):
        return ConditionResult(value=None, missing=("state",), why=work.reasons[0] if work.reasons else "")
    return truth


def _find_hold_start(
    policy: Policy, life: Incarnation, work: Activity, now: datetime, climb: EscalationState | None
) -> datetime:
    """Since when the condition has held: its work's time where it asks of work, else what a climb of this life remembers."""
    if work.since is not None and policy.when.names & ACTIVITY_FACTS:
        return min(work.since, now)
    if climb is not None and climb.policy == policy.name and is_same_life(climb.life, life):
        return min(climb.since, now)
    return now


def _list_reasons(policy: Policy, work: Activity, truth: ConditionResult) -> tuple[str, ...]:
    missing = (f"not known: {', '.join(truth.missing)}",) if truth.missing else ()
    said = (truth.why,) if truth.why else ()
    of_work = () if ACTIVITY_FACTS.isdisjoint(policy.when.names) else work.reasons
    if not missing and not said:
        return of_work
    return tuple(dict.fromkeys((*missing, *said, *of_work)))


def _matches_labels(match: ResourceFilter, labels: Sequence[tuple[str, str]]) -> bool:
    """Whether each stated key has one of its values. Keys differ in no case, as budgets compare them."""
    if match.labels is None:
        return True
    known = {key.casefold(): value for key, value in labels}
    return bool(match.labels) and all(known.get(key.casefold()) in values for key, values in match.labels)
