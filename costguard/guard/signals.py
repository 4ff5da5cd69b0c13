"""Signals, their thresholds, activity states, and the samples of a resource in columns.

Example: an 8xA100 whose training ended at 18:05 has quiet GPU duty, CPU and disk, with a sample of each every minute: at 18:50
it is idle since 18:05 with confidence 0.9. `unknown` is not `idle`: a signal that was not measured, not recently or too rarely,
proves nothing.

A fleet of 10,000 with 45 samples of 4 signals is 1.8 million samples. So in this module and in `signal_summary` a sample is not
an object but a position in two columns, and an instant is a whole number of microseconds. Only this module converts samples to
columns.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import sub
from typing import NamedTuple

from costguard.guard.sample_times import SampleTimes
from costguard.values.checks import require_number, require_one_of
from costguard.values.instant import MICROSECOND, SECOND_US, from_micros, to_micros
from costguard.values.sample import (
    AGENT_ALIVE,
    CONNECTIONS,
    CPU_CORES,
    CPU_UTIL,
    DISK,
    GPU_BUSY_COUNT,
    GPU_MEMORY_USED,
    GPU_POWER,
    GPU_POWER_BUSIEST,
    GPU_POWER_LIMIT,
    GPU_UTIL,
    HEARTBEAT,
    INPUT_AGE,
    NETWORK,
    PCIE,
    QUEUE_JOBS,
    SERVER_CORES,
    SERVER_REQUESTS,
    SERVER_TOKENS,
    STEP,
    Sample,
)

WARMING, ACTIVE, IDLE, HUNG, UNKNOWN = "warming", "active", "idle", "hung", "unknown"
ACTIVITY_STATES = {
    WARMING: "booting or being set up: no activity yet",
    ACTIVE: "at least one strong signal of work",
    IDLE: "all signals are recent and show no activity",
    HUNG: "busy without progress",
    UNKNOWN: "not enough data",
}

DUTY, POWER, CPU, IO, PROGRESS, QUEUE, PEOPLE, AGENT = "duty", "power", "cpu", "io", "progress", "queue", "people", "agent"
MEMORY = "memory"
"""GPU memory is evidence of a process, never of work, so no policy may ask for it."""
SERVER = "server"
"""An inference server's own metrics: few machines have one, so no policy may ask for it."""
HELD, RELEASED = "held", "released"
"""GPU memory of an idle machine: a process still holds it; or one held it before, and its agent shows that none does now."""
SIGNAL_FAMILIES = {
    DUTY: "GPU duty",
    POWER: "GPU power",
    CPU: "CPU",
    IO: "network, disk or PCIe",
    PROGRESS: "a job's heartbeat, steps, checkpoints or logs",
    QUEUE: "a scheduler's queue",
    PEOPLE: "key input, a busy kernel",
    AGENT: "an agent that can see processes",
}
"""Families of signals, which a policy may ask for by `needs`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """The activity state of a resource.

    `confidence`: 0 to 1, limited by what was measured. `since` None: the beginning is unknown. `reasons`: the most important
    first. `families`: those that were measured well enough. `coverage`: the share of expected samples that arrived, 0 to 1;
    None if none is expected. `attended`: somebody is connected, which is no work but doubles the grace period. `wasted_share`:
    the share of its GPUs that do nothing while it is active (7 of 8: 0.875). `as_of`: when it was judged, if
    another watchdog did so before this run; None: now. `gpu_memory`: HELD, RELEASED, or "" if that is not known or it is not
    idle. `gpu_unused_since`: since when no GPU worked on a machine that is active by its CPU or a queue alone; else None.
    """

    state: str = UNKNOWN
    confidence: float = 0
    reasons: tuple[str, ...] = ("no activity data yet: enrol an agent",)
    since: datetime | None = None
    families: tuple[str, ...] = ()
    coverage: float | None = None
    attended: bool = False
    wasted_share: float = 0
    gpu_memory: str = ""
    gpu_unused_since: datetime | None = None
    as_of: datetime | None = field(default=None, compare=False)

    def get_known_until(self, now: datetime) -> datetime:
        """Return until when the state is known to have lasted: it is not said to have lasted any longer."""
        return now if self.as_of is None else min(self.as_of, now)

    def __post_init__(self) -> None:
        if self.state not in ACTIVITY_STATES:
            require_one_of(self.state, ACTIVITY_STATES, "work.state")
        if type(self.confidence) is not float or not 0 <= self.confidence <= 1:
            require_number(self.confidence, "work.confidence", least=0, most=1)


MEMORY_HELD_MIN = 5.0
"""Percent of GPU memory: a process with a model holds more, a driver or a desktop less."""
COVERAGE_MIN = 0.8
"""Of the samples that are due, the share that must be there."""
WORK_BYTES_MIN = 2e9
"""Bytes within a window that are work however they are spread: a checkpoint written in one minute."""
INPUT_COUNTS_FOR = timedelta(minutes=30)
"""For how long somebody who typed is at work."""
CLOCK_AHEAD_MAX = timedelta(seconds=5)
"""How far another's clock may run ahead of ours; a sample that is later yet shows that a clock jumped."""
FLOOR_SHARE, RISE_SHARE, LOW_SHARE = 0.25, 0.15, 0.35
"""Of a GPU's power limit: the most an idle floor can be (idle H100: 0.1, T4: 0.15); what work draws on top; a hang's most."""

