"""What a period will probably cost: expected, and an interval that holds four of five times, from the ledger's past hours.

The rest of the period repeats the past weeks, hour of the week by hour of the week, newer weeks counting more. Two corrections
follow what runs now: a machine that has run for three days and that the past weeks lack in part counts for half of that part,
because half of such machines replace another one; and what burns now beyond its usual hour fades within half a day. A machine
whose stop a person planned is not counted beyond it. Schedules are in the hours of the week. The interval is the spread of the
past weeks' sums, wider where there are few of them. `python -m bench.forecast` tests all of it against simpler ways.

Example: four past weeks of $700, of which $120 each from Friday 12:00 to Monday 00:00. On a Friday at 12:00, with $600 spent
and 2.5 days left of the month, the forecast is $720, not the 600 + 60 h x $6.25 = $975 of what runs at noon going on.

With less than a week of history the past days are repeated instead of weeks; with less than a day, what runs is taken to go on.
Hours are those of UTC, so that a change of the clocks shifts a night by one hour until the next week has passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate
from math import exp, expm1, sqrt

from costguard.budgets.budget import ResourceFilter
from costguard.metering.burn import AttributedBurn, extend_burn
from costguard.values.instant import HOUR_US, MICROSECOND, to_micros
from costguard.values.money import Money, MoneyInterval, make_zero_interval, sum_intervals

WEEKS, DAYS, BURN = "weeks", "days", "burn"
BASES = {
    WEEKS: "the past weeks",
    DAYS: "less than a week of history",
    BURN: "what runs now: less than a day of history",
}
"""What a forecast stands on, for people."""

DAY_HOURS, WEEK_HOURS, WEEKS_BACK = 24, 168, 13
HALF_LIFE_WEEKS, LASTING_HOURS, LASTING_SHARE, FADE_HOURS = 3, 72, 0.5, 12
SPREAD_WEEKS, SPREAD_USUAL, SPREAD_LEVEL, SPREAD_MOST, SPREAD_SHORT = 2, 0.3, 0.6, 1.2, 0.2
"""All chosen on seeds 100 to 119 of the labs of `bench.forecast` (2026-11-30), which scores other seeds.

`SPREAD_USUAL`: of weekly sums, counted as `SPREAD_WEEKS` weeks. `SPREAD_LEVEL`: of the level that one week shows."""
ENDS = ("low", "expected", "high")
NORMAL_90 = 1.2816
"""Nine of ten values of a normal distribution are below so many standard deviations: ends of an 80 % interval."""


Part = tuple[ResourceFilter, str]
"""A part of all spending: what a filter selects, in one currency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastHours:
    """Nano-units that were spent in each hour, closed spans only: `costs[0]` in the hour `first` (since 1970, UTC)."""

    first: int
    costs: tuple[int, ...]


NO_PAST = PastHours(first=0, costs=())


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendForecast:
    """What a period costs: four of five times between the ends of `total`. `basis`: what that stands on, a key of `BASES`.

    `if_unchanged`: what it costs if exactly what runs now goes on to its end; its ends are certain and possible burn.
    """

    total: MoneyInterval
    if_unchanged: MoneyInterval
    basis: str


