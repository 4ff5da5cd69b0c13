"""What a layer keeps from its forward pass for its backward pass.

Example: a Llama-2-7B layer (hidden 4096, feed-forward 11008) trained in bf16 with flash attention keeps, a token,
two norms of 6 x 4096 (an fp32 copy of the input, and the result before its weight), the inputs of q, k, v and of gate
and up 2 x 2 x 4096, q, k, v and the result of attention 4 x 2 x 4096, and four tensors of the feed-forward
4 x 2 x 11008: 45.5 x 4096 bytes. Frozen weights need no input, so LoRA keeps less there, and a copy an adapter instead.

Read off autograd's saved tensors in transformers 5.23 with torch 2.13 on fake tensors, 2026-11.
"""

from __future__ import annotations

from dataclasses import dataclass

from costguard.core.architecture import Block, FeedForward
from costguard.core.numerics import FP32
from costguard.core.style import Style

STATISTIC = 4
"""An fp32 number a token (1/rms of a norm) or a token and head (log-sum-exp of flash attention)."""

KEPT_BY_ACTIVATION = {"gelu_new": 4, "gelu_fast": 5, "quick_gelu": 2, "relu": 0}
"""Tensors of the feed-forward's width that an activation keeps besides its result; a fused kernel keeps its input only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One layer. `attention` and `feed_forward`: bytes a token kept by each half; `entry`: the layer's input, a token.

    `attention_work`, `feed_forward_work`: bytes a token that the backward pass adds at its worst in each half.
    `casts`: bytes of autocast's copies of the layer's matrices, whatever the tokens. `whole`: both halves.
    `passing`: bytes a token in use at once where nothing is kept (inference). `selective`: bytes a token under selective
    checkpointing. `gathers`: bytes of the inputs that sequence parallelism gathers whole, a token. `unsplit`: bytes a token of
    `whole` that tensor parallelism alone does not divide: norms, what they give the matrices, the residual's dropout.
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


def kept_by(block: Block, style: Style) -> Kept:
    """What one layer of `block` keeps."""
    n = style.numerics
    core, core_work = _attention_core(block, style, biased=style.biased)
    read = _norm(block, style) + _inputs(block, style, *_attention_inputs(block))
    attention = read + core
    if block.cross_attention:
        attention += read + _attention_core(block, style, biased=False)[0]
    norms = max(block.norms - _attention_halves(block), 0)
    feed, feed_work = _feed_forward(block, style)
    feed += norms * _norm(block, style) + (block.hidden if style.dropout else 0)
    attention += block.hidden if style.dropout else 0
    unsplit = read * _attention_halves(block) + max(block.norms - _attention_halves(block), 0) * _norm(block, style)
    unsplit += _inputs(block, style, block.hidden, _first(block.feed_forward)) + 2 * block.hidden * style.dropout
    return Kept(
        attention=attention,
        feed_forward=feed,
        whole=attention + feed,
        passing=2 * n.compute * block.hidden + 2 * feed_work,
        selective=_selective(block, style),
        gathers=2 * n.compute * block.hidden,
        unsplit=unsplit,
        entry=n.residual * block.hidden,
        attention_work=core_work + n.residual * block.hidden,
        feed_forward_work=feed_work + n.residual * block.hidden,
        casts=n.compute * _matrix_parameters(block) if n.autocast else 0,
    )


def _selective(block: Block, style: Style) -> float:
    """PyTorch's selective checkpointing (torchtitan's default): entry, attention's result, the 1st, 3rd, 5th product's result.

    torchtitan/models/llama/parallelize_llama.py counts them in the order they run: of Llama's seven q, v, gate and down.
    """
    a, f, n = block.attention, block.feed_forward, style.numerics
    outputs = [o for _, o in a.matrices(block.hidden).values()]
    outputs += [max(f.experts_per_token, 1) * o for _, o in f.matrices(block.hidden).values()]
    return n.residual * block.hidden + n.compute * (a.query_width + sum(outputs[::2]))


def norm_kept(width: int, norm: str, style: Style, stream: int) -> float:
    """Bytes a token kept by a norm over `width` numbers of `stream` bytes.

    LayerNorm and fused norms keep their input. Eager RMSNorm keeps it in fp32, and the result that its weight multiplies.
    """
    if norm != "rmsnorm" or style.fused:
        return stream * width + STATISTIC
    return (FP32 + stream * style.trained) * width + STATISTIC


def _norm(block: Block, style: Style) -> float:
    return norm_kept(block.hidden, block.norm, style, style.numerics.residual)


def _attention_halves(block: Block) -> int:
    return 2 if block.cross_attention else 1


def _matrix_parameters(block: Block) -> int:
    return block.parameters_each - block.small_parameters


def _attention_inputs(block: Block) -> tuple[int, tuple[str, ...]]:
    """Width and names of the matrices that read the norm's result."""
    first = tuple(k for k, (i, _) in block.attention.matrices(block.hidden).items() if i == block.hidden and k != "o_proj")
    return block.hidden, first


