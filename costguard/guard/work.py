"""States of work: whether a resource does anything, how surely that is known, and why.

Example: an 8xA100 whose training ended at 18:05, with GPU duty, CPU and disk at rest since and a sample of each every minute:
at 18:50 it is idle since 18:05 with confidence 0.9, because "GPU duty 0 % since 18:05", "CPU 0.01 cores", "disk 0 B/s".

`unknown` is not `idle`: what was not measured, or not lately, or not often enough, says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from costguard.values.checks import require_number, require_one_of

WARMING, ACTIVE, IDLE, HUNG, UNKNOWN = "warming", "active", "idle", "hung", "unknown"
ACTIVITY_STATES = {
    WARMING: "booting or being set up: no work was seen yet, and not too long ago",
    ACTIVE: "at least one strong signal of work",
    IDLE: "all signals fresh and quiet, and nothing speaks against it",
    HUNG: "looks busy, and makes no progress",
    UNKNOWN: "not measured well enough to say",
}

DUTY, POWER, CPU, IO, PROGRESS, QUEUE, PEOPLE, AGENT = "duty", "power", "cpu", "io", "progress", "queue", "people", "agent"
SIGNAL_FAMILIES = {
    DUTY: "GPU duty",
    POWER: "GPU power",
    CPU: "CPU",
    IO: "network, disk or PCIe",
    PROGRESS: "a job's heartbeat, steps, checkpoints or logs",
    QUEUE: "a scheduler's queue",
    PEOPLE: "key input, a busy kernel",
    AGENT: "an agent that sees processes",
}
"""Families of signals, which a policy may ask for by `needs`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Whether a resource does anything. `confidence` from 0 to 1, capped by what was seen; `since` None: not known since when.

    `reasons`: the weightiest first. `families`: those that were measured well enough. `coverage`: the share of expected
    samples that are there, from 0 to 1; None where nothing is expected. `attended`: somebody is connected, which is no work and
    doubles the grace. `wasted_share`: of its GPUs, those that do nothing although it is active (7 of 8: 0.875).
    """

    state: str = UNKNOWN
    confidence: float = 0
    reasons: tuple[str, ...] = ("no signals yet: nothing measures work",)
    since: datetime | None = None
    families: tuple[str, ...] = ()
    coverage: float | None = None
    attended: bool = False
    wasted_share: float = 0

    def __post_init__(self) -> None:
        require_one_of(self.state, ACTIVITY_STATES, "work.state")
        require_number(self.confidence, "work.confidence", least=0, most=1)
