"""The time of a training step, component by component, in seconds per token of one GPU.

    seconds = arithmetic / share of the peak that is reached + sum of weight x seconds of each other component
    tokens per second = product of the whole-step factors / seconds

Arithmetic is the time of the matrix products and scores at the GPU's peak. `shares` are the logs of what the peak loses
(clock, narrow matrices, casts to fp8). `seconds` are what else a GPU waits for: memory traffic, networks, the launch of
kernels, experts. Their weights say which part is not hidden behind arithmetic. `factors` apply to the whole step: the
pipeline's bubble, stragglers.

Example: Llama-2-7B, 2 x 2048 tokens, no checkpointing, on one A100-80GB-SXM: 41.2 GFLOP at 312 TFLOPS and slower scores take
136 us a token. With a share of 0.73 that is 186 us. Activations, logits, weights and optimizer move 92.8 MB, 45.5 us at 2039
GB/s; kernels of 32 layers are launched in two passes over 4096 tokens, 7.8 us: about 4,200 tokens per second.

Components add up, because a GPU does one thing after another; a product of factors would charge a job twice that is slow for
two reasons (decision 0048).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from costguard.sizing.memory.frameworks import choose_loss, choose_upcast, get_framework, has_fused_kernels
from costguard.sizing.recipe import USUAL_NETWORK, NetworkSpeeds, Parallelism, Recipe
from costguard.sizing.speed.efficiency import GpuFamily, StepConstants
from costguard.sizing.speed.flops import PeakRate, TokenWork
from costguard.values.gpu import Gpu

TERA, GIGA = 1e12, 1e9
FULLY_SHARDED = 3
NVL72 = 72
SUPERCHIP = "C2C"
MOST_CHUNKS, LAYERS_A_CHUNK = 8.0, 2
"""Megatron-Bridge's published recipes interleave 4 to 8 chunks a stage (VP=4 ... 20)."""
UNCUT_GB_S = {"NVLink3 (cut)": 600, "NVLink4 (cut)": 900}
"""A800 and H800 have less NVLink than their sisters, and the same network cards."""
USUAL_ACHIEVED = 0.8
"""The share of its datasheet peak that the best matrix multiplication reaches on H100 and B200 (gpus.csv, MAMF column)."""
SHARD_COPIES, GRADIENT_COPY = 2, 6
"""FSDP copies gathered weights out of the collective's buffer (read and written once more), and 16-bit gradients into one of
fp32 (2 bytes read, 4 written): torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py."""
PURE_PRECISIONS, PURE_SHARE = ("bf16", "fp16"), 0.5
"""Precisions whose weights, gradients and moments all have 16 bits: an update moves half of the bytes."""
WIDE_STREAM = 2
"""How many times the 16-bit bytes of a layer's norms, activations and residuals their fp32 ones are."""
LEAST_ATTENTION_SLOWDOWN = 1.1
NEW_KERNELS_FROM = ("9.", "10.")
"""Compute capabilities (Hopper, Blackwell) whose matrix units FlashAttention-2 cannot fill."""
MEGATRON = ("megatron", "megatron-2021")
FUSED_EXPERTS = (*MEGATRON, "automodel")
"""Libraries whose router, permutation and exchange of tokens are fused kernels (Megatron-Core, DeepEP, HybridEP)."""
OVER_LINKS = ("network", "model_parallel", "exchange", "exchange fused")
"""Components that wait for links between GPUs."""
WORST_MEASURED = {"AMD": 0.511}
"""By vendor: the least share of the datasheet peak that a measured card reaches (gpus.csv: MI300X 668 of 1307 TFLOPS). A card
of this vendor of whose generation none was measured is taken to reach no more."""


COMPONENTS = {
    "base": "large products against the best one",
    "achieved": "the card's best product against its datasheet, 0.8 being usual",
    "narrow": "narrow matrices",
    "mixture": "many small matrices",
    "convolutions": "convolutions against matrices",
    "fp8": "casts to 8 bits",
    "fp4": "casts to 4 bits",
    "fp16": "the libraries of 2021-22 that run in fp16",
    "layers": "traffic of fused norms and activations",
    "layers eager": "traffic of eager norms and activations",
    "memory": "traffic of logits, weights and optimizer states",
    "network": "gathering weights and summing gradients over ranks",
    "model_parallel": "sums over tensor-parallel ranks",
    "exchange": "sending tokens to experts and back",
    "exchange fused": "sending tokens to experts and back with fused kernels",
    "launch": "launching kernels",
    "adapters": "launching those of adapters",
    "step": "clipping and updating the tensors that FSDP divides",
    "routing": "routing tokens",
    "routing fused": "routing tokens with fused kernels",
    "expert_loop": "experts that run one after the other",
    "host": "offload to the host",
    "bubble": "the pipeline's fill and drain",
    "scale": "stragglers among many GPUs",
}
"""What each component of a step is."""


