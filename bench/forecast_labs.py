"""Three labs whose machines are drawn from a seed, for `bench.forecast`: what ran when, and at which price.

Times are hours since the lab's first Monday 00:00 (UTC), prices dollars an hour as public lists had them in 2026-11 (H100 about
3, A100 about 2, L40S about 1). None of it is read by the forecast: it sees what a ledger would have recorded.

    lab = draw_lab("bursty", seed=7, days=150)
    lab[0]      # LabMachine(start=31.4, end=55.0, rate=23.92)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

HOURS_A_DAY, DAYS_A_WEEK = 24, 7
SATURDAY = 5
H100, H100_NODE, A100, L40S = 2.99, 23.92, 1.99, 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class LabMachine:
    """One machine from `start` to `end`, in hours, at `rate` dollars an hour."""

    start: float
    end: float
    rate: float


def draw_lab(name: str, seed: int, days: int) -> list[LabMachine]:
    """Draw the machines of the lab `name` (a key of `LABS`) for `days`; those that run past the end are cut there."""
    last = float(days * HOURS_A_DAY)
    drawn = (one for one in LABS[name](Random(f"{name} {seed}"), days) if one.start < last)
    machines = (LabMachine(start=one.start, end=min(one.end, last), rate=one.rate) for one in drawn)
    return sorted((one for one in machines if one.end > one.start), key=lambda one: (one.start, one.end, one.rate))


def _draw_steady_lab(dice: Random, days: int) -> Iterator[LabMachine]:
    """Inference day and night, more of it by day, and researchers on weekdays; a quiet week now and then."""
    people, holidays = dice.randint(5, 10), {dice.randrange(max(1, days // DAYS_A_WEEK)) for _ in range(days // 60)}
    for _ in range(dice.randint(2, 4)):
        yield from _draw_service(dice, days, A100)
    for day in range(days):
        for _ in range(2):
            yield _make_machine(day, 8 + dice.random(), dice.uniform(10, 13), L40S)
        if day % DAYS_A_WEEK >= SATURDAY or day // DAYS_A_WEEK in holidays:
            continue
        for _ in range(people):
            if dice.random() < 0.6:
                yield _make_machine(day, dice.uniform(9, 12), dice.lognormvariate(1.6, 0.6), dice.choice((L40S, A100)))
            if dice.random() < 0.12:
                yield _make_machine(day, dice.uniform(14, 19), dice.lognormvariate(2.8, 0.7), dice.choice((H100, 4 * H100)))


def _draw_bursty_lab(dice: Random, days: int) -> Iterator[LabMachine]:
    """Little between deadlines, and before each of them more and longer trainings, on whole nodes."""
    deadlines, at = list[int](), dice.randrange(10, 40)
    while at < days + 30:
        deadlines.append(at)
        at += dice.randrange(25, 55)
    for day in range(days):
        ahead = min((one - day for one in deadlines if one >= day), default=99)
        press = math.exp(-ahead / 8)
        weekend = day % DAYS_A_WEEK >= SATURDAY
        for _ in range(8):
            if dice.random() < (0.15 if weekend else 0.35) + 0.4 * press:
                yield _make_machine(day, dice.uniform(8, 20), dice.lognormvariate(1.8, 0.8), dice.choice((L40S, A100, H100)))
            if dice.random() < 0.02 + 0.15 * press:
                length = min(dice.lognormvariate(3.0, 0.7), (ahead + 1) * HOURS_A_DAY)
                yield _make_machine(day, dice.uniform(8, 23), length, dice.choice((H100_NODE, 8 * A100)))


def _draw_growing_lab(dice: Random, days: int) -> Iterator[LabMachine]:
    """A startup that grows by 1 to 7 % a week: services that are added, and work on spot that is taken and begun anew."""
    growth = dice.uniform(0.01, 0.07)
    for _ in range(2):
        yield from _draw_service(dice, days, L40S)
    for day in range(days):
        size = (1 + growth) ** (day / DAYS_A_WEEK)
        if dice.random() < 0.03 * size:  # a customer's replica, which stays for weeks
            start = day * HOURS_A_DAY + dice.uniform(8, 18)
            yield LabMachine(start=start, end=start + HOURS_A_DAY * dice.expovariate(1 / 60), rate=dice.choice((L40S, A100)))
        weekend = day % DAYS_A_WEEK >= SATURDAY
        for _ in range(_draw_count(dice, size * (1.5 if weekend else 4))):
            yield from _draw_spot_run(dice, day * HOURS_A_DAY + dice.uniform(0, 24), dice.lognormvariate(2.2, 0.9))


def _draw_spot_run(dice: Random, start: float, hours: float) -> Iterator[LabMachine]:
    """A run of `hours` on spot: taken every 15 hours in the mean, and begun anew after a while."""
    rate = dice.choice((A100, H100, 4 * H100)) * dice.uniform(0.35, 0.6)
    while hours > 0:
        length = min(hours, dice.expovariate(1 / 15))
        yield LabMachine(start=start, end=start + length, rate=rate)
        start, hours = start + length + dice.expovariate(1 / 2), hours - length


def _draw_service(dice: Random, days: int, rate: float) -> Iterator[LabMachine]:
    """A server that runs all the time; every few weeks another machine takes its place."""
    at = 0.0
    while at < days * HOURS_A_DAY:
        end = at + HOURS_A_DAY * dice.uniform(10, 60)
        yield LabMachine(start=at, end=end, rate=rate)
        at = end + 0.1


def _make_machine(day: int, hour: float, length: float, rate: float) -> LabMachine:
    start = day * HOURS_A_DAY + hour
    return LabMachine(start=start, end=start + length, rate=rate)


def _draw_count(dice: Random, mean: float) -> int:
    """Draw from a Poisson distribution."""
    count, left = 0, dice.expovariate(1)
    while left < mean:
        count, left = count + 1, left + dice.expovariate(1)
    return count


LABS: dict[str, Callable[[Random, int], Iterator[LabMachine]]] = {
    "steady": _draw_steady_lab,
    "bursty": _draw_bursty_lab,
    "growing": _draw_growing_lab,
}
