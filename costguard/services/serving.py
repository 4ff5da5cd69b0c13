"""Places a served model: how many GPUs hold one copy, and how many machines of a kind carry the stated load.

Example: Llama-3.1-70B in bf16 needs 131 GiB of weights, so a copy takes four A100-80GB or two H200. Of the splits of one
machine the one that needs the fewest machines is chosen; among equals the one with the shortest request.
"""

from __future__ import annotations

from dataclasses import replace

from costguard.data import ShippedFacts
from costguard.quoting.quote import QuoteRefusal, TimedPlacement, refuse_for_memory
from costguard.sizing.job import Job, ServingLoad
from costguard.sizing.placement import Hardware, ImpossiblePlacement, Placement, Placer, SizedSplit, compute_job_footprint
from costguard.sizing.speed.duration import Duration
from costguard.sizing.speed.serving import ServingPlan, measure_copy, plan_serving
from costguard.sizing.speed.throughput import compute_throughput
from costguard.values.gpu import GIB, Gpu
from costguard.values.interval import Interval

HOURS_PER_MONTH = 730.0
MONTH = Duration(
    hours=Interval.exactly(HOURS_PER_MONTH), startup_hours=Interval.exactly(0.0), train_hours=Interval.exactly(HOURS_PER_MONTH)
)
"""What a server runs that is never switched off: a twelfth of 8,760 hours."""


def place_server(
    placer: Placer, load: ServingLoad, gpu: Gpu, gpu_count: int, *, facts: ShippedFacts, machines: int | None = None
) -> TimedPlacement | QuoteRefusal:
    """Return the placement of the placer's job on machines of `gpu_count` GPUs that carry `load`, or why there is none.

    `machines`: stated; None: the fewest that carry it.
    """
    job, ways = placer.job, placer.list_splits(gpu_count)
    if isinstance(ways, ImpossiblePlacement):
        return QuoteRefusal(gpu=gpu.name, gpu_count=gpu_count, reason=ways.reason, has_gib=gpu.memory_gib)
    plans = [
        found
        for way in ways
        if (found := _plan_split(job, load, way, Hardware(gpu=gpu, gpu_count=gpu_count), facts=facts, machines=machines))
    ]
    if not plans:
        least = min(ways, key=lambda w: w.footprint.reserved)
        return refuse_for_memory(_build_placement(job, least, Hardware(gpu=gpu, gpu_count=gpu_count)))
    plan, count, way = min(plans, key=lambda found: (found[1], found[0].request_s.expected))
    if machines is None and count * gpu_count > job.limits.max_gpus:
        reason = f"{count * gpu_count} GPUs would carry the load, more than max_gpus = {job.limits.max_gpus}"
        return QuoteRefusal(gpu=gpu.name, gpu_count=gpu_count, reason=reason)
    if plan.capacity.low < load.requests_per_second:
        reason = f"carries {plan.capacity.low:.3g} requests per second at the low end, not {load.requests_per_second:g}"
        return QuoteRefusal(gpu=gpu.name, gpu_count=gpu_count, reason=reason)
    return _build_timed(job, plan, way, Hardware(gpu=gpu, gpu_count=gpu_count, nodes=count), facts)


def _plan_split(
    job: Job, load: ServingLoad, way: SizedSplit, one: Hardware, *, facts: ShippedFacts, machines: int | None
) -> tuple[ServingPlan, int, SizedSplit] | None:  # fmt: skip
    """Return the plan of one split and its machines; None if no sequence fits beside the weights."""
    ranks, efficiency = way.parallel.model_ranks, facts.get_efficiency()
    if way.footprint.reserved > one.gpu.memory_gib * GIB:
        return None
    copy = measure_copy(job.architecture, way, one.gpu, load, efficiency)
    if copy is None:
        return None
    plan, count = plan_serving(
        copy,
        load,
        gpus_per_copy=ranks,
        copies_per_machine=one.gpu_count // ranks,
        factor=efficiency.serving.factor,
        machines=machines,
    )
    return plan, count, way


def _build_timed(
    job: Job, plan: ServingPlan, way: SizedSplit, on: Hardware, facts: ShippedFacts
) -> TimedPlacement | QuoteRefusal:
    recipe = replace(way.recipe, micro_batch=plan.batch)
    footprint = compute_job_footprint(job, recipe, way.parallel, way.parallel.model_ranks)
    placed = _build_placement(job, SizedSplit(parallel=way.parallel, recipe=recipe, footprint=footprint), on)
    speed = compute_throughput(
        job.architecture, recipe, way.parallel, on.gpu, gpus=on.gpu_count, nodes=1, efficiency=facts.get_efficiency()
    )
    if speed is None:
        return QuoteRefusal(gpu=on.gpu.name, gpu_count=on.gpu_count, reason="no speed figure for this GPU is known")
    return TimedPlacement(placement=placed, throughput=speed, duration=MONTH, notes=speed.notes, serving=plan)


def _build_placement(job: Job, way: SizedSplit, on: Hardware) -> Placement:
    return Placement(
        gpu=on.gpu,
        gpu_count=on.gpu_count,
        nodes=on.nodes,
        parallel=way.parallel,
        recipe=way.recipe,
        footprint=way.footprint,
        network=job.network,
    )