def _inputs(block: Block, style: Style, width: int, names: tuple[str, ...]) -> float:
    """Bytes a token kept of an input of `width` read by the matrices `names`: one tensor, or a copy each where it is cast.

    Of frozen matrices only adapters keep it, each a copy where it is cast or some of it is dropped, with the mask.
    """
    n = style.numerics
    if style.trained:
        return width * (n.operand * (1 if _fused(block, names) else len(names)) if n.autocast else n.operand)
    adapted = sum(name in style.targets for name in names)
    number = n.compute if n.autocast or style.casts_adapters else n.weight
    shared = number == n.compute and not n.autocast
    copies = min(adapted, 1) if shared and not style.dropout else adapted
    kept = copies * width * number + adapted * style.rank * number + (adapted * width if style.dropout else 0)
    if style.quantised_input > number or not copies:
        kept += width * style.quantised_input
    return kept


def _fused(block: Block, names: tuple[str, ...]) -> bool:
    """Whether one matrix holds all of `names`: q, k and v as in GPT-2 and Falcon, gate and up too as in Phi-3."""
    return block.attention.fused if "q_proj" in names else block.feed_forward.fused and "gate_proj" in names


def _attention_core(block: Block, style: Style, *, biased: bool) -> tuple[float, float]:
    """Bytes a token kept by rotary, scores and values, and the work of going back through them."""
    a, n = block.attention, style.numerics
    value = a.heads * (a.latent.value_dim if a.latent else a.head_dim)
    key_heads = a.heads if style.repeats_kv or a.latent else a.kv_heads
    keys = a.query_width * key_heads // a.heads
    tensors = n.compute * (a.query_width + keys + value * key_heads // a.heads + value)
    kept = tensors + _query_norms(block, style) + _latent_kept(block, style)
    if not style.trained:
        kept += _inputs(block, style, value, ("o_proj",))
    if style.packs_qkv or a.packed:
        kept += _packed(block, style)
    if biased or not style.flash:
        scores, work = _scores(style)
        return kept + scores * a.heads * style.seq, work * a.heads * style.seq
    mask = n.compute * style.seq if style.masked and block.causal else 0
    return kept + STATISTIC * a.heads + mask, 2 * tensors


def _packed(block: Block, style: Style) -> float:
    """What packing q, k and v costs: they stay beside their rotated copies, and adapters' results are padded to their width."""
    a = block.attention
    widths = {"q_proj": a.query_width, "k_proj": a.kv_width, "v_proj": a.kv_width}
    padded = sum(width for name, width in widths.items() if style.packs_qkv and name in style.targets)
    return style.numerics.compute * (a.query_width + a.kv_width + padded)


def _scores(style: Style) -> tuple[int, int]:
    """Bytes kept a score by eager attention, and the work.

    Most take the softmax in fp32 and keep a copy to multiply; BERT does not. Dropout keeps what it dropped from and a mask.
    """
    compute = style.numerics.compute
    softmax = FP32 if style.softmax_fp32 else compute
    kept = softmax + (compute if softmax != compute else 0)
    dropped = compute + 1 if style.dropout else 0
    return kept + dropped, 3 * softmax - kept


def _query_norms(block: Block, style: Style) -> float:
    a = block.attention
    if a.qk_norm == "none":
        return 0.0
    compute = style.numerics.compute
    return norm_kept(a.query_width, "rmsnorm", style, compute) + norm_kept(a.kv_width, "rmsnorm", style, compute)


def _latent_kept(block: Block, style: Style) -> float:
    """Multi-head latent attention also keeps the norms of its latents and their results."""
    latent = block.attention.latent
    if latent is None:
        return 0.0
    width = latent.q_rank + latent.kv_rank
    return norm_kept(width, "rmsnorm", style, style.numerics.compute) + style.numerics.operand * width


def _feed_forward(block: Block, style: Style) -> tuple[float, float]:
    """Bytes a token kept by the feed-forward half, and the work of going back through it."""
    f = block.feed_forward
    kept, work = _expert(block, style, f.ffn)
    if not f.experts:
        return kept + _inputs(block, style, block.hidden, _first(f)), work
    gathered = 2 * style.numerics.compute * block.hidden
    router = FP32 * 2 * f.experts
    shared = _expert(block, style, f.shared_ffn)[0] if f.shared_ffn else 0.0
    read = style.numerics.operand * block.hidden if style.trained else 0
    return f.experts_per_token * (kept + gathered) + shared + router + read, f.experts_per_token * work


def _first(f: FeedForward) -> tuple[str, ...]:
    return ("gate_proj", "up_proj") if f.gated else ("up_proj",)


def _expert(block: Block, style: Style, width: int) -> tuple[float, float]:
    f, n = block.feed_forward, style.numerics
    result = n.operand * width if style.trained else _inputs(block, style, width, ("down_proj",))
    extra = 1 if style.fused else KEPT_BY_ACTIVATION.get(f.activation, 1)
    extra = min(extra, 1) if style.kernels else extra
    wide = (extra + 2 if not style.fused else 2) if f.gated else extra
    work = (2 if f.gated or extra > 1 else 1) * n.compute * width
    return wide * n.compute * width + result, work
