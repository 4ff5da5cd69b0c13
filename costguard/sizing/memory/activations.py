"""Computes the bytes that a layer keeps from its forward pass for its backward pass.

Example: a Llama-2-7B layer (hidden 4096, feed-forward 11008), trained in bf16 with flash attention, keeps per token: two norms
of 6 x 4096 (an fp32 copy of the input, and the result before its weight), the inputs of q, k, v and of gate and up 2 x 2 x
4096, q, k, v and attention's result 4 x 2 x 4096, and four feed-forward tensors 4 x 2 x 11008: 45.5 x 4096 bytes. Frozen
weights need no input, so LoRA keeps less there, but one copy per adapter.

Source: autograd's saved tensors in transformers 5.23 with torch 2.13 on fake tensors, 2026-11.

Attention keeps queries, keys, values and scores. Example: 32 heads of 128 in bf16 with flash attention keep q, k, v and the
result, 4 x 8,192 bytes per token, and 128 bytes of log-sums. Eager attention over 2048 tokens keeps the fp32 softmax and a copy
of it instead: 6 x 32 x 2048 = 393,216 more.

Norms: over 4096 numbers in bf16, LayerNorm keeps its input, 8,192 bytes. Llama's RMSNorm keeps the input in fp32 and the result
before its weight, 24,576; Gemma's keeps both in fp32, 32,768. A fused kernel keeps only its input.

Matrices keep their inputs: q, k and v read one norm's result of 4096 numbers. Trained in bf16 they keep it once, 8,192 bytes
per token. Under autocast each keeps a copy, 24,576, unless they are one matrix. Frozen they keep nothing, but each fp32 adapter
keeps a copy of 16,384.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from costguard.sizing.architecture import LINEAR_CHUNK, Attention, FeedForward, LayerBlock
from costguard.sizing.memory.adapters import count_adapter_parameters
from costguard.sizing.memory.frameworks import FP32, LayerStyle

KEPT_BY_ACTIVATION = {"gelu_new": 4, "gelu_fast": 5, "quick_gelu": 2, "relu": 0}
"""Tensors of the feed-forward's width that an activation keeps besides its result; a fused kernel keeps its input only."""
KEPT_UNDER_WIDE_AUTOCAST = {"gelu_new": 7}
"""The same in 16-bit tensors where autocast computes powers in fp32: gelu_new keeps its input, the tanh and the factor of the
product in 4 bytes and the other factor in 2 (NewGELUActivation of transformers; GPT-2 on an H100, `bench/card.csv`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerActivations:
    """Bytes of one layer, per token unless stated otherwise.

    - `attention`, `feed_forward`: kept by each half. `whole`: both halves. `entry`: the layer's input.
    - `attention_work`, `feed_forward_work`: the most that the backward pass adds in each half.
    - `casts`: autocast's copies of the layer's matrices, independent of the number of tokens.
    - `passing`: in use at once if nothing is kept (inference). `selective`: kept under selective checkpointing.
    - `scores`: the part of `attention` that eager attention keeps for each pair of tokens.
    - `gathers`: the inputs that sequence parallelism gathers in full.
    - `unsplit`: the part of `whole` that tensor parallelism alone does not divide: norms, their results, the residual's
        dropout.
    - `unneeded`, `unneeded_casts`: the part of `whole` and of `casts` that the first layer does not keep, because its
        input needs no gradient.
    """

    attention: float
    feed_forward: float
    entry: int
    attention_work: float
    feed_forward_work: float
    casts: int
    whole: float
    passing: float
    selective: float
    scores: float
    gathers: int
    unsplit: float
    unneeded: float
    unneeded_casts: int


def compute_layer_activations(block: LayerBlock, style: LayerStyle) -> LayerActivations:
    """Return the bytes that one layer of `block` keeps."""
    n, halves = style.numerics, 2 if block.cross_attention else 1
    core, core_work = _compute_attention_kept(block, style)
    input_norms, others = _compute_norms_kept(block, style, halves)
    read = input_norms + halves * _compute_inputs_kept(
        style, block.hidden, _list_attention_inputs(block), fused=block.attention.fused
    )
    dropped = block.hidden if style.dropout else 0
    attention = read + core + dropped + _compute_magnitudes(block.attention.list_matrices(block.hidden), style)
    if block.cross_attention:
        attention += _compute_attention_kept(block, style, cross=True)[0]
    feed, feed_work = _compute_feed_forward(block, style)
    feed += others + dropped
    unsplit = read + others + _compute_feed_inputs(block, style) + 2 * dropped
    return LayerActivations(
        attention=attention,
        feed_forward=feed,
        whole=attention + feed,
        passing=2 * n.compute * block.hidden + 2 * feed_work,
        selective=_compute_selective(block, style),
        scores=0.0 if style.flash else _compute_scores(style, added=block.causal)[0] * block.attention.heads * style.seq,
        gathers=2 * n.compute * block.hidden,
        unsplit=unsplit,
        entry=n.residual * block.hidden,
        attention_work=core_work + n.residual * block.hidden,
        feed_forward_work=feed_work + n.residual * block.hidden,
        casts=n.compute * _count_multiplied(block, style) if n.autocast else 0,
        unneeded=_compute_unneeded(block, style, feed),
        unneeded_casts=_compute_unneeded_casts(block, style) if n.autocast else 0,
    )


def _compute_selective(block: LayerBlock, style: LayerStyle) -> float:
    """Return the bytes per token kept under PyTorch's selective checkpointing (torchtitan's default).

    These are the entry, attention's result, and the results of every second matrix product (1st, 3rd, 5th ...) in execution
    order, as torchtitan/models/llama/parallelize_llama.py counts them: q, v, gate and down of Llama's seven.
    """
    a, f, n = block.attention, block.feed_forward, style.numerics
    outputs = [o for _, o in a.list_matrices(block.hidden).values()]
    outputs += [max(f.experts_per_token, 1) * o for _, o in f.list_matrices(block.hidden).values()]
    return n.residual * block.hidden + n.compute * (a.query_width + sum(outputs[::2]))


def _count_multiplied(block: LayerBlock, style: LayerStyle) -> int:
    """Return the parameters of one layer's matrices and adapters."""
    return block.parameters_each - block.small_parameters + count_adapter_parameters(block, style.targets, style.rank)


