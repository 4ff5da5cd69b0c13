"""Samples by rule: what a machine measures while it works, rests, downloads, hangs or falls silent.

A rule maps each signal to a value or to a function of the instant. `quiet` is a machine that does nothing; the others are
made from it:

    busy(gpus=8, working=1)     GPU 92 % on one of eight, 87 % of its power limit, steps counted up
    transfer(6.1e6)             quiet, and 6.1 MB/s in and to the disk
    computing(1.0, cores=64)    quiet, and one of 64 cores
    hanging(80.0, gpus=8)       GPU 100 %, 80 W each, and no step
    SILENT                      no samples at all
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from costguard.guard.work import AGENT, CPU, DUTY, IO, PEOPLE, POWER, PROGRESS, QUEUE
from costguard.values import sample as signals
from costguard.values.resource import ResourceKey
from costguard.values.sample import Sample

SignalValue = float | Callable[[datetime], float]
"""A constant, or a function of the instant."""

FLOOR_W, LIMIT_W = 70.0, 700.0
"""Watts of one GPU at rest and at its limit (H100 SXM)."""
LEAST_CORES = 0.2
"""GUARD section 2: a fifth of a core is work."""

FAMILY_OF: Mapping[str, str] = {
    signals.GPU_UTIL: DUTY,
    signals.GPU_BUSY_COUNT: DUTY,
    signals.GPU_MEMORY_USED: DUTY,
    signals.GPU_POWER: POWER,
    signals.GPU_POWER_BUSIEST: POWER,
    signals.GPU_POWER_LIMIT: POWER,
    signals.CPU_UTIL: CPU,
    signals.CPU_CORES: CPU,
    signals.NETWORK: IO,
    signals.DISK: IO,
    signals.STEP: PROGRESS,
    signals.AGENT_ALIVE: AGENT,
    signals.CONNECTIONS: PEOPLE,
    signals.INPUT_AGE: PEOPLE,
    signals.QUEUE_JOBS: QUEUE,
}
"""Which family a signal belongs to: a machine delivers a signal if it delivers its family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRule:
    """What is measured: `values` by signal. `idle`: in truth nobody needs it, so it is waste. `steps`: its job counts them."""

    values: Mapping[str, SignalValue] = field(default_factory=dict)
    idle: bool = False
    steps: bool = False


SILENT = SampleRule()


def make_quiet_rule(*, gpus: float = 1, memory: float = 0.0) -> SampleRule:
    """Everything at rest; `memory`: percent of GPU memory that is held all the same."""
    values: dict[str, SignalValue] = {
        signals.GPU_UTIL: 0.0,
        signals.GPU_BUSY_COUNT: 0.0,
        signals.GPU_MEMORY_USED: memory,
        signals.GPU_POWER: FLOOR_W * gpus,
        signals.GPU_POWER_BUSIEST: FLOOR_W,
        signals.GPU_POWER_LIMIT: LIMIT_W,
        signals.CPU_UTIL: 0.03,
        signals.CPU_CORES: 0.01,
        signals.NETWORK: 900.0,
        signals.DISK: 0.0,
        signals.AGENT_ALIVE: 1.0,
    }
    return SampleRule(idle=True, values=values)


def make_busy_rule(*, gpus: float = 1, duty: float = 92.0, working: float | None = None) -> SampleRule:
    """Training at `duty` percent on all GPUs or on so many as are `working`; the step counter rises by one a second."""
    at_work = gpus if working is None else working
    watts = FLOOR_W + (LIMIT_W - FLOOR_W) * min(1.0, duty / 100)
    values: dict[str, SignalValue] = {
        signals.GPU_UTIL: duty,
        signals.GPU_BUSY_COUNT: at_work,
        signals.GPU_MEMORY_USED: 60.0,
        signals.GPU_POWER: at_work * watts + (gpus - at_work) * FLOOR_W,
        signals.GPU_POWER_BUSIEST: watts,
        signals.CPU_UTIL: 12.0,
        signals.CPU_CORES: max(1.0, at_work),
    }
    return SampleRule(values={**make_quiet_rule(gpus=gpus).values, **values}, steps=True)


def make_transfer_rule(bytes_s: float, *, gpus: float = 1) -> SampleRule:
    """A download onto the disk at `bytes_s`, the GPUs at rest."""
    return SampleRule(values={**make_quiet_rule(gpus=gpus).values, signals.NETWORK: bytes_s, signals.DISK: bytes_s})


def make_cpu_rule(used: float, *, cores: float, gpus: float = 1, memory: float = 50.0) -> SampleRule:
    """`used` of `cores` at work, `memory` percent of GPU memory held, the GPUs at rest."""
    values = {signals.CPU_UTIL: 100 * used / cores, signals.CPU_CORES: used}
    return SampleRule(values={**make_quiet_rule(gpus=gpus, memory=memory).values, **values}, idle=used < LEAST_CORES)


def make_hang_rule(watts: float, *, gpus: float = 1) -> SampleRule:
    """GPUs that spin at `watts` each: 100 % of the time in a kernel, and no step."""
    values = {
        signals.GPU_UTIL: 100.0,
        signals.GPU_BUSY_COUNT: gpus,
        signals.GPU_POWER: watts * gpus,
        signals.GPU_POWER_BUSIEST: watts,
    }
    return SampleRule(values={**make_quiet_rule(gpus=gpus, memory=60.0).values, **values}, idle=True)


def generate_samples(rule: SampleRule, key: ResourceKey, at: datetime, families: frozenset[str]) -> Iterator[Sample]:
    """The samples of `rule` at `at`, of those `families` that the machine delivers."""
    for signal, value in rule.values.items():
        if FAMILY_OF.get(signal, AGENT) in families:
            yield Sample(key=key, signal=signal, at=at, value=value(at) if callable(value) else value)
