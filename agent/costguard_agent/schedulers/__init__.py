"""Schedulers on this machine: how many jobs are pending or running here? One file a scheduler.

A scheduler is asked only where it is there. One that is there and does not answer makes the count unknown, never zero.
"""

from __future__ import annotations

from typing import Protocol

from costguard_agent.host import HostView
from costguard_agent.http_client import UnansweredError
from costguard_agent.schedulers import dstack, ray, skypilot, slurm
from costguard_agent.signals import QUEUE_JOBS, ProbeResult


class Scheduler(Protocol):
    """What a file of this folder has."""

    NAME: str

    def is_present(self, around: HostView) -> bool:
        """Whether it is on this machine; cheap, and asks nobody."""

    def count_jobs(self, around: HostView) -> int:
        """Jobs that are pending or running here; raises UnansweredError."""


SCHEDULERS: tuple[Scheduler, ...] = (slurm, ray, skypilot, dstack)


def probe_schedulers(around: HostView) -> ProbeResult:
    """All jobs of all schedulers that are here; nothing at all where there is none."""
    counts, troubles = [], []
    for one in SCHEDULERS:
        if not one.is_present(around):
            continue
        try:
            counts.append(one.count_jobs(around))
        except UnansweredError as error:
            troubles.append(f"{one.NAME} is here and its jobs are unknown: {error}")
    signals = {QUEUE_JOBS: float(sum(counts))} if counts else {}
    return ProbeResult(signals, (QUEUE_JOBS,) if troubles else (), tuple(troubles))
