"""The cost of a period by day and by hour of the week, for charts.

A day is a UTC day, as the ledger aggregates them, so the days of a period add up to it to the nano-unit in any zone; the first
and the last day may be partial. The burn is spread evenly over each span, in floats, because it is only for a chart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta, tzinfo
from typing import NamedTuple

from costguard.metering.spending import BilledResource
from costguard.reporting.statement.groups import LEDGER_KEYS, get_group_value
from costguard.values.instant import EPOCH, HOUR_US, from_micros
from costguard.values.resource import GROUPED_LABELS, Attribution

LONGEST_BY_DAY = 92
"""Days that stand side by side; a longer period is shown by month."""
HOURS_A_DAY, DAYS_A_WEEK = 24, 7


class DailyCost(NamedTuple):
    """The expected cost of one day (since 1970, UTC), in nano-units, for one attribution and charge."""

    day: int
    attribution: Attribution
    charge: str
    nano: int
    bearer: BilledResource | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CostByDay:
    """The cost of each value of the key `by` on each of `days`, in nano-dollars; `parts` add up to the period's total."""

    by: str
    days: tuple[date, ...]
    parts: Mapping[str, tuple[int, ...]]
    monthly: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WeeklyBurn:
    """Mean dollars an hour for each weekday (Monday first) and hour of `zone`; None: the period has no such hour yet."""

    zone: str
    cells: tuple[tuple[float | None, ...], ...]


class HourlyRateChanges(NamedTuple):
    """Rates that began and ended in an hour (since 1970): sums of rates and of rate x offset.

    Rates are in nano-dollars per microsecond. `cost`: nano-dollars of the hour that no rate contains.
    """

    began: float = 0.0
    began_offset: float = 0.0
    ended: float = 0.0
    ended_offset: float = 0.0
    cost: float = 0.0


def sum_by_day(sums: Iterable[DailyCost], by: str, first: date, last: date) -> CostByDay:
    """Sum `sums` by the key `by` and by day from `first` to `last`, or to a later day with costs.

    A long period, from LONGEST_BY_DAY days on, is summed by month.
    """
    sums = list(sums)
    last = max([last, *(EPOCH.date() + timedelta(days=day) for day in {one.day for one in sums})])
    monthly = (last - first).days >= LONGEST_BY_DAY
    every = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    days = tuple(dict.fromkeys(day.replace(day=1) for day in every)) if monthly else tuple(every)
    places = {day: number for number, day in enumerate(days)}
    numbers = {(day - EPOCH.date()).days: places[day.replace(day=1) if monthly else day] for day in every}
    parts: dict[str, list[int]] = {}
    values: dict[tuple[Attribution, str], str] = {}
    for one in sums:
        place = (one.attribution, one.charge)
        value = values.get(place)
        if value is None:
            value = values[place] = get_group_value(one, by)
        row = parts.get(value)
        if row is None:
            row = parts[value] = [0] * len(days)
        row[numbers[one.day]] += one.nano
    return CostByDay(by=by, days=days, parts={value: tuple(nanos) for value, nanos in parts.items()}, monthly=monthly)


def choose_day_key(by: Iterable[str]) -> str:
    """Return the key for daily costs: the first of `by` that the ledger aggregates, else the provider."""
    return next((key for key in by if key in LEDGER_KEYS or key in GROUPED_LABELS), "provider")


def compute_weekly_burn(rates: Mapping[int, HourlyRateChanges], start_us: int, end_us: int, zone: tzinfo) -> WeeklyBurn:
    """Compute the mean dollars an hour from the rate changes in each hour of [start, end)."""
    sums = [[0.0] * HOURS_A_DAY for _ in range(DAYS_A_WEEK)]
    lengths = [[0] * HOURS_A_DAY for _ in range(DAYS_A_WEEK)]
    burning = 0.0
    for number in range(start_us // HOUR_US, -(-end_us // HOUR_US)):
        one = rates.get(number, NO_RATE_CHANGES)
        cost = (burning + one.began - one.ended) * HOUR_US - one.began_offset + one.ended_offset + one.cost
        burning += one.began - one.ended
        begin, end = max(start_us, number * HOUR_US), min(end_us, (number + 1) * HOUR_US)
        local = from_micros(begin).astimezone(zone)
        sums[local.weekday()][local.hour] += cost
        lengths[local.weekday()][local.hour] += end - begin
    cells = tuple(
        tuple(max(0.0, cost / length * HOUR_US / 1e9) if length else None for cost, length in zip(row, of, strict=True))
        for row, of in zip(sums, lengths, strict=True)
    )
    return WeeklyBurn(zone=str(zone), cells=cells)


NO_RATE_CHANGES = HourlyRateChanges()