def forecast_spend(
    spent: MoneyInterval, past: PastHours, burns: Sequence[AttributedBurn], *, now: datetime, left: timedelta
) -> SpendForecast:
    """Forecast a period of which `left` is left at `now`, with `spent` in it so far.

    `past`: what closed spans cost. `burns`: of all lines that bill now, in the currency of `spent`. What may bill without being
    seen, and prices that are not known, widen the interval by all that they may come to.
    """
    left_us, currency = max(0, left // MICROSECOND), spent.low.currency
    burn = sum_intervals((one.hourly for one in burns), currency)
    if_unchanged = extend_burn(spent, burn, left_us)
    low, expected, high, basis = _forecast_rest(past, burns, to_micros(now), left_us / HOUR_US)
    doubt = extend_burn(make_zero_interval(currency), burn, left_us)
    low = max(0, low - (doubt.expected - doubt.low).nano)
    ends = (low, expected, high + (doubt.high - doubt.expected).nano)
    rest = MoneyInterval(**{name: Money(nano=nano, currency=currency) for name, nano in zip(ENDS, ends, strict=True)})
    return SpendForecast(total=spent.add(rest), if_unchanged=if_unchanged, basis=basis)


def _forecast_rest(past: PastHours, burns: Sequence[AttributedBurn], now_us: int, hours: float) -> tuple[int, int, int, str]:
    """Return low, expected and high nano-units of the next `hours`, and the basis."""
    costs_by_hour = _add_open_lines(past, burns, now_us)
    lines = [_Line(one, now_us, hours) for one in burns]
    cycle = WEEK_HOURS if len(costs_by_hour) >= WEEK_HOURS else DAY_HOURS
    if len(costs_by_hour) < cycle or not any(costs_by_hour[-cycle * (len(costs_by_hour) // cycle) :]):
        return *_widen(sum(one.rate * one.runs for one in lines), SPREAD_MOST, hours), BURN
    weights = [0.5 ** (count * cycle / WEEK_HOURS / HALF_LIFE_WEEKS) for count in range(len(costs_by_hour) // cycle)]
    usual = _average_cycles(costs_by_hour, cycle, weights)
    sums = list(accumulate(usual, initial=0.0))
    begun = now_us % HOUR_US / HOUR_US
    rest = _sum_usual(sums, begun + hours) - _sum_usual(sums, begun)
    lacked = 0.0
    for one in lines:
        share = sum(w * min(1.0, max(0.0, one.age / cycle - count)) for count, w in enumerate(weights)) / sum(weights)
        rest -= one.rate * share * (hours - one.runs)
        if one.age >= LASTING_HOURS:
            lacked += LASTING_SHARE * one.rate * (1 - share)
            rest += LASTING_SHARE * one.rate * (1 - share) * one.runs
    beyond = sum(one.rate for one in lines) - usual[0] - lacked
    rest -= beyond * FADE_HOURS * expm1(-hours / FADE_HOURS)
    return *_widen(max(rest, 0.0), _measure_spread(costs_by_hour), hours), WEEKS if cycle == WEEK_HOURS else DAYS


class _Line:
    """A line that bills now: nano-units an hour, for how many hours it has billed, and for how many more it will."""

    def __init__(self, burn: AttributedBurn, now_us: int, hours: float) -> None:
        self.rate, self.age = burn.hourly.expected.nano, (now_us - to_micros(burn.since)) / HOUR_US
        self.runs = hours if burn.until is None else min(hours, max(0, to_micros(burn.until) - now_us) / HOUR_US)


def _add_open_lines(past: PastHours, burns: Iterable[AttributedBurn], now_us: int) -> list[int]:
    """Return the whole hours up to now with what the open lines cost in them, from the first hour that cost anything."""
    last = now_us // HOUR_US
    first = max(min((past.first, *(to_micros(one.since) // HOUR_US for one in burns))), last - WEEKS_BACK * WEEK_HOURS)
    costs = [0] * (last - first)
    for hour, cost in enumerate(past.costs, past.first - first):
        if 0 <= hour < len(costs):
            costs[hour] += cost
    steps = [0] * (len(costs) + 1)
    for one in burns:
        begun, rate = to_micros(one.since), one.hourly.expected.nano
        hour = begun // HOUR_US - first
        if hour < 0:
            steps[0] += rate
        elif hour < len(costs):
            costs[hour] += rate * (HOUR_US - begun % HOUR_US) // HOUR_US
            steps[hour + 1] += rate
    costs_by_hour = [cost + running for cost, running in zip(costs, accumulate(steps), strict=False)]
    return costs_by_hour[next((hour for hour, cost in enumerate(costs_by_hour) if cost), len(costs_by_hour)) :]


def _average_cycles(costs_by_hour: Sequence[int], cycle: int, weights: Sequence[float]) -> list[float]:
    """Return the weighted mean of past cycles for each of the `cycle` hours from now on. `weights`: the newest first."""
    total, length = sum(weights), len(costs_by_hour)
    cuts = [(length - cycle * (count + 1), weight / total) for count, weight in enumerate(weights)]
    return [sum(costs_by_hour[start + hour] * weight for start, weight in cuts) for hour in range(cycle)]


def _sum_usual(sums: Sequence[float], hours: float) -> float:
    """Return what is spent in `hours`. `sums`: of the first hours of one cycle, from 0 to all of them."""
    cycles, within = divmod(hours, len(sums) - 1)
    hour = int(within)
    part = (sums[hour + 1] - sums[hour]) * (within - hour) if hour + 1 < len(sums) else 0.0
    return cycles * sums[-1] + sums[hour] + part


def _measure_spread(costs_by_hour: Sequence[int]) -> float:
    """Return the relative spread of a coming week's sum."""
    weeks = [sum(costs_by_hour[end - WEEK_HOURS : end]) for end in range(len(costs_by_hour), WEEK_HOURS - 1, -WEEK_HOURS)]
    mean = sum(weeks) / len(weeks) if weeks else 0.0
    deviations = sum((one / mean - 1) ** 2 for one in weeks) if mean else 0.0
    usual = (deviations + SPREAD_WEEKS * SPREAD_USUAL**2) / (max(len(weeks), 1) - 1 + SPREAD_WEEKS)
    return sqrt(usual + min(SPREAD_MOST, SPREAD_LEVEL * WEEK_HOURS / len(costs_by_hour)) ** 2)


def _widen(expected: float, spread: float, hours: float) -> tuple[int, int, int]:
    """Return the interval around `expected`. A shorter time has a larger relative spread than a week."""
    factor = exp(NORMAL_90 * spread * sqrt(1 + SPREAD_SHORT * min(WEEK_HOURS / hours, 8))) if hours else 1.0
    return round(expected / factor), round(expected), round(expected * factor)