def _compute_unneeded(block: LayerBlock, style: LayerStyle, feed: float) -> float:
    """Return the bytes per token that the first layer does not keep.

    If only adapters are trained, the input of the first norm needs no gradient; nor does the input of a feed-forward parallel
    to attention, which keeps nothing if its first matrices have no adapter. A norm after attention is always kept.
    """
    if style.trained or style.written.norms_after:
        return 0.0
    norm = _compute_norms_kept(block, style, 1)[0]
    return norm + (feed if style.written.side_by_side and not _has_feed_adapter(block, style) else 0.0)


def _compute_unneeded_casts(block: LayerBlock, style: LayerStyle) -> int:
    """Return the bytes of autocast's copies of the frozen matrices that read an input without gradient."""
    if style.trained:
        return 0
    f, a = block.feed_forward, block.attention.list_matrices(block.hidden)
    first = sum(i * o for name, (i, o) in a.items() if name in _list_attention_inputs(block))
    if style.written.side_by_side and not f.experts:
        names = _list_first_matrices(f) if _has_feed_adapter(block, style) else tuple(f.list_matrices(block.hidden))
        first += sum(i * o for name, (i, o) in f.list_matrices(block.hidden).items() if name in names)
    return style.numerics.compute * first


def _has_feed_adapter(block: LayerBlock, style: LayerStyle) -> bool:
    return any(name in style.targets for name in _list_first_matrices(block.feed_forward))


def _list_attention_inputs(block: LayerBlock) -> tuple[str, ...]:
    """Return the names of the attention matrices that read the norm's result."""
    matrices = block.attention.list_matrices(block.hidden)
    return tuple(name for name, (width, _) in matrices.items() if width == block.hidden and name != "o_proj")


