"""What a layer keeps from its forward pass for its backward pass.

Example: a Llama-2-7B layer (hidden 4096, feed-forward 11008) trained in bf16 with flash attention keeps, a token,
two norms of 6 x 4096 (an fp32 copy of the input, and the result before its weight), the inputs of q, k, v and of gate
and up 2 x 2 x 4096, q, k, v and the result of attention 4 x 2 x 4096, and four tensors of the feed-forward
4 x 2 x 11008: 45.5 x 4096 bytes. Frozen weights need no input, so LoRA keeps less there, and a copy an adapter instead.

Read off autograd's saved tensors in transformers 5.23 with torch 2.13 on fake tensors, 2026-11.
"""

from __future__ import annotations

from dataclasses import dataclass

from costguard.sizing.architecture import LayerBlock
from costguard.sizing.memory.adapters import count_adapter_parameters
from costguard.sizing.memory.kept_attention import _compute_attention_kept
from costguard.sizing.memory.kept_inputs import _compute_inputs_kept, _list_first_matrices
from costguard.sizing.memory.kept_norms import _compute_norms_kept
from costguard.sizing.memory.numerics import FP32
from costguard.sizing.memory.style import LayerStyle

KEPT_BY_ACTIVATION = {"gelu_new": 4, "gelu_fast": 5, "quick_gelu": 2, "relu": 0}
"""Tensors of the feed-forward's width that an activation keeps besides its result; a fused kernel keeps its input only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerActivations:
    """One layer. `attention` and `feed_forward`: bytes a token kept by each half; `entry`: the layer's input, a token.

    `attention_work`, `feed_forward_work`: bytes a token that the backward pass adds at its worst in each half.
    `casts`: bytes of autocast's copies of the layer's matrices, whatever the tokens. `whole`: both halves.
    `passing`: bytes a token in use at once where nothing is kept (inference). `selective`: bytes a token under selective
    checkpointing. `gathers`: bytes of the inputs that sequence parallelism gathers whole, a token. `unsplit`: bytes a token of
    `whole` that tensor parallelism alone does not divide: norms, what they give the matrices, the residual's dropout.
    `unneeded`, `unneeded_casts`: what the first layer does not keep a token, and of casts: its input needs no gradient.
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
    gathers: int
    unsplit: float
    unneeded: float
    unneeded_casts: int


def compute_layer_activations(block: LayerBlock, style: LayerStyle) -> LayerActivations:
    """What one layer of `block` keeps."""
    n, halves = style.numerics, 2 if block.cross_attention else 1
    core, core_work = _compute_attention_kept(block, style)
    before, others = _compute_norms_kept(block, style, halves)
    read = before + halves * _compute_inputs_kept(
        style, block.hidden, _list_attention_inputs(block), fused=block.attention.fused
    )
    dropped = block.hidden if style.dropout else 0
    attention = read + core + dropped
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
    """PyTorch's selective checkpointing (torchtitan's default): entry, attention's result, the 1st, 3rd, 5th product's result.

    torchtitan/models/llama/parallelize_llama.py counts them in the order they run: of Llama's seven q, v, gate and down.
    """
    a, f, n = block.attention, block.feed_forward, style.numerics
    outputs = [o for _, o in a.list_matrices(block.hidden).values()]
    outputs += [max(f.experts_per_token, 1) * o for _, o in f.list_matrices(block.hidden).values()]
    return n.residual * block.hidden + n.compute * (a.query_width + sum(outputs[::2]))


def _count_multiplied(block: LayerBlock, style: LayerStyle) -> int:
    """Parameters of one layer that tokens are multiplied with."""
    return block.parameters_each - block.small_parameters + count_adapter_parameters(block, style.targets, style.rank)


def _compute_unneeded(block: LayerBlock, style: LayerStyle, feed: float) -> float:
    """Where only adapters are trained the first norm's input needs no gradient, nor does a feed-forward beside attention.

    That one is not kept at all if it carries no adapter on the way in; a norm behind attention is kept in any case.
    """
    if style.trained or style.written.norms_after:
        return 0.0
    norm = _compute_norms_kept(block, style, 1)[0]
    return norm + (feed if style.written.side_by_side and not _has_feed_adapter(block, style) else 0.0)


def _compute_unneeded_casts(block: LayerBlock, style: LayerStyle) -> int:
    """Autocast's copies of the frozen matrices that read it."""
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
    """Names of the matrices that read the norm's result."""
    matrices = block.attention.list_matrices(block.hidden)
    return tuple(name for name, (width, _) in matrices.items() if width == block.hidden and name != "o_proj")


def _compute_feed_forward(block: LayerBlock, style: LayerStyle) -> tuple[float, float]:
    """Bytes a token kept by the feed-forward half, and the work of going back through it."""
    f = block.feed_forward
    kept, work = _compute_expert(block, style, f.ffn)
    if not f.experts:
        return kept + _compute_feed_inputs(block, style), work
    gathered = 2 * style.numerics.compute * block.hidden
    router = FP32 * 2 * f.experts
    shared = _compute_expert(block, style, f.shared_ffn)[0] if f.shared_ffn else 0.0
    read = style.numerics.operand * block.hidden if style.trained else 0
    return f.experts_per_token * (kept + gathered) + shared + router + read, f.experts_per_token * work


def _compute_feed_inputs(block: LayerBlock, style: LayerStyle) -> float:
    again = style.written.side_by_side and block.norms == 1
    f = block.feed_forward
    return _compute_inputs_kept(style, block.hidden, _list_first_matrices(f), fused=f.fused, again=again)


def _compute_expert(block: LayerBlock, style: LayerStyle, width: int) -> tuple[float, float]:
    f, n = block.feed_forward, style.numerics
    result = n.operand * width if style.trained else _compute_inputs_kept(style, width, ("down_proj",))
    extra = 1 if style.fused or (f.activation == "relu" and not style.trained) else KEPT_BY_ACTIVATION.get(f.activation, 1)
    extra = min(extra, 1) if style.kernels else extra
    extra += style.written.recast and style.numerics.autocast and not f.gated
    wide = (extra + 2 if not style.fused else 2) if f.gated else extra
    work: float = (2 if f.gated or extra > 1 else 1) * n.compute * width
    kept = wide * n.compute * width + result
    if not style.trained and _has_feed_adapter(block, style):
        made_before = (extra + 1) * n.compute * width if f.gated and not f.fused else 0
        work = max(work, _compute_adapter_work(style, block.hidden, (1 + (f.gated and f.fused)) * width) - (kept - made_before))
    return kept, work


def _compute_adapter_work(style: LayerStyle, hidden: int, width: int) -> float:
    """Bytes a token at work while an adapter of the last wide matrix is: its result, the same scaled, and the base's result.

    fp32 adapters make the first two in fp32. What enters the layer and its feed-forward, and a gradient, lie beside them.
    """
    compute = style.numerics.compute
    made = compute if style.numerics.autocast or style.casts_adapters else style.numerics.weight
    return (2 * made + compute) * width + 4 * compute * hidden
