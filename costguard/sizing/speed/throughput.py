"""Tokens per second per GPU: the ideal rate times one factor for each component of a step, with an 80 % interval.

Example: an ideal of 7,000 tokens per second and factors base 0.70, memory 0.85, network 0.95 give 3,957; with a log spread of
0.25 the interval is 3,082 to 5,081. Training tokens are those of the data set. Inference tokens are generated tokens:
`micro_batch` sequences on each copy of the model, each with `seq_len` tokens before it. Prompt tokens are `prefill`.

The components of a training step are in `step_time.py`.

A step of generation is in `decoding.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from costguard.sizing.architecture import Architecture
from costguard.sizing.memory.interval import name_length
from costguard.sizing.recipe import RUN_BY_TRANSFORMERS, USUAL_NETWORK, NetworkSpeeds, Parallelism, Recipe
from costguard.sizing.speed.decoding import compute_decode_step, compute_prefill_rate, compute_transcription_rate
from costguard.sizing.speed.efficiency import Efficiency
from costguard.sizing.speed.flops import count_work, find_peak_rate
from costguard.sizing.speed.step_time import (
    GIGA,
    OVER_LINKS,
    TERA,
    StepCosts,
    StepSetting,
    compute_costs,
    compute_links,
    describe_component,
)
from costguard.values.gpu import Gpu
from costguard.values.interval import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """The speed of a job in steady state.

    - `efficiency`: the share of `peak_tflops` reached, with recomputation counted as work.
    - `reasons`: (name, factor); the ideal rate times all factors is the expected rate.
    - `unit`, `units_per_token`: what the input is counted in (tokens, images, audio_seconds, frames), and how many of them a
        token is.
    - `prefill_tokens_per_s_per_gpu`: prompt tokens when serving; None when training.
    """

    tokens_per_s_per_gpu: Interval
    efficiency: float
    peak_tflops: float
    reasons: tuple[tuple[str, float], ...]
    notes: tuple[str, ...] = ()
    explain: tuple[str, ...] = ()
    prefill_tokens_per_s_per_gpu: float | None = None
    unit: str = "tokens"
    units_per_token: float = 1.0

    @property
    def units_per_s_per_gpu(self) -> Interval:
        """Return the speed in what the input is counted in."""
        return self.tokens_per_s_per_gpu.scale(self.units_per_token)


def compute_throughput(
    architecture: Architecture,
    recipe: Recipe,
    parallel: Parallelism,
    gpu: Gpu,
    *,
    gpus: int,
    nodes: int,
    efficiency: Efficiency,
    network: NetworkSpeeds = USUAL_NETWORK,
) -> Throughput | None:
    """Return the speed of the job on `gpus` GPUs in `nodes` machines; None if no arithmetic rate of the GPU is known.

    `network`: the links that the user states; usual ones where it states none.
    """
    top = find_peak_rate(recipe, gpu)
    if top is None:
        return None
    job = count_work(architecture, recipe)
    setting = StepSetting(work=job, recipe=recipe, parallel=parallel, gpu=gpu, gpus=gpus, nodes=nodes, top=top, network=network)
    return _compute_training(setting, efficiency) if recipe.trains else _compute_serving(architecture, setting, efficiency)


def _compute_training(setting: StepSetting, efficiency: Efficiency) -> Throughput:
    top, flops, gpu = setting.top, setting.work.flops, setting.gpu
    costs = compute_costs(setting, efficiency.physics, efficiency.find_family(gpu.arch))
    reasons = list_factors(costs, efficiency.weights)
    ideal = 1 / costs.arithmetic
    rate = ideal * math.prod(factor for _, factor in reasons)
    work, unit = setting.work, setting.work.unit.replace("_", " ")
    names = list_evidence_names(costs.names, setting.recipe, gpu.name, sampled=work.unit != "tokens")
    return Throughput(
        tokens_per_s_per_gpu=Interval.around(rate, math.exp(efficiency.compute_half_width(names))),
        efficiency=rate * flops.hardware / (top.matrix * TERA),
        peak_tflops=top.matrix,
        reasons=reasons,
        notes=(
            *top.notes,
            *_list_missing_evidence(efficiency.list_unmeasured(names), gpu),
            *_list_assumed_links(setting, efficiency, reasons),
            *_list_loop_notes(setting, reasons),
        ),
        explain=(
            *flops.explain,
            f"at {top.matrix:g} TFLOPS and nothing else: {ideal * work.units_per_token:,.1f} {unit}/s per GPU",
            *_explain_roofline(setting, costs, reasons),
        ),
        unit=work.unit,
        units_per_token=work.units_per_token,
    )


def _explain_roofline(setting: StepSetting, costs: StepCosts, reasons: tuple[tuple[str, float], ...]) -> Iterable[str]:
    """Yield the ridge point of the GPU, the intensity of the step, and what bounds it (Williams et al., CACM 52, 2009)."""
    gpu, flops = setting.gpu, setting.work.flops.hardware
    bandwidth = gpu.bandwidth_gb_s / gpu.dies * GIGA
    traffic_bytes = sum(seconds for name, seconds in costs.seconds.items() if name in IN_MEMORY) * bandwidth
    ridge, intensity = setting.top.matrix * TERA / bandwidth, flops / traffic_bytes if traffic_bytes else math.inf
    yield f"ridge point: {setting.top.matrix:g} TFLOPS / {bandwidth / GIGA:,.0f} GB/s = {ridge:,.0f} FLOP per byte"
    side = "above the ridge: arithmetic bounds it" if intensity >= ridge else "below the ridge: memory bandwidth bounds it"
    scale, noun = setting.work.units_per_token, setting.work.unit.removesuffix("s").replace("_", " ")
    each = f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
    work = f"{flops / scale / GIGA:,.2f} GFLOP and {traffic_bytes / scale / 1e6:,.2f} MB {each}"
    yield f"intensity: {work} = {intensity:,.0f} FLOP per byte, {side}"
    name, factor = min(reasons, key=lambda reason: reason[1], default=("", 1.0))
    if name:
        yield f"the largest loss against the peak: {describe_component(name)} (x {factor:.2f})"


def list_evidence_names(components: Iterable[str], recipe: Recipe, card: str, *, sampled: bool) -> tuple[str, ...]:
    """Return what a run shares with others, each of which makes its interval wider if no published run had it.

    `sampled`: its input has a fixed length (images, sound), so that its tokens say nothing of context.
    """
    library = "hf" if recipe.framework in RUN_BY_TRANSFORMERS else recipe.framework
    method = "full" if recipe.method == "pretrain" else recipe.method
    length = "usual" if sampled else name_length(recipe.seq_len)
    return (*components, f"card {card}", f"library {library}", f"method {method}", f"length {length}")


def list_factors(costs: StepCosts, weights: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """Return (component, factor) of each component of a step; the ideal rate times all factors is the rate.

    What adds seconds gets the seconds before it over the seconds with it.
    """
    shares = [(name, math.exp(weights.get(name, 0.0) * x)) for name, x in costs.shares.items() if x]
    spent = costs.arithmetic / math.prod(factor for _, factor in shares)
    added = []
    for name, seconds in costs.seconds.items():
        if seconds:
            longer = spent + weights.get(name, 0.0) * seconds
            added.append((name, spent / longer))
            spent = longer
    factors = [(name, math.exp(weights.get(name, 0.0) * x)) for name, x in costs.factors.items() if x]
    return (*shares, *added, *factors)


def _list_missing_evidence(missing: tuple[str, ...], gpu: Gpu) -> tuple[str, ...]:
    names = [gpu.name if name.startswith(("gpu ", "card ")) else name for name in missing]
    listed = ", ".join(dict.fromkeys(names))
    return (f"no published run gives the speed of: {listed}; the interval is wide",) if names else ()


IN_MEMORY = ("layers", "layers eager", "memory")
"""Components that move bytes through the GPU's own memory."""
TOLD_FROM = 0.95
"""An assumed link is named where it takes a twentieth of the step or more."""