def describe_component(name: str) -> str:
    """Return the component's name and what it is; the name alone of a GPU's generation or what a caller added."""
    return f"{name}: {COMPONENTS[name]}" if name in COMPONENTS else name


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
    network: NetworkSpeeds = USUAL_NETWORK

    @property
    def ranks(self) -> int:
        """Return the number of data-parallel copies of the model."""
        return max(1, self.gpus // self.parallel.model_ranks)

    @property
    def shards(self) -> int:
        """Return the ranks over which weights and gradients are divided: the copies and their context-parallel ranks."""
        return self.ranks * self.parallel.cp

    @property
    def weights(self) -> float:
        """Return the weights that one copy stores for a token; its ranks read their parts at the same time."""
        return self.work.weights + self.work.expert_weights / self.parallel.ep

    @property
    def holders(self) -> float:
        """Return the ranks over which one expert is divided."""
        return max(1.0, self.shards / self.parallel.ep)

    @property
    def gathered_weights(self) -> float:
        """Return the weights that a rank gathers in each pass: with FSDP and ZeRO-3, all that it does not hold whole."""
        if self.parallel.stage != FULLY_SHARDED or self.shards == 1:
            return 0.0
        return self.work.weights + (self.work.expert_weights / self.parallel.ep if self.holders > 1 else 0.0)

    @property
    def updated_weights(self) -> float:
        """Return the weights whose optimizer states a rank holds."""
        if not self.parallel.stage:
            return self.weights
        return self.work.weights / self.shards + self.work.expert_weights / self.parallel.ep / self.holders

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

    @property
    def loops_over_experts(self) -> bool:
        """Return whether each expert is a module of its own that runs after the other.

        Not stated: Hugging Face's modules before transformers 5 (2025-12), and under ZeRO-3, whose hooks fetch each module.
        """
        implementation, old = self.recipe.experts_implementation, get_framework(self.recipe).loops_experts
        if implementation != "auto":
            return implementation == "loop"
        hooked = self.parallel.stage == FULLY_SHARDED and not self.parallel.fsdp
        return old == "always" or (old == "hooked" and hooked)


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

    def choose_tensor(self, tp: int) -> float:
        """Return the speed at which `tp` tensor-parallel GPUs sum."""
        return self.inside if tp <= self.together else self.between


class StepCosts(NamedTuple):
    """What one token costs one GPU, before the fitted weights. See the module's formula.

    A NamedTuple: a dataclass takes half a millisecond to define, which would slow down each quote.
    """

    arithmetic: float
    shares: dict[str, float]
    seconds: dict[str, float]
    factors: dict[str, float]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the components that are not 0."""
        return tuple(name for part in (self.shares, self.seconds, self.factors) for name, x in part.items() if x)


def compute_costs(setting: StepSetting, physics: StepConstants, family: GpuFamily) -> StepCosts:
    """Return every component of this job on these GPUs; 0 if one does not apply."""
    s, links = setting, compute_links(setting, physics)
    experts = " fused" if s.recipe.framework in FUSED_EXPERTS else ""
    eager = "" if has_fused_kernels(s.recipe) else " eager"
    return StepCosts(
        arithmetic=_compute_arithmetic_seconds(s, physics),
        shares={
            "base": 1.0,
            "achieved": math.log(_find_achieved_share(s.gpu, family) / USUAL_ACHIEVED),
            "narrow": -math.log1p(physics.narrow_hidden / s.work.hidden),
            "mixture": -float(s.work.mixture),
            "convolutions": -float(s.work.walked),
            "fp8": -float(bool(s.top.reduced)),
            "fp4": -float(s.top.reduced == "fp4"),
            "fp16": -float(s.top.fp16),
            f"gpu {family.prefix}": 1.0,
        },
        seconds={
            f"layers{eager}": _compute_layer_traffic(s, physics),
            "memory": _compute_other_traffic(s, physics),
            "network": _compute_network_seconds(s, links),
            "model_parallel": _compute_model_parallel_seconds(s, links),
            f"exchange{experts}": _compute_exchange_seconds(s, links),
            "launch": _compute_launch_seconds(s, physics),
            "adapters": _compute_adapter_seconds(s, physics),
            "step": _compute_step_seconds(s, physics),
            f"routing{experts}": _compute_routing_seconds(s, physics),
            "expert_loop": _compute_loop_seconds(s, physics),
            "host": _compute_host_seconds(s, physics),
        },
        factors={
            "bubble": -math.log1p(_compute_idle_share(s)),
            "scale": -math.log10(s.gpus),
        },
    )


def _compute_arithmetic_seconds(setting: StepSetting, physics: StepConstants) -> float:
    """Return the seconds per token if a GPU did nothing but multiply at its peak; scores are slower than matrices."""
    job, top = setting.work, setting.top
    wide = job.wide_flops + _choose_attention_slowdown(setting, physics) * job.attention_flops
    return (job.matrix_flops / top.matrix + wide / top.wide) / TERA


def _choose_attention_slowdown(setting: StepSetting, physics: StepConstants) -> float:
    """Return the time of a FLOP of attention scores relative to one of a matrix product at its peak.

    The softmax between the products runs at the GPU's fp32 rate, which limits scores to some multiple of it: a card with little
    matrix arithmetic (H20) is hardly slowed down. Hopper and Blackwell need kernels written for them (FlashAttention-3 and 4,
    cuDNN); FlashAttention-2 runs slowly on them.
    """
    gpu, recipe = setting.gpu, setting.recipe
    if gpu.fp32_tflops is None:
        return LEAST_ATTENTION_SLOWDOWN
    made_for_it = recipe.attention == "flash3" or recipe.framework in MEGATRON
    reached = physics.attention_per_fp32
    if gpu.vendor == "AMD":
        reached = physics.attention_per_fp32_amd
    elif gpu.compute_capability.startswith(NEW_KERNELS_FROM) and not made_for_it:
        reached = physics.attention_per_fp32_old_kernel
    elif gpu.compute_capability.startswith("10."):
        reached = physics.attention_per_fp32_blackwell
    return max(LEAST_ATTENTION_SLOWDOWN, setting.top.wide / (reached * gpu.fp32_tflops / gpu.dies))


def _find_achieved_share(gpu: Gpu, family: GpuFamily) -> float:
    """Return the share of its datasheet peak that the GPU's best matrix product reaches.

    Measured (gpus.csv), else that of its generation's reference card, moved by its power limit per TFLOPS: less power means
    lower clocks; a card with little arithmetic is never throttled (H20). A generation nobody measured: the vendor's worst.
    """
    if gpu.bf16_tflops is None:
        return USUAL_ACHIEVED
    if gpu.mamf_bf16_tflops is not None:
        return gpu.mamf_bf16_tflops / gpu.bf16_tflops
    if family.full_power_w_per_tflops is None or gpu.tdp_w is None:
        return WORST_MEASURED.get(gpu.vendor, USUAL_ACHIEVED)
    power = gpu.tdp_w / gpu.bf16_tflops / family.full_power_w_per_tflops
    reference = family.achieved_share
    return min(max(MOST_ACHIEVED, reference), reference * math.pow(power, LESS_POWER if power < 1 else MORE_POWER))


MOST_ACHIEVED = 0.98
LESS_POWER, MORE_POWER = 0.5, 0.15
"""Exponents of the power limit. 0.5: what torchtitan's 500 W H100 lose against 700 W. 0.15: A100-PCIe of 250-300 W against 400
(gpus.csv, MAMF column); nothing is known above the reference's power, so little is gained."""


def _compute_idle_share(setting: StepSetting) -> float:
    """Return a pipeline's fill and drain time divided by its working time: (p - 1) / (m v).

    Each stage's layers are cut in `v` chunks that are interleaved (Narayanan et al. 2021, section 2.2), as recipes with long
    pipelines do: chunks of two layers, and at most MOST_CHUNKS.
    """
    stages = setting.parallel.pp
    chunks = min(MOST_CHUNKS, max(1.0, setting.work.layers / stages / LAYERS_A_CHUNK))
    return (stages - 1) / setting.passes_a_step / chunks


def _compute_layer_traffic(setting: StepSetting, physics: StepConstants) -> float:
    """Return the seconds per token to move what layers write and read outside matrices: norms, activations, residuals.

    Where PEFT prepared a model of bitsandbytes, all of them are fp32 (`Numerics.module_io`): twice the bytes.
    """
    s, job = setting, setting.work
    traffic = physics.layer_bytes_per_hidden * job.hidden_layers + physics.layer_bytes_per_ffn * job.ffn_layers
    traffic *= WIDE_STREAM if choose_upcast(s.recipe, s.parallel) == "all" else 1
    return traffic * (job.passes + s.recipe.trains) / _get_bandwidth(s.gpu)


def _compute_other_traffic(setting: StepSetting, physics: StepConstants) -> float:
    """Return the seconds per token to move logits, routed tokens, weights and optimizer states through the GPU's memory."""
    s, job = setting, setting.work
    logits = physics.logits_bytes_per_word * job.words
    logits *= physics.fused_share if choose_loss(s.recipe) != "whole" or s.recipe.compiled else 1
    routed = physics.routed_bytes_per_hidden * job.routed_hidden * job.experts_per_token * (job.passes + s.recipe.trains)
    read = s.weights * (physics.dequantised_bytes_per_weight if s.recipe.quant != "none" else job.weight_bytes)
    copied = s.gathered_weights * SHARD_COPIES * job.weight_bytes
    narrow = PURE_SHARE if s.recipe.precision in PURE_PRECISIONS else 1.0
    updated = s.updated_weights * physics.optimizer_bytes_per_weight * narrow + s.gathered_weights * GRADIENT_COPY
    weights = ((read + copied) * job.passes + s.trains_weights * updated / s.passes_a_step) / s.pass_tokens
    return (routed + logits + weights) / _get_bandwidth(s.gpu)


def _get_bandwidth(gpu: Gpu) -> float:
    """Return the bytes per second of the GPU's own memory, of one die."""
    return gpu.bandwidth_gb_s / gpu.dies * GIGA


def _compute_network_seconds(setting: StepSetting, links: LinkSpeeds) -> float:
    """Return the seconds per token of data-parallel communication.

    Gradients are sent once per step; with ZeRO-3 and FSDP, weights are gathered in every pass and gradients are scattered. The
    ranks that share an expert are fewer: ranks / ep, and at ep = ranks nothing of the experts is gathered at all.
    """
    s, job = setting, setting.work
    gradients = (4.0 if get_framework(s.recipe).reduces_fp32 else 2.0) * s.trains_weights
    gathered = job.passes * job.weight_bytes + gradients
    traffic = gathered if s.parallel.stage == FULLY_SHARDED else 2 * gradients / s.passes_a_step
    dense = job.weights * (s.shards - 1) / s.shards
    experts = job.expert_weights / s.parallel.ep * (s.holders - 1) / s.holders
    return traffic * (dense + experts) / (links.collective * GIGA) / s.pass_tokens


def _compute_model_parallel_seconds(setting: StepSetting, links: LinkSpeeds) -> float:
    """Return the seconds per token of tensor parallelism, which sums two activations per layer and pass."""
    s = setting
    return s.work.passes * 8 * (s.parallel.tp - 1) * s.work.hidden_layers / links.choose_tensor(s.parallel.tp) / GIGA


def _compute_exchange_seconds(setting: StepSetting, links: LinkSpeeds) -> float:
    """Return the seconds per token of expert parallelism, which sends tokens to experts and back.

    Between machines a token is sent once to each machine that holds one of its experts: 8 experts in 8 machines mean 4.6 other
    machines.
    """
    s, job = setting, setting.work
    copies, ep = job.experts_per_token, s.parallel.ep
    machines = -(-ep // links.together)
    crossing = (machines - 1) * (1 - math.pow(1 - 1 / machines, copies))
    return job.passes * 4 * job.routed_hidden * (copies * (ep - 1) / ep / links.inside + crossing / links.between) / GIGA


def _compute_launch_seconds(setting: StepSetting, physics: StepConstants) -> float:
    """Return the seconds per token in which the host launches the kernels of all layers: what a small batch waits for."""
    s = setting
    fused = physics.fused_share if has_fused_kernels(s.recipe) else 1.0
    return physics.launch_s * fused * s.work.layers * s.work.passes * s.parallel.tp / s.pass_tokens


def _compute_adapter_seconds(setting: StepSetting, physics: StepConstants) -> float:
    """Return the seconds per token by which launching the adapters' kernels outlasts what the GPU computes meanwhile.

    PEFT runs each adapter as modules of its own, about a dozen small kernels a pass, and the host launches them ahead of the
    GPU. Example: Llama-3.1-8B with adapters on seven matrices, one sequence of 2,048 tokens and full checkpointing: 672 passes
    of adapters and 96 of layers, 0.5 ms each, take the host 384 ms, and the GPU computes for 250.
    """
    s = setting
    if not s.work.adapted_matrices or not get_framework(s.recipe).pads or get_framework(s.recipe).casts_adapters:
        return 0.0
    fused = physics.fused_share if has_fused_kernels(s.recipe) else 1.0
    launched = fused * (physics.adapter_launch_s * s.work.adapted_matrices + physics.launch_s * s.work.layers)
    busy = _compute_arithmetic_seconds(s, physics) / USUAL_REACHED
    return max(0.0, launched * s.work.passes * s.parallel.tp / s.pass_tokens - busy)


USUAL_REACHED = 0.67
"""The share of its peak that a GPU's large products reach in a step: `base` of `data/efficiency.json`, exp(-0.4)."""


def _compute_step_seconds(setting: StepSetting, physics: StepConstants) -> float:
    """Return the seconds per token in which the host clips and updates sharded weights, once per optimizer step.

    FSDP divides each tensor over the ranks; what lies in flat buffers (Megatron, DeepSpeed) is updated by a few kernels.
    """
    s = setting
    if not s.parallel.fsdp or s.shards == 1:
        return 0.0
    return physics.step_s * s.work.layers * s.parallel.tp / s.passes_a_step / s.pass_tokens


def _compute_routing_seconds(setting: StepSetting, physics: StepConstants) -> float:
    """Return the seconds per token to choose, sort and gather the tokens of experts: many small kernels, and waits."""
    s = setting
    return physics.routing_s * s.work.mixture_layers * s.work.passes * s.parallel.tp / s.pass_tokens


def _compute_loop_seconds(setting: StepSetting, physics: StepConstants) -> float:
    """Return the seconds per token of experts that run one after the other; with ZeRO-3 each is fetched on its own."""
    s = setting
    if not s.loops_over_experts:
        return 0.0
    fetched = s.parallel.stage == FULLY_SHARDED and not s.parallel.fsdp and s.ranks > 1
    each = physics.expert_fetch_s if fetched else physics.expert_launch_s
    return each * s.work.experts / s.parallel.ep * s.work.mixture_layers * s.work.passes / s.pass_tokens


def _compute_host_seconds(setting: StepSetting, physics: StepConstants) -> float:
    """Return the seconds per token of offloading.

    Once per step, gradients go down, weights go up and Adam runs on the CPU; with `all`, weights go up in every pass. Offloaded
    activations, a layer's 16-bit input each, go down and up again (torch.autograd.graph.save_on_cpu copies without overlap).
    """
    s, job = setting, setting.work
    activations = 2 * 2 * job.hidden_layers / (physics.host_gb_s * GIGA) * s.recipe.offload_activations
    if s.parallel.offload == "none":
        return activations
    per_byte = 1 / s.ranks / (physics.host_gb_s * GIGA)
    fetched = (s.parallel.offload == "all") * job.passes * job.weight_bytes * per_byte
    step = s.trains_weights * (4 * per_byte + 1 / s.nodes / physics.host_weights_per_s) / s.passes_a_step
    return activations + s.weights * (fetched + step) / s.pass_tokens


def compute_links(setting: StepSetting, physics: StepConstants) -> LinkSpeeds:
    """Return the link speeds between the GPUs: as stated, else the usual ones of such GPUs.

    A ring's data enters a machine once, over the network cards of all its GPUs together. The cards are assumed to be
    proportional to the fabric (`fabric_share_per_gpu`); with PCIe, one shared card of `pcie_node_gb_s` is assumed. A superchip
    (GH200) has NVLink to its processor, a network card of its own, and NVLink to the others where a machine has several.
    """
    gpu, gpus, network = setting.gpu, setting.gpus, setting.network
    per_node = max(1, gpus // setting.nodes)
    fabric = gpu.nvlink or SUPERCHIP in gpu.interconnect
    inside = (gpu.interconnect_gb_s or 0) / 2 if fabric else physics.pcie_gb_s
    inside = network.gpu_gb_s or inside
    together = NVL72 if "NVL72" in gpu.interconnect else per_node
    if gpus <= together:
        return LinkSpeeds(inside=inside, between=inside, collective=inside, together=gpus)
    uncut = UNCUT_GB_S.get(gpu.interconnect, gpu.interconnect_gb_s or 0)
    between = uncut * physics.fabric_share_per_gpu if fabric else physics.pcie_node_gb_s / per_node
    between = network.node_gbit / 8 / per_node if network.node_gbit else between
    return LinkSpeeds(inside=inside, between=between, collective=min(inside, between * per_node), together=together)
