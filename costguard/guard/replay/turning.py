"""When the evidence of a resource may turn: between two such times only time itself changes what a guard run finds.

Example: GPU duty 97, 96, 0, 0, ..., 0, 31 %: the third sample and the last one turn it, and the quiet ones between them need
not be looked at one by one. A sample that did not come when it was due turns it as well, and so does the next one.

This says only when to look. What is found then, `judging` says.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from costguard.guard.evidence import SampleColumns
from costguard.guard.signals import (
    AGE,
    ALIVE,
    BUSY_SHARE_MIN,
    COUNTER,
    CPU_UTIL_LARGE,
    FLOOR_SHARE,
    PRESENCE,
    RISE_SHARE,
    SIGNAL_KINDS,
    VOLUMES,
    WORK_BYTES_MIN,
)
from costguard.guard.work import POWER, PROGRESS
from costguard.values.instant import MICROSECOND, from_micros
from costguard.values.sample import CPU_UTIL, GPU_BUSY_COUNT, GPU_POWER, GPU_POWER_LIMIT, GPU_UTIL

HANG_DUTY_PERCENT = 95.0
"""Percent of duty from which on a machine may look hung; the other edge of duty is its kind's."""
LATE_INTERVALS = 1.5
"""Intervals after which a sample was due and did not come."""
SLACK = 1e-9

SampleColumn = tuple[Sequence[int], Sequence[float]]
"""When samples were taken, in microseconds since 1970 and in order, and their values."""


def find_change_points(samples: SampleColumns, poll: timedelta, window: timedelta, gpus: float) -> list[datetime]:
    """Every time at which what the samples say may turn, in order.

    `poll`: how often one is due. `window`: the longest that any policy looks at. `gpus`: of the machine.
    """
    late = round(LATE_INTERVALS * (poll // MICROSECOND))
    limit = min(samples[GPU_POWER_LIMIT][1], default=0.0) if GPU_POWER_LIMIT in samples else 0.0
    hangs = any(SIGNAL_KINDS[signal].family == PROGRESS for signal in samples if signal in SIGNAL_KINDS)
    hidden = [] if hangs else _find_busy_stretches(samples, late, (BUSY_SHARE_MIN * window + 2 * poll) // MICROSECOND)
    starts, found = [start for start, _ in hidden], set[int]()
    for signal, line in samples.items():
        if signal not in SIGNAL_KINDS or not line[0]:
            continue
        found.update((line[0][0], line[0][-1]))
        whole = limit * (max(1.0, gpus) if signal == GPU_POWER else 1)
        of = (*_find_holes(line, late), *_find_signal_changes(signal, line, whole, window, hangs=hangs))
        if signal == GPU_UTIL:
            found.update(of)
            continue
        for at in of:
            number = bisect_right(starts, at) - 1
            if number < 0 or at >= hidden[number][1]:
                found.add(at)
    return [from_micros(at) for at in sorted(found)]


def _find_holes(line: SampleColumn, late: int) -> Iterator[int]:
    for before, after in pairwise(line[0]):
        if after - before > late:
            yield before
            yield after


def _find_signal_changes(signal: str, line: SampleColumn, limit: float, window: timedelta, *, hangs: bool) -> Iterator[int]:
    kind = SIGNAL_KINDS[signal]
    if kind.family == POWER and signal != GPU_POWER_LIMIT:
        return _find_power_changes(line, limit)
    if kind.reading in (COUNTER, PRESENCE, ALIVE) or signal in (GPU_POWER_LIMIT, GPU_BUSY_COUNT):
        return (at for at, (before, after) in zip(line[0][1:], pairwise(line[1]), strict=True) if before != after)
    if kind.reading == AGE:
        return (at for at, (before, after) in zip(line[0][1:], pairwise(line[1]), strict=True) if after < before)
    edges = (kind.above, HANG_DUTY_PERCENT - SLACK if hangs else kind.above)
    if signal == CPU_UTIL:
        edges = (kind.above, CPU_UTIL_LARGE)
    if kind.reading == VOLUMES:
        edges = (kind.above, WORK_BYTES_MIN / window.total_seconds() / 2 - SLACK)
    return _find_crossings(line, *edges)


def _find_crossings(line: SampleColumn, one: float, other: float) -> Iterator[int]:
    classes = [(value > one) + (value > other) for value in line[1]]
    return (at for at, (before, after) in zip(line[0][1:], pairwise(classes), strict=True) if before != after)


def _find_power_changes(line: SampleColumn, limit: float) -> Iterator[int]:
    """Where power leaves the band in which its own floor cannot make work of it; above it each sample counts."""
    if limit <= 0:
        return
    lowest = highest = line[1][0]
    for at, value in zip(*line, strict=True):
        lowest, highest = min(lowest, value), max(highest, value)
        if highest - lowest > RISE_SHARE * limit or highest > (FLOOR_SHARE + RISE_SHARE) * limit:
            yield at
            lowest = highest = value


def _find_busy_stretches(samples: SampleColumns, late: int, sure: int) -> list[tuple[int, int]]:
    """Stretches in which every sample of GPU duty is work and none is missing: whatever else turns then, it works.

    Not for a machine of which a hang could be told: that is judged by more than duty. `sure`: after so long there are enough.
    """
    if GPU_UTIL not in samples:
        return []
    above, found = SIGNAL_KINDS[GPU_UTIL].above, list[tuple[int, int]]()
    begin = last = None
    for at, value in zip(*samples[GPU_UTIL], strict=True):
        goes_on = begin is not None and last is not None and value > above and at - last <= late
        if begin is not None and last is not None and not goes_on:
            found.append((begin + sure, last))
        if not goes_on:
            begin = at if value > above else None
        last = at
    if begin is not None and last is not None:
        found.append((begin + sure, last))
    return [(start, end) for start, end in found if start < end]
