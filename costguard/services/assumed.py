"""assumed: what other choices of the fields that nobody stated would do to an answer, each tried on its GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from costguard.errors import InputError
from costguard.services.accounts import FactSource
from costguard.sizing.assumptions import format_effect, list_alternatives
from costguard.sizing.job import Job
from costguard.sizing.placement import Placement, Placer
from costguard.sizing.speed.throughput import Throughput
from costguard.sizing.speed.timing import compute_job_speed


def estimate_assumption_effects(
    job: Job, placed: Placement | None, speed: Throughput | None, *, facts: FactSource
) -> dict[str, str]:
    """Assumed field -> how another value of it would move hours and memory of `job` as `placed` at `speed`."""
    return {} if placed is None else dict(_list_assumption_effects(job, placed, speed, facts))


def _list_assumption_effects(
    job: Job, placed: Placement, speed: Throughput | None, facts: FactSource
) -> Iterator[tuple[str, str]]:
    for field, value, other in list_alternatives(job):
        try:
            as_placed = replace(other, parallel=placed.parallel)
            there = Placer(job=as_placed).place(placed.gpu, placed.gpu_count, placed.nodes)
        except InputError:  # what cannot be is no alternative
            continue
        if isinstance(there, Placement):
            faster = compute_job_speed(other, there, facts.get_efficiency()) if speed and there.fits else None
            memory = there.needs_gib / placed.needs_gib
            yield field, format_effect(value, hours=_compute_speed_ratio(speed, faster), memory=memory, fits=there.fits)


def _compute_speed_ratio(now: Throughput | None, then: Throughput | None) -> float | None:
    if now is None or then is None:
        return None
    return now.tokens_per_s_per_gpu.expected / then.tokens_per_s_per_gpu.expected
