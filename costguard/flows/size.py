"""size: what a job needs on each GPU, which GPUs hold it and how many, and which change would make it smaller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from costguard.core.exact import check_runnable
from costguard.core.footprint import Footprint
from costguard.core.gpu import GIB, Gpu
from costguard.core.job import Job, Table, assumption_warnings
from costguard.core.levers import levers
from costguard.core.placement import Hardware, Impossible, Placement, Placer, needed
from costguard.core.recipe import Parallel
from costguard.core.size import FitsOn, LeverEffect, Size
from costguard.errors import InputError
from costguard.flows.quote import check_split
from costguard.ports import ExactSizer, FactSource

COUNTS = (1, 2, 4, 8)
"""GPUs a machine is sold with; 8 is the largest in every price list of the snapshot."""

LEAST_SAVING = GIB // 20
"""Bytes: a change that saves less shows as 0.0 GiB, and is no advice."""


def size(job: Job, *, facts: FactSource, on: Hardware | None = None) -> Size:
    """The memory of `job`, on stated hardware or on whatever holds it."""
    check_split(job, on)
    placed = _stated(job, on) if on else None
    need = placed.footprint if placed else _alone(job)
    return Size(
        job=job,
        on=on,
        placed=placed,
        footprint=need,
        fits=placed.fits if placed else None,
        fits_on=tuple(_fits_on(job, facts.gpus())),
        levers=tuple(_effects(job, on, need)),
        warnings=assumption_warnings(job),
    )


def with_exact(sized: Size, config: Table, sizer: ExactSizer) -> Size:
    """`sized` with one step of its job really run beside it."""
    check_runnable(sized.job, gpus=sized.on.gpu_count * sized.on.nodes if sized.on else 1)
    recipe = sized.placed.recipe if sized.placed else sized.job.recipe
    return replace(sized, exact=sizer.exact(config, replace(sized.job, recipe=recipe)))


def _stated(job: Job, on: Hardware) -> Placement:
    placed = Placer(job=job).place(on.gpu, on.gpu_count, on.nodes)
    if isinstance(placed, Impossible):
        raise InputError(
            placed.reason, field="parallel", hint=f"choose a split for {on.gpu_count * on.nodes} GPUs, or leave it out"
        )
    return placed


def _alone(job: Job) -> Footprint:
    parallel = job.parallel or Parallel()
    return needed(job, job.recipe, parallel, parallel.model_ranks)


def _fits_on(job: Job, gpus: Mapping[str, Gpu]) -> Iterable[FitsOn]:
    """For each GPU the fewest that hold the job, least memory first."""
    placer = Placer(job=job)
    ways = [(count, w) for count in COUNTS if not isinstance(w := placer.ways(count), Impossible)]
    needs = [(way.footprint.reserved / GIB, way.footprint.peak / GIB, count) for count, tried in ways for way in tried]
    for has_gib, name in sorted((gpu.memory_gib, name) for name, gpu in gpus.items() if gpu.runs_pytorch):
        for reserved_gib, peak_gib, count in needs:
            if reserved_gib <= has_gib:
                yield FitsOn(gpu=name, count=count, peak_gib=peak_gib, reserved_gib=reserved_gib, has_gib=has_gib)
                break


def _effects(job: Job, on: Hardware | None, now: Footprint) -> Iterable[LeverEffect]:
    for lever in levers(job, gpus=on.gpu_count * on.nodes if on else 1):
        placed = Placer(job=lever.job).place(on.gpu, on.gpu_count, on.nodes) if on else None
        if isinstance(placed, Impossible):
            continue
        need = placed.footprint if placed else _alone(lever.job)
        if now.peak - need.peak >= LEAST_SAVING:
            yield LeverEffect(
                lever=lever,
                peak_gib=need.peak / GIB,
                saves_gib=(now.peak - need.peak) / GIB,
                fits=placed.fits if placed else None,
            )
