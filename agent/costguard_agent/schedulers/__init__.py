"""Schedulers on this machine: the number of pending and running jobs.

One file per scheduler. Only schedulers that are present are queried. If one that is present does not answer, the count is
unknown, never zero.
"""

from __future__ import annotations

from typing import Protocol

from costguard_agent.host import HostView
from costguard_agent.http_client import UnansweredError
from costguard_agent.schedulers import dstack, ray, skypilot, slurm
from costguard_agent.signals import QUEUE_JOBS, ProbeResult


class Scheduler(Protocol):
    """The functions of each file of this folder."""

    NAME: str

    def is_present(self, around: HostView) -> bool:
        """Return whether it is on this machine; cheap, sends no query."""

    def count_jobs(self, around: HostView) -> int:
        """Return the number of jobs pending or running here; raises UnansweredError."""


SCHEDULERS: tuple[Scheduler, ...] = (slurm, ray, skypilot, dstack)


def probe_schedulers(around: HostView) -> ProbeResult:
    """Return the job count of all schedulers present; no signal if there is none."""
    counts, troubles = [], []
    for one in SCHEDULERS:
        if not one.is_present(around):
            continue
        try:
            counts.append(one.count_jobs(around))
        except UnansweredError as error:
            troubles.append(f"{one.NAME} is installed, but its jobs are unknown: {error}")
    signals = {QUEUE_JOBS: float(sum(counts))} if counts else {}
    return ProbeResult(signals, (QUEUE_JOBS,) if troubles else (), tuple(troubles))