def _list_assumed_links(
    setting: StepSetting, efficiency: Efficiency, reasons: tuple[tuple[str, float], ...]
) -> tuple[str, ...]:
    """Return a sentence that names the assumed speed of the link that slows the job down; nothing if none does."""
    waits = math.prod(factor for name, factor in reasons if name in OVER_LINKS)
    if setting.gpus == 1 or waits > TOLD_FROM:
        return ()
    links, network = compute_links(setting, efficiency.physics), setting.network
    if setting.gpus > links.together:
        if network.node_gbit is not None:
            return ()
        gbit = 8 * links.between * setting.gpus / setting.nodes
        return (f"assumed {gbit:,.0f} Gbit/s of network into each machine: write [network] node_gbit if yours differs",)
    if network.gpu_gb_s is not None or setting.gpu.nvlink:
        return ()
    return (f"assumed {links.inside:g} GB/s between the cards, over PCIe: write [network] gpu_gb_s if yours differ",)


def _list_loop_notes(setting: StepSetting, reasons: tuple[tuple[str, float], ...]) -> tuple[str, ...]:
    """Return a sentence on experts that run one after the other, and how much faster a grouped product is."""
    factor = dict(reasons).get("expert_loop", 1.0)
    if factor > TOLD_FROM:
        return ()
    why = "as stated" if setting.recipe.experts_implementation == "loop" else f"as {setting.recipe.framework} does here"
    faster = f'experts_implementation = "grouped" is about {1 / factor:.1f} times as fast where the library has it'
    return (f"experts run one after the other, {why}: {faster}",)


def _compute_serving(architecture: Architecture, setting: StepSetting, efficiency: Efficiency) -> Throughput:
    top, forward, serving = setting.top, setting.work.flops.forward, efficiency.serving
    prefill = compute_prefill_rate(setting.work, top, serving)
    rate, bound, roofline = prefill, "compute", tuple[str, ...]()
    if architecture.writes and architecture.sample_tokens:
        rate, bound = compute_transcription_rate(architecture, setting, serving), "memory bandwidth"
    elif architecture.writes:
        reach = compute_links(setting, efficiency.physics)
        step = compute_decode_step(architecture, setting, links=reach, serving=serving)
        rate = setting.recipe.micro_batch / step.seconds / (setting.parallel.tp * setting.parallel.pp)
        bound = "memory bandwidth" if step.reading > step.computing else "compute"
        parts = f"reads memory for {1000 * step.reading:.2f} ms and computes for {1000 * step.computing:.2f} ms"
        roofline = (f"a decoding step of {setting.recipe.micro_batch} sequences {parts}: {bound} bounds it",)
    share = rate * forward / (top.matrix * TERA)
    return Throughput(
        tokens_per_s_per_gpu=Interval.around(rate, serving.get_factor(mixture=setting.work.mixture)),
        efficiency=share,
        peak_tflops=top.matrix,
        reasons=((bound, share),),
        notes=(*top.notes, "serving speed is derived from bandwidth and peak: the interval is wide"),
        explain=(*setting.work.flops.explain, *roofline),
        prefill_tokens_per_s_per_gpu=prefill,
        unit=setting.work.unit,
        units_per_token=setting.work.units_per_token,
    )
