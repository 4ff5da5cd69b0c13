"""Results of a replay: which machines would have been stopped, the saving, and the false stops; limits applied.

Example: an 8xA100 at $32.77 an hour is stopped at 19:05 on Friday, and really idled until Monday 09:00: 61 h 55 min of
computing, $2,029.01, less $3.39 for its disk of 500 GB. A stop of a machine that worked again within the hour is a suspected
false stop: it is counted as one, and its saving until then still counts.

Limits: two machines of ten are due at 19:05. With one act a run the first stops at 19:05; the other is held by `rate` and stops
at 19:06.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from costguard.guard.action_intents import DONE, Intent
from costguard.guard.action_plan import PolicyCase, RunConstraints, build_action_plan, is_irreversible
from costguard.guard.limits import Breaker, compute_headroom, count_fleet, find_quarantined_scopes, update_breaker
from costguard.guard.replay.engine import ActivityTurn, WantedAct
from costguard.guard.replay.history import ReplaySetup
from costguard.guard.signals import Activity
from costguard.metering.meter import COMPUTE
from costguard.metering.span import Span, compute_amounts
from costguard.metering.spending import LiveResource
from costguard.values.calendar import Period
from costguard.values.instant import to_micros
from costguard.values.money import Money, MoneyInterval
from costguard.values.resource import Incarnation, ResourceKey

SUSPECT_WITHIN = timedelta(hours=1)
"""A machine that works again within it was probably not idle for good."""
YES, NO, NOT_KNOWN = "yes", "no", "not_known"
FALSE_STOP_ANSWERS = {
    YES: "it was active again within the hour",
    NO: "it was measured for an hour and was not active",
    NOT_KNOWN: "the hour after has too little data",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedStop:
    """An act that would have been done at `at`; its policy wanted it at `wanted_at`. `held_by`: limits that held it.

    `until`, `because`: until when it would have rested, and why. `false_stop`: one of FALSE_STOP_ANSWERS. `avoided`: its
    compute cost from `at` to `until`; `at_rest`: what it would have cost while stopped in that time; one interval per currency.
    """

    life: Incarnation
    name: str
    owner: str
    gpu: str
    policy: str
    act: str
    work: Activity
    since: datetime | None
    told_at: datetime | None
    wanted_at: datetime
    at: datetime
    until: datetime
    because: str
    worked_at: datetime | None
    false_stop: str
    held_by: tuple[tuple[str, str], ...] = ()
    avoided: tuple[MoneyInterval, ...] = ()
    at_rest: tuple[MoneyInterval, ...] = ()

    @property
    def key(self) -> ResourceKey:
        """Return the key of the resource."""
        return self.life.key

    @property
    def saved(self) -> tuple[MoneyInterval, ...]:
        """Return the avoided cost less the cost at rest; low is computed against high, and high against low."""
        return subtract_costs(self.avoided, self.at_rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedHold:
    """An act that its policy wanted from `since` to `until` and that was never done. `rails`: only limits held it."""

    life: Incarnation
    name: str
    owner: str
    policy: str
    act: str
    since: datetime
    until: datetime
    reasons: tuple[tuple[str, str], ...]
    rails: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BlindTime:
    """For how long a policy could not judge running machines, summed over machines, and for which `reasons`."""

    total: timedelta = timedelta()
    reasons: tuple[tuple[str, timedelta], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySimulation:
    """The results of one policy over the period. `level`: how far it is armed today."""

    name: str
    level: str
    stops: tuple[SimulatedStop, ...] = ()
    held: tuple[SimulatedHold, ...] = ()
    notices: int = 0
    questions: int = 0
    blind: BlindTime = field(default_factory=BlindTime)

    @property
    def machines(self) -> int:
        """Return on how many resources it would have acted."""
        return len({stop.key for stop in self.stops})

    @property
    def saved(self) -> tuple[MoneyInterval, ...]:
        """Return the saving of its stops, by currency."""
        return sum_cost_intervals(stop.saved for stop in self.stops)

    def count_false_stops(self, answer: str = YES) -> int:
        """Count its stops with this answer."""
        return sum(stop.false_stop == answer for stop in self.stops)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """The whole simulation. `resources`: how many were replayed.

    `hourly_until`: before it samples are kept by the hour; None: nowhere. `not_replayed`: what the history lacks, in sentences.
    """

    period: Period
    at: datetime
    interval: timedelta
    resources: int
    policies: tuple[PolicySimulation, ...]
    hourly_until: datetime | None = None
    not_replayed: tuple[str, ...] = ()

    @property
    def stops(self) -> tuple[SimulatedStop, ...]:
        """Return the stops of all policies, ordered by time."""
        return tuple(sorted((s for one in self.policies for s in one.stops), key=lambda s: (s.at, s.key, s.policy)))

    @property
    def saved(self) -> tuple[MoneyInterval, ...]:
        """Return the saving of all policies, by currency."""
        return sum_cost_intervals(one.saved for one in self.policies)


def build_simulated_stop(let: LimitedAct, spans: Sequence[Span], rest: Sequence[Span]) -> SimulatedStop:
    """Build the stop that the limits allowed. `spans`: what the resource billed; `rest`: its open spans while stopped."""
    wanted_act = let.wanted
    at = let.at or wanted_act.at
    until, verdict, observation = max(at, wanted_act.until), wanted_act.proposal.verdict, wanted_act.case.live.observation
    rested = min(until, wanted_act.ended_at or until)
    return SimulatedStop(
        life=verdict.life,
        name=observation.name,
        owner=wanted_act.case.owner,
        gpu=observation.gpu,
        policy=verdict.policy.name,
        act=wanted_act.proposal.step.do,
        work=verdict.work,
        since=verdict.since,
        told_at=wanted_act.told_at,
        wanted_at=wanted_act.at,
        at=at,
        until=until,
        because=wanted_act.because,
        worked_at=wanted_act.worked_at,
        false_stop=_classify_false_stop(let, at),
        held_by=let.held,
        avoided=sum_span_costs((span for span in spans if span.meter.charge == COMPUTE), at, until),
        at_rest=sum_span_costs(rest, at, max(at, rested)),
    )


def sum_span_costs(spans: Iterable[Span], start: datetime, end: datetime) -> tuple[MoneyInterval, ...]:
    """Return the cost of `spans` from `start` to `end`, by currency; open spans go on to `end`."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for span in spans:
        for number, nano in enumerate(compute_amounts(span, to_micros(start), to_micros(end))):
            sums[span.meter.price.currency][number] += nano
    return tuple(_build_interval(currency, *sums[currency]) for currency in sorted(sums) if sums[currency][2])