LEVEL, VOLUMES, COUNTER, AGE, ALIVE, PRESENCE, LIMIT = "level", "volumes", "counter", "age", "alive", "presence", "limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalKind:
    """How a signal is interpreted. `above`: a higher value is busy, in the signal's unit. `told`: its display name."""

    family: str
    reading: str = LEVEL
    above: float = 0
    told: str
    unit: str = ""
    scale: float = 1


SIGNAL_KINDS: Mapping[str, SignalKind] = {
    GPU_UTIL: SignalKind(family=DUTY, above=5, told="GPU duty", unit=" %"),
    GPU_BUSY_COUNT: SignalKind(family=DUTY, told="GPUs busy"),
    GPU_POWER: SignalKind(family=POWER, told="GPU power", unit=" W"),
    GPU_POWER_BUSIEST: SignalKind(family=POWER, told="power of the busiest GPU", unit=" W"),
    GPU_MEMORY_USED: SignalKind(family=MEMORY, reading=PRESENCE, told="GPU memory", unit=" %"),
    GPU_POWER_LIMIT: SignalKind(family=POWER, reading=LIMIT, told="power limit", unit=" W"),
    CPU_CORES: SignalKind(family=CPU, above=0.2 - 1e-9, told="CPU", unit=" cores"),
    CPU_UTIL: SignalKind(family=CPU, above=1, told="CPU", unit=" %"),
    NETWORK: SignalKind(family=IO, reading=VOLUMES, above=1e6, told="network", unit=" kB/s", scale=1e-3),
    DISK: SignalKind(family=IO, reading=VOLUMES, above=1e6, told="disk", unit=" kB/s", scale=1e-3),
    PCIE: SignalKind(family=IO, reading=VOLUMES, above=1e6, told="PCIe", unit=" kB/s", scale=1e-3),
    STEP: SignalKind(family=PROGRESS, reading=COUNTER, told="steps"),
    HEARTBEAT: SignalKind(family=PROGRESS, reading=COUNTER, told="heartbeat"),
    QUEUE_JOBS: SignalKind(family=QUEUE, told="jobs in the queue"),
    INPUT_AGE: SignalKind(family=PEOPLE, reading=AGE, told="input"),
    CONNECTIONS: SignalKind(family=PEOPLE, reading=PRESENCE, told="open sessions"),
    SERVER_REQUESTS: SignalKind(family=SERVER, told="requests at the inference server"),
    SERVER_TOKENS: SignalKind(family=SERVER, reading=COUNTER, told="tokens of the inference server"),
    SERVER_CORES: SignalKind(family=SERVER, reading=PRESENCE, told="the inference server", unit=" cores"),
    AGENT_ALIVE: SignalKind(family=AGENT, reading=ALIVE, told="agent"),
}
"""The signals that bear on work. Temperature does not, and memory shows only whether a process is there: it may be asleep."""

CPU_UTIL_LARGE = 0.5
"""Percent that is busy on a machine of four GPUs and more, else 1: one core of 192 is 0.52 %, one of 96 on one GPU 1.04 %.

Too low rather than too high: 20 % of one core cannot be told from noise in a percentage of a whole machine."""


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


