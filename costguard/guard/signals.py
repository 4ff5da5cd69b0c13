"""Signals: what each says of work, and from which value on. What their samples prove is in `tracks`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from costguard.guard.work import AGENT, CPU, DUTY, IO, PEOPLE, POWER, PROGRESS, QUEUE
from costguard.values.sample import (
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
)

BUSY_SHARE_MIN = 0.1
"""A signal of levels is work where at least this share of the window's samples is busy; less is noise."""
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
    """How a signal is read. `above`: a value above it is busy, in the signal's unit. `told`: for people, with its unit."""

    family: str
    reading: str = LEVEL
    above: float = 0
    told: str
    unit: str = ""
    scale: float = 1


SIGNAL_KINDS: Mapping[str, SignalKind] = {
    GPU_UTIL: SignalKind(family=DUTY, above=5, told="GPU duty", unit=" %"),
    GPU_BUSY_COUNT: SignalKind(family=DUTY, told="busy GPUs"),
    GPU_POWER: SignalKind(family=POWER, told="GPU power", unit=" W"),
    GPU_POWER_BUSIEST: SignalKind(family=POWER, told="power of the busiest GPU", unit=" W"),
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
    AGENT_ALIVE: SignalKind(family=AGENT, reading=ALIVE, told="agent"),
}
"""The signals that bear on work. Memory held and temperature do not: a process that holds both may be asleep."""

CPU_UTIL_LARGE = 0.5
"""Percent that is busy on a machine of four GPUs and more, else 1: one core of 192 is 0.52 %, one of 96 on one GPU 1.04 %.

Too low rather than too high: 20 % of one core cannot be told from noise in a percentage of a whole machine."""
