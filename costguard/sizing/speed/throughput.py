"""Tokens a second per GPU: the ideal rate, times one factor for each named cost, with an 80 % interval.

Example: an ideal of 7,000 tokens a second and factors base 0.70, memory 0.85, network 0.95 are 3,957; with a log spread
of 0.25 the interval is 3,082 to 5,081. Training tokens are those of the data set. Inference tokens are generated ones:
`micro_batch` sequences on each copy of the model, each with `seq_len` tokens behind it; prompts are `prefill`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from costguard.sizing.architecture import Architecture
from costguard.sizing.recipe import Parallelism, Recipe
from costguard.sizing.speed.efficiency import Efficiency
from costguard.sizing.speed.serving import _compute_decode_step, _compute_prefill_rate, _is_generative
from costguard.sizing.speed.step import TERA, StepSetting, _compute_links, compute_arithmetic_seconds, compute_costs
from costguard.sizing.speed.work import count_work, find_peak_rate
from costguard.values.gpu import Gpu
from costguard.values.interval import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """`tokens_per_s_per_gpu` in steady state. `efficiency`: share of `peak_tflops` reached, recomputation counted as work.

    `reasons`: (name, factor) whose product with the ideal rate is the expected one. `prefill_tokens_per_s_per_gpu`:
    prompt tokens when serving, None when training.
    """

    tokens_per_s_per_gpu: Interval
    efficiency: float
    peak_tflops: float
    reasons: tuple[tuple[str, float], ...]
    notes: tuple[str, ...] = ()
    explain: tuple[str, ...] = ()
    prefill_tokens_per_s_per_gpu: float | None = None


def compute_throughput(
    architecture: Architecture,
    recipe: Recipe,
    parallel: Parallelism,
    gpu: Gpu,
    *,
    gpus: int,
    nodes: int,
    efficiency: Efficiency,
) -> Throughput | None:
    """Speed of the job on `gpus` GPUs in `nodes` machines; None where no arithmetic rate of the GPU is known."""
    top = find_peak_rate(recipe, gpu)
    if top is None:
        return None
    job = count_work(architecture, recipe)
    setting = StepSetting(work=job, recipe=recipe, parallel=parallel, gpu=gpu, gpus=gpus, nodes=nodes, top=top)
    return _compute_training(setting, efficiency) if recipe.trains else _compute_serving(architecture, setting, efficiency)


def _compute_training(setting: StepSetting, efficiency: Efficiency) -> Throughput:
    top, flops, gpu = setting.top, setting.work.flops, setting.gpu
    found = compute_costs(setting, efficiency.physics, efficiency.find_family(gpu.arch))
    reasons = tuple((name, math.exp(efficiency.weights.get(name, 0.0) * x)) for name, x in found.items() if x)
    ideal = 1 / compute_arithmetic_seconds(setting, efficiency.physics)
    rate = ideal * math.prod(factor for _, factor in reasons)
    return Throughput(
        tokens_per_s_per_gpu=Interval.around(rate, math.exp(efficiency.choose_spread(found))),
        efficiency=rate * flops.hardware / (top.matrix * TERA),
        peak_tflops=top.matrix,
        reasons=reasons,
        notes=(*top.notes, *_list_missing_evidence(found, efficiency, gpu)),
        explain=(*flops.explain, f"at {top.matrix:g} TFLOPS and nothing else: {ideal:.1f} tokens/s per GPU"),
    )


def _list_missing_evidence(found: dict[str, float], efficiency: Efficiency, gpu: Gpu) -> tuple[str, ...]:
    missing = [name for name, x in found.items() if x and not efficiency.evidence.get(name, 0)]
    named = [gpu.name if name.startswith("gpu ") else name for name in missing]
    return (f"no published run tells the speed of: {', '.join(named)}; the interval is wide",) if named else ()


def _compute_serving(architecture: Architecture, setting: StepSetting, efficiency: Efficiency) -> Throughput:
    top, forward, serving = setting.top, setting.work.flops.forward, efficiency.serving
    prefill = _compute_prefill_rate(setting.work, top, serving)
    rate, bound = prefill, "compute"
    if _is_generative(architecture):
        reach = _compute_links(setting.gpu, setting.gpus, setting.nodes, efficiency.physics)
        step = _compute_decode_step(architecture, setting, links=reach, serving=serving)
        rate = setting.recipe.micro_batch / step.seconds / (setting.parallel.tp * setting.parallel.pp)
        bound = "memory bandwidth" if step.reading > step.computing else "compute"
    share = rate * forward / (top.matrix * TERA)
    return Throughput(
        tokens_per_s_per_gpu=Interval.around(rate, serving.factor),
        efficiency=share,
        peak_tflops=top.matrix,
        reasons=((bound, share),),
        notes=(*top.notes, "serving speed is derived from bandwidth and peak, not fitted: the interval is wide"),
        explain=setting.work.flops.explain,
        prefill_tokens_per_s_per_gpu=prefill,
    )
