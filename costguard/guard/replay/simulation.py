"""What policies would have come to over recorded history: who would have been stopped, what that saves, and where it was wrong.

Example: an 8xA100 at $32.77 an hour is wanted at 19:05 on Friday, and really idled on until Monday 09:00: 61 h 55 min of
computing, $2,029.01, less what its disk of 500 GB costs at rest, $3.39. A stop of a machine that worked again within the
hour is a suspected false stop: what it saved until then counts all the same, and it is counted as false beside that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from costguard.guard.replay.letting import LimitedAct
from costguard.guard.work import Activity
from costguard.metering.meter import COMPUTE
from costguard.metering.span import Span, compute_amounts
from costguard.values.incarnation import Incarnation
from costguard.values.instant import to_micros
from costguard.values.money import Money, MoneyInterval
from costguard.values.period import Period
from costguard.values.resource import ResourceKey

SUSPECT_WITHIN = timedelta(hours=1)
"""A machine that works again within it was probably not idle for good."""
YES, NO, NOT_KNOWN = "yes", "no", "not_known"
FALSE_STOP_ANSWERS = {
    YES: "it worked again within the hour",
    NO: "it was measured for an hour, and did not work",
    NOT_KNOWN: "nothing that was measured in the hour after can say",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedStop:
    """An act that would have been done at `at`. `wanted_at`: when its policy wanted it; `held_by`: the rails that held it.

    `until`, `because`: how long it would have rested. `false_stop`: one of FALSE_STOP. `avoided`: what its computing cost from
    `at` to `until`; `at_rest`: what it would have cost at rest in that time; an interval a currency.
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
        """Of the resource."""
        return self.life.key

    @property
    def saved(self) -> tuple[MoneyInterval, ...]:
        """Net of what goes on: end by end against the other end of what goes on."""
        return subtract_costs(self.avoided, self.at_rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedHold:
    """An act that its policy wanted from `since` to `until`, and that was never done. `rails`: only rails held it."""

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
    """For how long machines ran that a policy could not judge, summed over machines, and for which `reasons`."""

    total: timedelta = timedelta()
    reasons: tuple[tuple[str, timedelta], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySimulation:
    """One policy over the period. `level`: how far it is armed today."""

    name: str
    level: str
    stops: tuple[SimulatedStop, ...] = ()
    held: tuple[SimulatedHold, ...] = ()
    notices: int = 0
    questions: int = 0
    blind: BlindTime = field(default_factory=BlindTime)

    @property
    def machines(self) -> int:
        """How many resources it would have acted on."""
        return len({stop.key for stop in self.stops})

    @property
    def saved(self) -> tuple[MoneyInterval, ...]:
        """By currency."""
        return sum_cost_intervals(stop.saved for stop in self.stops)

    def count_false_stops(self, answer: str = YES) -> int:
        """How many of its stops have this answer."""
        return sum(stop.false_stop == answer for stop in self.stops)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """All of it. `resources`: how many were replayed. `hourly_until`: before it samples are kept by the hour, None: nowhere.

    `not_replayed`: what history does not hold, in sentences.
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
        """Of all policies, in order of time."""
        return tuple(sorted((s for one in self.policies for s in one.stops), key=lambda s: (s.at, s.key, s.policy)))

    @property
    def saved(self) -> tuple[MoneyInterval, ...]:
        """By currency."""
        return sum_cost_intervals(one.saved for one in self.policies)


def build_simulated_stop(let: LimitedAct, spans: Sequence[Span], rest: Sequence[Span]) -> SimulatedStop:
    """The stop that was let go. `spans`: what the resource billed; `rest`: the lines that it bills at rest, open."""
    wanted = let.wanted
    at = let.at or wanted.at
    until, verdict, seen = max(at, wanted.until), wanted.proposal.verdict, wanted.case.live.observation
    rested = min(until, wanted.ended_at or until)
    return SimulatedStop(
        life=verdict.life,
        name=seen.name,
        owner=wanted.case.owner,
        gpu=seen.gpu,
        policy=verdict.policy.name,
        act=wanted.proposal.step.do,
        work=verdict.work,
        since=verdict.since,
        told_at=wanted.told_at,
        wanted_at=wanted.at,
        at=at,
        until=until,
        because=wanted.because,
        worked_at=wanted.worked_at,
        false_stop=_classify_false_stop(let, at),
        held_by=let.held,
        avoided=sum_span_costs((span for span in spans if span.meter.charge == COMPUTE), at, until),
        at_rest=sum_span_costs(rest, at, max(at, rested)),
    )


def sum_span_costs(spans: Iterable[Span], start: datetime, end: datetime) -> tuple[MoneyInterval, ...]:
    """What `spans` cost from `start` to `end`, open ones going on until then, by currency."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for span in spans:
        for number, nano in enumerate(compute_amounts(span, to_micros(start), to_micros(end))):
            sums[span.meter.price.currency][number] += nano
    return tuple(_build_interval(currency, *sums[currency]) for currency in sorted(sums) if sums[currency][2])


def subtract_costs(avoided: Iterable[MoneyInterval], rest: Iterable[MoneyInterval]) -> tuple[MoneyInterval, ...]:
    """`avoided` less `rest`: at least the least of the one less the most of the other."""
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
    """All parts together, by currency."""
    return tuple(_build_interval(currency, *nanos) for currency, nanos in sorted(_sum_nanos(parts).items()))


def build_blind_time(parts: Mapping[str, timedelta]) -> BlindTime:
    """`parts`: how long, by reason; the longest first."""
    reasons = sorted(parts.items(), key=lambda one: (-one[1], one[0]))
    return BlindTime(total=sum(parts.values(), timedelta()), reasons=tuple(reasons))


def _classify_false_stop(let: LimitedAct, at: datetime) -> str:
    wanted = let.wanted
    if wanted.worked_at is not None and wanted.worked_at - at < SUSPECT_WITHIN:
        return YES
    return NO if wanted.known and wanted.until - at >= SUSPECT_WITHIN else NOT_KNOWN


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
