"""Signals: what each says of work, from which value on, and what its samples prove. Missing is never quiet.

Example: 45 samples of GPU duty are due in 45 min. Five above 5 % are work. Four are noise. Four above 5 % of the 44 that came
are not known to be either, since the one that is missing could have been the fifth.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import accumulate, pairwise
from math import ceil, floor
from operator import lt, sub

from costguard.core.guard.work import AGENT, CPU, DUTY, IO, PEOPLE, POWER, PROGRESS, QUEUE
from costguard.core.sample import (
    AGENT_ALIVE,
    CONNECTIONS,
    CPU_CORES,
    CPU_UTIL,
    DISK,
    GPU_BUSY_COUNT,
    GPU_POWER,
    GPU_POWER_BUSIEST,
    GPU_POWER_LIMIT,
    GPU_UTIL,
    HEARTBEAT,
    INPUT_AGE,
    NETWORK,
    PCIE,
    QUEUE_JOBS,
    STEP,
    Sample,
)

WORK_SHARE = 0.1
"""A signal of levels is work where at least this share of the window's samples is busy; less is noise."""
COVERED = 0.8
"""Of the samples that are due, the share that must be there."""
VOLUME = 2e9
"""Bytes within a window that are work however they are spread: a checkpoint written in one minute."""
INPUT_COUNTS = timedelta(minutes=30)
"""For how long somebody who typed is at work."""
AHEAD = timedelta(seconds=5)
"""How far another's clock may run ahead of ours; a sample that is later yet shows that a clock jumped."""
FLOOR_SHARE, RISE_SHARE, LOW_SHARE = 0.25, 0.15, 0.35
"""Of a GPU's power limit: the most an idle floor can be (idle H100: 0.1, T4: 0.15); what work draws on top; a hang's most."""

_least = lru_cache(maxsize=1000)(lambda span, poll: max(1, ceil(WORK_SHARE * round(span / poll) - 1e-9)))
LEVEL, VOLUMES, COUNTER, AGE, ALIVE, PRESENCE, LIMIT = "level", "volumes", "counter", "age", "alive", "presence", "limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How a signal is read. `above`: a value above it is busy, in the signal's unit. `told`: for people, with its unit."""

    family: str
    reading: str = LEVEL
    above: float = 0
    told: str
    unit: str = ""
    scale: float = 1


KINDS: Mapping[str, Kind] = {
    GPU_UTIL: Kind(family=DUTY, above=5, told="GPU duty", unit=" %"),
    GPU_BUSY_COUNT: Kind(family=DUTY, told="busy GPUs"),
    GPU_POWER: Kind(family=POWER, told="GPU power", unit=" W"),
    GPU_POWER_BUSIEST: Kind(family=POWER, told="power of the busiest GPU", unit=" W"),
    GPU_POWER_LIMIT: Kind(family=POWER, reading=LIMIT, told="power limit", unit=" W"),
    CPU_CORES: Kind(family=CPU, above=0.2 - 1e-9, told="CPU", unit=" cores"),
    CPU_UTIL: Kind(family=CPU, above=1, told="CPU", unit=" %"),
    NETWORK: Kind(family=IO, reading=VOLUMES, above=1e6, told="network", unit=" kB/s", scale=1e-3),
    DISK: Kind(family=IO, reading=VOLUMES, above=1e6, told="disk", unit=" kB/s", scale=1e-3),
    PCIE: Kind(family=IO, reading=VOLUMES, above=1e6, told="PCIe", unit=" kB/s", scale=1e-3),
    STEP: Kind(family=PROGRESS, reading=COUNTER, told="steps"),
    HEARTBEAT: Kind(family=PROGRESS, reading=COUNTER, told="heartbeat"),
    QUEUE_JOBS: Kind(family=QUEUE, told="jobs in the queue"),
    INPUT_AGE: Kind(family=PEOPLE, reading=AGE, told="input"),
    CONNECTIONS: Kind(family=PEOPLE, reading=PRESENCE, told="open sessions"),
    AGENT_ALIVE: Kind(family=AGENT, reading=ALIVE, told="agent"),
}
"""The signals that bear on work. Memory held and temperature do not: a process that holds both may be asleep."""

CPU_UTIL_LARGE = 0.5
"""Percent that is busy on a machine of four GPUs and more, else 1: one core of 192 is 0.52 %, one of 96 on one GPU 1.04 %.

Too low rather than too high: 20 % of one core cannot be told from noise in a percentage of a whole machine."""


@dataclass(frozen=True, slots=True)
class Line:
    """One signal's samples in order of time, at most one window's reach back. `gap`: the longest between two of them."""

    signal: str
    ats: list[datetime]
    values: list[float]
    gap: timedelta


