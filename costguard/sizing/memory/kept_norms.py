"""What norms keep for the backward pass.

Example: over 4096 numbers in bf16 LayerNorm keeps its input, 8,192 bytes; Llama's RMSNorm the same in fp32 and the result
before its weight, 24,576; Gemma's both in fp32, 32,768. A fused kernel keeps its input alone.
"""

from __future__ import annotations

from costguard.sizing.architecture import LayerBlock
from costguard.sizing.memory.numerics import FP32
from costguard.sizing.memory.style import LayerStyle

STATISTIC_BYTES = 4
"""An fp32 number a token (1/rms of a norm) or a token and head (log-sum-exp of flash attention)."""


def compute_norm_kept(width: int, norm: str, style: LayerStyle, stream: int, keeps: str = "result") -> float:
    """Bytes a token kept by a norm over `width` numbers of `stream` bytes; `keeps`: see `Written.norms`.

    What a frozen weight would be multiplied with is not kept.
    """
    if style.fused:
        return stream * width + STATISTIC_BYTES
    if keeps == "pieces":
        return (2 + style.trained) * FP32 * width + STATISTIC_BYTES
    if norm != "rmsnorm":
        return (FP32 if keeps == "wide" else stream) * width + 2 * stream
    twice = stream if keeps == "twice" and stream != FP32 else 0
    return (FP32 + twice + (FP32 if keeps == "wide" else stream) * style.trained) * width + STATISTIC_BYTES


def _compute_norms_kept(block: LayerBlock, style: LayerStyle, halves: int) -> tuple[float, float]:
    """Bytes a token kept by the norms before the `halves` of attention, and by all others of one layer.

    Two norms that read the same input keep it once, unless each makes a copy in fp32.
    """
    stream, keeps = style.numerics.residual, style.written.norms
    each = compute_norm_kept(block.hidden, block.norm, style, stream, keeps)
    shared = style.written.side_by_side and keeps == "result" and block.norm != "rmsnorm"
    others = max(block.norms - halves, 0)
    return min(halves, block.norms) * each, others * (each - (stream * block.hidden if shared else 0))


def _compute_query_norms(block: LayerBlock, style: LayerStyle) -> float:
    """Bytes a token kept by norms over queries and keys, and over the latents of multi-head latent attention."""
    a, n, keeps = block.attention, style.numerics, style.written.norms
    norm = "rmsnorm" if keeps != "pieces" else block.norm
    if a.latent is not None:
        width = a.latent.q_rank + a.latent.kv_rank
        return compute_norm_kept(width, "rmsnorm", style, n.compute) + n.operand * width
    if a.qk_norm == "none":
        return 0.0
    heads = {"per-head": a.heads + a.kv_heads, "full": 2}[a.qk_norm]
    return compute_norm_kept(a.query_width + a.kv_width, norm, style, n.compute, keeps) + (heads - 1) * STATISTIC_BYTES
