"""Evidence: the samples of a resource in columns, and those of them that count, in order, once for all policies.

A fleet of 10,000 with 45 samples of 4 signals is 1.8 million samples, so from here to `tracks` a sample is no object: it is a
place in two columns, and an instant is a whole number of microseconds. This is the one place that turns samples into columns.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import accumulate
from operator import sub

from costguard.guard.signals import AGE, ALIVE, CLOCK_AHEAD_MAX, COUNTER, LIMIT, PRESENCE, SIGNAL_KINDS, SignalKind
from costguard.values.instant import MICROSECOND, SECOND_US, from_micros, to_micros
from costguard.values.sample import Sample

SAMPLE_LOOKBACK = timedelta(hours=48)
"""How far back the last work is looked for."""
CLOCK_AHEAD_MAX_US = CLOCK_AHEAD_MAX // MICROSECOND
LONGEST_AGE_S = 1e9
RECENT_SAMPLES = 500
"""Samples that say how often one comes."""
SLOWDOWN_MAX = 1.25
"""How much slower than asked our own polls may be before samples count as missing: 80 % of them are there then (GUARD 2)."""

SampleColumns = Mapping[str, tuple[Sequence[int], Sequence[float]]]
"""By signal: when its samples were taken, in microseconds since 1970 and in order, and their values."""


@dataclass(slots=True)
class SignalSeries:
    """One signal's samples that count, in order of time. `gap`: the longest between two of them, in microseconds.

    What every window asks anew is found once: the busy samples above a value, the holes at a rhythm, the running totals.
    """

    signal: str
    kind: SignalKind
    ats: Sequence[int]
    values: Sequence[float]
    gap: int
    low: float
    top: float
    _busy: tuple[float, Sequence[int]] | None = None
    _holes: tuple[int, Sequence[int]] | None = None
    _totals: list[float] = field(default_factory=list)

    def find_above(self, value: float) -> Sequence[int]:
        """When it was above `value`; of a counter, when it changed; of an age, when what it counts from last happened."""
        if self._busy is None or self._busy[0] != value:
            self._busy = value, self._compute_above(value)
        return self._busy[1]

    def find_holes(self, poll: int) -> Sequence[int]:
        """When samples were due at a rhythm of `poll`, and did not come."""
        if 2 * self.gap <= 3 * poll:
            return ()
        if self._holes is None or self._holes[0] != poll:
            pairs = zip(self.ats, self.ats[1:], strict=False)
            due = ((a, (2 * (b - a) + poll) // (2 * poll)) for a, b in pairs)
            self._holes = poll, [a + k * poll for a, n in due for k in range(1, n)]
        return self._holes[1]

    @property
    def totals(self) -> Sequence[float]:
        """The sum of the first n values, at n."""
        self._totals = self._totals or [0.0, *accumulate(self.values)]
        return self._totals

    def _compute_above(self, value: float) -> Sequence[int]:
        reading, ats, values = self.kind.reading, self.ats, self.values
        if reading in (ALIVE, PRESENCE, LIMIT):
            return ()
        if reading == COUNTER:
            changes = zip(ats[1:], values, values[1:], strict=False) if self.low != self.top else ()
            return [at for at, before, after in changes if after != before]
        if reading == AGE:
            ages = (round(min(max(one, 0.0), LONGEST_AGE_S) * SECOND_US) for one in values)
            return [max(map(sub, ats, ages))]
        if self.top <= value:
            return ()
        return ats if self.low > value else [at for at, one in zip(ats, values, strict=True) if one > value]


CountedSeries = tuple[Mapping[str, SignalSeries], bool]
"""Samples by signal, and whether any lies in the future."""


def build_columns(samples: Iterable[Sample]) -> SampleColumns:
    """`samples`, in any order, in columns."""
    by_signal: dict[str, list[tuple[int, float]]] = {}
    for sample in samples:
        by_signal.setdefault(sample.signal, []).append((to_micros(sample.at), sample.value))
    return {signal: _sort_pairs(of) for signal, of in by_signal.items()}


def _sort_pairs(pairs: Iterable[tuple[int, float]]) -> tuple[Sequence[int], Sequence[float]]:
    ats, values = zip(*sorted(pairs), strict=True)
    return ats, values


def select_counted_series(columns: SampleColumns, since: datetime, now: datetime) -> CountedSeries:
    """Those samples that count at `now`, by signal and time, and whether a clock jumped."""
    return build_series(columns, to_micros(find_counting_start(since, now)), to_micros(now))


def find_counting_start(since: datetime, now: datetime) -> datetime:
    """From when on samples count, of what is known since `since`."""
    return min(now, max(since, now - SAMPLE_LOOKBACK))


def build_series(columns: SampleColumns, start: int, now: int) -> CountedSeries:
    """Each signal's samples from `start` to `now`, and whether any lie in the future: a clock jumped."""
    lines, jumped = dict[str, SignalSeries](), False
    last: tuple[Sequence[int], int] = (), 0
    for signal, kind in SIGNAL_KINDS.items():
        if signal not in columns:
            continue
        ats, values = columns[signal]
        if kind.reading == ALIVE and min(values, default=1) <= 0:
            alive = [(at, value) for at, value in zip(ats, values, strict=True) if value > 0]
            ats, values = [at for at, _ in alive], [value for _, value in alive]
        if ats and ats[-1] > now:
            jumped = jumped or ats[-1] > now + CLOCK_AHEAD_MAX_US
            known = bisect_right(ats, now + CLOCK_AHEAD_MAX_US)
            ats, values = [min(at, now) for at in ats[:known]], values[:known]
        if ats and ats[0] < start:
            early = bisect_left(ats, start)
            ats, values = ats[early:], values[early:]
        if ats:
            if ats != last[0]:  # one look at a machine gives a sample of each of its signals
                last = ats, max(map(sub, ats[1:], ats), default=0)
            lines[signal] = SignalSeries(signal, kind, ats, values, last[1], min(values), max(values))
    return lines, jumped


def find_sample_bounds(columns: SampleColumns) -> tuple[datetime, datetime] | None:
    """When the first and when the last sample of any signal was taken; None: there is none."""
    ends = [(ats[0], ats[-1]) for ats, _ in columns.values() if ats]
    return (from_micros(min(first for first, _ in ends)), from_micros(max(last for _, last in ends))) if ends else None


def estimate_sample_interval(columns: SampleColumns, interval: timedelta) -> timedelta:
    """How often a sample is due: every `interval`, or as rarely as a provider publishes its measures.

    The smallest distance of any two neighbours says how rarely that is, so that samples which are missing do not look like a
    slower rhythm. Where we are late ourselves, the usual distance counts, up to SLOWER: at 1.2 s for 1 s nothing is missing.
    """
    apart, left = list[int](), RECENT_SAMPLES
    last: tuple[Sequence[int], list[int]] = (), []
    for signal in sorted(columns, reverse=True):
        ats = columns[signal][0][-left:]
        if ats != last[0]:
            last = ats, list(map(sub, ats[1:], ats))
        apart += last[1]
        left -= len(ats)
        if left <= 0:
            break
    apart.sort()
    if apart and apart[0] <= 0:
        apart = list(filter(None, apart))
    return max(_clamp_interval(apart[0], apart[len(apart) // 2], interval), interval) if apart else interval


@lru_cache(maxsize=1000)
def _clamp_interval(least: int, middle: int, interval: timedelta) -> timedelta:
    return max(least * MICROSECOND, min(middle * MICROSECOND, SLOWDOWN_MAX * interval))
