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
    "optimizer_bytes_per_weight": (30.0, "bytes of an AdamW step: weight, gradient and two moments read and written in fp32"),
    "dequantised_bytes_per_weight": (
        9.0,
        "bytes to expand one nf4 weight for each pass: read, write 16 bits, read again, slowly",
    ),
    "attention_slowdown": (
        1.35,
        "time per FLOP of a flash kernel made for its GPU against a matrix multiplication's (0.5-0.7 of peak; Dao 2023, 2024)",
    ),
    "attention_slowdown_old_kernel": (
        2.5,
        "the same of FlashAttention-2 on Hopper and later: 300-400 of 989 TFLOPS (Shah et al. 2024)",
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
}


@dataclass(frozen=True, slots=True)
class Prior:
    """Where a weight starts, its bounds, and how many rows of evidence the prior is worth."""

    value: float
    low: float
    high: float
    strength: float
    why: str


PRIORS: dict[str, Prior] = {
    "base": Prior(
        math.log(0.65), -9, 9, 0.01, "log share of peak that large matrix multiplications reach on a family like Ampere"
    ),
    "memory": Prior(0.6, 0, 1, 2, "share of memory-bound time not hidden behind arithmetic"),
    "network": Prior(0.3, 0, 1, 2, "share of data-parallel exchange not overlapped"),
    "model_parallel": Prior(0.3, 0, 1, 2, "share of tensor- and expert-parallel exchange not overlapped"),
    "bubble": Prior(0.8, 0, 1, 2, "share of the pipeline bubble that interleaving does not remove"),
    "host": Prior(0.8, 0, 1, 2, "share of offload traffic not overlapped"),
    "mixture": Prior(0.3, 0, 2, 2, "log cost of routing and of many small matrices"),
    "convolutions": Prior(
        0.4, 0, 2, 2, "log cost of convolutions against matrices: ResNet-50 trains at 2,500-2,900 images/s on an A100 (NVIDIA)"
    ),
    "fp8": Prior(0.1, 0, 2, 2, "log cost of casting, beyond what runs at 16 bits anyway"),
    "fp4": Prior(0.3, 0, 2, 2, "log cost of 4 bits on top of that of 8: quantising both operands of every product"),
    "narrow": Prior(0.5, 0, 1, 2, "how much of the loss of narrow matrices shows"),
    "fp16": Prior(0.1, 0, 2, 2, "log cost of fp16 runs, which are those of the frameworks of 2021-22"),
    "scale": Prior(0.03, 0, 1, 2, "log cost per factor of ten in GPUs: stragglers, latency"),
    "achieved": Prior(0.8, 0, 1, 2, "how much of a GPU's best measured multiplication shows, per log of its share of peak"),
    "power": Prior(0.5, 0, 1, 2, "clock lost per log of watts per TFLOPS missing"),
}
FAMILY_PRIOR = Prior(0.0, -9, 9, 3, "log difference of this generation of GPUs, after all else")
