"""Tokens per second per GPU: the ideal rate times one factor for each named cost, with an 80 % interval.

Example: an ideal of 7,000 tokens per second and factors base 0.70, memory 0.85, network 0.95 give 3,957; with a log spread of
0.25 the interval is 3,082 to 5,081. Training tokens are those of the data set. Inference tokens are generated tokens:
`micro_batch` sequences on each copy of the model, each with `seq_len` tokens before it. Prompt tokens are `prefill`.

Costs: each is a time in seconds per token of one GPU at the best rate of the component, as a feature

    -log(1 + time / time of arithmetic)

It is 0 if no time is spent; a fitted weight of 1 would mean that none of the time overlaps with arithmetic.

Example: Llama-2-7B, 2 x 2048 tokens, no checkpointing, on one A100-80GB-SXM: 41.2 GFLOP at 312 TFLOPS and slower scores take
135 us. Activations, logits, weights and optimizer move 92.8 MB, 45.5 us at 2039 GB/s: `memory` is -log(1.34) = -0.29.

Generation: a step reads all weights and every sequence's cache, and the slower of reading and computing sets the speed.

Example: Llama-2-7B in bf16 on an A100-80GB-SXM (2039 GB/s, of which 60 % is reached), one sequence at 2048 tokens: 13.5 GB of
weights and 1.07 GB of cache take 11.7 ms per step, 86 tokens per second; computing takes 0.1 ms. With 32 sequences a step reads
47.6 GB: 38.9 ms, 823 tokens per second. The shares are assumed (the data has no serving run), so the interval is wide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from costguard.sizing.architecture import Architecture, LayerBlock
from costguard.sizing.memory.frameworks import has_fused_kernels
from costguard.sizing.recipe import Parallelism, Recipe
from costguard.sizing.speed.efficiency import Efficiency, GpuFamily, ServingEfficiency, StepConstants
from costguard.sizing.speed.flops import PeakRate, TokenWork, count_work, find_peak_rate
from costguard.values.gpu import Gpu
from costguard.values.interval import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """The speed of a job in steady state.

    - `efficiency`: the share of `peak_tflops` reached, with recomputation counted as work.
    - `reasons`: (name, factor); the ideal rate times all factors is the expected rate.
    - `prefill_tokens_per_s_per_gpu`: prompt tokens when serving; None when training.
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
    """Return the speed of the job on `gpus` GPUs in `nodes` machines; None if no arithmetic rate of the GPU is known."""
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


TERA, GIGA = 1e12, 1e9
FULLY_SHARDED = 3
NVL72 = 72
INTERLEAVED_FROM = 0.25
NEW_KERNELS_FROM = ("9.", "10.")
"""Compute capabilities whose matrix units older kernels cannot fill."""
UNCUT_GB_S = {"NVLink3 (cut)": 600, "NVLink4 (cut)": 900}
"""A800 and H800 have less NVLink than their sisters, and the same network cards."""
USUAL_ACHIEVED = 0.8
"""The share of its datasheet peak that the best matrix multiplication reaches on H100 and B200 (gpus.csv, MAMF column)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSetting:
    """A job on `gpus` GPUs in `nodes` machines."""

    work: TokenWork
    recipe: Recipe
    parallel: Parallelism
    gpu: Gpu
    gpus: int
    nodes: int
    top: PeakRate

    @property
    def ranks(self) -> int:
        """Return the number of data-parallel copies of the model."""
        return max(1, self.gpus // self.parallel.model_ranks)

    @property
    def weights(self) -> float:
        """Return the weights that one copy stores for a token; its ranks read their parts at the same time."""
        return self.work.weights + self.work.expert_weights / self.parallel.ep

    @property
    def pass_tokens(self) -> float:
        """Return the tokens of one pass of one copy, divided by the context-parallel ranks."""
        return self.recipe.micro_batch * self.recipe.seq_len / self.parallel.cp

    @property
    def passes_a_step(self) -> int:
        """Return the number of forward and backward passes per optimizer step."""
        return self.recipe.gradient_accumulation

    @property
    def trains_weights(self) -> bool:
        """Return whether the model's own weights have gradients."""
        return self.recipe.trains and not self.recipe.adapters


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpeeds:
    """The GB/s that a GPU sends.

    - `inside`: inside a machine. `between`: between machines while all GPUs send. `collective`: in a ring over all
        GPUs.
    - `together`: number of GPUs that share the fast fabric.
    """

    inside: float
    between: float
    collective: float
    together: int


