"""The dated prices of one machine, and rows of a table that sum up many machines.

A *run* is a price that was seen on a first day and again, unchanged, until a last one. Between two runs the price is carried
on; after the last day on which a machine was listed it is unknown. Thus: $2.99 seen from 2026-09-01 to 2026-09-20, and $2.69
on 2026-09-21: the price of 2026-09-10 is $2.99, and that of 2026-09-22 is unknown.

A *line* is what a table shows: machines of one provider, GPU, count, tier and drift class. Its price on a day is that of the
cheapest of them, since a quote would have taken it. Only machines count that are still listed at its end, and before its first
price a machine counts with that one: otherwise a machine that nobody had looked at before would look like a cheaper price.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from operator import attrgetter

from costguard.errors import InputError
from costguard.quoting.offer import Offer
from costguard.quoting.price_drift import UNDATED_DAYS, get_vintage, is_placeholder
from costguard.values.money import Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRun:
    """One price of a machine. `seen_on`, `last_seen_on`: the first and the last day on which it was seen."""

    seen_on: date
    last_seen_on: date
    rate: Rate

    def __post_init__(self) -> None:
        if self.last_seen_on < self.seen_on:
            raise InputError("was last seen before it was first seen", field=f"price of {self.seen_on.isoformat()}")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class PricedMachine:
    """What has a price: a machine as a provider sells it in a region. `drift`: its drift class."""

    provider: str
    gpu: str
    gpu_count: int
    tier: str
    drift: str
    region: str
    instance_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSeries:
    """The prices of one machine; `runs` in order of time, each beginning after the one before it ends."""

    machine: PricedMachine
    runs: tuple[PriceRun, ...]

    def __post_init__(self) -> None:
        if not self.runs:
            raise InputError("needs a price", field=f"series of {self.machine.instance_type}")

    def find_rate(self, day: date) -> Rate | None:
        """Return the price on `day`; None before the first and after the last day on which it was seen."""
        if day > self.runs[-1].last_seen_on:
            return None
        place = bisect_right(self.runs, day, key=attrgetter("seen_on"))
        return self.runs[place - 1].rate if place else None


def identify_machine(offer: Offer) -> PricedMachine:
    """Return the machine of `offer`."""
    return PricedMachine(
        provider=offer.provider,
        gpu=offer.gpu,
        gpu_count=offer.gpu_count,
        tier=offer.tier,
        drift=offer.drift_class,
        region=offer.region,
        instance_type=offer.instance_type,
    )


def is_dated_price(offer: Offer) -> bool:
    """Return whether the price of `offer` belongs into a history: known, dated, and no placeholder."""
    return offer.rate is not None and get_vintage(offer).count_undated_days() <= UNDATED_DAYS and not is_placeholder(offer)


def add_offers(series: Iterable[PriceSeries], offers: Iterable[Offer]) -> tuple[PriceSeries, ...]:
    """Return `series` with the dated prices of `offers`, sorted by machine.

    A day for which the series already has a price keeps it. Of several offers of one machine on one day the cheapest counts.
    """
    runs: dict[PricedMachine, list[PriceRun]] = {one.machine: list(one.runs) for one in series}
    for offer in sorted(
        filter(is_dated_price, offers), key=lambda one: (one.observed_on, one.rate.nano_per_hour if one.rate else 0)
    ):
        own, day = runs.setdefault(identify_machine(offer), []), offer.observed_on
        if offer.rate is not None and not any(run.seen_on <= day <= run.last_seen_on for run in own):
            own.append(PriceRun(seen_on=day, last_seen_on=day, rate=offer.rate))
    return tuple(
        PriceSeries(machine=machine, runs=tuple(sorted(own, key=attrgetter("seen_on"))))
        for machine, own in sorted(runs.items(), key=lambda item: item[0])
    )


LISTED_DAYS = 35
"""A machine that was last seen so many days before the others of its line is no longer listed. An assumption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceLine:
    """Machines of one provider, GPU, count, tier and drift class, and their cheapest price per day.

    `regions`, `machines`: of those that are listed at the end. `points`: the days on which the price was first seen or changed,
    and the last day on which it was seen; at least one.
    """

    provider: str
    gpu: str
    gpu_count: int
    tier: str
    drift: str
    regions: tuple[str, ...]
    machines: int
    points: tuple[tuple[date, Rate], ...]

    @property
    def first(self) -> Rate:
        """Return the earliest price."""
        return self.points[0][1]

    @property
    def last(self) -> Rate:
        """Return the latest price."""
        return self.points[-1][1]

    @property
    def lowest(self) -> Rate:
        """Return the lowest price."""
        return min((rate for _, rate in self.points), key=attrgetter("nano_per_hour"))

    @property
    def highest(self) -> Rate:
        """Return the highest price."""
        return max((rate for _, rate in self.points), key=attrgetter("nano_per_hour"))

    @property
    def change(self) -> float:
        """Return the change from the first to the last price, as a share of the first: -0.1 is 10 % cheaper."""
        return self.last.nano_per_hour / self.first.nano_per_hour - 1

    def find_rate(self, day: date) -> Rate | None:
        """Return the price on `day`; None outside the days of its points."""
        if not self.points[0][0] <= day <= self.points[-1][0]:
            return None
        return self.points[bisect_right(self.points, day, key=lambda point: point[0]) - 1][1]

    def sample_rates(self, start: date, end: date, count: int) -> tuple[Rate | None, ...]:
        """Return the last known price within each of `count` equal parts of the days `start` to `end`; None: unknown."""
        days = (end - start).days + 1
        rates = list[Rate | None]()
        for number in range(count):
            first = start + timedelta(days=number * days // count)
            last = max(first, start + timedelta(days=(number + 1) * days // count - 1))
            last_day = self.points[-1][0]
            rates.append(self.find_rate(last_day if first <= last_day <= last else last))
        return tuple(rates)


def draw_lines(series: Iterable[PriceSeries], start: date, end: date) -> tuple[PriceLine, ...]:
    """Return the lines of `series` between the days `start` and `end`, sorted; machines without a price then are left out."""
    groups: dict[tuple[str, str, int, str, str], list[PriceSeries]] = defaultdict(list)
    for one in series:
        m = one.machine
        groups[m.provider, m.gpu, m.gpu_count, m.tier, m.drift].append(one)
    return tuple(filter(None, (_draw_line(members, start, end) for _, members in sorted(groups.items()))))


def _draw_line(members: Sequence[PriceSeries], start: date, end: date) -> PriceLine | None:
    series = [one for one in members if one.runs[0].seen_on <= end and one.runs[-1].last_seen_on >= start]
    if not series:
        return None
    last = min(end, max(one.runs[-1].last_seen_on for one in series))
    listed = [one for one in series if one.runs[-1].last_seen_on >= last - timedelta(days=LISTED_DAYS)]
    first = max(start, min(one.runs[0].seen_on for one in listed))
    days = {first, last, *(run.seen_on for one in listed for run in one.runs if first < run.seen_on < last)}
    points = list[tuple[date, Rate]]()
    for day in sorted(days):
        cheapest = min((_find_nearest_rate(one, day) for one in listed), key=attrgetter("nano_per_hour"))
        if not points or points[-1][1] != cheapest or day == last:
            points.append((day, cheapest))
    machine = listed[0].machine
    return PriceLine(
        provider=machine.provider,
        gpu=machine.gpu,
        gpu_count=machine.gpu_count,
        tier=machine.tier,
        drift=machine.drift,
        regions=tuple(sorted({one.machine.region for one in listed})),
        machines=len(listed),
        points=tuple(points),
    )


def _find_nearest_rate(series: PriceSeries, day: date) -> Rate:
    """Return the price on `day`, or the nearest known one outside the days on which the machine was listed."""
    rate = series.find_rate(min(day, series.runs[-1].last_seen_on))
    return series.runs[0].rate if rate is None else rate