def _compute_feed_forward(block: LayerBlock, style: LayerStyle) -> tuple[float, float]:
    """Return (bytes per token kept by the feed-forward half, bytes per token that its backward pass adds)."""
    f = block.feed_forward
    total, work = _compute_expert(block, style, f.ffn)
    total += _compute_magnitudes(f.list_matrices(block.hidden), style)
    if not f.experts:
        return total + _compute_feed_inputs(block, style), work
    gathered = 2 * style.numerics.compute * block.hidden
    router = FP32 * 2 * f.experts
    shared = _compute_expert(block, style, f.shared_ffn)[0] if f.shared_ffn else 0.0
    read = style.numerics.operand * block.hidden if style.trained else 0
    return f.experts_per_token * (total + gathered) + shared + router + read, f.experts_per_token * work


def _compute_feed_inputs(block: LayerBlock, style: LayerStyle) -> float:
    again = style.written.side_by_side and block.norms == 1
    f = block.feed_forward
    return _compute_inputs_kept(style, block.hidden, _list_first_matrices(f), fused=f.fused, again=again)


def _compute_expert(block: LayerBlock, style: LayerStyle, width: int) -> tuple[float, float]:
    f, n = block.feed_forward, style.numerics
    result = n.operand * width if style.trained else _compute_inputs_kept(style, width, ("down_proj",))
    extra = 1 if style.fused or (f.activation == "relu" and not style.trained) else KEPT_BY_ACTIVATION.get(f.activation, 1)
    if style.wide_autocast and not style.fused:
        extra = KEPT_UNDER_WIDE_AUTOCAST.get(f.activation, extra)
    extra = min(extra, 1) if style.kernels else extra
    extra += style.written.recast and style.numerics.autocast and not f.gated
    wide = (extra + 2 if not style.fused else 2) if f.gated else extra
    # Where the last matrix is frozen, no input of it is freed before the activation's backward pass.
    work: float = (2 if f.gated or extra > 1 or not style.trained else 1) * n.compute * width
    total = wide * n.compute * width + result
    if not style.trained and _has_feed_adapter(block, style):
        made_before = (extra + 1) * n.compute * width if f.gated and not f.fused else 0
        work = max(
            work, _compute_adapter_work(style, block.hidden, (1 + (f.gated and f.fused)) * width) - (total - made_before)
        )
    return total, work


def _compute_adapter_work(style: LayerStyle, hidden: int, width: int) -> float:
    """Return the working bytes per token of an adapter on the last wide matrix.

    They are the adapter's result, the scaled result and the base's result, plus the inputs of the layer and its feed-forward
    and a gradient. fp32 adapters compute the first two in fp32.
    """
    compute = style.numerics.compute
    adapter_bytes = compute if style.numerics.autocast or style.casts_adapters else style.numerics.weight
    return (2 * adapter_bytes + compute) * width + 4 * compute * hidden