def compute_costs(setting: StepSetting, physics: StepConstants, family: GpuFamily) -> dict[str, float]:
    """Return every named cost of this job on these GPUs, before the fitted weights; 0 if a cost does not apply."""
    s, reach = setting, _compute_links(setting.gpu, setting.gpus, setting.nodes, physics)
    base = compute_arithmetic_seconds(s, physics)
    return {
        "base": 1.0,
        "memory": -math.log1p(_compute_memory_seconds(s, physics) / base),
        "network": -math.log1p(_compute_network_seconds(s, reach) / base),
        "model_parallel": -math.log1p(_compute_model_parallel_seconds(s, reach) / base),
        "bubble": -math.log1p(_compute_idle_share(s.parallel.pp, s.passes_a_step)),
        "narrow": -math.log1p(physics.narrow_hidden / s.work.hidden),
        "host": -math.log1p(_compute_host_seconds(s, physics) / base),
        "mixture": -float(s.work.mixture),
        "convolutions": -float(s.work.walked),
        "fp8": -float(bool(s.top.reduced)),
        "fp4": -float(s.top.reduced == "fp4"),
        "fp16": -float(s.top.fp16),
        "scale": -math.log10(s.gpus),
        "power": _compute_power(s.gpu, family),
        "achieved": _compute_achieved(s.gpu),
        f"gpu {family.prefix}": 1.0,
    }


def compute_arithmetic_seconds(setting: StepSetting, physics: StepConstants) -> float:
    """Return the seconds per token if a GPU did nothing but multiply at its peak; scores are slower than matrices."""
    job, top = setting.work, setting.top
    wide = job.wide_flops + _choose_attention_slowdown(setting, physics) * job.attention_flops
    return (job.matrix_flops / top.matrix + wide / top.wide) / TERA


def _choose_attention_slowdown(setting: StepSetting, physics: StepConstants) -> float:
    """Return the slowdown of attention scores.

    Hopper and Blackwell need kernels written for them (FlashAttention-3 and 4, cuDNN); FlashAttention-2 runs slowly on them.
    """
    recipe = setting.recipe
    made_for_it = recipe.attention == "flash3" or recipe.framework == "megatron"
    if setting.gpu.compute_capability.startswith(NEW_KERNELS_FROM) and not made_for_it:
        return physics.attention_slowdown_old_kernel
    return physics.attention_slowdown


def _compute_idle_share(stages: int, passes: int) -> float:
    """Return a pipeline's fill and drain time divided by its working time: (p - 1) / m.

    If the ratio is large, stages are cut in two and interleaved, which halves the part above INTERLEAVED_FROM.
    """
    idle = (stages - 1) / passes
    return min(idle, (idle + INTERLEAVED_FROM) / 2)


def _compute_memory_seconds(setting: StepSetting, physics: StepConstants) -> float:
    """Return the seconds per token to move activations, logits, weights and optimizer states through the GPU's memory."""
    s, job = setting, setting.work
    layers = physics.layer_bytes_per_hidden * job.hidden_layers + physics.layer_bytes_per_ffn * job.ffn_layers
    logits = physics.logits_bytes_per_word * job.words
    layers *= physics.fused_share if has_fused_kernels(s.recipe) else 1
    logits *= physics.fused_share if s.recipe.fused_loss or s.recipe.compiled else 1
    routed = physics.routed_bytes_per_hidden * job.routed_hidden * job.experts_per_token
    read = physics.dequantised_bytes_per_weight if s.recipe.quant != "none" else job.weight_bytes
    step = physics.optimizer_bytes_per_weight / (s.ranks if s.parallel.stage else 1) / s.passes_a_step
    weights = s.weights * (read * job.passes + s.trains_weights * step) / s.pass_tokens
    bandwidth = s.gpu.bandwidth_gb_s / s.gpu.dies * GIGA
    return ((layers + routed) * (job.passes + s.recipe.trains) + logits + weights) / bandwidth


