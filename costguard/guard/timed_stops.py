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


def get_due_time(wish: Override) -> datetime:
    """Return the time that `wish` plans a stop for."""
    return datetime.fromisoformat(wish.subject)


def index_timed_stops(wishes: Iterable[Override], now: datetime) -> dict[ResourceKey, Override]:
    """Return the planned stop of each machine: the newest, unless it was lifted, or a lease was made since."""
    found = dict[ResourceKey, Override]()
    for wish in sorted((one for one in wishes if one.what in (STOP_AT, LEASE) and one.at <= now), key=lambda one: one.at):
        before = found.get(wish.life.key) if wish.life else None
        if wish.what == STOP_AT and wish.life and is_override_open(wish, now):
            found[wish.life.key] = wish
        elif wish.what == LEASE and wish.life and before and before.life and is_same_life(before.life, wish.life):
            del found[wish.life.key]
    return found


def select_timed_stop(seen: Observation, planned: Mapping[ResourceKey, Override]) -> Override | None:
    """Return the stop of `planned` that concerns this run of the machine; None: there is none, or it is stopped."""
    wish = planned.get(seen.key)
    mine = wish is not None and wish.life is not None and is_same_life(wish.life, identify_incarnation(seen))
    return wish if mine and not is_proof(STOP, seen) else None


def find_timed_stop(seen: Observation, wishes: Iterable[Override], now: datetime) -> Override | None:
    """Return the same, from all `wishes`."""
    return select_timed_stop(seen, index_timed_stops(wishes, now))


def list_due_policies(seen: Observation, wishes: Iterable[Override], now: datetime) -> Iterator[Policy]:
    """Yield the policy of a planned stop of `seen` that is due; none where it was cancelled, put off or ended by a lease."""
    wish = find_timed_stop(seen, wishes, now)
    if wish is not None and get_due_time(wish) <= now:
        yield _build_policy(wish, seen)


def list_timed_verdicts(
    seats: Iterable[ResourceContext], works: Mapping[ResourceKey, Activity], rules: GuardConfig, sight: GuardSnapshot
) -> Iterator[tuple[ResourceContext, Override, Verdict]]:
    """Yield each machine of which a stop is planned, with the plan and its verdict, which holds from that time on."""
    planned = index_timed_stops(sight.wishes, sight.now)
    for seat in seats if planned else ():
        wish = select_timed_stop(seat.live.observation, planned)
        if wish is None:
            continue
        why = f"{wish.who} planned it at {format_local_time(wish.at, rules.zone)}" + (wish.why and f": {wish.why}")
        verdict = Verdict(
            policy=_build_policy(wish, seat.live.observation),
            life=seat.life,
            at=sight.now,
            finding=HOLDS,
            truth=ConditionResult(value=True),
            work=works[seat.key],
            since=get_due_time(wish),
            reasons=(why,),
        )
        yield seat, wish, verdict


def advance_timed_stop(
    before: EscalationState | None, wish: Override, found: Verdict, *, routed: bool
) -> EscalationState | None:
    """Return the escalation of `wish`; another plan is announced anew. Not `routed`: whoever planned it was the one to tell."""
    climb = advance_escalation(before if before and before.meaning == wish.id else None, found, stopped=False)
    if climb is None:
        return None
    return replace(climb, since=wish.at, delivered_at=climb.delivered_at if routed or not climb.done else wish.at)


def list_ended_stops(wishes: Iterable[Override], live: Iterable[LiveResource], now: datetime) -> list[Override]:
    """Return the planned stops that are over: done, ended by a lease or a later plan, or of a run that has ended."""
    planned = index_timed_stops(wishes, now)
    mine = ((one, wish) for one in live if (wish := planned.get(one.observation.key)))
    going = {wish.id for one, wish in mine if one.seen_at <= wish.at or select_timed_stop(one.observation, planned)}
    return [wish for wish in wishes if wish.what == STOP_AT and is_override_open(wish, now) and wish.id not in going]


def _build_policy(wish: Override, seen: Observation) -> Policy:
    allowed = set(seen.handling.stop_loses) <= set(wish.value.split("\n"))
    return replace(TIMED_STOP, digest=wish.id, allow_irreversible=allowed)
