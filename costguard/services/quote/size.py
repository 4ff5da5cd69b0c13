"""Size a job: memory on each GPU, which GPUs and how many it needs, and which changes reduce the memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from costguard.errors import InputError
from costguard.services.poll.ports import ExactSizer
from costguard.services.quote.quote import check_precision, check_split
from costguard.sizing.assumptions import list_shape_notes
from costguard.sizing.gpu_precision import choose_precision, explain_missing_precision
from costguard.sizing.job import Job, Table, list_assumption_warnings
from costguard.sizing.memory.footprint import Footprint, compute_cache_capacity
from costguard.sizing.memory_savings import JobChange, list_enlargements, list_memory_savings, list_small_steps
from costguard.sizing.placement import Hardware, ImpossiblePlacement, Placement, Placer, compute_job_footprint, fix_batch
from costguard.sizing.recipe import Parallelism
from costguard.sizing.size_answer import FittingGpus, JobChangeEffect, SizeAnswer
from costguard.values.gpu import GIB, Gpu

if TYPE_CHECKING:  # types and no more
    from costguard.data import ShippedFacts
    from costguard.sizing.exact_memory import ExactMemory

GPU_COUNTS = (1, 2, 4, 8)
"""GPUs a machine is sold with; 8 is the largest in every price list of the snapshot."""

ONE_COPY = Parallelism()
ONE_SEQUENCE = "no hardware is stated, so micro_batch is 1: with --on it is the largest power of two that fits"
PARAMETER_TOLERANCE = 0.001
"""Share by which two counts of one model's parameters may differ: a pooler, a classifier."""

TOLD_FROM = 0.01
"""What a GPU adds to `--exact` is named from a hundredth of the peak."""

SAVING_BYTES_MIN = GIB // 20
"""Bytes: a change that saves less shows as 0.0 GiB, and is no advice."""


def size_job(job: Job, *, facts: ShippedFacts, on: Hardware | None = None) -> SizeAnswer:
    """Return the memory of `job`, on stated hardware or on whatever it fits."""
    check_split(job, on)
    check_precision(job, [on.gpu] if on else [])
    placer = Placer(job=job)
    placement = _place_as_stated(placer, on) if on else None
    job = fix_batch(job, placement) if placement else replace(job, batch_open=False)
    need = placement.footprint if placement else _compute_footprint(job)
    return SizeAnswer(
        job=job,
        on=on,
        placed=placement,
        footprint=need,
        fits=placement.fits if placement else None,
        fits_on=tuple(_list_fitting_gpus(placer, facts.get_gpus())),
        levers=tuple(_list_memory_savings(job, on, need)),
        warnings=(
            *list_assumption_warnings(job),
            *list_shape_notes(job),
            *([] if on or not placer.job.batch_open else [ONE_SEQUENCE]),
            *need.list_distance_notes(),
        ),
        capacity=_compute_capacity(placement) if placement and not job.recipe.trains else None,
    )


def list_what_ifs(sized: SizeAnswer) -> tuple[JobChangeEffect, ...]:
    """Return every change of the job, full or one step, smaller or larger, with the resulting peak."""
    job, on = sized.job, sized.on
    gpus = on.gpu_count * on.nodes if on else 1
    changes = (*list_small_steps(job, gpus=gpus), *list_memory_savings(job, gpus=gpus), *list_enlargements(job))
    return tuple(_try_levers(changes, on, sized.footprint))


def add_assumption_effects(sized: SizeAnswer) -> SizeAnswer:
    """Return `sized` with the effect of other assumptions on the memory added to its warning."""
    job = sized.job
    if not job.assumed:
        return sized
    assumption_warnings = list_assumption_warnings(job, _estimate_memory_effects(job, sized.on, sized.footprint))
    return replace(sized, warnings=(*assumption_warnings, *sized.warnings[len(assumption_warnings) :]))


def _estimate_memory_effects(job: Job, on: Hardware | None, now: Footprint) -> dict[str, str]:
    from costguard.sizing.assumptions import format_effect, list_alternatives

    changes = [JobChange(field=f, was="", becomes=value, cost="", job=other) for f, value, other in list_alternatives(job)]
    return {
        e.lever.field: format_effect(e.lever.becomes, hours=None, memory=e.peak_gib * GIB / now.peak, fits=e.fits is not False)
        for e in _try_levers(changes, on, now)
    }


def _compute_capacity(placement: Placement) -> int | None:
    return compute_cache_capacity(placement.footprint, placement.gpu, placement.parallel, gpus=placement.gpus)