def subtract_costs(avoided: Iterable[MoneyInterval], rest: Iterable[MoneyInterval]) -> tuple[MoneyInterval, ...]:
    """Return `avoided` less `rest`, by currency: the low end is the low end of one less the high end of the other."""
    more, less = _sum_nanos([avoided]), _sum_nanos([rest])
    none = (0, 0, 0)
    return tuple(
        _build_interval(
            currency,
            more.get(currency, none)[0] - less.get(currency, none)[2],
            more.get(currency, none)[1] - less.get(currency, none)[1],
            more.get(currency, none)[2] - less.get(currency, none)[0],
        )
        for currency in sorted({*more, *less})
    )


def sum_cost_intervals(parts: Iterable[Iterable[MoneyInterval]]) -> tuple[MoneyInterval, ...]:
    """Return the sum of all parts, by currency."""
    return tuple(_build_interval(currency, *nanos) for currency, nanos in sorted(_sum_nanos(parts).items()))


def build_blind_time(parts: Mapping[str, timedelta]) -> BlindTime:
    """Build the total from `parts`, the time by reason; the longest reason first."""
    reasons = sorted(parts.items(), key=lambda one: (-one[1], one[0]))
    return BlindTime(total=sum(parts.values(), timedelta()), reasons=tuple(reasons))


def _classify_false_stop(let: LimitedAct, at: datetime) -> str:
    wanted_act = let.wanted
    if wanted_act.worked_at is not None and wanted_act.worked_at - at < SUSPECT_WITHIN:
        return YES
    return NO if wanted_act.known and wanted_act.until - at >= SUSPECT_WITHIN else NOT_KNOWN


def _sum_nanos(parts: Iterable[Iterable[MoneyInterval]]) -> dict[str, tuple[int, int, int]]:
    sums: dict[str, tuple[int, int, int]] = {}
    for part in parts:
        for one in part:
            low, expected, high = sums.get(one.low.currency, (0, 0, 0))
            sums[one.low.currency] = (low + one.low.nano, expected + one.expected.nano, high + one.high.nano)
    return sums


def _build_interval(currency: str, low: int, expected: int, high: int) -> MoneyInterval:
    return MoneyInterval(
        low=Money(nano=low, currency=currency),
        expected=Money(nano=expected, currency=currency),
        high=Money(nano=high, currency=currency),
    )