class SignalSeries(NamedTuple):
    """The samples of one signal that count, ordered by time and at least one. `low`, `top`: the least and the highest value."""

    signal: str
    kind: SignalKind
    times: SampleTimes
    values: Sequence[float]
    low: float
    top: float

    @property
    def ats(self) -> Sequence[int]:
        """Return when the samples were taken."""
        return self.times.ats

    def find_above(self, value: float) -> Sequence[int]:
        """Return when it was above `value`; for a counter, when it changed; for an age, when its event last happened."""
        reading, ats, values = self.kind.reading, self.ats, self.values
        if reading in (ALIVE, PRESENCE, LIMIT):
            return ()
        if reading == COUNTER:
            changes = zip(ats[1:], values, values[1:], strict=False) if self.low != self.top else ()
            return [at for at, old_value, new_value in changes if new_value != old_value]
        if reading == AGE:
            ages = (round(min(max(one, 0.0), LONGEST_AGE_S) * SECOND_US) for one in values)
            return [max(map(sub, ats, ages))]
        if self.top <= value:
            return ()
        return ats if self.low > value else [at for at, one in zip(ats, values, strict=True) if one > value]


CountedSeries = tuple[Mapping[str, SignalSeries], bool]
"""Samples by signal, and whether any lies in the future."""


def build_columns(samples: Iterable[Sample]) -> SampleColumns:
    """Convert `samples`, in any order, to columns."""
    by_signal: dict[str, list[tuple[int, float]]] = {}
    for sample in samples:
        by_signal.setdefault(sample.signal, []).append((to_micros(sample.at), sample.value))
    return {signal: _sort_pairs(of) for signal, of in by_signal.items()}


def _sort_pairs(pairs: Iterable[tuple[int, float]]) -> tuple[Sequence[int], Sequence[float]]:
    ats, values = zip(*sorted(pairs), strict=True)
    return ats, values


def select_counted_series(columns: SampleColumns, since: datetime, now: datetime) -> CountedSeries:
    """Return the samples that count at `now`, by signal and time, and whether a clock jumped."""
    return build_series(columns, to_micros(find_counting_start(since, now)), to_micros(now))


def find_counting_start(since: datetime, now: datetime) -> datetime:
    """Return from when on samples count, for a resource observed since `since`."""
    return min(now, max(since, now - SAMPLE_LOOKBACK))


def build_series(columns: SampleColumns, start: int, now: int) -> CountedSeries:
    """Return the samples of each signal from `start` to `now`, and whether any lie in the future (a clock jumped)."""
    lines, jumped = dict[str, SignalSeries](), False
    times: SampleTimes | None = None  # those of the signal before, which are often the same
    for signal, kind in SIGNAL_KINDS.items():
        if signal not in columns:
            continue
        ats, values = columns[signal]
        if kind.reading == ALIVE and min(values, default=1) <= 0:
            alive = [(at, value) for at, value in zip(ats, values, strict=True) if value > 0]
            ats, values = [at for at, _ in alive], [value for _, value in alive]
        if ats and ats[-1] > now:
            jumped = jumped or ats[-1] > now + CLOCK_AHEAD_MAX_US
            count = bisect_right(ats, now + CLOCK_AHEAD_MAX_US)
            ats, values = [min(at, now) for at in ats[:count]], values[:count]
        if ats and ats[0] < start:
            early = bisect_left(ats, start)
            ats, values = ats[early:], values[early:]
        if ats:
            times = times if times is not None and times.ats == ats else SampleTimes.of(ats)
            lines[signal] = SignalSeries(signal, kind, times, values, min(values), max(values))
    return lines, jumped


def find_sample_bounds(columns: SampleColumns) -> tuple[datetime, datetime] | None:
    """Return when the first and the last sample of any signal was taken; None: there is none."""
    ends = [(ats[0], ats[-1]) for ats, _ in columns.values() if ats]
    return (from_micros(min(first for first, _ in ends)), from_micros(max(last for _, last in ends))) if ends else None


def estimate_sample_interval(columns: SampleColumns, interval: timedelta) -> timedelta:
    """Return how often a sample is due: every `interval`, or as rarely as the provider publishes measurements.

    The smallest distance of two neighbouring samples shows the provider's interval, so that missing samples do not look like a
    slower one. If our own polls are late, the median distance counts, up to SLOWDOWN_MAX times `interval`: at 1.2 s instead of
    1 s no sample counts as missing.
    """
    apart, left = list[int](), RECENT_SAMPLES
    last: tuple[Sequence[int], Sequence[int]] = (), ()
    for signal in sorted(columns, reverse=True):
        ats = columns[signal][0][-left:]
        last = last if ats == last[0] else (ats, tuple(map(sub, ats[1:], ats)))  # signals often have the same times
        apart += last[1]
        left -= len(ats)
        if left <= 0:
            break
    apart = sorted(filter(None, apart))
    if not apart:
        return interval
    return max(apart[0] * MICROSECOND, min(apart[len(apart) // 2] * MICROSECOND, SLOWDOWN_MAX * interval), interval)
