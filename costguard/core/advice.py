"""What to say when nothing fits: the smallest single change after which some machine holds the job.

Example: a full fine-tune of a 70B model on single GPUs fits nowhere. Checkpointing is full already; 8-bit optimizer states
still need 490 GiB; LoRA needs 150 GiB and fits on one B300: the advice is `method = lora (now full) would fit on B300 x1`.
"""

from __future__ import annotations

from collections.abc import Iterable

from costguard.core.gpu import Gpu
from costguard.core.job import Job
from costguard.core.levers import levers
from costguard.core.placement import Impossible, Placement, Placer

MORE_MACHINES = 8
"""How many times `max_gpus` is tried before saying that no number of machines helps."""


def smallest_changes(job: Job, hardware: Iterable[tuple[Gpu, int]], most: int = 4) -> tuple[str, ...]:
    """For a job that fits nowhere: single changes after which some of `hardware` holds it, least loss first."""
    classes = sorted(hardware, key=lambda c: c[0].memory_gib * c[1], reverse=True)
    helpful = []
    for lever in levers(job, gpus=max((count for _, count in classes), default=1)):
        placer = Placer(job=lever.job)
        where = next((f"{gpu.name} x{n}" for gpu, n in classes if _holds(placer.place(gpu, n))), None)
        if where:
            helpful.append(f"{lever.change} would fit on {where}: {lever.cost}")
    return tuple((helpful or _machines(job, classes))[:most])


def _machines(job: Job, classes: list[tuple[Gpu, int]]) -> list[str]:
    """How many of the largest machines would hold a job that no single change saves."""
    for gpu, count in classes[:1]:
        placer, nodes = Placer(job=job), 1
        while nodes * count <= job.limits.max_gpus * MORE_MACHINES:
            nodes *= 2
            if _holds(placer.place(gpu, count, nodes)):
                return [f"{nodes} machines of {gpu.name} x{count} would hold it: --on {gpu.name}:{count}x{nodes}, or raise max_gpus"]
    return []


def _holds(placed: Placement | Impossible) -> bool:
    return isinstance(placed, Placement) and placed.fits
