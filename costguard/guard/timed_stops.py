"""Stops that a person planned for a time: `costguard stop MACHINE --at 22:00`.

Each is an override of one incarnation, judged as a policy of that machine alone: its owner is notified in the next run, and the
stop follows at the planned time, or a whole grace after the delivery if that is later. Whoever planned it armed it and agreed
to the losses that were listed; a stop that would lose more becomes a question. Protection, freezes and limits hold it (0044).

Example: planned at 16:00 for 22:00. A lease made at 18:00 ends the plan for good. A run that begins at 19:00 is not stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from costguard.guard.action_intents import is_proof
from costguard.guard.cap_forecast import DecidedCondition
from costguard.guard.context import GuardConfig, GuardSnapshot, ResourceContext
from costguard.guard.escalation import advance_escalation
from costguard.guard.overrides import LEASE, STOP_AT, Override, is_override_open
from costguard.guard.policy import (
    GRACE_MIN,
    HOLDS,
    NOTIFY,
    STOP,
    TIMED_RULE,
    ConditionResult,
    EscalationState,
    Policy,
    PolicyStep,
    Verdict,
)
from costguard.guard.signals import Activity
from costguard.metering.observation import Observation, identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.values.resource import ResourceKey, is_same_life
from costguard.values.text_format import format_local_time

STEPS = (PolicyStep(do=NOTIFY), PolicyStep(do=STOP, after=GRACE_MIN))
TIMED_STOP = Policy(name="stop-at", when=DecidedCondition("a person planned it"), then=STEPS, arm=STOP, rule=TIMED_RULE)
"""The policy of every planned stop; that of one machine has its `digest` and says whether it may lose data."""


def get_due_time(plan: Override) -> datetime:
    """Return the time of the stop that `plan` orders."""
    return datetime.fromisoformat(plan.subject)


def index_timed_stops(overrides: Iterable[Override], now: datetime) -> dict[ResourceKey, Override]:
    """Return the planned stop of each machine: the newest, unless it was lifted, or a lease was made since."""
    stops = dict[ResourceKey, Override]()
    for one in sorted((o for o in overrides if o.what in (STOP_AT, LEASE) and o.at <= now), key=lambda o: o.at):
        old_stop = stops.get(one.life.key) if one.life else None
        if one.what == STOP_AT and one.life and is_override_open(one, now):
            stops[one.life.key] = one
        elif one.what == LEASE and one.life and old_stop and old_stop.life and is_same_life(old_stop.life, one.life):
            del stops[one.life.key]
    return stops


def select_timed_stop(observation: Observation, planned: Mapping[ResourceKey, Override]) -> Override | None:
    """Return the stop of `planned` that concerns this run of the machine; None: there is none, or it is stopped."""
    plan = planned.get(observation.key)
    is_same_run = plan is not None and plan.life is not None and is_same_life(plan.life, identify_incarnation(observation))
    return plan if is_same_run and not is_proof(STOP, observation) else None


def find_timed_stop(observation: Observation, overrides: Iterable[Override], now: datetime) -> Override | None:
    """Return the same, from all `overrides`."""
    return select_timed_stop(observation, index_timed_stops(overrides, now))


def list_due_policies(observation: Observation, overrides: Iterable[Override], now: datetime) -> Iterator[Policy]:
    """Yield the policy of a due planned stop of `observation`; none where it was cancelled, put off or ended by a lease."""
    plan = find_timed_stop(observation, overrides, now)
    if plan is not None and get_due_time(plan) <= now:
        yield _build_policy(plan, observation)


def list_timed_verdicts(
    contexts: Iterable[ResourceContext], works: Mapping[ResourceKey, Activity], rules: GuardConfig, snapshot: GuardSnapshot
) -> Iterator[tuple[ResourceContext, Override, Verdict]]:
    """Yield each machine of which a stop is planned, with the plan and its verdict, which holds from that time on."""
    planned = index_timed_stops(snapshot.wishes, snapshot.now)
    for context in contexts if planned else ():
        plan = select_timed_stop(context.live.observation, planned)
        if plan is None:
            continue
        why = f"{plan.who} planned it at {format_local_time(plan.at, rules.zone)}" + (plan.why and f": {plan.why}")
        verdict = Verdict(
            policy=_build_policy(plan, context.live.observation),
            life=context.life,
            at=snapshot.now,
            finding=HOLDS,
            truth=ConditionResult(value=True),
            work=works[context.key],
            since=get_due_time(plan),
            reasons=(why,),
        )
        yield context, plan, verdict


def advance_timed_stop(
    old_climb: EscalationState | None, plan: Override, verdict: Verdict, *, routed: bool
) -> EscalationState | None:
    """Return the escalation of `plan`; another plan is announced anew. Not `routed`: only its planner had to be told."""
    climb = advance_escalation(old_climb if old_climb and old_climb.meaning == plan.id else None, verdict, stopped=False)
    if climb is None:
        return None
    return replace(climb, since=plan.at, delivered_at=climb.delivered_at if routed or not climb.done else plan.at)


def list_ended_stops(overrides: Iterable[Override], live: Iterable[LiveResource], now: datetime) -> list[Override]:
    """Return the planned stops that are over: done, ended by a lease or a later plan, or of a run that has ended."""
    planned = index_timed_stops(overrides, now)
    pairs = ((one, plan) for one in live if (plan := planned.get(one.observation.key)))
    going = {plan.id for one, plan in pairs if one.seen_at <= plan.at or select_timed_stop(one.observation, planned)}
    return [plan for plan in overrides if plan.what == STOP_AT and is_override_open(plan, now) and plan.id not in going]


def _build_policy(plan: Override, observation: Observation) -> Policy:
    allowed = set(observation.handling.stop_loses) <= set(plan.value.split("\n"))
    return replace(TIMED_STOP, digest=plan.id, allow_irreversible=allowed)
