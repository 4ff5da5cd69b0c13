"""Further sections of a statement: top resources, the period before, stopped disks, quoted runs, price sources.

Quotes by job compare the quote before the first attempt with the cost of all attempts. Example: attempt 1 was quoted at $14.94
and ran for $6.20 until its machine was reclaimed; attempt 2 held $5.98 for the rest and ran for $4.10. The job was quoted at
$14.94 and cost $10.30.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from heapq import nsmallest
from typing import NamedTuple

from costguard.budgets.hold import COMMITTED, JOB_LABEL, Hold
from costguard.metering.meter import COMPUTE, STORAGE
from costguard.metering.span import KnownUntil, Span, compute_charge
from costguard.metering.spending import BilledResource, Spending
from costguard.reporting.statement.groups import CurrencySums
from costguard.values.calendar import Period
from costguard.values.money import Money, MoneyInterval, sum_intervals
from costguard.values.resource import INSTANCE, Attribution

MOST_TOP_RESOURCES = 10
PRICE_OLD_AFTER = timedelta(days=90)
"""A shipped price list that is older at the end of a period is said to be old: providers change theirs a few times a year."""
_DATE_IN_SOURCE = re.compile(r"\b(20\d\d-\d\d)(-\d\d)?\b", re.ASCII)


class ResourceCost(NamedTuple):
    """The cost of one kind of charge of one resource, in nano-units. `source`: of its price.

    `number` identifies the resource within one ledger. `us`: microseconds that it probably billed, computing or not. A named
    tuple, because a large fleet has many of them.
    """

    number: int
    attribution: Attribution
    charge: str
    currency: str
    known: bool
    source: str
    low: int
    expected: int
    high: int
    us: int

    @property
    def computes(self) -> bool:
        """Return whether its time is compute time of a machine."""
        return self.charge == COMPUTE and self.attribution.kind == INSTANCE

    def to_spending(self, bearer: BilledResource | None) -> Spending:
        """Convert to a sum of the ledger for the resource `bearer`."""
        return Spending(
            attribution=self.attribution,
            charge=self.charge,
            money=_build_interval((self.low, self.expected, self.high), self.currency),
            us=self.us if self.computes else 0,
            known=self.known,
            bearer=bearer,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopResource:
    """A resource and its cost in one currency. `us`: microseconds that it probably computed."""

    bearer: BilledResource
    attribution: Attribution
    money: MoneyInterval
    us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousPeriod:
    """The period before. `usd`: all of it. `part`: as much of it as has elapsed of a running period, else all of it.

    `seen`: whether any scope was listed then; `part_seen`: in that part; if not, nothing can be compared. `complete`: every
    scope was listed throughout that part.
    """

    period: Period
    label: str
    usd: CurrencySums
    part: CurrencySums
    seen: bool
    part_seen: bool
    complete: bool = True

    def compute_change(self, now: CurrencySums) -> Money | None:
        """Return the increase of the expected cost; None: not known."""
        return now.total.expected - self.part.total.expected if self.part_seen else None

    def compute_share(self, now: CurrencySums) -> Fraction | None:
        """Return the increase as a share of the earlier cost; None: not known, or that cost was zero."""
        was, change = self.part.total.expected.nano, self.compute_change(now)
        return Fraction(change.nano, was) if change is not None and was else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedDiskCost:
    """The cost of the disks of machines while they did not run, by currency, and the number of those machines."""

    money: tuple[MoneyInterval, ...] = ()
    machines: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotedRun:
    """An ended run that was admitted with a hold: its quote and its actual cost."""

    hold: Hold
    actual: Money

    @property
    def job(self) -> str:
        """Return the job that it was an attempt of, "" if none is known."""
        return dict(self.hold.labels).get(JOB_LABEL, "")

    @property
    def over(self) -> Money:
        """Return the cost above the quote; negative if below."""
        return self.actual - self.hold.money


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSourceCost:
    """The cost at prices of one source. `as_of`: the day that it names; None: the prices come with each listing.

    `resources`: how many were billed at them.
    """

    source: str
    money: MoneyInterval
    known: bool
    as_of: date | None = None
    resources: int = 0

    @property
    def unpriced(self) -> bool:
        """Whether nobody states a price, so that only an upper bound of the cost is known."""
        return not self.known and not self.money.expected.nano and self.money.high.nano > 0

    def is_old(self, at: datetime) -> bool:
        """Return whether the source is older than PRICE_OLD_AFTER at `at`."""
        return self.as_of is not None and at.astimezone(UTC).date() - self.as_of > PRICE_OLD_AFTER


def sum_resource_costs(outlays: Iterable[ResourceCost]) -> list[Spending]:
    """Sum `outlays` over all resources, by attribution, charge, currency, and whether the price is known."""
    sums: dict[tuple[int, str, str, bool], list[int]] = {}
    attributions: dict[int, Attribution] = {}
    for one in outlays:
        number = id(one.attribution)  # a ledger hands out few of them, many times
        place = number, one.charge, one.currency, one.known
        of = sums.get(place)
        if of is None:
            attributions[number] = one.attribution
            sums[place] = [one.low, one.expected, one.high, one.us]
            continue
        of[0] += one.low
        of[1] += one.expected
        of[2] += one.high
        of[3] += one.us
    return [
        ResourceCost(0, attributions[number], charge, currency, is_known, "", *of).to_spending(None)
        for (number, charge, currency, is_known), of in sums.items()
    ]


def rank_top_resources(outlays: Iterable[ResourceCost], most: int = MOST_TOP_RESOURCES) -> list[tuple[int, str]]:
    """Return (resource, currency) with the highest expected cost, dollars first; zero costs are left out."""
    sums: dict[tuple[int, str], int] = defaultdict(int)
    for one in outlays:
        sums[one.number, one.currency] += one.expected
    ranked = nsmallest(most, sums, key=lambda place: (place[1] != "USD", -sums[place], place))
    return [place for place in ranked if sums[place]]


def build_top_resource(bearer: BilledResource, outlays: Sequence[ResourceCost]) -> TopResource:
    """Sum the `outlays` of one resource in one currency; the attribution is that of its main charge."""
    main = max(outlays, key=lambda one: (one.charge == COMPUTE, one.expected, one.charge, one.source))
    money = sum_intervals((one.to_spending(None).money for one in outlays), main.currency)
    return TopResource(
        bearer=bearer, attribution=main.attribution, money=money, us=sum(one.us for one in outlays if one.computes)
    )


def find_stopped_with_disks(outlays: Iterable[ResourceCost]) -> list[int]:
    """Return the machines whose disks billed for longer than they computed."""
    stored: dict[int, int] = defaultdict(int)
    computed: dict[int, int] = defaultdict(int)
    for one in outlays:
        if one.charge == STORAGE and one.attribution.kind == INSTANCE:
            stored[one.number] += one.us
        elif one.charge == COMPUTE:
            computed[one.number] += one.us
    return sorted(number for number, us in stored.items() if us > computed[number])


def compute_stopped_disk_cost(lines: Iterable[Sequence[tuple[Span, KnownUntil | None]]], period: Period) -> StoppedDiskCost:
    """Return the cost of machines' disks in `period` while they did not compute.

    `lines`: all spans of each machine.
    """
    sums: dict[str, MoneyInterval] = {}
    machines = 0
    for spans in lines:
        charges = list(_yield_resting_charges(spans, period))
        machines += any(money.high.nano for money in charges)
        for money in charges:
            currency = money.low.currency
            sums[currency] = sums[currency].add(money) if currency in sums else money
    return StoppedDiskCost(
        money=tuple(sums[c] for c in sorted(sums, key=lambda c: (c != "USD", c)) if sums[c].high.nano), machines=machines
    )


def list_quoted_runs(holds: Iterable[Hold], period: Period) -> tuple[QuotedRun, ...]:
    """Return the runs that ended in `period` with a stated cost, ordered by time."""
    runs = [
        QuotedRun(hold=hold, actual=hold.spent)
        for hold in holds
        if hold.ended_by == COMMITTED and hold.spent is not None and hold.ended_at is not None and period.holds(hold.ended_at)
    ]
    return tuple(sorted(runs, key=lambda one: (one.hold.ended_at or one.hold.taken_at, one.hold.id)))


def sum_by_price_source(outlays: Iterable[ResourceCost]) -> tuple[PriceSourceCost, ...]:
    """Sum the cost by price source, the highest first, dollars before other currencies."""
    sums: dict[tuple[str, str, bool], list[int]] = defaultdict(lambda: [0, 0, 0])
    billed: dict[tuple[str, str, bool], set[int]] = defaultdict(set)
    for one in outlays:
        billed[one.source, one.currency, one.known].add(one.number)
        of = sums[one.source, one.currency, one.known]
        of[0] += one.low
        of[1] += one.expected
        of[2] += one.high
    costs = [
        PriceSourceCost(
            source=source,
            money=_build_interval(nanos, currency),
            known=is_known,
            as_of=_parse_source_date(source),
            resources=len(billed[source, currency, is_known]),
        )
        for (source, currency, is_known), nanos in sums.items()
    ]
    return tuple(sorted(costs, key=lambda p: (p.money.low.currency != "USD", -p.money.expected.nano, p.source, p.known)))


def _yield_resting_charges(spans: Sequence[tuple[Span, KnownUntil | None]], period: Period) -> Iterable[MoneyInterval]:
    computed = sorted(
        (span.start, span.end or (reach.expected if reach else span.start))
        for span, reach in spans
        if span.meter.charge == COMPUTE
    )
    for span, reach in spans:
        if span.meter.charge != STORAGE:
            continue
        reached, last = max(span.start, period.start), min(span.end or (reach.high if reach else span.start), period.end)
        for start, end in computed:
            if reached < min(start, last):
                yield compute_charge(span, Period(start=reached, end=min(start, last)), reach)
            reached = max(reached, end)
        if reached < last:
            yield compute_charge(span, Period(start=reached, end=last), reach)


def _build_interval(nanos: Sequence[int], currency: str) -> MoneyInterval:
    low, expected, high = (Money(nano=nano, currency=currency) for nano in nanos)
    return MoneyInterval(low=low, expected=expected, high=high)


def _parse_source_date(source: str) -> date | None:
    """Return the last day that a source names; for a month its first day."""
    matches = list(_DATE_IN_SOURCE.finditer(source))
    try:
        return date.fromisoformat(f"{matches[-1][1]}{matches[-1][2] or '-01'}") if matches else None
    except ValueError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotedJob:
    """The attempts of one job that ended in a period, in one currency. `quoted`: the quote of the first attempt."""

    job: str
    attempts: int
    quoted: Money
    actual: Money


def group_runs_by_job(quotes: Iterable[QuotedRun]) -> tuple[QuotedJob, ...]:
    """Return the jobs of `quotes`, in the order in which their first attempts ended."""
    jobs: dict[tuple[str, str], list[QuotedRun]] = {}
    for one in quotes:
        if one.job:
            jobs.setdefault((one.job, one.hold.money.currency), []).append(one)
    return tuple(_build_quoted_job(job, attempts) for (job, _), attempts in jobs.items())


def _build_quoted_job(job: str, attempts: list[QuotedRun]) -> QuotedJob:
    first = min(attempts, key=lambda one: one.hold.taken_at)
    actual = Money(nano=sum(one.actual.nano for one in attempts), currency=first.hold.money.currency)
    return QuotedJob(job=job, attempts=len(attempts), quoted=first.hold.money, actual=actual)
