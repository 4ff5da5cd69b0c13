"""How much of its GPUs a machine used, hour by hour, from the sums of its samples of GPU duty.

Example: an H100 ran from 10:00 to 14:00 with a sample each minute, 31 % in the mean; those of 12:00 to 13:00 are missing. Of 4
paid GPU-hours, 3 are measured and 0.93 were used.

Duty is that of the busiest GPU. So the use of a machine with several GPUs is at most this times its GPUs, and at most the
number of GPUs that ran a kernel: the lower of both is reported, an upper bound.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from costguard.values.instant import HOUR_US

Rows = Iterable[tuple[int, int, float, float, float]]
"""An hour since 1970, and the number, sum, least and greatest value of its samples, in order (`waste.SampledHour`)."""
COMPLETE_SHARE = 0.5
"""Of the samples of its fullest hour, the share from which on an hour counts as measured throughout; below, as its share."""
LEAST_DUTY, MOST_DUTY = 0.0, 100.0


class GpuUse(NamedTuple):
    """The `hours` with samples, in order. `measured`, `used`: sums of the shares of all hours before each one, and of all."""

    hours: Sequence[int]
    measured: Sequence[float]
    used: Sequence[float]

    def sum_within(self, first_us: int, last_us: int) -> tuple[float, float]:
        """Return the microseconds of [`first_us`, `last_us`) that are measured, and those that all GPUs together used."""
        begin, end = -(-first_us // HOUR_US), last_us // HOUR_US
        first, last = bisect_left(self.hours, begin), bisect_left(self.hours, end)
        limit = max(first, last)
        measured = (self.measured[limit] - self.measured[first]) * HOUR_US
        used = (self.used[limit] - self.used[first]) * HOUR_US
        edges = {hour for hour in (first_us // HOUR_US, end) if not begin <= hour < end}
        for hour in edges:
            place = bisect_left(self.hours, hour)
            if place < len(self.hours) and self.hours[place] == hour:
                overlap = min(last_us, (hour + 1) * HOUR_US) - max(first_us, hour * HOUR_US)
                share = self.measured[place + 1] - self.measured[place]
                length = max(0.0, min(overlap, share * HOUR_US))
                measured += length
                used += length * (self.used[place + 1] - self.used[place]) / share
        return measured, used


def measure_gpu_use(duty: Rows, busy: Rows, gpus: float) -> GpuUse:
    """Return the use of a machine with `gpus` GPUs. `duty`: of its busiest GPU, in percent; `busy`: GPUs that ran a kernel.

    Hours whose duty no GPU can show are left out, and those where it may be a fraction (`guard.activity`).
    """
    rows = [row for row in duty if row[3] >= LEAST_DUTY and row[4] <= MOST_DUTY and row[1] and not (row[3] > 0 and row[4] <= 1)]
    fullest = max((row[1] for row in rows), default=1)
    most = {hour: total / count / gpus for hour, count, total, _, _ in busy if count} if gpus > 1 else {}
    measured = [1.0 if count >= COMPLETE_SHARE * fullest else count / fullest for _, count, _, _, _ in rows]
    shares = [min(total / count / MOST_DUTY, most.get(hour, 1.0)) for hour, count, total, _, _ in rows]
    used = [part * share for part, share in zip(measured, shares, strict=True)]
    return GpuUse([row[0] for row in rows], list(accumulate(measured, initial=0.0)), list(accumulate(used, initial=0.0)))


NO_USE = GpuUse((), (0.0,), (0.0,))
