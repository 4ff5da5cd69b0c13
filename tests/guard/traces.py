"""Labelled traces: work that looks idle to a GPU counter, and waste that looks busy, a sample a minute from a seed.

A trace is synthetic: its figures are assumptions of 2026-11, written beside each kind.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import isnan

from costguard.metering.observation import Observation
from costguard.values.resource import ResourceKey
from costguard.values.sample import (
    AGENT_ALIVE,
    CONNECTIONS,
    CPU_CORES,
    DISK,
    GPU_BUSY_COUNT,
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

MINUTE = timedelta(minutes=1)
START = datetime(2026, 11, 6, 12, tzinfo=UTC)
KEY = ResourceKey("aws", "1", "eu-west-1", "i-1")
VARIANTS = 20

Values = dict[str, float]


def machine(gpus: float = 8, started: datetime | None = START) -> Observation:
    """A machine whose run started at START."""
    return Observation(key=KEY, state="running", gpu="A100", gpu_count=gpus, started_at=started, labels=())


def sample(signal: str, minute: float, value: float) -> Sample:
    """One sample, `minute` minutes after START."""
    return Sample(key=KEY, signal=signal, at=START + minute * MINUTE, value=value)


@dataclass(frozen=True)
class Trace:
    """`samples` by minute; `works` from and until which minute it works (all the while, or never: equal ends)."""

    samples: list[list[Sample]]
    works: tuple[int, int]
    state: str = "idle"


Maker = Callable[[random.Random, int], Values]


def quiet(dice: random.Random) -> Values:
    """A machine at rest that is measured well: an agent, noise of the operating system."""
    return {
        GPU_UTIL: 0.0,
        GPU_POWER_BUSIEST: dice.uniform(55, 62),
        GPU_POWER_LIMIT: 400.0,
        CPU_CORES: dice.uniform(0, 0.05),
        NETWORK: dice.uniform(500, 20e3),
        DISK: dice.uniform(0, 60e3),
        AGENT_ALIVE: 1.0,
    }


def trained(dice: random.Random) -> Values:
    """A machine that trains."""
    return {**quiet(dice), GPU_UTIL: dice.uniform(70, 100), GPU_POWER_BUSIEST: dice.uniform(250, 390), CPU_CORES: 2.0}


def traced(dice: random.Random, work: Maker, *, warm: int = 60, length: int = 180, after: int = 0) -> Trace:
    """`warm` minutes of training, then `length` of `work`, then `after` at rest."""
    flat: Values = {}
    minutes = []
    for minute in range(warm + length + after):
        if minute < warm:
            values = {**trained(dice), **flat}
        elif minute < warm + length:
            values = {**quiet(dice), **work(dice, minute - warm)}
            flat = {name: v for name, v in values.items() if name in (STEP, HEARTBEAT)} or flat
        else:
            values = {**quiet(dice), **flat}
        minutes.append([sample(name, minute, value) for name, value in values.items() if not isnan(value)])
    return Trace(minutes, (warm, warm + length))


def _stalls(dice: random.Random, _: int) -> Values:
    return {GPU_UTIL: dice.choice((0, 0, 0, 90)), DISK: dice.uniform(2e6, 4e7), CPU_CORES: dice.uniform(0.1, 1)}


def _missing(dice: random.Random, minute: int) -> Values:
    return {GPU_UTIL: float("nan")} if minute % 45 < 44 else {GPU_UTIL: dice.uniform(0, 4)}


WORK: Mapping[str, Maker] = {
    "slow-download": lambda d, _: {NETWORK: d.gauss(6.1e6, 5e5), DISK: d.gauss(6.1e6, 5e5)},
    "trickling-download": lambda d, _: {NETWORK: d.uniform(0.85e6, 0.99e6)},
    "compile-on-one-core": lambda d, _: {CPU_CORES: d.uniform(0.8, 1.02)},
    "cpu-evaluation": lambda d, _: {CPU_CORES: d.uniform(4, 16)},
    "tokenise": lambda d, _: {CPU_CORES: d.uniform(8, 30), DISK: d.uniform(1e5, 9e5)},
    "checkpoint-to-network-disk": lambda d, m: {NETWORK: d.uniform(6e7, 2e8) if m % 40 < 2 else d.uniform(1e3, 1e5)},
    "data-loading-stalls": _stalls,
    "barrier-of-many-nodes": lambda d, m: {
        GPU_UTIL: 0,
        NETWORK: d.uniform(2e3, 3e4),
        CPU_CORES: d.uniform(0.9, 8),
        STEP: m // 25,
    },
    "interactive-notebook": lambda d, m: {INPUT_AGE: (m % 27) * 60 + d.uniform(0, 50), CONNECTIONS: 1},
    "queue-pending": lambda d, _: {QUEUE_JOBS: d.randint(1, 4)},
    "pip-install": lambda d, m: {CPU_CORES: 0.9 if m % 3 else 0.05, NETWORK: d.uniform(1e5, 4e6)},
    "short-bursts": lambda d, m: {GPU_UTIL: d.uniform(20, 80) if m % 8 == 0 else d.uniform(0, 4)},
    "offload-to-cpu": lambda d, m: {
        GPU_UTIL: 40 if m % 15 == 0 else 0,
        CPU_CORES: d.uniform(10, 60),
        PCIE: d.uniform(1e5, 5e9),
    },
    "heartbeat-only": lambda _, m: {HEARTBEAT: 1.7e9 + m // 20 * 1200},
    "slow-steps": lambda _, m: {STEP: 100 + m // 30},
    "duty-not-measured": _missing,
    "image-pull": lambda d, _: {NETWORK: d.uniform(8e6, 9e7), DISK: d.uniform(2e6, 9e7)},
    "one-of-eight-busy": lambda d, _: {GPU_UTIL: d.uniform(60, 99), GPU_BUSY_COUNT: 1},
    "warm-kernel-below-5-percent": lambda d, _: {GPU_UTIL: d.uniform(1, 4), GPU_POWER_BUSIEST: d.uniform(180, 300)},
    "upload-of-results": lambda d, _: {NETWORK: d.gauss(2.5e6, 3e5), CPU_CORES: d.uniform(0.05, 0.15)},
    "pull-of-many-files": lambda d, m: {NETWORK: d.uniform(3e6, 3e7) if m % 10 < 3 else d.uniform(1e3, 1e5)},
    "a-request-now-and-then": lambda d, m: {GPU_UTIL: d.uniform(25, 60) if m % 9 == 7 else 0, NETWORK: d.uniform(2e4, 3e5)},
    "compress-an-archive": lambda d, _: {CPU_CORES: d.uniform(0.95, 1.05), DISK: d.uniform(5e6, 4e7)},
    "restore-of-a-database": lambda d, _: {DISK: d.uniform(2e7, 8e7), CPU_CORES: d.uniform(0.2, 0.6)},
    "index-on-processors": lambda d, _: {CPU_CORES: d.uniform(20, 60)},
    "rollouts-on-processors": lambda d, m: {
        GPU_UTIL: d.uniform(30, 70) if m % 20 == 0 else 0,
        CPU_CORES: 30.0 if m % 4 else 0.1,
    },
    "steps-of-forty-minutes": lambda d, m: {STEP: m // 40, GPU_UTIL: d.uniform(85, 100)},
    "between-jobs-of-an-array": lambda _, __: {QUEUE_JOBS: 1},
    "driver-install": lambda d, m: {CPU_CORES: d.uniform(0.5, 0.9) if m % 2 else 0.05, DISK: d.uniform(1e5, 2e7)},
    "convert-a-checkpoint": lambda d, m: {CPU_CORES: d.uniform(0.9, 1.0), DISK: 1e8 if m % 5 == 0 else 2e4},
    "decode-video": lambda d, _: {GPU_UTIL: d.uniform(0, 3), GPU_POWER_BUSIEST: d.uniform(95, 115), CPU_CORES: d.uniform(1, 2)},
    "small-kernels": lambda d, _: {GPU_UTIL: d.uniform(6, 9)},
    "slow-multipart-upload": lambda d, _: {NETWORK: d.uniform(1.1e6, 1.4e6)},
    "compile-of-a-model": lambda d, _: {CPU_CORES: d.uniform(2, 8), GPU_POWER_BUSIEST: d.uniform(60, 70)},
    "people-who-label": lambda d, m: {INPUT_AGE: (m % 19) * 60 + d.uniform(0, 50), CONNECTIONS: 2},
    "search-between-trials": lambda d, m: {GPU_UTIL: d.uniform(80, 99) if m % 30 < 10 else 0, CPU_CORES: d.uniform(0.05, 0.3)},
    "debugger-at-a-breakpoint": lambda d, m: {INPUT_AGE: (m % 38) * 60 + d.uniform(0, 50), CONNECTIONS: 1, CPU_CORES: 0.02},
    "swap-to-host-memory": lambda d, _: {PCIE: d.uniform(5e8, 9e9), CPU_CORES: d.uniform(0.3, 1)},
}
"""Work that a GPU counter does not see, or hardly: what it does, a minute at a time."""


def _input_long_ago(_: random.Random, minute: int) -> Values:
    return {CONNECTIONS: 1, INPUT_AGE: (minute + 60) * 60.0}


WASTE: Mapping[str, Maker] = {
    "open-editor": _input_long_ago,
    "memory-held": lambda d, _: {"gpu_memory_used": 92.0, CPU_CORES: d.uniform(0, 0.02)},
    "print-loop": lambda d, _: {CPU_CORES: d.uniform(0.02, 0.12), DISK: d.uniform(1e3, 9e4)},
    "idle-kernel": lambda d, m: {**_input_long_ago(d, m), CPU_CORES: d.uniform(0, 0.1), "gpu_memory_used": 40.0},
    "monitoring-blips": lambda d, m: {GPU_UTIL: d.uniform(6, 12) if m % 16 == 3 else 0},
    "hourly-cron": lambda d, m: {CPU_CORES: d.uniform(0.5, 1) if m % 60 < 2 else 0.01, DISK: 8e6 if m % 60 == 0 else 2e4},
    "log-shipper": lambda d, _: {NETWORK: d.gauss(1e4, 500), DISK: d.gauss(1e4, 500)},
    "flat-steps": lambda _, __: {STEP: 4000.0, HEARTBEAT: 1.7e9},
    "empty-queue": lambda _, __: {QUEUE_JOBS: 0},
    "keep-alive-pings": lambda d, _: {CONNECTIONS: 3, NETWORK: d.uniform(1e4, 2e5)},
    "high-idle-floor": lambda d, _: {GPU_POWER_BUSIEST: d.uniform(78, 84)},
}
"""Waste that looks busy to somebody: after the training ended, nothing happens."""


def _hang(dice: random.Random, _: int) -> Values:
    return {GPU_UTIL: 100, GPU_POWER_BUSIEST: dice.uniform(70, 90), CPU_CORES: dice.uniform(7.5, 8), STEP: 1200}


HANGS: Mapping[str, Maker] = {
    "hang-of-a-collective": _hang,
    "hang-with-keep-alives": lambda d, m: {**_hang(d, m), NETWORK: d.uniform(1e4, 9e4), CONNECTIONS: 1},
}
"""Waste at full utilisation."""


def dice_of(kind: str, variant: int) -> random.Random:
    """The dice of one variant of a kind: the same on every machine."""
    return random.Random(f"{kind}:{variant}")  # noqa: S311 - seeds of traces
