"""How much of its GPUs a machine uses: shares from 0 to 1, by the newest sample or as a mean over a window.

Example: a GPU has a sample each minute, and in the last 2 h its duty was 31 % in the mean: `gpu_util.mean("2h")` is 0.31. If it
started 50 min ago, samples cover less than half of the 2 h, and the mean is unknown.

A sample stands for the time since the one before, two intervals at most: a burst of samples weighs no more than its time, and a
hole counts as not measured, never as zero. What no GPU can show is left out (a duty of 300 %, 0 W of a GPU that is on).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import mul, ne, sub

from costguard.guard.facts import name_mean, split_mean
from costguard.guard.signal_summary import IDLE_POWER_SHARE_MIN
from costguard.guard.signals import SampleColumns
from costguard.values.instant import MICROSECOND, to_micros
from costguard.values.sample import GPU_MEMORY_USED, GPU_POWER, GPU_POWER_BUSIEST, GPU_POWER_LIMIT, GPU_UTIL, SM_ACTIVE
from costguard.values.text_format import format_length

PERCENT_SIGNALS = {"gpu_util": GPU_UTIL, "gpu_mem": GPU_MEMORY_USED, "sm_active": SM_ACTIVE}
COVERAGE_LEAST = 0.5
"""Share of a window that samples must cover: with less, the part that is not known could turn the mean over."""
POWER_SHARE_MAX = 1.25
"""Of the limit: GPUs exceed theirs by a few percent for milliseconds, so more is another unit or another limit."""

USAGE_WINDOW = timedelta(hours=2)
"""What status and pages show the mean of."""
JUMPING, STEADY = "jumping", "steady"
QUIET_MOST, BUSY_LEAST, SWITCHES_LEAST, JUMPING_SHARE = 0.1, 0.8, 8, 0.7
"""Jumping: in 70 % of the samples the GPU does next to nothing or nearly all it can, and it changes eight times between both. A
job that ends, or one of ten minutes every hour, changes four times in two hours."""
STEADY_WITHIN, STEADY_SHARE = 0.1, 0.9
CAUSES = {
    JUMPING: "jumping between 0 and 100 %: it probably waits for data or requests. Try more data loader workers, pinned "
    "memory, a copy of the data on a local disk",
    STEADY: "steady: there is probably little work in each step. Try a larger batch, or a smaller GPU",
}
"""Pattern -> what it looks like, and what to try."""
PATTERN_LEAST, PATTERN_MOST = 0.05, 0.6
"""Means between which a pattern is looked for: above, the GPU is used well; below, hardly at all."""

Shares = tuple[Sequence[int], Sequence[float]]
"""When samples were taken, in microseconds since 1970 and in order, and what they show, 0 to 1."""


def measure_share(
    name: str, columns: SampleColumns, *, since: datetime, now: datetime, interval: timedelta, lag: timedelta, gpus: float
) -> float | None:
    """Return the utilisation `name` (`gpu_util`, or a mean of it) at `now`; None: not measured, or not enough of the window.

    `since`: samples before it do not count. `interval`: how often a sample is due. `lag`: how late the newest one may be.
    `gpus`: how many GPUs the machine has.
    """
    fact, window = split_mean(name)
    last, poll, start = to_micros(now - lag), interval // MICROSECOND, to_micros(since)
    opens = last - (2 * poll if window is None else window // MICROSECOND)
    ats, values = _list_shares(fact, columns, max(start - 1, opens), to_micros(now), gpus)
    if not ats or (fact == "gpu_util" and _may_be_fraction(values[len(values) // 2 :])):
        return None
    if window is None:
        return values[-1]
    longest = 2 * poll
    spans = [ats[0] - max(opens, start), *map(sub, ats[1:], ats)]
    spans[0] = max(0, min(spans[0], poll))
    if max(spans) > longest:
        spans = [min(span, longest) for span in spans]
    covered = sum(spans)
    return sum(map(mul, spans, values)) / covered if covered >= COVERAGE_LEAST * (last - opens) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUsage:
    """The duty of the busiest GPU over USAGE_WINDOW: its `mean`, 0 to 1, and its `pattern`: JUMPING, STEADY or ""."""

    mean: float
    pattern: str = ""


def measure_usage(
    columns: SampleColumns, *, since: datetime, now: datetime, interval: timedelta, lag: timedelta
) -> GpuUsage | None:
    """Return the use at `now`; None: not measured, or not enough of the window. Parameters as of `measure_share`."""
    name = name_mean("gpu_util", USAGE_WINDOW)
    mean = measure_share(name, columns, since=since, now=now, interval=interval, lag=lag, gpus=1)
    if mean is None:
        return None
    _, shares = _list_shares("gpu_util", columns, to_micros(max(since, now - lag - USAGE_WINDOW)), to_micros(now), 1)
    return GpuUsage(mean=mean, pattern=_find_pattern(shares, mean) if PATTERN_LEAST <= mean <= PATTERN_MOST else "")


def describe_usage(usage: GpuUsage, gpus: float) -> str:
    """Return the use of a machine with so many GPUs in words: `the busiest of 4 GPUs at 31 % for 2 h, jumping between ...`."""
    subject = f"the busiest of {gpus:g} GPUs" if gpus > 1 else "GPU"
    cause = f", {CAUSES[usage.pattern]}" if usage.pattern else ""
    return f"{subject} at {usage.mean * 100:.0f} % for {format_length(USAGE_WINDOW)}{cause}"


def _find_pattern(shares: Sequence[float], mean: float) -> str:
    ends = [share >= BUSY_LEAST for share in shares if not QUIET_MOST < share < BUSY_LEAST]
    switches = sum(map(ne, ends[1:], ends))
    if switches >= SWITCHES_LEAST and len(ends) >= JUMPING_SHARE * len(shares):
        return JUMPING
    near = sum(abs(share - mean) <= STEADY_WITHIN for share in shares)
    return STEADY if near >= STEADY_SHARE * len(shares) else ""


def _may_be_fraction(shares: Sequence[float]) -> bool:
    """Return whether all lie above 0 and up to 1 %: the unit may be a fraction, or have become one in the window."""
    return min(shares) > 0 and max(shares) <= 0.01  # noqa: PLR2004 - as the percentages of `activity`


def _list_shares(fact: str, columns: SampleColumns, opens: int, now: int, gpus: float) -> Shares:
    """Return the samples of `fact` in (`opens`, `now`] that can be true, as shares."""
    if fact != "power_share":
        return _select(columns, PERCENT_SIGNALS[fact], opens, now, 100.0)
    signal = GPU_POWER if GPU_POWER in columns and gpus >= 1 else GPU_POWER_BUSIEST
    _, limits = columns.get(GPU_POWER_LIMIT, ((), ()))
    limit = limits[-1] * (gpus if signal == GPU_POWER else 1) if limits else 0.0
    if limit <= 0:
        return (), ()
    return _select(columns, signal, opens, now, limit, least=IDLE_POWER_SHARE_MIN, most=POWER_SHARE_MAX)


def _select(
    columns: SampleColumns, signal: str, opens: int, now: int, unit: float, *, least: float = 0.0, most: float = 1.0
) -> Shares:
    """Return the samples of `signal` in (`opens`, `now`], divided by `unit`, from `least` to `most`; above 1 counts as 1."""
    ats, values = columns.get(signal, ((), ()))
    first, end = bisect_right(ats, opens), bisect_left(ats, now + 1)
    ats, shares = ats[first:end], [value / unit for value in values[first:end]]
    if shares and not least <= min(shares) <= max(shares) <= most:
        pairs = [(at, share) for at, share in zip(ats, shares, strict=True) if least <= share <= most]
        ats, shares = [at for at, _ in pairs], [share for _, share in pairs]
    return ats, shares if most == 1 else [min(1.0, share) for share in shares]