DAY = timedelta(days=1)
GAP_HOLD = ("gap", "the first run after a pause only observes")

FleetAt = Callable[[datetime], Sequence[LiveResource]]
"""Everything that was there at a time, as the ledger knew it then."""
ListingCounter = Callable[[ResourceKey, datetime], int]
"""Through how many complete listings a resource was known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedAct:
    """A wanted act after the limits. `at`: when they let it run, None: never. `held`: the limits that held it."""

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
    wanted_acts: Sequence[WantedAct],
    turned: Mapping[ResourceKey, Sequence[ActivityTurn]],
    fleet: FleetAt,
    polls: ListingCounter,
    back: ReplaySetup,
) -> list[LimitedAct]:
    """Return each of `wanted_acts` with the time at which the limits would have let it run, ordered by time."""
    ahead = sorted(wanted_acts, key=_order_acts)
    turns = sorted({back.align_to_run(at) for of in turned.values() for one in of for at in (one.seen, one.until)})
    waiting, limited_acts, sent = list[_WaitingAct](), list[LimitedAct](), list[Intent]()
    mass: Breaker | None = None
    at = _find_next_run(None, ahead, turns, soon=False, back=back)
    while at is not None:
        while ahead and ahead[0].at <= at:
            waiting.append(_WaitingAct(ahead.pop(0)))
        late = [one for one in waiting if one.wanted.at < at and one.wanted.until <= at]
        limited_acts += [one.settle(None) for one in late]
        waiting = [one for one in waiting if one not in late]
        live = fleet(at)
        now_turned = {key: one.since for key, of in turned.items() for one in of if one.seen <= at < one.until}
        mass = update_breaker(mass, now_turned, live, back.rules.rails, at)
        sent = [one for one in sent if one.sent_at is not None and one.sent_at > at - DAY]
        ready_acts = _release_acts(waiting, live, polls, _build_constraints(at, live, sent, mass, back))
        limited_acts += [one.settle(at) for one in ready_acts]
        sent += [_build_sent_intent(one.wanted, at) for one in ready_acts]
        waiting = [one for one in waiting if one not in ready_acts]
        at = _find_next_run(at, ahead, turns, soon=bool(waiting or (mass is not None and mass.closed_at is None)), back=back)
    limited_acts += [one.settle(None) for one in waiting]
    return sorted(limited_acts, key=lambda one: _order_acts(one.wanted))


def _release_acts(
    waiting: Sequence[_WaitingAct], live: Sequence[LiveResource], polls: ListingCounter, around: RunConstraints
) -> list[_WaitingAct]:
    """Return the acts that this run does, and record on the others what holds them."""
    seen_at = {one.observation.key: one.seen_at for one in live}
    by_verdict, cases = dict[int, _WaitingAct](), list[PolicyCase]()
    for one in waiting:
        case = one.wanted.case
        key = case.live.observation.key
        current_live = replace(case.live, seen_at=seen_at.get(key, case.live.seen_at))
        cases.append(replace(case, live=current_live, polls=polls(key, around.now)))
        by_verdict[id(case.verdict)] = one
    ready_acts = []
    for proposal in build_action_plan(cases, around) if cases else ():
        one = by_verdict[id(proposal.verdict)]
        if proposal.number != one.wanted.proposal.number:
            continue
        if proposal.is_ready(around.now):
            ready_acts.append(one)
        else:
            one.held |= dict(proposal.held_by)
    return ready_acts


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
        breaker=mass,
        quarantine=find_quarantined_scopes(live),
    )


def _build_sent_intent(wanted_act: WantedAct, at: datetime) -> Intent:
    verdict, act = wanted_act.proposal.verdict, wanted_act.proposal.step.do
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
        irreversible=is_irreversible(wanted_act.proposal, wanted_act.case),
        sends=1,
        sent_at=at,
    )


def _find_next_run(
    at: datetime | None, ahead: Sequence[WantedAct], turns: Sequence[datetime], *, soon: bool, back: ReplaySetup
) -> datetime | None:
    """Return the next run in which an act may run, or the breaker may open or close; None: there is none."""
    times = [ahead[0].at] if ahead else []
    if ahead or soon:
        times += [next((turn for turn in turns if at is None or turn > at), datetime.max.replace(tzinfo=back.origin.tzinfo))]
    if soon and at is not None:
        times.append(at + back.rules.interval)
    return min(times, default=None) if ahead or soon else None


def _order_acts(one: WantedAct) -> tuple[datetime, ResourceKey]:
    return one.at, one.case.live.observation.key
