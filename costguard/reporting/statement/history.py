"""The money of a period by day, and by hour of the week: what charts are drawn from.

A day is one of UTC, as the ledger rolls them up, so the days of a period add up to it to the nano-unit whatever its zone; its
first and last one may be a part of a day. Burn is spread evenly over each span, in floats: it is a picture and no sum.
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
    """What was expected to be spent on a day (since 1970, UTC), in nano-units, by lines and attributions like these."""

    day: int
    attribution: Attribution
    charge: str
    nano: int
    bearer: BilledResource | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CostByDay:
    """`parts`: what each value of the key `by` cost on each of `days`, in nano-dollars; they add up to the period's total."""

    by: str
    days: tuple[date, ...]
    parts: Mapping[str, tuple[int, ...]]
    monthly: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WeeklyBurn:
    """Mean dollars an hour for each weekday (Monday first) and hour of `zone`; None: the period holds no such hour yet."""

    zone: str
    cells: tuple[tuple[float | None, ...], ...]


class HourlyRateChanges(NamedTuple):
    """What began and ended in an hour (since 1970): the sums of rates (nano-dollars a microsecond), and of rate x offset."""

    began: float = 0.0
    began_offset: float = 0.0
    ended: float = 0.0
    ended_offset: float = 0.0


def sum_by_day(sums: Iterable[DailyCost], by: str, first: date, last: date) -> CostByDay:
    """`sums` by the key `by` and day from `first` to `last`, or the last that has any; by month where those are too many."""
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
    """By which key days are shown: the first that the roll-up knows, else the provider."""
    return next((key for key in by if key in LEDGER_KEYS or key in GROUPED_LABELS), "provider")


def compute_weekly_burn(rates: Mapping[int, HourlyRateChanges], start_us: int, end_us: int, zone: tzinfo) -> WeeklyBurn:
    """Mean dollars an hour from what began and ended in each hour of [start, end)."""
    sums = [[0.0] * HOURS_A_DAY for _ in range(DAYS_A_WEEK)]
    lengths = [[0] * HOURS_A_DAY for _ in range(DAYS_A_WEEK)]
    burning = 0.0
    for number in range(start_us // HOUR_US, -(-end_us // HOUR_US)):
        one = rates.get(number, NO_RATE_CHANGES)
        cost = burning * HOUR_US + one.began * HOUR_US - one.began_offset - (one.ended * HOUR_US - one.ended_offset)
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
