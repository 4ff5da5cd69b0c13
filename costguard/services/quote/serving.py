"""Places a served model: how many GPUs hold one copy, and how many machines of a kind carry the stated load.

Example: Llama-3.1-70B in bf16 needs 131 GiB of weights, so a copy takes four A100-80GB or two H200. Of the splits of one
machine the one that needs the fewest machines is chosen; among equals the one with the shortest request. What no machine holds
is split over several that are joined by a fast network, in pipeline stages: Kimi-K2 in fp8 over two of 8 x H100.
"""

from __future__ import annotations

from dataclasses import replace

from costguard.data import ShippedFacts
from costguard.quoting.quote import QuoteRefusal, TimedPlacement, refuse_for_memory
from costguard.sizing.gpu_precision import list_precision_notes
from costguard.sizing.job import Job
from costguard.sizing.placement import (
    FABRIC_GPUS,
    MOST_JOINED,
    Hardware,
    ImpossiblePlacement,
    Placement,
    Placer,
    SizedSplit,
    compute_job_footprint,
)
from costguard.sizing.serving_load import ServingLoad, format_requests
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
    job, joined = placer.job, 1
    ways = placer.list_splits(gpu, gpu_count)
    plans = _list_plans(job, load, ways, gpu, gpu_count, facts=facts, machines=machines)
    while not plans and _can_join(job, gpu, gpu_count, joined, machines):
        joined *= 2
        ways = placer.list_splits(gpu, gpu_count, joined)
        plans = _list_plans(job, load, ways, gpu, gpu_count * joined, facts=facts, machines=machines, joined=joined)
    if isinstance(ways, ImpossiblePlacement):
        return QuoteRefusal(gpu=gpu.name, gpu_count=gpu_count, reason=ways.reason, has_gib=gpu.memory_gib)
    if not plans:
        least = min(ways, key=lambda w: w.reserved)
        if least.reserved > gpu.memory_gib * GIB:
            return refuse_for_memory(_build_placement(job, least, Hardware(gpu=gpu, gpu_count=gpu_count)))
        return QuoteRefusal(gpu=gpu.name, gpu_count=gpu_count, reason=_explain_no_plan(load, gpu))
    plan, way = min(plans, key=lambda pair: (pair[0].machines.expected, pair[0].request_s.expected))
    count = joined * round(plan.machines.expected)
    on = Hardware(gpu=gpu, gpu_count=gpu_count, nodes=count)
    refusal = _refuse_load(job, load, plan, on, joined=joined, fixed=machines is not None)
    return refusal or _build_timed(job, plan, way, on, facts)


def _can_join(job: Job, gpu: Gpu, gpu_count: int, joined: int, machines: int | None) -> bool:
    """Return whether twice as many machines may hold one copy."""
    allowed = machines % (2 * joined) == 0 if machines else 2 * joined * gpu_count <= job.limits.max_gpus
    return gpu.nvlink and gpu_count >= FABRIC_GPUS and 2 * joined <= MOST_JOINED and allowed


def _refuse_load(
    job: Job, load: ServingLoad, plan: ServingPlan, on: Hardware, *, joined: int, fixed: bool
) -> QuoteRefusal | None:
    """Return the refusal of a plan that takes too many GPUs, or whose stated machines (`fixed`) do not carry the load."""
    gpu, gpu_count, gpus = on.gpu, on.gpu_count, on.gpu_count * on.nodes
    if not fixed and gpus > job.limits.max_gpus:
        reason = f"{gpus} GPUs can serve the load, more than max_gpus = {job.limits.max_gpus}"
        return QuoteRefusal(gpu=gpu.name, gpu_count=gpu_count, reason=reason, needs_gpus=gpus)
    if plan.capacity.low < load.requests_per_second:
        needed = joined * plan.count_machines(load.requests_per_second)
        reason = (
            f"carries {format_requests(plan.capacity.low)} requests per second at the low end, "
            f"not {load.requests_per_second:,.10g}: "
            f"--on {gpu.name}:{gpu_count}x{needed} would"
        )
        return QuoteRefusal(gpu=gpu.name, gpu_count=gpu_count, reason=reason, needs_gpus=needed * gpu_count)
    return None


def _explain_no_plan(load: ServingLoad, gpu: Gpu) -> str:
    if not gpu.bf16_tflops and not gpu.fp32_tflops:
        return "no speed figure for this GPU is known"
    return f"the weights leave no memory for the keys and values of {load.prompt_len + load.output_len:,} tokens (one request)"


def _list_plans(
    job: Job,
    load: ServingLoad,
    ways: tuple[SizedSplit, ...] | ImpossiblePlacement,
    gpu: Gpu,
    gpus: int,
    *,
    facts: ShippedFacts,
    machines: int | None,
    joined: int = 1,
) -> list[tuple[ServingPlan, SizedSplit]]:
    """Return the plans of those splits of `gpus` GPUs, in `joined` machines, that hold a sequence."""
    if isinstance(ways, ImpossiblePlacement):
        return []
    efficiency, plans = facts.get_efficiency(), []
    for way in ways:
        ranks = way.parallel.model_ranks
        if way.reserved > gpu.memory_gib * GIB:
            continue
        copy = measure_copy(job.architecture, way, gpu, load, efficiency)
        if copy is None:
            continue
        plan = plan_serving(
            copy,
            load,
            gpus_per_copy=ranks,
            copies_per_machine=gpus // ranks,
            factor=efficiency.serving.get_factor(mixture=job.architecture.active_parameters < job.architecture.parameters),
            machines=machines // joined if machines else None,
        )
        plans.append((plan, way))
    return plans


def _build_timed(
    job: Job, plan: ServingPlan, way: SizedSplit, on: Hardware, facts: ShippedFacts
) -> TimedPlacement | QuoteRefusal:
    recipe = replace(way.recipe, micro_batch=plan.batch)
    footprint = compute_job_footprint(job, recipe, way.parallel, way.parallel.model_ranks)
    sized = SizedSplit(parallel=way.parallel, recipe=recipe, footprint=footprint, reserved=footprint.reserved)
    placement = _build_placement(job, sized, on)
    speed = compute_throughput(
        job.architecture, recipe, way.parallel, on.gpu, gpus=on.gpu_count, nodes=1, efficiency=facts.get_efficiency()
    )
    if speed is None:
        return QuoteRefusal(gpu=on.gpu.name, gpu_count=on.gpu_count, reason="no speed figure for this GPU is known")
    return TimedPlacement(
        placement=placement, throughput=speed, duration=MONTH, notes=(*placement.notes, *speed.notes), serving=plan
    )


def _build_placement(job: Job, way: SizedSplit, on: Hardware) -> Placement:
    return Placement(
        gpu=on.gpu,
        gpu_count=on.gpu_count,
        nodes=on.nodes,
        parallel=way.parallel,
        recipe=way.recipe,
        footprint=way.footprint,
        network=job.network,
        notes=list_precision_notes(job.recipe, on.gpu),
    )