def _compute_network_seconds(setting: StepSetting, links: LinkSpeeds) -> float:
    """Return the seconds per token of data-parallel communication.

    Gradients are sent once per step; with ZeRO-3 and FSDP, weights are gathered in every pass and gradients are scattered.
    """
    s, job = setting, setting.work
    gradients = 2.0 * s.trains_weights
    gathered = job.passes * job.weight_bytes + gradients
    moved = gathered if s.parallel.stage == FULLY_SHARDED else 2 * gradients / s.passes_a_step
    return moved * s.weights * (s.ranks - 1) / s.ranks / (links.collective * GIGA) / s.pass_tokens


def _compute_model_parallel_seconds(setting: StepSetting, links: LinkSpeeds) -> float:
    """Return the seconds per token of tensor- and expert-parallel communication.

    Tensor parallelism sums two activations per layer and pass; expert parallelism sends tokens to experts and back. Between
    machines a token is sent once to each machine that holds one of its experts: 8 experts in 8 machines mean 4.6 other
    machines.
    """
    s, job = setting, setting.work
    tensor = links.inside if s.parallel.tp <= links.together else links.between
    summed = 8 * (s.parallel.tp - 1) * job.hidden_layers / tensor
    copies, ep = job.experts_per_token, s.parallel.ep
    machines = -(-ep // links.together)
    crossing = (machines - 1) * (1 - math.pow(1 - 1 / machines, copies))
    exchanged = 4 * job.routed_hidden * (copies * (ep - 1) / ep / links.inside + crossing / links.between)
    return job.passes * (summed + exchanged) / GIGA


def _compute_host_seconds(setting: StepSetting, physics: StepConstants) -> float:
    """Return the seconds per token of offloading.

    Once per step, gradients go down, weights go up and Adam runs on the CPU; with `all`, weights go up in every pass.
    """
    s, job = setting, setting.work
    if s.parallel.offload == "none":
        return 0.0
    per_byte = 1 / s.ranks / (physics.host_gb_s * GIGA)
    fetched = (s.parallel.offload == "all") * job.passes * job.weight_bytes * per_byte
    step = s.trains_weights * (4 * per_byte + 1 / s.nodes / physics.host_weights_per_s) / s.passes_a_step
    return s.weights * (fetched + step) / s.pass_tokens


def _compute_links(gpu: Gpu, gpus: int, nodes: int, physics: StepConstants) -> LinkSpeeds:
    """Return the link speeds between the GPUs.

    A ring's data enters a machine once, over the network cards of all its GPUs together. The cards are assumed to be
    proportional to the fabric (`fabric_share_per_gpu`); with PCIe, one shared card of `pcie_node_gb_s` is assumed.
    """
    per_node = max(1, gpus // nodes)
    inside = (gpu.interconnect_gb_s or 0) / 2 if gpu.nvlink else physics.pcie_gb_s
    together = NVL72 if "NVL72" in gpu.interconnect else per_node
    if gpus <= together:
        return LinkSpeeds(inside=inside, between=inside, collective=inside, together=gpus)
    uncut = UNCUT_GB_S.get(gpu.interconnect, gpu.interconnect_gb_s or 0)
    between = uncut * physics.fabric_share_per_gpu if gpu.nvlink else physics.pcie_node_gb_s / per_node
    return LinkSpeeds(inside=inside, between=between, collective=min(inside, between * per_node), together=together)


def _compute_power(gpu: Gpu, family: GpuFamily) -> float:
    """Return the log of the GPU's power limit per TFLOPS relative to its generation's least throttled GPU; 0 if unknown."""
    if family.full_power_w_per_tflops is None or gpu.tdp_w is None or gpu.bf16_tflops is None:
        return 0.0
    return min(0.0, math.log(gpu.tdp_w / gpu.bf16_tflops / family.full_power_w_per_tflops))


def _compute_achieved(gpu: Gpu) -> float:
    """Return the log of the best measured share of peak relative to the usual share; 0 if none was measured."""
    if gpu.mamf_bf16_tflops is None or gpu.bf16_tflops is None:
        return 0.0
    return math.log(gpu.mamf_bf16_tflops / gpu.bf16_tflops / USUAL_ACHIEVED)


CACHE_BYTES = 2.0
SUM_SECONDS = 1e-5
"""One tensor-parallel sum of a few tokens is latency: about 10 us over NVLink, and the links' speed for the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeStep:
    """Seconds in which every sequence of one model copy gains one token, by component."""

    reading: float
    computing: float
    summing: float

    @property
    def seconds(self) -> float:
        """Return the total seconds: reading and computing overlap; sums between GPUs come after both."""
        return max(self.reading, self.computing) + self.summing


def _compute_decode_step(
    architecture: Architecture, setting: StepSetting, *, links: LinkSpeeds, serving: ServingEfficiency
) -> DecodeStep:
    """Return one decode step of `micro_batch` sequences with `seq_len` earlier tokens each, on tp x pp GPUs."""
    job, gpu, recipe, tp = setting.work, setting.gpu, setting.recipe, setting.parallel.tp
    ranks, batch = tp * setting.parallel.pp, recipe.micro_batch
    cache = batch * sum(_compute_cache_bytes(b, recipe) for b in architecture.blocks)
    read = job.weight_bytes * _count_weights_read(architecture, job, batch) + cache
    summed = 2 * CACHE_BYTES * batch * architecture.hidden / (links.inside * GIGA)
    return DecodeStep(
        reading=read / (gpu.bandwidth_gb_s / gpu.dies * GIGA * serving.bandwidth_share * ranks),
        computing=batch * job.flops.forward / (setting.top.matrix * TERA * serving.compute_share * ranks),
        summing=2 * architecture.layers * (tp > 1) * (SUM_SECONDS + summed),
    )


def _count_weights_read(architecture: Architecture, work: TokenWork, batch: int) -> float:
    """Return the weights that one step reads; of a mixture, the experts used by at least one of `batch` tokens."""
    total = work.weights + work.expert_weights - architecture.embedding_parameters * (not architecture.tied_embeddings)
    if not work.mixture:
        return total
    feed_forward = max((b.feed_forward for b in architecture.blocks), key=lambda f: f.experts)
    unused = (1 - feed_forward.experts_per_token / feed_forward.experts) ** batch
    passed = work.expert_weights * feed_forward.experts / (feed_forward.experts - feed_forward.experts_per_token)
    return total - passed * unused


def _compute_cache_bytes(block: LayerBlock, recipe: Recipe) -> float:
    """Return the bytes of 16-bit keys and values of one sequence in one LayerBlock; a window limits the cached tokens."""
    tokens = block.tokens or recipe.seq_len
    return CACHE_BYTES * block.layers * block.attention.cached_width * min(tokens, block.attention.window or tokens)


def _compute_prefill_rate(work: TokenWork, top: PeakRate, serving: ServingEfficiency) -> float:
    """Return the prompt tokens per second per GPU, limited by arithmetic."""
    return top.matrix * TERA * serving.compute_share / work.flops.forward


def _is_generative(architecture: Architecture) -> bool:
    """Return whether tokens are generated one after another; an encoder or image tower processes them all at once."""
    return any(block.causal for block in architecture.blocks)
