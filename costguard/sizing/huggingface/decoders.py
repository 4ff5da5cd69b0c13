"""Readers of the decoders shaped like Llama: rotary positions, norms before (or around) each half, a gated feed-forward.

They differ in biases, norms of queries and keys, windows and ties: each reader states only its difference.
Class defaults as of transformers 5.23 (2026); where a class once had another, the older one is named beside it.
"""

from __future__ import annotations

from dataclasses import replace

from costguard.sizing.architecture import Architecture, FeedForward
from costguard.sizing.huggingface.config import ModelConfig
from costguard.sizing.huggingface.layers import DecoderStyle, build_decoder, read_attention, read_windows
from costguard.sizing.layer_implementation import LayerImplementation

WIDE_NORMS = LayerImplementation(norms="wide")
WIDE_NORMS_AFTER = LayerImplementation(norms="wide", norms_after=True)
PIECEWISE_NORMS = LayerImplementation(norms="pieces", side_by_side=True)


def read_llama(config: ModelConfig, name: str) -> Architecture:
    """Llama 1 to 3 and the many models saved in its shape (Yi, SmolLM, TinyLlama, CodeLlama, Vicuna)."""
    return build_decoder(
        config,
        name,
        read_attention(config, bias=config.read_flag("attention_bias")),
        _read_gated_feed_forward(config),
        DecoderStyle(),
    )


def read_smollm3(config: ModelConfig, name: str) -> Architecture:
    """SmolLM3: Llama without rotary positions in each fourth layer, tied unless it says otherwise."""
    attention = read_attention(config, kv_heads=4, bias=config.read_flag("attention_bias"))
    return build_decoder(config, name, attention, _read_gated_feed_forward(config), DecoderStyle(tied=True))


def read_mistral(config: ModelConfig, name: str) -> Architecture:
    """Mistral: a window of 4,096 where the key is absent, none where it is null."""
    absent = "sliding_window" not in config.values
    attention = read_attention(config, kv_heads=8, window=4096 if absent else config.read_optional("sliding_window"))
    return build_decoder(config, name, attention, _read_gated_feed_forward(config), DecoderStyle())


def read_qwen2(config: ModelConfig, name: str) -> Architecture:
    """Qwen 2 and 2.5: biases on query, key and value alone."""
    return build_decoder(
        config,
        name,
        read_attention(config, qkv_bias=True),
        _read_gated_feed_forward(config),
        DecoderStyle(windows=read_qwen_windows(config)),
    )


def read_qwen3(config: ModelConfig, name: str) -> Architecture:
    """Qwen 3: a norm on each query and key head."""
    attention = read_attention(config, head_dim=128, qk_norm="per-head", bias=config.read_flag("attention_bias"))
    return build_decoder(
        config, name, attention, _read_gated_feed_forward(config), DecoderStyle(windows=read_qwen_windows(config))
    )


def read_qwen_windows(config: ModelConfig) -> list[int | None]:
    """Layers from `max_window_layers` on slide, if `use_sliding_window` says that any do."""
    window = config.read_size("sliding_window", default=4096, least=0) if config.read_flag("use_sliding_window") else 0
    first = config.read_size("max_window_layers", default=28, least=0)
    return (
        read_windows(config, window or None, every=0)
        if config.read_items("layer_types")
        else [(window or None) if i >= first else None for i in range(config.layers)]
    )


def read_gemma(config: ModelConfig, name: str) -> Architecture:
    """Gemma: heads of 256 whatever the hidden size, tied."""
    attention = read_attention(config, kv_heads=16, head_dim=256, bias=config.read_flag("attention_bias"))
    return build_decoder(
        config,
        name,
        attention,
        _read_gated_feed_forward(config, activation="gelu_pytorch_tanh"),
        DecoderStyle(tied=True, written=WIDE_NORMS),
    )


def read_gemma2(config: ModelConfig, name: str) -> Architecture:
    """Gemma 2: a norm before and after each half, each other layer slides."""
    attention = read_attention(config, kv_heads=4, head_dim=256, bias=config.read_flag("attention_bias"))
    windows = read_windows(config, config.read_size("sliding_window", default=4096), every=2)
    capped, capped_logits = config.has_cap("attn_logit_softcapping"), config.has_cap("final_logit_softcapping")
    written = LayerImplementation(norms="wide", capped=capped, capped_logits=capped_logits)
    style = DecoderStyle(norms=4, tied=True, windows=windows, written=written)
    return build_decoder(config, name, attention, _read_gated_feed_forward(config, activation="gelu_pytorch_tanh"), style)


def read_gemma3(config: ModelConfig, name: str) -> Architecture:
    """The text model of Gemma 3: Gemma 2 with query and key norms, five layers in six slide."""
    attention = read_attention(config, kv_heads=4, head_dim=256, qk_norm="per-head", bias=config.read_flag("attention_bias"))
    every = config.read_size("sliding_window_pattern", "_sliding_window_pattern", default=6)
    windows = read_windows(config, config.read_size("sliding_window", default=4096), every=every)
    style = DecoderStyle(norms=4, tied=True, windows=windows, written=WIDE_NORMS)
    return build_decoder(config, name, attention, _read_gated_feed_forward(config, activation="gelu_pytorch_tanh"), style)