@dataclass(frozen=True, slots=True)
class Window:
    """What is looked at: samples from `start` on, and for the state those after `opens`. `due`: how many should be there."""

    start: datetime
    opens: datetime
    now: datetime
    length: timedelta
    poll: timedelta
    due: int
    newest: datetime

    def least(self, span: timedelta) -> int:
        """How many busy samples in `span` are work."""
        return int(_least(min(self.length, span), self.poll))


@dataclass(frozen=True, slots=True)
class Track:
    """What a signal says. `busy`: it is work now. `doubtful`: it could be, for all that is missing. `worked`: it ever was.

    `until`: when its last work, or what could be work, was over; None: never was any since `Window.start`. `began`: since when
    it is busy without a pause of a window. `peak`: its highest value in the window.
    """

    line: Line
    kind: Kind
    busy: bool
    doubtful: bool
    worked: bool
    coverage: float
    fresh: bool
    until: datetime | None
    began: datetime | None
    peak: float

    @property
    def proven(self) -> bool:
        """Whether it is surely quiet."""
        return self.fresh and not self.doubtful and not self.busy and self.coverage >= COVERED


def lines_of(samples: Iterable[Sample], start: datetime, now: datetime) -> tuple[dict[str, Line], bool]:
    """Each signal's samples from `start` to `now`, and whether any lie in the future: a clock jumped."""
    by_signal: dict[str, list[Sample]] = {}
    for sample in samples:
        try:
            by_signal[sample.signal].append(sample)
        except KeyError:
            by_signal[sample.signal] = [sample]
    lines, jumped = dict[str, Line](), False
    for signal, kind in KINDS.items():
        found = by_signal.get(signal)
        if not found:
            continue
        if kind.reading == ALIVE:
            found = [one for one in found if one.value > 0]
        ats = [one.at for one in found]
        if not all(map(lt, ats, ats[1:])):
            found.sort(key=_order)
            ats = [one.at for one in found]
        values = [one.value for one in found]
        if ats and ats[-1] > now:
            jumped = jumped or ats[-1] > now + AHEAD
            known = bisect_right(ats, now + AHEAD)
            ats, values = [min(at, now) for at in ats[:known]], values[:known]
        if ats and ats[0] < start:
            early = bisect_right(ats, start - timedelta(microseconds=1))
            ats, values = ats[early:], values[early:]
        if ats:
            lines[signal] = Line(signal, ats, values, max(map(sub, ats[1:], ats), default=timedelta()))
    return lines, jumped


def _order(sample: Sample) -> tuple[datetime, float]:
    return sample.at, sample.value


def track(line: Line, window: Window, above: float) -> Track:
    """What `line` says, where a value above `above` is busy."""
    kind, ats, values, poll = KINDS[line.signal], line.ats, line.values, window.poll
    late = window.newest - ats[-1]
    fresh = late <= 2 * poll
    head, tail = _head(kind, ats[0], window), max(0, floor(late / poll))
    inside = _holes(ats, poll) if 2 * line.gap > 3 * poll else []
    first = bisect_right(ats, window.opens) if ats[0] <= window.opens else 0
    peak = max(values[first:] if first else values, default=0.0)
    busy = _busy(kind, line, window, above)
    bound = ats[0] if ats[0] - window.start >= poll else None
    if not (inside or head or tail or busy):
        return Track(line, kind, False, False, False, 1.0, fresh, bound, None, peak)  # noqa: FBT003 - hundreds of thousands
    one = kind.reading in (VOLUMES, COUNTER, AGE)
    worked, now_busy = _last(busy, window, one=one), _enough(busy, window, one=one)
    if kind.reading == AGE:
        now_busy = bool(busy) and window.now - busy[-1] < INPUT_COUNTS
    missing = head + tail + len(inside) - bisect_right(inside, window.opens)
    doubtful, possible = False, worked
    if kind.reading in (LEVEL, VOLUMES, COUNTER):
        holes = [] if kind.reading == COUNTER else inside
        unseen = head + {LEVEL: tail, VOLUMES: max(0, tail - 1), COUNTER: 0}[kind.reading]
        marks = sorted([*busy, *holes])
        possible = _last(marks, window, one=one)
        least = 1 if one else window.least(window.now - window.start)
        doubtful = len(marks) - bisect_right(marks, window.opens) + unseen >= least if holes or unseen else False
    ends = [at for at in (_after(kind, line, possible, window), bound) if at is not None]
    return Track(
        line,
        kind,
        now_busy,
        doubtful,
        worked is not None,
        max(0.0, 1 - missing / window.due),
        fresh,
        max(ends, default=None),
        _began(busy, window.length) if now_busy else None,
        peak,
    )


