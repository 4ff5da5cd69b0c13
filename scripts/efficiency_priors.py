"""What is believed before any run is read: the physics of a step, the generations of GPUs, a prior for each weight."""

from __future__ import annotations

import math
from dataclasses import dataclass

PHYSICS: dict[str, tuple[float, str]] = {
    "layer_bytes_per_hidden": (
        60.0,
        "bytes a layer moves per token, hidden unit and pass outside its matrices: norms, residuals",
    ),
    "layer_bytes_per_ffn": (8.0, "bytes per token, feed-forward unit and pass: activation function"),
    "logits_bytes_per_word": (20.0, "bytes per token and word of the vocabulary: fp32 logits, log-softmax and their gradients"),
    "optimizer_bytes_per_weight": (
        40.0,
        "bytes of an AdamW step in fp32: gradients read twice and scaled once, then weight and two moments read and written",
    ),
    "dequantised_bytes_per_weight": (
        9.0,
        "bytes to expand one nf4 weight for each pass: read, write 16 bits, read again, slowly",
    ),
    "attention_per_fp32": (
        11.0,
        "TFLOPS of scores over the GPU's fp32 TFLOPS: FlashAttention-2 225 on A100 (19.5), FlashAttention-3 740 on H100 (67)",
    ),
    "attention_per_fp32_old_kernel": (6.0, "the same of FlashAttention-2 on Hopper and later: 400 on H100 (Shah et al. 2024)"),
    "attention_per_fp32_blackwell": (20.0, "the same of FlashAttention-4 and cuDNN on B200: about 1,600 of 80"),
    "attention_per_fp32_amd": (4.0, "the same on MI300X: composable-kernel attention at about 300-600 TFLOPS of 163; assumed"),
    "launch_s": (5e-4, "seconds in which the host launches the kernels of a layer, a pass: some 50 of 10 us in eager PyTorch"),
    "adapter_launch_s": (
        5e-4,
        "the same of one adapter of PEFT: 0.44-0.59 ms in six of eight jobs on an H100 (bench/card.csv, 2026-11-27)",
    ),
    "step_s": (
        5e-3,
        "seconds in which the host clips and updates the sharded tensors of a layer, once a step: ten of some 0.5 ms; assumed",
    ),
    "routing_s": (
        2e-3,
        "the same of a mixture's router, sort, permute, exchange and grouped product, waits for the host included",
    ),
    "expert_launch_s": (2e-4, "the same of one expert that is a module of its own: about 20 kernels"),
    "expert_fetch_s": (
        3e-3,
        "the same where ZeRO-3 fetches its three matrices, a collective and a hook each: 1 ms each, assumed",
    ),
    "fused_share": (0.6, "bytes that fused norms, activations and losses move, against eager ones"),
    "routed_bytes_per_hidden": (
        10.0,
        "bytes per token, expert it is sent to, hidden unit and pass: gathered, scattered back, weighted and summed",
    ),
    "narrow_hidden": (256.0, "hidden width at which a matrix multiplication reaches half of what a wide one does"),
    "pcie_gb_s": (8.0, "GB/s of a ring over PCIe without peer-to-peer (consumer cards)"),
    "pcie_node_gb_s": (12.5, "GB/s into a machine without a fabric: one 100 Gb/s card, assumed"),
    "fabric_share_per_gpu": (1 / 36, "network of one GPU over its NVLink (both directions): 25 GB/s beside 900"),
    "host_gb_s": (25.0, "GB/s between a GPU and its host, PCIe 4 x16"),
    "host_weights_per_s": (8e9, "weights a machine's CPUs update per second (DeepSpeed CPUAdam)"),
}
FULL_POWER: dict[str, tuple[float, str]] = {
    "Ampere GA100": (1.28, "A100-SXM 400 W / 312 TFLOPS"),
    "Ampere GA10": (2.0, "A40 and A6000, 300 W / 150 TFLOPS"),
    "Ada": (1.0, "L40S, 350 W / 362 TFLOPS"),
    "Hopper": (0.708, "H100-SXM 700 W / 989 TFLOPS"),
    "Blackwell": (0.56, "GB300 1400 W / 2500 TFLOPS"),
    "Blackwell GB20": (1.2, "RTX PRO 6000 600 W / 504 TFLOPS"),
    "Volta": (2.4, "V100-SXM 300 W / 125 TFLOPS"),
    "Turing": (1.9, "Titan RTX 280 W / 130 TFLOPS; T4 is limited to 70 W"),
    "CDNA3": (0.765, "MI325X 1000 W / 1307 TFLOPS"),
    "CDNA4": (0.56, "MI355X 1400 W / 2500 TFLOPS"),
}