def add_exact_step(sized: SizeAnswer, config: Table, sizer: ExactSizer) -> SizeAnswer:
    """Return `sized` with one step of its job actually run; a warning if the parameter count differs."""
    from costguard.sizing.exact_memory import check_runnable

    job = sized.job
    check_runnable(job, gpus=sized.on.gpu_count * sized.on.nodes if sized.on else 1)
    exact = sizer.measure_step(config, replace(job, recipe=sized.placed.recipe) if sized.placed else job)
    base = exact.parameters - (exact.trained if job.recipe.adapters else 0)
    difference = f"transformers builds {base:,} parameters, the closed form counts {job.architecture.parameters:,}"
    differs = abs(base / job.architecture.parameters - 1) > PARAMETER_TOLERANCE
    warnings = (*sized.warnings, *((difference,) if differs else ()), *_tell_what_gpus_add(job, exact))
    return replace(sized, exact=exact, warnings=warnings)


def _tell_what_gpus_add(job: Job, exact: ExactMemory) -> tuple[str, ...]:
    """Return a sentence on what a GPU keeps and the fake CPU tensors of `exact` do not: dropout's masks, autocast's powers."""
    alone = replace(job, recipe=replace(job.recipe, dropout=False, autocast_rules="cpu"))
    more = _compute_footprint(job).peak - _compute_footprint(alone).peak
    if more < TOLD_FROM * exact.peak:
        return ()
    return (f"--exact runs without dropout and with a CPU's autocast: a GPU needs about {more / GIB:.1f} GiB more",)


def _place_as_stated(placer: Placer, on: Hardware) -> Placement:
    placement = placer.place(on.gpu, on.gpu_count, on.nodes)
    if isinstance(placement, ImpossiblePlacement):
        raise InputError(
            placement.reason, field="parallel", hint=f"choose a split for {on.gpu_count * on.nodes} GPUs, or leave it out"
        )
    return placement


def _compute_footprint(job: Job) -> Footprint:
    parallel = job.parallel or ONE_COPY
    return compute_job_footprint(job, job.recipe, parallel, parallel.model_ranks)


def _list_fitting_gpus(placer: Placer, gpus: Mapping[str, Gpu]) -> Iterable[FittingGpus]:
    """Return for each GPU the smallest count that fits the job, the GPU with the least memory first.

    GPUs that run the job in the same precision need the same memory, so they are searched together.
    """
    recipe = placer.job.recipe
    classes: dict[str, list[Gpu]] = {}
    for gpu in gpus.values():
        if gpu.runs_pytorch and explain_missing_precision(recipe, gpu) is None:
            classes.setdefault(choose_precision(recipe, gpu), []).append(gpu)
    fitting_gpus = (fitting for alike in classes.values() for fitting in _search_counts(placer, alike))
    return sorted(fitting_gpus, key=lambda fitting: (fitting.has_gib, fitting.gpu))


def _search_counts(placer: Placer, gpus: list[Gpu]) -> Iterator[FittingGpus]:
    """Yield the smallest count of each of `gpus` on which it may fit, as `--on` says of it; nothing for a GPU with none.

    All of `gpus` run the job in the same precision. With `limits.fit = "yes"` the high end of what it needs must fit.
    Whole copies need as much on several GPUs as on one: for counts above one only sharded splits are tried.
    """
    sizes = [(gpu.memory_gib, gpu) for gpu in gpus]
    for count in GPU_COUNTS:
        left = [(has_gib, gpu) for has_gib, gpu in sizes if count == 1 or not gpu.unified_memory]
        if not left:
            return
        ways = placer.list_splits(left[0][1], count, sharded=count > 1)
        if isinstance(ways, ImpossiblePlacement):
            continue
        needs = [(way.footprint.reserved_interval.scale(1 / GIB), way) for way in ways]
        sizes = []
        for has_gib, gpu in left:
            for need, way in needs:
                if (need.high if placer.job.limits.fit == "yes" else need.low) <= has_gib:
                    yield FittingGpus(
                        gpu=gpu.name,
                        count=count,
                        peak_gib=way.footprint.peak / GIB,
                        reserved_gib=need.expected,
                        has_gib=has_gib,
                        precision=way.recipe.precision,
                        fit="yes" if need.high <= has_gib else "maybe",
                    )
                    break
            else:
                sizes.append((has_gib, gpu))


def _list_memory_savings(job: Job, on: Hardware | None, now: Footprint) -> Iterable[JobChangeEffect]:
    tried = _try_levers(list_memory_savings(job, gpus=on.gpu_count * on.nodes if on else 1), on, now)
    return [effect for effect in tried if effect.saves_gib * GIB >= SAVING_BYTES_MIN]


def _try_levers(changes: Iterable[JobChange], on: Hardware | None, now: Footprint) -> Iterator[JobChangeEffect]:
    """Yield the effect of each change; a change that cannot be split on the hardware is left out."""
    for lever in changes:
        placement = Placer(job=lever.job).place(on.gpu, on.gpu_count, on.nodes) if on else None
        if isinstance(placement, ImpossiblePlacement):
            continue
        need = placement.footprint if placement else _compute_footprint(lever.job)
        yield JobChangeEffect(
            lever=lever,
            peak_gib=need.peak / GIB,
            saves_gib=(now.peak - need.peak) / GIB,
            fit=placement.fit if placement else None,
        )
