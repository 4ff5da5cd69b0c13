"""Has this machine been idle, by what it measures itself? For the dead-man switch, so stricter than any policy. Pure.

A window is idle where its records follow one another without a gap, each has every family, and no family shows work in any
stretch of five minutes. Example: an hour at 0 % GPU with a download of 6 MB/s: network shows work. The same hour with three
minutes in which NVML did not answer: gpu_util is missing, and nothing is known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from costguard_agent.seen import FRESH_S, INPUT_AGE, QUEUE_JOBS

GPU, CORES, CPU, NETWORK, DISK = "gpu_util", "cpu_cores", "cpu_util", "network_bytes_s", "disk_bytes_s"
COUNTERS = ("step", "heartbeat")
REQUIRED = (GPU, CORES, CPU, NETWORK, DISK, INPUT_AGE)
"""Families that every record must have. Queues and counters must be there only where they were there before."""
STRETCH_S, SLACK_S, STALE_S, WINDOW_MOST_S = 300.0, 5.0, 60.0, 86400.0
GPU_PERCENT, TREE_CORES, ALL_CORES, RATE_BYTES_S, WINDOW_BYTES = 5.0, 0.2, 0.5, 1e6, 2e9
"""What is work: GUARD, section 2; of all processes together half a core, since daemons use some of it."""


class RecordStretch(NamedTuple):
    """Some records in a row: `end_s` and `over_s` by the boot clock; sums over time, the most and the least of what matters."""

    end_s: float
    over_s: float
    most: Mapping[str, float]
    sums: Mapping[str, float]
    input_s: float | None
    counters: Mapping[str, tuple[float, float]]
    missing: frozenset[str]


class IdleEvidence(NamedTuple):
    """`over_s`: for how long nothing worked and nothing was missing; `working` and `missing`: what speaks against the window.

    `covered_s`: for how long records follow one another, whatever they say.
    """

    over_s: float
    working: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    covered_s: float = 0.0


class IdleHistory:
    """Remembers a day of records, in stretches."""

    def __init__(self, cpus: int) -> None:
        self._cpus = cpus
        self._stretches: deque[RecordStretch] = deque()

    def forget(self) -> None:
        """After a gap, a suspension or a clock that was set: what was before says nothing of now."""
        self._stretches.clear()

    def add(self, end_s: float, over_s: float, signals: Mapping[str, float], unknown: Iterable[str] = ()) -> None:
        """One record of `over_s` seconds until `end_s` (boot clock); `unknown`: what is there and could not be had."""
        if self._stretches and end_s - over_s > self._stretches[-1].end_s + SLACK_S:
            self.forget()
        new = _make_stretch(end_s, over_s, signals, unknown)
        last = self._stretches[-1] if self._stretches else None
        if last is not None and last.over_s + over_s <= STRETCH_S:
            self._stretches[-1] = merge_stretches(last, new)
        else:
            self._stretches.append(new)
        while self._stretches and end_s - self._stretches[0].end_s > WINDOW_MOST_S:
            self._stretches.popleft()

    def collect_evidence(self, now_s: float, window_s: float) -> IdleEvidence:
        """Of the last `window_s` seconds before `now_s`, as far as they are known."""
        inside = [one for one in self._stretches if one.end_s > now_s - window_s]
        if not inside or now_s - inside[-1].end_s > STALE_S:
            return IdleEvidence(0.0, (), ("records",))
        known = {name for one in inside for name in (*one.counters, *one.most) if name in (*COUNTERS, QUEUE_JOBS)}
        missing = {name for one in inside for name in one.missing}
        missing |= {name for one in inside for name in known if name not in one.counters and name not in one.most}
        working = {name for one in inside for name in self._find_work(one)} | _find_work_overall(inside)
        over_s = inside[-1].end_s - (inside[0].end_s - inside[0].over_s)
        return IdleEvidence(0.0 if working or missing else over_s, tuple(sorted(working)), tuple(sorted(missing)), over_s)

    def _find_work(self, one: RecordStretch) -> Iterable[str]:
        rates = {name: total / one.over_s for name, total in one.sums.items() if one.over_s > 0}
        limits = {CORES: TREE_CORES, CPU: 100 * ALL_CORES / self._cpus, NETWORK: RATE_BYTES_S, DISK: RATE_BYTES_S}
        yield from (name for name, limit in limits.items() if rates.get(name, 0.0) >= limit)
        if one.most.get(GPU, 0.0) > GPU_PERCENT or one.most.get("gpu_busy_count", 0.0) > 0:
            yield GPU
        if one.most.get(QUEUE_JOBS, 0.0) > 0:
            yield QUEUE_JOBS
        if one.input_s is not None and one.input_s < FRESH_S:
            yield INPUT_AGE


def merge_stretches(one: RecordStretch, other: RecordStretch) -> RecordStretch:
    """Two that follow one another as one; what one of them lacks, both lack."""
    inputs = [value for value in (one.input_s, other.input_s) if value is not None]
    counters = {
        name: (min(a[0], b[0]), max(a[1], b[1]))
        for name, a in one.counters.items()
        for b in [other.counters.get(name)]
        if b is not None
    }
    gone = {name for name in (*one.counters, *other.counters) if name not in counters}
    return RecordStretch(
        other.end_s,
        one.over_s + other.over_s,
        {name: max(one.most.get(name, value), value) for name, value in {**one.most, **other.most}.items()},
        {name: one.sums.get(name, 0.0) + other.sums.get(name, 0.0) for name in (*one.sums, *other.sums)},
        min(inputs) if inputs else None,
        counters,
        one.missing | other.missing | gone,
    )


def _make_stretch(end_s: float, over_s: float, signals: Mapping[str, float], unknown: Iterable[str]) -> RecordStretch:
    most = {name: signals[name] for name in (GPU, "gpu_busy_count", QUEUE_JOBS) if name in signals}
    sums = {name: signals[name] * over_s for name in (CORES, CPU, NETWORK, DISK) if name in signals}
    counters = {name: (signals[name], signals[name]) for name in COUNTERS if name in signals}
    missing = frozenset(name for name in REQUIRED if name not in signals) | frozenset(unknown)
    return RecordStretch(end_s, over_s, most, sums, signals.get(INPUT_AGE), counters, missing)


def _find_work_overall(inside: list[RecordStretch]) -> set[str]:
    """What shows work only over the whole window: much that trickled, a counter that moved."""
    found = {name for name in (NETWORK, DISK) if sum(one.sums.get(name, 0.0) for one in inside) > WINDOW_BYTES}
    for name in COUNTERS:
        seen = [one.counters[name] for one in inside if name in one.counters]
        if seen and min(low for low, _ in seen) != max(high for _, high in seen):
            found.add(name)
    return found
