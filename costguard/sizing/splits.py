"""One job on the same GPUs under each split, with memory, speed and hours side by side: `quote --compare parallel`.

Example: a full fine-tune of 8 B parameters with fp32 masters on 8 H100 needs more with whole copies (DDP) than a GPU has, and
fits with FSDP. Tensor parallelism fits as well, and is slow where its sums cross PCIe.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from costguard.errors import InputError
from costguard.sizing.job import Job
from costguard.sizing.placement import Hardware, ImpossiblePlacement, Placement, Placer
from costguard.sizing.recipe import Parallelism
from costguard.sizing.speed.duration import compute_duration, compute_job_speed, compute_job_startup
from costguard.sizing.speed.efficiency import Efficiency
from costguard.values.gpu import GIB
from costguard.values.interval import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitOutcome:
    """One split of the job. `reason`: why it is impossible; "": it is not. `tokens_per_s`: of all GPUs together."""

    name: str
    placement: Placement | None = None
    tokens_per_s: Interval | None = None
    hours: Interval | None = None
    reason: str = ""

    @property
    def needs_gib(self) -> Interval | None:
        """Return the GiB that each GPU needs; None of an impossible split."""
        return self.placement.footprint.reserved_interval.scale(1 / GIB) if self.placement else None


def compare_splits(job: Job, on: Hardware | None, efficiency: Efficiency) -> tuple[SplitOutcome, ...]:
    """Return every usual split of `job` on the GPUs `on`, DDP first. Raises InputError where there is nothing to split."""
    if on is None or on.gpu_count * on.nodes == 1 or not job.recipe.trains:
        what = "compares how a training job is split over several GPUs"
        raise InputError(what, field="--compare", hint="write --on H100:8 for a job that trains")
    return tuple(_try_split(name, parallel, job, on, efficiency) for name, parallel in _list_named_splits(on))


def _list_named_splits(on: Hardware) -> Iterator[tuple[str, Parallelism]]:
    yield "DDP", Parallelism()
    yield from ((f"ZeRO-{stage}", Parallelism(zero=stage)) for stage in (1, 2, 3))
    yield "FSDP", Parallelism(fsdp=True)
    tp = 2
    while tp <= on.gpu_count:
        if on.gpu_count % tp == 0:
            yield f"tp {tp}", Parallelism(tp=tp)
            if tp < on.gpu_count * on.nodes:
                yield f"tp {tp} + FSDP", Parallelism(tp=tp, fsdp=True)
        tp *= 2


def _try_split(name: str, parallel: Parallelism, job: Job, on: Hardware, efficiency: Efficiency) -> SplitOutcome:
    trial = replace(job, parallel=parallel)
    placement = Placer(job=trial).place(on.gpu, on.gpu_count, on.nodes)
    if isinstance(placement, ImpossiblePlacement):
        return SplitOutcome(name=name, reason=placement.reason)
    speed = compute_job_speed(trial, placement, efficiency)
    if speed is None:
        return SplitOutcome(name=name, placement=placement)
    startup, gpus = compute_job_startup(trial), placement.gpus
    took = (
        compute_duration(trial.computed_tokens, speed, gpus=gpus, startup_hours=startup, efficiency=efficiency)
        if trial.computed_tokens
        else None
    )
    total = speed.tokens_per_s_per_gpu.scale(gpus)
    return SplitOutcome(name=name, placement=placement, tokens_per_s=total, hours=took.hours if took else None)
