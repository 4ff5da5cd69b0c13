"""Idle stretches of a machine, to the sample: when every measured signal was quiet from one sample to the next.

Example: GPU duty each minute, work until 18:05. The hour from 18:00 contains work, so it is not idle as a whole
(`waste.judge_hours`); its samples from 18:06 on are quiet, and so 18:06 to 19:00 is idle. With a sample every 20 minutes, quiet
at 18:00 and 18:20, only the time between the two is idle.

A stretch begins at a quiet sample and ends at one: what lies before the first and after the last is not counted, so that the
sum stays a lower bound. Where samples are missing for longer than usual, or one signal is silent, nothing is known.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import NamedTuple

from costguard.guard.signals import (
    AGE,
    AGENT,
    ALIVE,
    COUNTER,
    CPU_UTIL_LARGE,
    DUTY,
    FLOOR_SHARE,
    IDLE,
    INPUT_COUNTS_FOR,
    LIMIT,
    POWER,
    PRESENCE,
    RISE_SHARE,
    SIGNAL_KINDS,
    SLOWDOWN_MAX,
    VOLUMES,
    WORK_BYTES_MIN,
)
from costguard.values.instant import DAY_US, HOUR_US, MICROSECOND, SECOND_US
from costguard.values.sample import CPU_UTIL, GPU_POWER

LARGE_GPUS = 4
"""From so many GPUs on, less of the CPU is work (`signals.CPU_UTIL_LARGE`)."""
GAP_MAX_US = int(timedelta(minutes=20) * SLOWDOWN_MAX / MICROSECOND)
"""Samples further apart prove nothing of the time between: 20 minutes, and what a late poll adds. An assumption, 2026-11."""
GAP_OF_USUAL = 2.5
"""How often the usual distance two samples may lie apart: one is missing at most."""
PROOFS = (DUTY, AGENT)
"""Families of signals of which one must be measured; without, nothing says that the GPUs did nothing."""

TimeRange = tuple[int, int]
"""A half-open range of microseconds since 1970."""
SamplePair = tuple[int, float]
"""When a sample was taken, in microseconds since 1970, and its value."""


class JudgedStretch(NamedTuple):
    """A part of a machine's time with one judgement: its `state` (active or idle), and the share of it that did nothing.

    The share is of an active machine, `numerator` over `denominator`.
    """

    begin_us: int
    end_us: int
    state: str
    numerator: int = 0
    denominator: int = 1

    @property
    def judgement(self) -> tuple[str, int, int]:
        """Return the state and the share."""
        return self[2:]

    @property
    def wasted(self) -> bool:
        """Return whether any part of it is waste."""
        return self.state == IDLE or self.numerator > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkThresholds:
    """What the judgement of samples depends on. `gpus`: of the machine. `limit_w`: the watts one GPU may draw, 0 if unknown.

    `floor_w`: by power signal, the lowest watts that were measured.
    """

    gpus: float
    limit_w: float = 0
    floor_w: Mapping[str, float]

    def find_most_idle(self, signal: str) -> float:
        """Return the highest value of a level or volume signal that is no work, in its unit; infinite if none is."""
        kind = SIGNAL_KINDS[signal]
        if kind.family == POWER:
            most = self.limit_w * (max(1, self.gpus) if signal == GPU_POWER else 1)
            floor = min(FLOOR_SHARE * most, self.floor_w.get(signal, FLOOR_SHARE * most))
            return floor + RISE_SHARE * most if most > 0 else float("inf")
        return CPU_UTIL_LARGE if signal == CPU_UTIL and self.gpus >= LARGE_GPUS else kind.above


def counts_for_waste(signal: str) -> bool:
    """Return whether `signal` says anything about work: a power limit and open sessions do not."""
    return signal in SIGNAL_KINDS and SIGNAL_KINDS[signal].reading not in (LIMIT, PRESENCE)


def find_idle_stretches(
    samples: Mapping[str, Sequence[SamplePair]], days: Mapping[str, Iterable[int]], thresholds: WorkThresholds
) -> list[TimeRange]:
    """Return when nothing worked, in order. `samples`: by signal, in order of time.

    `days`: by signal, the days since 1970 (UTC) on which it was measured: on these it must be there and quiet.
    """
    quiet = {
        signal: _find_quiet(signal, pairs, thresholds)
        for signal, pairs in samples.items()
        if counts_for_waste(signal) and len(pairs) > 1
    }
    measured: dict[int, list[str]] = {}
    for signal, on in days.items():
        for day in on if counts_for_waste(signal) else ():
            measured.setdefault(day, []).append(signal)
    idle_ranges = list[TimeRange]()
    for day, signals in sorted(measured.items()):
        if any(SIGNAL_KINDS[signal].family in PROOFS for signal in signals):
            ranges = [(day * DAY_US, (day + 1) * DAY_US)]
            for signal in signals:
                ranges = intersect_ranges(ranges, quiet.get(signal, ()))
            idle_ranges += ranges
    return join_ranges(idle_ranges)


def intersect_ranges(one: Sequence[TimeRange], other: Sequence[TimeRange]) -> list[TimeRange]:
    """Return what both contain. Each is in order, and its ranges do not overlap."""
    ranges, place = list[TimeRange](), 0
    for begin, end in one:
        while place < len(other) and other[place][1] <= begin:
            place += 1
        number = place
        while number < len(other) and other[number][0] < end:
            ranges.append((max(begin, other[number][0]), min(end, other[number][1])))
            number += 1
    return ranges


def subtract_ranges(one: Sequence[TimeRange], other: Sequence[TimeRange]) -> list[TimeRange]:
    """Return what the first contains and the second does not. Each is in order, and its ranges do not overlap."""
    ranges, place = list[TimeRange](), 0
    for begin, end in one:
        reached = begin
        while place < len(other) and other[place][1] <= begin:
            place += 1
        number = place
        while number < len(other) and other[number][0] < end:
            if other[number][0] > reached:
                ranges.append((reached, other[number][0]))
            reached = max(reached, other[number][1])
            number += 1
        if reached < end:
            ranges.append((reached, end))
    return ranges


def join_ranges(ranges: Iterable[TimeRange]) -> list[TimeRange]:
    """Return `ranges`, in any order, as ranges that neither overlap nor touch."""
    disjoint = list[TimeRange]()
    for begin, end in sorted(ranges):
        if disjoint and begin <= disjoint[-1][1]:
            disjoint[-1] = disjoint[-1][0], max(disjoint[-1][1], end)
        elif begin < end:
            disjoint.append((begin, end))
    return disjoint


def join_stretches(stretches: Iterable[JudgedStretch]) -> list[JudgedStretch]:
    """Return `stretches`, which do not overlap, in order of time; neighbours with the same judgement are joined."""
    disjoint = list[JudgedStretch]()
    for one in sorted(stretches):
        if disjoint and disjoint[-1].end_us == one.begin_us and disjoint[-1].judgement == one.judgement:
            disjoint[-1] = disjoint[-1]._replace(end_us=one.end_us)
        else:
            disjoint.append(one)
    return disjoint


def find_judgement(stretches: Sequence[JudgedStretch], at_us: int) -> JudgedStretch | None:
    """Return the stretch that contains the instant `at_us`; None: nothing is known of it."""
    place = bisect_right(stretches, at_us, key=lambda one: one.begin_us) - 1
    return stretches[place] if place >= 0 and at_us < stretches[place].end_us else None


def _find_quiet(signal: str, pairs: Sequence[SamplePair], thresholds: WorkThresholds) -> list[TimeRange]:
    """Return the times from one quiet sample of `signal` to the next, joined."""
    gap_us, is_quiet = _find_gap_max(pairs), _choose_test(signal, thresholds)
    ranges = join_ranges((a[0], b[0]) for a, b in pairwise(pairs) if b[0] - a[0] <= gap_us and is_quiet(a, b))
    return subtract_ranges(ranges, _find_large_volumes(pairs)) if SIGNAL_KINDS[signal].reading == VOLUMES else ranges


def _find_gap_max(pairs: Sequence[SamplePair]) -> float:
    """Return how far two samples may lie apart: GAP_OF_USUAL times their usual (median) distance, at most GAP_MAX_US."""
    distances = sorted(b - a for (a, _), (b, _) in pairwise(pairs))
    return min(GAP_MAX_US, GAP_OF_USUAL * distances[len(distances) // 2])


def _choose_test(signal: str, thresholds: WorkThresholds) -> Callable[[SamplePair, SamplePair], bool]:
    """Return the test whether no work lies between two neighbouring samples of `signal`."""
    reading = SIGNAL_KINDS[signal].reading
    if reading == ALIVE:
        return lambda a, b: a[1] > 0 and b[1] > 0
    if reading == COUNTER:
        return lambda a, b: a[1] == b[1]
    if reading == AGE:
        least = INPUT_COUNTS_FOR.total_seconds()
        return lambda a, b: a[1] >= least and b[1] >= least
    most = thresholds.find_most_idle(signal)
    return lambda a, b: a[1] <= most and b[1] <= most


def _find_large_volumes(pairs: Sequence[SamplePair]) -> list[TimeRange]:
    """Return the times of at most an hour in which so many bytes were moved that they are work, however slowly."""
    ranges, first, total = list[TimeRange](), 0, 0.0
    volumes = [0.0, *(b[1] * (b[0] - a[0]) / SECOND_US for a, b in pairwise(pairs))]
    for last in range(1, len(pairs)):
        total += volumes[last]
        while pairs[last][0] - pairs[first][0] > HOUR_US:
            first += 1
            total -= volumes[first]
        if total > WORK_BYTES_MIN:
            ranges.append((pairs[first][0], pairs[last][0]))
    return join_ranges(ranges)
