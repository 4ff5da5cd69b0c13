"""What attention keeps for the backward pass: queries, keys, values and scores.

Example: 32 heads of 128 in bf16 with flash attention keep q, k, v and their result, 4 x 8,192 bytes a token, and 128 of
log-sums. Eagerly, over 2048 tokens, they keep the softmax in fp32 and a copy of it instead: 6 x 32 x 2048 = 393,216 more.
"""

from __future__ import annotations

from costguard.sizing.architecture import LayerBlock
from costguard.sizing.memory.kept_inputs import _compute_inputs_kept
from costguard.sizing.memory.kept_norms import STATISTIC_BYTES, _compute_query_norms
from costguard.sizing.memory.numerics import FP32
from costguard.sizing.memory.style import LayerStyle


def _compute_attention_kept(block: LayerBlock, style: LayerStyle, *, cross: bool = False) -> tuple[float, float]:
    """Bytes a token kept by rotary, scores and values, and the work of going back through them.

    A bias on scores that is trained keeps them whole; one that is frozen is a mask for each head (T5), alike in a batch.
    """
    a, n, biased = block.attention, style.numerics, style.biased and not cross
    value = a.heads * (a.latent.value_dim if a.latent else a.head_dim)
    kept = _compute_query_norms(block, style)
    if not style.trained:
        kept += _compute_inputs_kept(style, value, ("o_proj",))
    result = n.compute * value
    if not style.flash:
        each, work = _compute_scores(style, added=biased or (block.causal and not cross))
        wide = FP32 if style.written.wide_scores else n.compute
        keys, values = (a.heads, a.heads) if style.batch > 1 else _count_key_heads(block, style)
        tensors = wide * a.query_width * (a.heads + keys) // a.heads + n.compute * value * values // a.heads
        return kept + tensors + each * a.heads * style.seq + result * style.trained, work * a.heads * style.seq
    if (biased and style.trained) or style.written.broadcast:
        scores = FP32 * a.heads * style.seq
        held = a.heads if style.batch > 1 else 1
        tensors = FP32 * (a.query_width + (a.query_width + value) * held // a.heads)
        shared = style.seq / style.batch if biased and block.causal else 0
        return kept + tensors + scores + shared + result * style.trained, 2 * scores
    keys, values = _count_key_heads(block, style)
    tensors = n.compute * (a.query_width + a.query_width * keys // a.heads + value * values // a.heads) + result
    if style.packs_qkv or (a.packed and values == a.kv_heads):
        kept += _compute_packed(block, style)
    if style.written.joined and style.trained:
        kept += result
    masks = a.heads / style.batch if biased else style.has_mask(block) and not cross
    return kept + tensors + STATISTIC_BYTES * a.heads + masks * n.compute * style.seq, 2 * tensors


def _count_key_heads(block: LayerBlock, style: LayerStyle) -> tuple[int, int]:
    """Heads of keys and of values in memory. One for all is read many times, until a copy is made:

    by autocast, and by a product over several sequences.
    """
    a = block.attention
    if a.latent:
        return a.heads, a.heads
    if not style.repeats_kv:
        return a.kv_heads, a.kv_heads
    if a.kv_heads == 1:
        return (a.heads if style.numerics.autocast and style.written.rotated else 1), 1
    return a.heads, a.heads


def _compute_packed(block: LayerBlock, style: LayerStyle) -> float:
    """What packing q, k and v costs: they stay beside their rotated copies, and adapters' results are padded to their width."""
    a = block.attention
    widths = {"q_proj": a.query_width, "k_proj": a.kv_width, "v_proj": a.kv_width}
    padded = sum(width for name, width in widths.items() if style.packs_qkv and name in style.targets)
    return style.numerics.compute * (a.query_width + a.kv_width + padded)


def _compute_scores(style: LayerStyle, *, added: bool) -> tuple[int, int]:
    """Bytes kept a score by eager attention, and the work.

    Most take the softmax in fp32 and keep a copy to multiply. BERT and GPT-2 do not, but under autocast the mask or bias that
    is `added` is fp32, and so is the sum. (CUDA's autocast takes every softmax in fp32, a CPU's does not; this is a CPU's.)
    A cap keeps its tanh. Dropout keeps what it dropped from and a mask.
    """
    compute = style.numerics.compute
    softmax = FP32 if style.wide_softmax or (style.numerics.autocast and added) else compute
    kept = softmax + (compute if softmax != compute else 0) + compute * style.written.capped
    dropped = compute + 1 if style.dropout else 0
    return kept + dropped, 3 * softmax - kept
