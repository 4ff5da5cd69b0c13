"""What the rails would have let go of all that the policies want, and when.

Example: two machines of ten are wanted at 19:05. One act a run: the first goes at 19:05, the other waits for `rate` and goes at
19:06. One that worked again at 19:20 and found no room until then would never have been stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from costguard.guard.action_intents import DONE, Intent
from costguard.guard.action_plan import PolicyCase, RunConstraints, build_action_plan, is_irreversible
from costguard.guard.limits import Breaker, compute_headroom, count_fleet, find_quarantined_scopes, update_breaker
from costguard.guard.replay.backdrop import ReplaySetup
from costguard.guard.replay.replayed import ActivityTurn, WantedAct
from costguard.metering.spending import LiveResource
from costguard.values.resource import ResourceKey

DAY = timedelta(days=1)
GAP_HOLD = ("gap", "the first run after a pause only observes")

FleetAt = Callable[[datetime], Sequence[LiveResource]]
"""Everything that was there at a time, as the ledger knew it then."""
ListingCounter = Callable[[ResourceKey, datetime], int]
"""Through how many complete listings a resource was known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedAct:
    """What became of an act that was wanted. `at`: when the rails let it go, None: never. `held`: the rails that held it."""

    wanted: WantedAct
    at: datetime | None
    held: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class _WaitingAct:
    wanted: WantedAct
    held: dict[str, str] = field(default_factory=dict)

    def settle(self, at: datetime | None) -> LimitedAct:
        return LimitedAct(wanted=self.wanted, at=at, held=tuple(self.held.items()))


def apply_limits(
    wanted: Sequence[WantedAct],
    turned: Mapping[ResourceKey, Sequence[ActivityTurn]],
    fleet: FleetAt,
    polls: ListingCounter,
    back: ReplaySetup,
) -> list[LimitedAct]:
    """Each of `wanted` with when the rails would have let it go, in order of time."""
    ahead = sorted(wanted, key=_order_acts)
    turns = sorted({back.align_to_run(at) for of in turned.values() for one in of for at in (one.seen, one.until)})
    waiting, found, sent = list[_WaitingAct](), list[LimitedAct](), list[Intent]()
    mass: Breaker | None = None
    at = _find_next_run(None, ahead, turns, soon=False, back=back)
    while at is not None:
        while ahead and ahead[0].at <= at:
            waiting.append(_WaitingAct(ahead.pop(0)))
        late = [one for one in waiting if one.wanted.at < at and one.wanted.until <= at]
        found += [one.settle(None) for one in late]
        waiting = [one for one in waiting if one not in late]
        live = fleet(at)
        now_turned = {key: one.since for key, of in turned.items() for one in of if one.seen <= at < one.until}
        mass = update_breaker(mass, now_turned, live, back.rules.rails, at)
        sent = [one for one in sent if one.sent_at is not None and one.sent_at > at - DAY]
        gone = _release_acts(waiting, live, polls, _build_constraints(at, live, sent, mass, back))
        found += [one.settle(at) for one in gone]
        sent += [_build_sent_intent(one.wanted, at) for one in gone]
        waiting = [one for one in waiting if one not in gone]
        at = _find_next_run(at, ahead, turns, soon=bool(waiting or mass), back=back)
    found += [one.settle(None) for one in waiting]
    return sorted(found, key=lambda one: _order_acts(one.wanted))


def _release_acts(
    waiting: Sequence[_WaitingAct], live: Sequence[LiveResource], polls: ListingCounter, around: RunConstraints
) -> list[_WaitingAct]:
    """Those that this run does; what holds the others is written down with them."""
    seen_at = {one.observation.key: one.seen_at for one in live}
    by_verdict, cases = dict[int, _WaitingAct](), list[PolicyCase]()
    for one in waiting:
        case = one.wanted.case
        key = case.live.observation.key
        lately = replace(case.live, seen_at=seen_at.get(key, case.live.seen_at))
        cases.append(replace(case, live=lately, polls=polls(key, around.now)))
        by_verdict[id(case.verdict)] = one
    gone = []
    for proposal in build_action_plan(cases, around) if cases else ():
        one = by_verdict[id(proposal.verdict)]
        if proposal.number != one.wanted.proposal.number:
            continue
        if proposal.is_ready(around.now):
            gone.append(one)
        else:
            one.held |= dict(proposal.held_by)
    return gone


def _build_constraints(
    at: datetime, live: Sequence[LiveResource], sent: Sequence[Intent], mass: Breaker | None, back: ReplaySetup
) -> RunConstraints:
    rails = back.rules.rails
    return RunConstraints(
        now=at,
        interval=back.rules.interval,
        room=compute_headroom(sent, count_fleet(live, sent), rails, at),
        rails=rails,
        held=(GAP_HOLD,) if any(back.align_to_run(gap) == at for gap in back.gaps) else (),
        breaker=f"{len(mass.keys)} turned idle or unknown at once ({mass.shared or 'nothing in common'})" if mass else "",
        quarantine=find_quarantined_scopes(live),
    )


def _build_sent_intent(wanted: WantedAct, at: datetime) -> Intent:
    verdict, act = wanted.proposal.verdict, wanted.proposal.step.do
    return Intent(
        id=f"{verdict.policy.name}/{verdict.life.key.id}/{at.isoformat()}",
        life=verdict.life,
        act=act,
        policy=verdict.policy.name,
        rule=verdict.policy.rule,
        why="",
        evidence="",
        state=DONE,
        created_at=at,
        moved_at=at,
        irreversible=is_irreversible(wanted.proposal, wanted.case),
        sends=1,
        sent_at=at,
    )


def _find_next_run(
    at: datetime | None, ahead: Sequence[WantedAct], turns: Sequence[datetime], *, soon: bool, back: ReplaySetup
) -> datetime | None:
    """The next run at which anything may go, or the breaker may open or close."""
    found = [ahead[0].at] if ahead else []
    if ahead or soon:
        found += [next((turn for turn in turns if at is None or turn > at), datetime.max.replace(tzinfo=back.origin.tzinfo))]
    if soon and at is not None:
        found.append(at + back.rules.interval)
    return min(found, default=None) if ahead or soon else None


def _order_acts(one: WantedAct) -> tuple[datetime, ResourceKey]:
    return one.at, one.case.live.observation.key
