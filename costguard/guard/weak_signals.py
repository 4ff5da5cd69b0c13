"""Weak signals that are work together: each lies below its own threshold.

Example: a training that starves for data shows GPU duty of 3 % (5 % is work), 0.15 cores (0.2) and 0.5 MB/s (1): together
0.6 + 0.75 + 0.5, which is more than 1.1, so it works. At rest a machine shows 0 %, 0.02 cores and 20 kB/s: nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate

from costguard.guard.sample_times import ActivityWindow, SampleTimes
from costguard.guard.signal_summary import SignalSummary, summarize_signal
from costguard.guard.signals import SignalKind, SignalSeries
from costguard.values.sample import CPU_CORES, CPU_UTIL, DISK, GPU_UTIL, NETWORK, PCIE

WEAK_SIGNALS = ((GPU_UTIL,), (CPU_CORES, CPU_UTIL), (NETWORK,), (DISK,), (PCIE,))
"""Signals that add up; of those in one group, which measure the same work, the larger share counts."""
WEAK_SIGNAL_NAMES = frozenset(name for group in WEAK_SIGNALS for name in group)
SHARE_MIN, SHARE_MAX, WORK_MIN = 0.4, 0.8, 1.1
"""A signal below 0.4 of its threshold is noise and adds nothing; one adds at most 0.8, so that work takes two."""
SMOOTHED_OVER = 5
"""Samples that are averaged, so that what runs once in a while on a machine at rest does not count."""
COMBINED = SignalKind(family="", told="weak signals together", unit=" of what is work")


def summarize_weak_signals(
    lines: Mapping[str, SignalSeries], thresholds: Mapping[str, float], window: ActivityWindow, since: int
) -> SignalSummary | None:
    """Summarize the sum of the weak signals that were sampled together; None: they cannot be work.

    `thresholds`: the value above which each signal is work by itself. `since`: when work by a single signal ended.
    """
    series = combine_weak_signals(lines, thresholds, since)
    return None if series is None else summarize_signal(series, window, WORK_MIN)


def combine_weak_signals(
    lines: Mapping[str, SignalSeries], thresholds: Mapping[str, float], since: int = 0
) -> SignalSeries | None:
    """Return the sum of the shares of all weak signals at each sample since `since`; None: they cannot be work."""
    groups = [[lines[name] for name in group if name in lines and thresholds.get(name, 0) > 0] for group in WEAK_SIGNALS]
    times = next((line.ats for group in groups for line in group), ())
    groups = [[line for line in group if line.ats == times] for group in groups]
    if sum(max((_limit_share(line.top, thresholds[line.signal]) for line in group), default=0) for group in groups) <= WORK_MIN:
        return None
    first = bisect_left(times, since)
    sums = [0.0] * (len(times) - first)
    for group in filter(None, groups):
        shares = [[_limit_share(value, thresholds[line.signal]) for value in line.values[first:]] for line in group]
        sums = [total + max(each) for total, each in zip(sums, zip(*shares, strict=True), strict=True)]
    values = _smooth(sums)
    if not values:
        return None
    return SignalSeries("weak_signals", COMBINED, SampleTimes.of(times[first:]), values, min(values), max(values))


def _limit_share(value: float, threshold: float) -> float:
    share = value / threshold
    return 0.0 if share < SHARE_MIN else min(SHARE_MAX, share)


def _smooth(values: Sequence[float]) -> list[float]:
    """Return each value, or the mean of the last samples up to it if that is lower: work begins slowly and ends at once.

    Samples before the first count as 0.
    """
    totals = [0.0, *accumulate(values)]
    means = ((totals[k + 1] - totals[max(0, k + 1 - SMOOTHED_OVER)]) / SMOOTHED_OVER for k in range(len(values)))
    return [min(value, mean) for value, mean in zip(values, means, strict=True)]