def read_phi3(config: ModelConfig, name: str) -> Architecture:
    """Phi-3 and Phi-4: Llama with query, key and value in one matrix, and gate and up in another."""
    attention = replace(read_attention(config, window=config.read_optional("sliding_window")), fused=True, packed=True)
    return build_decoder(
        config,
        name,
        attention,
        replace(_read_gated_feed_forward(config), fused=True),
        DecoderStyle(written=LayerImplementation(joined=True)),
    )


def read_olmo(config: ModelConfig, name: str) -> Architecture:
    """OLMo: layer norms without parameters."""
    attention = read_attention(config, bias=config.read_flag("attention_bias"))
    return build_decoder(
        config,
        name,
        attention,
        _read_gated_feed_forward(config),
        DecoderStyle(norm="layernorm-no-parameters", written=WIDE_NORMS),
    )


def read_olmo2(config: ModelConfig, name: str) -> Architecture:
    """OLMo 2: norms after each half, and one over all query and one over all key heads."""
    attention = read_attention(config, qk_norm="full", bias=config.read_flag("attention_bias"))
    return build_decoder(config, name, attention, _read_gated_feed_forward(config), DecoderStyle(written=WIDE_NORMS_AFTER))


def read_olmo3(config: ModelConfig, name: str) -> Architecture:
    """OLMo 3: OLMo 2 of which three layers in four slide."""
    attention = read_attention(config, qk_norm="full", bias=config.read_flag("attention_bias"))
    windows = read_windows(config, config.read_size("sliding_window", default=4096), every=4)
    return build_decoder(
        config, name, attention, _read_gated_feed_forward(config), DecoderStyle(windows=windows, written=WIDE_NORMS_AFTER)
    )


def read_stablelm(config: ModelConfig, name: str) -> Architecture:
    """StableLM: layer norms; with `use_parallel_residual` one a layer."""
    qk_norm = "full" if config.read_flag("qk_layernorm") else "none"
    attention = read_attention(config, kv_heads=32, qkv_bias=config.read_flag("use_qkv_bias"), qk_norm=qk_norm)
    side_by_side = config.read_flag("use_parallel_residual")
    written = LayerImplementation(joined=True, side_by_side=side_by_side)
    style = DecoderStyle(norm="layernorm", norms=1 if side_by_side else 2, written=written)
    return build_decoder(config, name, attention, _read_gated_feed_forward(config), style)


def read_starcoder2(config: ModelConfig, name: str) -> Architecture:
    """StarCoder 2: layer norms, biases, no gate, tied."""
    bias = config.read_flag("use_bias", default=True)
    window = config.read_optional("sliding_window")
    attention = read_attention(config, kv_heads=2, bias=bias, window=window)
    feed_forward = FeedForward(
        ffn=config.read_ffn(), gated=False, bias=bias, activation=config.read_activation("gelu_pytorch_tanh")
    )
    return build_decoder(config, name, attention, feed_forward, DecoderStyle(norm="layernorm", tied=True))


def read_nemotron(config: ModelConfig, name: str) -> Architecture:
    """Nemotron: layer norms, squared ReLU without a gate."""
    bias = config.read_flag("mlp_bias")
    feed_forward = FeedForward(ffn=config.read_ffn(), gated=False, bias=bias, activation=config.read_activation("relu2"))
    attention = read_attention(config, bias=config.read_flag("attention_bias"))
    return build_decoder(
        config, name, attention, feed_forward, DecoderStyle(norm="layernorm", written=LayerImplementation(joined=True))
    )


def read_cohere(config: ModelConfig, name: str) -> Architecture:
    """Command R: one norm without a shift for both halves, which run side by side; tied."""
    qk_norm = "full" if config.read_flag("use_qk_norm") else "none"
    attention = read_attention(config, qk_norm=qk_norm, bias=config.read_flag("attention_bias"))
    style = DecoderStyle(norm="layernorm-no-bias", norms=1, tied=True, written=PIECEWISE_NORMS)
    return build_decoder(config, name, attention, _read_gated_feed_forward(config), style)


def read_cohere2(config: ModelConfig, name: str) -> Architecture:
    """Command R7B and Command A: Command R of which three layers in four slide."""
    attention = read_attention(config, bias=config.read_flag("attention_bias"))
    every = config.read_size("sliding_window_pattern", "_sliding_window_pattern", default=4)
    windows = read_windows(config, config.read_size("sliding_window", default=4096), every=every)
    style = DecoderStyle(norm="layernorm-no-bias", norms=1, tied=True, windows=windows, written=PIECEWISE_NORMS)
    return build_decoder(config, name, attention, _read_gated_feed_forward(config), style)


def _read_gated_feed_forward(config: ModelConfig, activation: str = "silu") -> FeedForward:
    return FeedForward(
        ffn=config.read_ffn(), gated=True, bias=config.read_flag("mlp_bias"), activation=config.read_activation(activation)
    )
