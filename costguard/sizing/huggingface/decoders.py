"""Readers of the decoders shaped like Llama: rotary positions, norms before (or around) each half, a gated feed-forward.

They differ in biases, norms of queries and keys, windows and ties: each reader states only its difference.
Class defaults as of transformers 5.23 (2026); where a class once had another, the older one is named beside it.
"""

from __future__ import annotations

from dataclasses import replace

from costguard.sizing.architecture import Architecture, FeedForward
from costguard.sizing.huggingface.config import Config
from costguard.sizing.huggingface.layers import Style, attention_of, decoder, windows_of
from costguard.sizing.layer_implementation import Written

WIDE = Written(norms="wide")
WIDE_AFTER = Written(norms="wide", norms_after=True)
PIECES = Written(norms="pieces", side_by_side=True)


def llama(config: Config, name: str) -> Architecture:
    """Llama 1 to 3 and the many models saved in its shape (Yi, SmolLM, TinyLlama, CodeLlama, Vicuna)."""
    return decoder(config, name, attention_of(config, bias=config.flag("attention_bias")), _feed_forward(config), Style())


def smollm3(config: Config, name: str) -> Architecture:
    """SmolLM3: Llama without rotary positions in each fourth layer, tied unless it says otherwise."""
    attention = attention_of(config, kv_heads=4, bias=config.flag("attention_bias"))
    return decoder(config, name, attention, _feed_forward(config), Style(tied=True))


def mistral(config: Config, name: str) -> Architecture:
    """Mistral: a window of 4,096 where the key is absent, none where it is null."""
    absent = "sliding_window" not in config.values
    attention = attention_of(config, kv_heads=8, window=4096 if absent else config.optional("sliding_window"))
    return decoder(config, name, attention, _feed_forward(config), Style())


def qwen2(config: Config, name: str) -> Architecture:
    """Qwen 2 and 2.5: biases on query, key and value alone."""
    return decoder(
        config, name, attention_of(config, qkv_bias=True), _feed_forward(config), Style(windows=qwen_windows(config))
    )


def qwen3(config: Config, name: str) -> Architecture:
    """Qwen 3: a norm on each query and key head."""
    attention = attention_of(config, head_dim=128, qk_norm="per-head", bias=config.flag("attention_bias"))
    return decoder(config, name, attention, _feed_forward(config), Style(windows=qwen_windows(config)))


def qwen_windows(config: Config) -> list[int | None]:
    """Layers from `max_window_layers` on slide, if `use_sliding_window` says that any do."""
    window = config.size("sliding_window", default=4096, least=0) if config.flag("use_sliding_window") else 0
    first = config.size("max_window_layers", default=28, least=0)
    return (
        windows_of(config, window or None, every=0)
        if config.items("layer_types")
        else [(window or None) if i >= first else None for i in range(config.layers)]
    )


def gemma(config: Config, name: str) -> Architecture:
    """Gemma: heads of 256 whatever the hidden size, tied."""
    attention = attention_of(config, kv_heads=16, head_dim=256, bias=config.flag("attention_bias"))
    return decoder(
        config, name, attention, _feed_forward(config, activation="gelu_pytorch_tanh"), Style(tied=True, written=WIDE)
    )


def gemma2(config: Config, name: str) -> Architecture:
    """Gemma 2: a norm before and after each half, each other layer slides."""
    attention = attention_of(config, kv_heads=4, head_dim=256, bias=config.flag("attention_bias"))
    windows = windows_of(config, config.size("sliding_window", default=4096), every=2)
    capped, capped_logits = config.caps("attn_logit_softcapping"), config.caps("final_logit_softcapping")
    written = Written(norms="wide", capped=capped, capped_logits=capped_logits)
    style = Style(norms=4, tied=True, windows=windows, written=written)
    return decoder(config, name, attention, _feed_forward(config, activation="gelu_pytorch_tanh"), style)


def gemma3(config: Config, name: str) -> Architecture:
    """The text model of Gemma 3: Gemma 2 with query and key norms, five layers in six slide."""
    attention = attention_of(config, kv_heads=4, head_dim=256, qk_norm="per-head", bias=config.flag("attention_bias"))
    every = config.size("sliding_window_pattern", "_sliding_window_pattern", default=6)
    windows = windows_of(config, config.size("sliding_window", default=4096), every=every)
    style = Style(norms=4, tied=True, windows=windows, written=WIDE)
    return decoder(config, name, attention, _feed_forward(config, activation="gelu_pytorch_tanh"), style)