ACHIEVED: dict[str, tuple[float, str]] = {
    "Ampere GA100": (0.869, "A100-SXM 271 of 312 TFLOPS (gpus.csv, MAMF column)"),
    "Ampere GA10": (0.85, "assumed: as A100, not throttled"),
    "Ada": (0.85, "assumed"),
    "Hopper": (0.803, "H100-SXM 794.5 of 989 TFLOPS (gpus.csv, MAMF column)"),
    "Blackwell": (0.77, "B200 1745 of 2250, B300 1769 of 2250, GB200 1822 of 2500 TFLOPS (gpus.csv, MAMF column)"),
    "Blackwell GB20": (0.85, "assumed"),
    "Volta": (0.9, "assumed: V100 is not throttled"),
    "Turing": (0.85, "assumed"),
    "CDNA3": (0.601, "MI325X 785 of 1307 TFLOPS (gpus.csv, MAMF column); by its power MI300X would reach 0.52, measured 0.51"),
    "CDNA4": (0.626, "MI355X 1565 of 2500 TFLOPS (gpus.csv, MAMF column)"),
}
"""By generation: the share of its peak that the best matrix product of its reference card in FULL_POWER reaches."""


@dataclass(frozen=True, slots=True)
class Prior:
    """Where a weight starts and how far the rows may move it.

    `sd`: standard deviation of the weight; of its log where `additive`, that is, for seconds of a step.
    """

    value: float
    sd: float
    why: str
    additive: bool = False

    @property
    def start(self) -> float:
        """The parameter to start the fit at: the weight, or its log."""
        return math.log(self.value) if self.additive else self.value

    def to_weight(self, parameter: float) -> float:
        """The weight of a fitted parameter."""
        return math.exp(parameter) if self.additive else parameter


PRIORS: dict[str, Prior] = {
    "base": Prior(math.log(0.8), 0.3, "log share of what the best product reaches that large products reach in a step"),
    "achieved": Prior(1.0, 0.2, "how much of a GPU's best measured product shows, per log of its share of peak"),
    "narrow": Prior(0.5, 0.3, "how much of the loss of narrow matrices shows"),
    "mixture": Prior(0.3, 0.3, "log cost of many small matrices"),
    "convolutions": Prior(
        0.4, 0.3, "log cost of convolutions against matrices: ResNet-50 trains at 2,500-2,900 images/s on an A100 (NVIDIA)"
    ),
    "fp8": Prior(0.1, 0.1, "log cost of casting, beyond what runs at 16 bits anyway"),
    "fp4": Prior(0.3, 0.15, "log cost of 4 bits on top of that of 8: quantising both operands of every product"),
    "fp16": Prior(0.1, 0.15, "log cost of fp16 runs, which are those of the frameworks of 2021-22"),
    "layers": Prior(0.5, 0.4, "share of the traffic of fused norms and activations that is left and not hidden", additive=True),
    "layers eager": Prior(1.2, 0.4, "the same of eager ones, which also move fp32 copies", additive=True),
    "memory": Prior(0.7, 0.5, "share of the traffic of logits, weights and optimizer not hidden", additive=True),
    "network": Prior(0.4, 0.6, "share of data-parallel exchange not overlapped", additive=True),
    "model_parallel": Prior(0.4, 0.6, "share of tensor-parallel exchange not overlapped", additive=True),
    "exchange": Prior(
        3.0, 0.7, "expert exchange over its time at full links: small messages, waits for the fullest rank", additive=True
    ),
    "exchange fused": Prior(1.0, 0.7, "the same in Megatron and with DeepEP, which overlap most of it", additive=True),
    "launch": Prior(0.8, 0.7, "share of the launches not hidden behind kernels", additive=True),
    "adapters": Prior(0.9, 0.4, "the same of adapters, where it outlasts what the GPU computes", additive=True),
    "step": Prior(1.0, 0.6, "the same of clipping and updating", additive=True),
    "routing": Prior(0.8, 0.5, "the same of routing", additive=True),
    "routing fused": Prior(0.8, 0.5, "the same where router and permutation are fused", additive=True),
    "expert_loop": Prior(1.0, 0.7, "the same of experts that run one after the other", additive=True),
    "host": Prior(0.8, 0.4, "share of offload traffic not overlapped", additive=True),
    "bubble": Prior(0.8, 0.3, "share of the pipeline bubble that interleaving does not remove"),
    "scale": Prior(0.01, 0.02, "log cost per factor of ten in GPUs: stragglers, latency"),
}
FAMILY_PRIOR = Prior(0.0, 0.1, "log difference of this generation of GPUs, after all else")
