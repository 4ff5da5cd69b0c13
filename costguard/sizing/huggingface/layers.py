"""Shared parts of all readers: attention, layers, embedding and head, read from the keys that most families share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from costguard.sizing.architecture import NORMS, Architecture, Attention, FeedForward, LayerBlock, group_blocks
from costguard.sizing.huggingface.config import ModelConfig
from costguard.sizing.layer_implementation import LIKE_LLAMA, LayerImplementation
from costguard.values.checks import require

ExtraTensors = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderStyle:
    """Properties that a decoder family fixes in its code rather than in its config.json.

    - `norms`: norms per layer (1: attention and feed-forward read the same norm in parallel).
    - `tied`: whether the head is the embedding if the config does not state it. `final_norm`: whether a norm precedes
        the head.
    - `head_bias`: whether the head adds a bias per word. `extras`: further tensors outside the layers.
    - `windows`: the window of each layer; () if `Attention.window` applies to all.
    - `written`: see `sizing/layer_implementation.py`.
    """

    norm: str = "rmsnorm"
    norms: int = 2
    tied: bool = False
    final_norm: bool = True
    head_bias: bool = False
    windows: Sequence[int | None] = ()
    extras: ExtraTensors = ()
    positions: int | None = None
    vocab_width: int | None = None
    notes: tuple[str, ...] = ()
    written: LayerImplementation = LIKE_LLAMA


def build_decoder(
    config: ModelConfig,
    name: str,
    attention: Attention | Callable[[int], Attention],
    feed_forward: FeedForward | Callable[[int], FeedForward],
    style: DecoderStyle,
) -> Architecture:
    """Return the decoder of `config`.

    `attention`, `feed_forward`: one for all layers, or a function of the layer's index. `style.windows` holds for one
    attention. A layer whose feed-forward has no width lacks the norm before it as well.
    """
    hidden = config.hidden
    windows = style.windows or [attention.window if isinstance(attention, Attention) else None] * config.layers
    layers = []
    for i, window in enumerate(windows):
        feed = feed_forward if isinstance(feed_forward, FeedForward) else feed_forward(i)
        layers.append(
            LayerBlock(
                layers=1,
                hidden=hidden,
                attention=replace(attention, window=window) if isinstance(attention, Attention) else attention(i),
                feed_forward=feed,
                norm=style.norm,
                norms=style.norms if feed.ffn else style.norms - 1,
                written=style.written,
            )
        )
    has_head, task_extras = _read_task_head(config, hidden)
    head_bias = (("lm_head.bias", config.vocab),) if style.head_bias and has_head else ()
    final_norm = (("final_norm", hidden * NORMS[style.norm]),) if style.final_norm else ()
    return Architecture(
        name=name,
        kind="decoder",
        blocks=group_blocks(layers),
        vocab=config.vocab,
        tied_embeddings=config.read_flag("tie_word_embeddings", default=style.tied),
        has_head=has_head,
        extras=drop_empty_extras((*final_norm, *style.extras, *head_bias, *task_extras)),
        positions=style.positions,
        vocab_width=style.vocab_width,
        notes=style.notes,
    )


def read_attention(
    config: ModelConfig,
    *,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    bias: bool = False,
    qkv_bias: bool = False,
    qk_norm: str = "none",
    sinks: bool = False,
    window: int | None = None,
) -> Attention:
    """Return the attention of `config`.

    `kv_heads` and `head_dim` are the class defaults, used if the config does not state them. `bias` adds biases to all four
    matrices, `qkv_bias` only to query, key and value. A `null` number of key heads means one for each query head, whatever the
    class default is.
    """
    heads = config.heads
    default_heads = heads if "num_key_value_heads" in config.values else kv_heads or heads
    shared = config.read_size("num_key_value_heads", default=default_heads)
    require(
        heads % shared == 0,
        config.name_field("num_key_value_heads"),
        f"{shared} does not divide the {heads} query heads",
        f"write a divisor of {heads}",
    )
    return Attention(
        heads=heads,
        kv_heads=shared,
        head_dim=_read_head_width(config, head_dim),
        qkv_bias=qkv_bias or bias,
        out_bias=bias,
        qk_norm=qk_norm,
        sinks=sinks,
        window=window,
    )


def _read_head_width(config: ModelConfig, default: int | None = None) -> int:
    """Return the stated or default `head_dim`, else hidden / heads; raise InputError if that is not whole."""
    stated_width = config.read_size("head_dim", default=default or 0, least=0)
    if stated_width:
        return stated_width
    hidden, heads = config.hidden, config.heads
    require(
        hidden % heads == 0,
        config.name_field("num_attention_heads"),
        f"{heads} heads do not divide a hidden size of {hidden}",
        f"write a divisor of {hidden}, or state head_dim",
    )
    return hidden // heads


def read_plain_attention(
    config: ModelConfig, *, kv_heads: int | None = None, qkv_bias: bool = True, out_bias: bool = True, fused: bool = False
) -> Attention:
    """Return attention as in GPT-2 and BERT: no head_dim or key groups in the config; heads divide the hidden size."""
    heads = config.heads
    width = _read_head_width(config)
    return Attention(heads=heads, kv_heads=kv_heads or heads, head_dim=width, qkv_bias=qkv_bias, out_bias=out_bias, fused=fused)


def _read_task_head(config: ModelConfig, hidden: int) -> tuple[bool, ExtraTensors]:
    """Return whether there is an output matrix, and the tensors that replace it: a classifier, or nothing."""
    if config.task == "ForSequenceClassification":
        return False, (("score", hidden * config.labels),)
    return config.task != "Model", ()


def read_windows(config: ModelConfig, window: int | None, *, every: int) -> list[int | None]:
    """Return the window of each layer; None for full attention.

    `layer_types` lists the layers with a window. If it is absent, every `every`-th layer has full attention (0: none has).
    """
    layers, names = config.layers, config.read_items("layer_types")
    if names is None:
        return [None if every and (i + 1) % every == 0 else window for i in range(layers)]
    require(
        len(names) == layers,
        config.name_field("layer_types"),
        f"names {len(names)} layers of {layers}",
        "write one name for each layer",
    )
    return [None if name == "full_attention" else window for name in names]


def drop_empty_extras(extras: ExtraTensors) -> ExtraTensors:
    """Return `extras` without the entries that have no parameters."""
    return tuple((name, count) for name, count in extras if count)