def phi3(config: Config, name: str) -> Architecture:
    """Phi-3 and Phi-4: Llama with query, key and value in one matrix, and gate and up in another."""
    attention = replace(attention_of(config, window=config.optional("sliding_window")), fused=True, packed=True)
    return decoder(config, name, attention, replace(_feed_forward(config), fused=True), Style(written=Written(joined=True)))


def olmo(config: Config, name: str) -> Architecture:
    """OLMo: layer norms without parameters."""
    attention = attention_of(config, bias=config.flag("attention_bias"))
    return decoder(config, name, attention, _feed_forward(config), Style(norm="layernorm-no-parameters", written=WIDE))


def olmo2(config: Config, name: str) -> Architecture:
    """OLMo 2: norms after each half, and one over all query and one over all key heads."""
    attention = attention_of(config, qk_norm="full", bias=config.flag("attention_bias"))
    return decoder(config, name, attention, _feed_forward(config), Style(written=WIDE_AFTER))


def olmo3(config: Config, name: str) -> Architecture:
    """OLMo 3: OLMo 2 of which three layers in four slide."""
    attention = attention_of(config, qk_norm="full", bias=config.flag("attention_bias"))
    windows = windows_of(config, config.size("sliding_window", default=4096), every=4)
    return decoder(config, name, attention, _feed_forward(config), Style(windows=windows, written=WIDE_AFTER))


def stablelm(config: Config, name: str) -> Architecture:
    """StableLM: layer norms; with `use_parallel_residual` one a layer."""
    qk_norm = "full" if config.flag("qk_layernorm") else "none"
    attention = attention_of(config, kv_heads=32, qkv_bias=config.flag("use_qkv_bias"), qk_norm=qk_norm)
    side_by_side = config.flag("use_parallel_residual")
    written = Written(joined=True, side_by_side=side_by_side)
    style = Style(norm="layernorm", norms=1 if side_by_side else 2, written=written)
    return decoder(config, name, attention, _feed_forward(config), style)


def starcoder2(config: Config, name: str) -> Architecture:
    """StarCoder 2: layer norms, biases, no gate, tied."""
    bias = config.flag("use_bias", default=True)
    window = config.optional("sliding_window")
    attention = attention_of(config, kv_heads=2, bias=bias, window=window)
    feed_forward = FeedForward(ffn=config.ffn(), gated=False, bias=bias, activation=config.activation("gelu_pytorch_tanh"))
    return decoder(config, name, attention, feed_forward, Style(norm="layernorm", tied=True))


def nemotron(config: Config, name: str) -> Architecture:
    """Nemotron: layer norms, squared ReLU without a gate."""
    bias = config.flag("mlp_bias")
    feed_forward = FeedForward(ffn=config.ffn(), gated=False, bias=bias, activation=config.activation("relu2"))
    attention = attention_of(config, bias=config.flag("attention_bias"))
    return decoder(config, name, attention, feed_forward, Style(norm="layernorm", written=Written(joined=True)))


def cohere(config: Config, name: str) -> Architecture:
    """Command R: one norm without a shift for both halves, which run side by side; tied."""
    qk_norm = "full" if config.flag("use_qk_norm") else "none"
    attention = attention_of(config, qk_norm=qk_norm, bias=config.flag("attention_bias"))
    style = Style(norm="layernorm-no-bias", norms=1, tied=True, written=PIECES)
    return decoder(config, name, attention, _feed_forward(config), style)


def cohere2(config: Config, name: str) -> Architecture:
    """Command R7B and Command A: Command R of which three layers in four slide."""
    attention = attention_of(config, bias=config.flag("attention_bias"))
    every = config.size("sliding_window_pattern", "_sliding_window_pattern", default=4)
    windows = windows_of(config, config.size("sliding_window", default=4096), every=every)
    style = Style(norm="layernorm-no-bias", norms=1, tied=True, windows=windows, written=PIECES)
    return decoder(config, name, attention, _feed_forward(config), style)


def _feed_forward(config: Config, activation: str = "silu") -> FeedForward:
    return FeedForward(ffn=config.ffn(), gated=True, bias=config.flag("mlp_bias"), activation=config.activation(activation))