def _head(kind: Kind, first: datetime, window: Window) -> int:
    """How many samples are missing before the first. Of a counter its value at the opening is one of those that are due."""
    if first <= window.opens:
        return 0
    polls = (first - max(window.opens, window.start)) / window.poll
    return floor(polls) if kind.reading == COUNTER else ceil(polls) - 1


def power_above(line: Line, window: Window, limit: float, gpus: float) -> float:
    """Watts above which `line` draws for work: its own floor in the window and 15 % of the limit.

    Where a sample is missing it could have been the lowest: the floor is then taken for 0.
    """
    whole = limit * (max(1.0, gpus) if line.signal == GPU_POWER else 1)
    missed = 2 * line.gap > 3 * window.poll or line.ats[0] - window.opens >= window.poll
    first = bisect_right(line.ats, window.opens)
    floor_w = 0.0 if missed or window.newest - line.ats[-1] >= window.poll else min(line.values[first:], default=0.0)
    return max(0.0, min(floor_w, FLOOR_SHARE * whole)) + RISE_SHARE * whole


def _holes(ats: Sequence[datetime], poll: timedelta) -> list[datetime]:
    """When samples were due and did not come."""
    return [a + k * poll for a, b in pairwise(ats) for k in range(1, floor((b - a) / poll + 0.5))]


def _busy(kind: Kind, line: Line, window: Window, above: float) -> list[datetime]:
    """The samples that say work, by time."""
    ats, values = line.ats, line.values
    if kind.reading in (ALIVE, PRESENCE, LIMIT):
        return []
    if kind.reading == COUNTER:
        if min(values) == max(values):
            return []
        return [at for at, before, value in zip(ats[1:], values, values[1:], strict=False) if value != before]
    if kind.reading == AGE:
        last = max(at - timedelta(seconds=min(max(value, 0.0), 1e9)) for at, value in zip(ats, values, strict=True))
        return [last] if last >= window.start else []
    often = [at for at, value in zip(ats, values, strict=True) if value > above] if max(values) > above else []
    if kind.reading == LEVEL:
        return often
    heavy = _heavy(line, window) if sum(values) * window.poll.total_seconds() > VOLUME else []
    return sorted({*_steady(often, window), *heavy}) if often or heavy else []


def _steady(often: Sequence[datetime], window: Window) -> list[datetime]:
    """Those of `often` that are no noise: enough of them in the window that ends there."""
    return [at for k, at in enumerate(often) if _crowded(often, k, window)]


def _heavy(line: Line, window: Window) -> list[datetime]:
    """The samples that carry their share of a trailing window with more than VOLUME in it."""
    each = window.poll.total_seconds()
    totals = [0.0, *accumulate(line.values)]
    share = VOLUME / window.length.total_seconds() / 2
    return [
        at
        for k, (at, value) in enumerate(zip(line.ats, line.values, strict=True))
        if value >= share and (totals[k + 1] - totals[bisect_right(line.ats, at - window.length)]) * each > VOLUME
    ]


def _last(marks: Sequence[datetime], window: Window, *, one: bool) -> datetime | None:
    """The latest of `marks` with enough of them in the window that ends at it. `one`: one is enough."""
    if one or not marks:
        return marks[-1] if marks else None
    return next((marks[k] for k in range(len(marks) - 1, -1, -1) if _crowded(marks, k, window)), None)


def _crowded(marks: Sequence[datetime], k: int, window: Window) -> bool:
    """Whether enough of `marks` lie in the window that ends at the one of number `k`."""
    at = marks[k]
    before = k - window.least(at - window.start + window.poll) + 1
    return before >= 0 and marks[before] > at - window.length


def _enough(marks: Sequence[datetime], window: Window, *, one: bool) -> bool:
    if not marks or marks[-1] <= window.opens:
        return False
    return one or len(marks) - bisect_right(marks, window.opens) >= window.least(window.now - window.start)


def _after(kind: Kind, line: Line, at: datetime | None, window: Window) -> datetime | None:
    """When what was seen at `at` was over: a counter then, a level with the next sample."""
    if at is None or kind.reading in (COUNTER, AGE):
        return at
    nexts = bisect_right(line.ats, at)
    return line.ats[nexts] if nexts < len(line.ats) else min(window.now, at + window.poll)


def _began(marks: Sequence[datetime], pause: timedelta) -> datetime:
    """Since when `marks` follow each other without a pause as long as a window."""
    for k in range(len(marks) - 1, 0, -1):
        if marks[k] - marks[k - 1] >= pause:
            return marks[k]
    return marks[0]