def _compute_attention_kept(block: LayerBlock, style: LayerStyle, *, cross: bool = False) -> tuple[float, float]:
    """Return (bytes per token kept by rotary, scores and values, bytes per token that their backward pass adds).

    A trained bias on scores keeps the full scores. A frozen one is a mask per head (T5) that is shared by the batch.
    """
    a, n, biased = block.attention, style.numerics, style.biased and not cross
    if a.state is not None:
        return _compute_linear_kept(a, style)
    value = a.heads * (a.latent.value_dim if a.latent else a.head_dim)
    key_tokens = style.cross_seq if cross else style.seq
    span = key_tokens / style.seq
    kept_bytes = _compute_query_norms(block, style)
    if not style.trained:
        kept_bytes += _compute_inputs_kept(style, value, ("o_proj",))
    result = n.compute * value
    if style.written.distance_rows:
        disentangled, work = _compute_disentangled(block, style)
        return kept_bytes + disentangled + result * style.trained, work
    if not style.flash:
        each, work = _compute_scores(style, added=biased or (block.causal and not cross))
        wide = FP32 if style.written.wide_scores else n.compute
        keys, values = (a.heads, a.heads) if style.batch > 1 else _count_key_heads(block, style)
        tensors = wide * a.query_width * (1 + span * keys / a.heads) + span * n.compute * value * values / a.heads
        return kept_bytes + tensors + each * a.heads * key_tokens + result * style.trained, work * a.heads * key_tokens
    if (biased and style.trained) or style.written.broadcast:
        scores = FP32 * a.heads * style.seq
        mask_heads = a.heads if style.batch > 1 else 1
        tensors = FP32 * (a.query_width + (a.query_width + value) * mask_heads // a.heads)
        shared = style.seq / style.batch if biased and block.causal else 0
        dropped = (FP32 + 1) * a.heads * style.seq if style.dropout else 0
        return kept_bytes + tensors + scores + dropped + shared + result * style.trained, 2 * scores
    keys, values = _count_key_heads(block, style)
    tensors = n.compute * (a.query_width + span * (a.query_width * keys + value * values) / a.heads) + result
    if style.packs_qkv or (a.packed and values == a.kv_heads):
        kept_bytes += _compute_packed(block, style)
    if style.written.joined and style.trained:
        kept_bytes += result
    masks = a.heads / style.batch if biased else style.has_mask(block) and not cross
    return kept_bytes + tensors + STATISTIC_BYTES * a.heads + masks * n.compute * style.seq, 2 * tensors


def _compute_disentangled(block: LayerBlock, style: LayerStyle) -> tuple[float, float]:
    """Return the same of DeBERTa's scores of content and of distance, which no flash kernel computes.

    Kept are queries, keys, scaled keys and values; the softmax and its mask; and for queries and for keys what they score with
    every distance, the distances copied for each sequence, and which one each pair takes (8 bytes). Source: transformers 5.24,
    modeling_deberta_v2.py, run on fake tensors (2026-11).
    """
    a, compute, rows = block.attention, style.numerics.compute, style.written.distance_rows
    each, work = _compute_scores(style, added=False)
    projected = compute * (4 + rows / style.seq) * a.query_width
    pairs = style.seq * (each * a.heads + 1 + DISTANCE_INDICES / style.batch)
    return projected + pairs + compute * a.heads * rows, work * a.heads * style.seq + compute * a.heads * (style.seq + rows / 2)


DISTANCE_INDICES = 2 * 8
"""Bytes for each pair of positions: of a query's distance and of a key's."""


def _compute_linear_kept(attention: Attention, style: LayerStyle) -> tuple[float, float]:
    """Return the same of linear attention: what the convolution reads and makes, the gated result, and a state a chunk.

    Counted from the modules' code; no published row measures it.
    """
    state, n = attention.state, style.numerics
    assert state is not None  # noqa: S101 - the caller asked
    total = n.compute * (2 * state.in_width + 3 * attention.query_width) + FP32 * state.size / LINEAR_CHUNK
    return total, n.compute * state.in_width


def _count_key_heads(block: LayerBlock, style: LayerStyle) -> tuple[int, int]:
    """Return the heads of keys and of values in memory.

    A single key head is read by all query heads without a copy. Autocast makes a copy, and so does a product over several
    sequences.
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
    """Return the extra bytes per token of packed q, k and v.

    The packed tensors stay in memory beside their rotated copies, and adapter results are padded to the packed width.
    """
    a = block.attention
    widths = {"q_proj": a.query_width, "k_proj": a.kv_width, "v_proj": a.kv_width}
    padded = sum(width for name, width in widths.items() if style.packs_qkv and name in style.targets)
    return style.numerics.compute * (a.query_width + a.kv_width + padded)


def _compute_scores(style: LayerStyle, *, added: bool) -> tuple[int, int]:
    """Return (bytes kept per score by eager attention, bytes per score that the backward pass adds).

    Most models compute the softmax in fp32 and keep a cast copy for the product. BERT and GPT-2 do not; but under autocast the
    mask or bias that is `added` is fp32, and so is the sum, and a GPU's autocast computes every softmax in fp32. A
    cap keeps the tanh's result, a clamp its input. Dropout keeps its input and a mask.
    """
    compute = style.numerics.compute
    autocast_widens = style.wide_autocast or (style.numerics.autocast and added)
    softmax = FP32 if style.wide_softmax or autocast_widens else compute
    total = softmax + (compute if softmax != compute else 0) + compute * (style.written.capped + style.clamped)
    dropped = compute + 1 if style.dropout else 0
    return total + dropped, 3 * softmax - total


STATISTIC_BYTES = 4
"""An fp32 number a token (1/rms of a norm) or a token and head (log-sum-exp of flash attention)."""


def compute_norm_kept(width: int, norm: str, style: LayerStyle, stream: int, keeps: str = "result") -> float:
    """Return the bytes per token kept by a norm over `width` numbers of `stream` bytes.

    `keeps`: see `LayerImplementation.norms`. The factor of a frozen weight is not kept.
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
    """Return the bytes per token kept by (the norms before the `halves` of attention, all other norms of the layer).

    Two norms that read the same input keep it once, unless each makes an fp32 copy.
    """
    stream, keeps = style.numerics.residual, style.written.norms
    each = compute_norm_kept(block.hidden, block.norm, style, stream, keeps)
    shared = style.written.side_by_side and keeps == "result" and block.norm != "rmsnorm"
    others = max(block.norms - halves, 0)
    if block.norms > halves + 1 and not style.trained and block.norm == "layernorm-no-parameters":  # a denoiser's
        # Its scales and gates come from frozen modulations, so only norms keep what they read: 2 of 6 tensors, or 1 of 3.
        others = max(block.norms // 3 - 1, 0) + (halves > 1)
        halves = 1
    return min(halves, block.norms) * each, others * (each - (stream * block.hidden if shared else 0))


def _compute_query_norms(block: LayerBlock, style: LayerStyle) -> float:
    """Return the bytes per token kept by norms over queries and keys or latents, and by a gate on attention's result."""
    a, n, keeps = block.attention, style.numerics, style.written.norms
    gated = 2 * n.compute * a.query_width * a.output_gate
    norm = a.query_norm if keeps != "pieces" else block.norm
    if a.latent is not None:
        width = a.latent.q_rank + a.latent.kv_rank
        return compute_norm_kept(width, "rmsnorm", style, n.compute) + n.operand * width
    if a.qk_norm == "none":
        return gated
    heads = {"per-head": a.heads + a.kv_heads, "full": 2}[a.qk_norm]
    normed = a.query_width + a.kv_width * (a.key_value != "earlier")
    return compute_norm_kept(normed, norm, style, n.compute, keeps) + (heads - 1) * STATISTIC_BYTES + gated


def _compute_inputs_kept(
    style: LayerStyle, width: int, names: tuple[str, ...], *, fused: bool = False, again: bool = False
) -> float:
    """Return the bytes per token kept of an input of `width` that the matrices `names` read.

    Trained matrices keep it once, or one copy each if it is cast. `fused`: they are one matrix. `again`: another half of the
    layer keeps the same input already. For frozen matrices only adapters keep it, one copy each if it is cast or if dropout
    drops some of it, plus the dropout mask.
    """
    n = style.numerics
    if not names:
        return 0.0
    if style.trained:
        copies = 1 if fused else len(names)
        return width * n.operand * (copies if n.autocast else not again)
    adapted = sum(name in style.targets for name in names)
    adapted = min(adapted, 1) if fused and style.released else adapted
    number = n.compute if n.autocast or style.casts_adapters else n.weight
    shared = number == n.compute and not n.autocast
    copies = min(adapted, 1) if shared and not style.adapter_dropout else adapted
    total = float(copies * width * number + adapted * style.rank * number + (adapted * width if style.adapter_dropout else 0))
    if style.quantised_input > number or not copies:
        total += width * style.quantised_input
    return total


def _compute_magnitudes(matrices: Mapping[str, tuple[int, int]], style: LayerStyle) -> float:
    """Return the bytes per token that DoRA keeps: of each matrix the base's and the adapter's result, which are scaled.

    Source: PEFT, tuners/lora/dora.py, DoraLinearLayer.forward (0.18, 2025).
    """
    if not style.dora:
        return 0.0
    n = style.numerics
    number = n.compute if n.autocast or style.casts_adapters else n.weight
    return float(sum((n.compute + number) * out for name, (_, out) in matrices.items() if name in style.targets))


def _list_first_matrices(f: FeedForward) -> tuple[str, ...]:
    """Return the names of the matrices that read the feed-forward's input."""
    if not f.ffn:
        return ()
    return ("gate_proj", "up_proj") if f.gated else ("up_proj",)
