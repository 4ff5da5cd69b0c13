"""Where the seconds of one token go on given GPUs: arithmetic at peak, and everything that keeps a GPU from it.

Every time is seconds per token of one GPU at the best rate of the part concerned, and every cost is

    -log(1 + time / time of arithmetic)

so it is 0 where nothing is spent, and a fitted weight of 1 would mean that nothing of it is overlapped.

Example: Llama-2-7B, 2 x 2048 tokens, no checkpointing, on one A100-80GB-SXM: 41.2 GFLOP at 312 TFLOPS and slower scores
take 135 us; activations, logits, weights and optimizer move 92.8 MB, 45.5 us at 2039 GB/s: `memory` is -log(1.34) = -0.29.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from costguard.sizing.memory.frameworks import has_fused_kernels
from costguard.sizing.recipe import Parallelism, Recipe
from costguard.sizing.speed.efficiency import GpuFamily, StepConstants
from costguard.sizing.speed.work import PeakRate, TokenWork
from costguard.values.gpu import Gpu

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
        """Data-parallel copies of the model."""
        return max(1, self.gpus // self.parallel.model_ranks)

    @property
    def weights(self) -> float:
        """Weights that one copy keeps in reach of a token; its ranks read their parts at the same time."""
        return self.work.weights + self.work.expert_weights / self.parallel.ep

    @property
    def pass_tokens(self) -> float:
        """Tokens of one pass of one copy, divided over context-parallel ranks."""
        return self.recipe.micro_batch * self.recipe.seq_len / self.parallel.cp

    @property
    def passes_a_step(self) -> int:
        """Forward and backward passes between two optimizer steps."""
        return self.recipe.gradient_accumulation

    @property
    def trains_weights(self) -> bool:
        """Whether the model's own weights get gradients."""
        return self.recipe.trains and not self.recipe.adapters


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpeeds:
    """GB/s a GPU sends: `inside` a machine, `between` machines while all do, and in a ring over all (`collective`).

    `together`: GPUs that share the fast fabric.
    """

    inside: float
    between: float
    collective: float
    together: int


def compute_costs(setting: StepSetting, physics: StepConstants, family: GpuFamily) -> dict[str, float]:
    """Every named cost of this job on these GPUs, to be weighed by the fitted weights; what does not apply is 0."""
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
    """If a GPU did nothing but multiply, at its peak. Scores run slower than matrices even so."""
    job, top = setting.work, setting.top
    wide = job.wide_flops + _choose_attention_slowdown(setting, physics) * job.attention_flops
    return (job.matrix_flops / top.matrix + wide / top.wide) / TERA


def _choose_attention_slowdown(setting: StepSetting, physics: StepConstants) -> float:
    """Hopper and Blackwell need kernels written for them (FlashAttention-3 and 4, cuDNN); FlashAttention-2 wastes them."""
    recipe = setting.recipe
    made_for_it = recipe.attention == "flash3" or recipe.framework == "megatron"
    if setting.gpu.compute_capability.startswith(NEW_KERNELS_FROM) and not made_for_it:
        return physics.attention_slowdown_old_kernel
    return physics.attention_slowdown


def _compute_idle_share(stages: int, passes: int) -> float:
    """Time a pipeline fills and drains, over time it works: (p - 1) / m.

    Where that is much, stages are cut in two and interleaved: of what exceeds INTERLEAVED_FROM half is left.
    """
    idle = (stages - 1) / passes
    return min(idle, (idle + INTERLEAVED_FROM) / 2)


def _compute_memory_seconds(setting: StepSetting, physics: StepConstants) -> float:
    """Activations, logits, the weights of each pass and the optimizer's step, through the GPU's own memory."""
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
    """Data parallelism: gradients once a step, or weights gathered in every pass and gradients scattered (ZeRO-3, FSDP)."""
    s, job = setting, setting.work
    gradients = 2.0 * s.trains_weights
    gathered = job.passes * job.weight_bytes + gradients
    moved = gathered if s.parallel.stage == FULLY_SHARDED else 2 * gradients / s.passes_a_step
    return moved * s.weights * (s.ranks - 1) / s.ranks / (links.collective * GIGA) / s.pass_tokens


def _compute_model_parallel_seconds(setting: StepSetting, links: LinkSpeeds) -> float:
    """Tensor parallelism sums two activations a layer and pass; expert parallelism sends tokens to experts and back.

    Between machines a token goes once to each machine that holds one of its experts: 8 experts in 8 machines are 4.6 others.
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
    """Offload: gradients down, weights up and Adam on the CPU once a step; with `all`, weights up in every pass."""
    s, job = setting, setting.work
    if s.parallel.offload == "none":
        return 0.0
    per_byte = 1 / s.ranks / (physics.host_gb_s * GIGA)
    fetched = (s.parallel.offload == "all") * job.passes * job.weight_bytes * per_byte
    step = s.trains_weights * (4 * per_byte + 1 / s.nodes / physics.host_weights_per_s) / s.passes_a_step
    return s.weights * (fetched + step) / s.pass_tokens


def _compute_links(gpu: Gpu, gpus: int, nodes: int, physics: StepConstants) -> LinkSpeeds:
    """How GPUs reach each other.

    A ring's data enters a machine once, over the network cards of all its GPUs together. Those cards are taken to be in
    proportion to the fabric (`fabric_share_per_gpu`), or one shared card of `pcie_node_gb_s` beside PCIe.
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
    """Log of the watts a part may draw per TFLOPS, against its generation's least throttled part; 0 where not known."""
    if family.full_power_w_per_tflops is None or gpu.tdp_w is None or gpu.bf16_tflops is None:
        return 0.0
    return min(0.0, math.log(gpu.tdp_w / gpu.bf16_tflops / family.full_power_w_per_tflops))


def _compute_achieved(gpu: Gpu) -> float:
    """Log of the best share of peak anybody has measured, against the usual one; 0 where nobody has."""
    if gpu.mamf_bf16_tflops is None or gpu.bf16_tflops is None:
        return 0.0
    return math.log(gpu.mamf_bf16_tflops / gpu.bf16_tflops / USUAL_ACHIEVED)
