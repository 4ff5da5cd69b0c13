"""Readers of decoder models: those shaped like Llama, and the older ones before it.

Decoders like Llama have rotary positions, norms before (or around) each half and a gated feed-forward. They differ in biases,
query and key norms, windows and tied embeddings, and each reader states only its difference. Older decoders have layer norms,
biases, no gate, and learned or no positions.

Class defaults are those of transformers 5.23 (2026); if a class once had another default, it is named as well.
"""

from __future__ import annotations

from dataclasses import replace

from costguard.errors import InputError
from costguard.sizing.architecture import Architecture, FeedForward
from costguard.sizing.huggingface.config import ModelConfig
from costguard.sizing.huggingface.layers import DecoderStyle, build_decoder, read_attention, read_plain_attention, read_windows
from costguard.sizing.layer_implementation import LayerImplementation
from costguard.values.checks import describe_value, require

WIDE_NORMS = LayerImplementation(norms="wide")
WIDE_NORMS_AFTER = LayerImplementation(norms="wide", norms_after=True)
PIECEWISE_NORMS = LayerImplementation(norms="pieces", side_by_side=True)


def read_llama(config: ModelConfig, name: str) -> Architecture:
    """Llama 1 to 3, and the models saved in the same format (Yi, SmolLM, TinyLlama, CodeLlama, Vicuna)."""
    return build_decoder(
        config,
        name,
        read_attention(config, bias=config.read_flag("attention_bias")),
        _read_gated_feed_forward(config),
        DecoderStyle(),
    )


def read_smollm3(config: ModelConfig, name: str) -> Architecture:
    """SmolLM3: Llama without rotary positions in every fourth layer; tied by default."""
    attention = read_attention(config, kv_heads=4, bias=config.read_flag("attention_bias"))
    return build_decoder(config, name, attention, _read_gated_feed_forward(config), DecoderStyle(tied=True))


def read_mistral(config: ModelConfig, name: str) -> Architecture:
    """Mistral: the window is 4,096 tokens if `sliding_window` is absent; there is no window if it is null."""
    absent = "sliding_window" not in config.values
    attention = read_attention(config, kv_heads=8, window=4096 if absent else config.read_optional("sliding_window"))
    return build_decoder(config, name, attention, _read_gated_feed_forward(config), DecoderStyle())


def read_qwen2(config: ModelConfig, name: str) -> Architecture:
    """Qwen 2 and 2.5: only query, key and value have biases."""
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
    """Return the window of each layer.

    With `use_sliding_window`, the layers from `max_window_layers` on have a sliding window; otherwise none has.
    """
    window = config.read_size("sliding_window", default=4096, least=0) if config.read_flag("use_sliding_window") else 0
    first = config.read_size("max_window_layers", default=28, least=0)
    return (
        read_windows(config, window or None, every=0)
        if config.read_items("layer_types")
        else [(window or None) if i >= first else None for i in range(config.layers)]
    )


def read_gemma(config: ModelConfig, name: str) -> Architecture:
    """Gemma: heads of 256 for every hidden size, tied."""
    attention = read_attention(config, kv_heads=16, head_dim=256, bias=config.read_flag("attention_bias"))
    return build_decoder(
        config,
        name,
        attention,
        _read_gated_feed_forward(config, activation="gelu_pytorch_tanh"),
        DecoderStyle(tied=True, written=WIDE_NORMS),
    )


def read_gemma2(config: ModelConfig, name: str) -> Architecture:
    """Gemma 2: a norm before and after each half; every other layer has a sliding window."""
    attention = read_attention(config, kv_heads=4, head_dim=256, bias=config.read_flag("attention_bias"))
    windows = read_windows(config, config.read_size("sliding_window", default=4096), every=2)
    capped, capped_logits = config.has_cap("attn_logit_softcapping"), config.has_cap("final_logit_softcapping")
    written = LayerImplementation(norms="wide", capped=capped, capped_logits=capped_logits)
    style = DecoderStyle(norms=4, tied=True, windows=windows, written=written)
    return build_decoder(config, name, attention, _read_gated_feed_forward(config, activation="gelu_pytorch_tanh"), style)


def read_gemma3(config: ModelConfig, name: str) -> Architecture:
    """The text model of Gemma 3: Gemma 2 with query and key norms; five of six layers have a sliding window."""
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


def read_baichuan(config: ModelConfig, name: str) -> Architecture:
    """Baichuan 1 and 2: Llama with query, key and value in one matrix."""
    attention = replace(read_attention(config), fused=True)
    return build_decoder(config, name, attention, _read_gated_feed_forward(config), DecoderStyle())


def read_internlm2(config: ModelConfig, name: str) -> Architecture:
    """InternLM 2 and 2.5: Llama with query, key and value in one matrix, key by key."""
    attention = replace(read_attention(config, bias=config.read_flag("bias")), fused=True)
    return build_decoder(config, name, attention, _read_gated_feed_forward(config), DecoderStyle())


def read_seed_oss(config: ModelConfig, name: str) -> Architecture:
    """Seed-OSS: Llama with biases on query, key and value, and heads wider than the model."""
    attention = read_attention(config, kv_heads=8, head_dim=128, qkv_bias=config.read_flag("attention_bias", default=True))
    attention = replace(attention, out_bias=config.read_flag("attention_out_bias"))
    return build_decoder(config, name, attention, _read_gated_feed_forward(config), DecoderStyle())


def read_glm(config: ModelConfig, name: str) -> Architecture:
    """GLM-4-9B: gate and up in one matrix, a part of each head is rotated."""
    return _build_glm(config, name, norms=2)


def read_glm4(config: ModelConfig, name: str) -> Architecture:
    """GLM-4-0414: GLM-4-9B with a norm after each half as well."""
    return _build_glm(config, name, norms=4)


def _build_glm(config: ModelConfig, name: str, *, norms: int) -> Architecture:
    qkv_bias = config.read_flag("attention_bias", default=True)
    attention = read_attention(config, kv_heads=2, head_dim=128, qkv_bias=qkv_bias)
    feed_forward = replace(_read_gated_feed_forward(config), fused=True)
    style = DecoderStyle(norms=norms, written=LayerImplementation(joined=True))
    return build_decoder(config, name, attention, feed_forward, style)


def read_exaone(config: ModelConfig, name: str) -> Architecture:
    """EXAONE 3 and 3.5: Llama by other names."""
    return build_decoder(config, name, read_attention(config), _read_gated_feed_forward(config), DecoderStyle())


def read_exaone4(config: ModelConfig, name: str) -> Architecture:
    """EXAONE 4: a norm after each half and on each query and key head; the 32B has windows in three of four layers."""
    attention = read_attention(config, qk_norm="per-head")
    every = config.read_size("sliding_window_pattern", default=4)
    window = config.read_optional("sliding_window") if "sliding_window" in config.values else 4096
    style = DecoderStyle(windows=read_windows(config, window, every=every), written=WIDE_NORMS_AFTER)
    return build_decoder(config, name, attention, _read_gated_feed_forward(config), style)


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
    """OLMo 2: a norm after each half, one norm over all query heads and one over all key heads."""
    attention = read_attention(config, qk_norm="full", bias=config.read_flag("attention_bias"))
    return build_decoder(config, name, attention, _read_gated_feed_forward(config), DecoderStyle(written=WIDE_NORMS_AFTER))


def read_olmo3(config: ModelConfig, name: str) -> Architecture:
    """OLMo 3: OLMo 2 with a sliding window in three of four layers."""
    attention = read_attention(config, qk_norm="full", bias=config.read_flag("attention_bias"))
    windows = read_windows(config, config.read_size("sliding_window", default=4096), every=4)
    return build_decoder(
        config, name, attention, _read_gated_feed_forward(config), DecoderStyle(windows=windows, written=WIDE_NORMS_AFTER)
    )


def read_stablelm(config: ModelConfig, name: str) -> Architecture:
    """StableLM: layer norms; only one per layer with `use_parallel_residual`."""
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


def read_apertus(config: ModelConfig, name: str) -> Architecture:
    """Apertus: no gate, an activation with two learned numbers, a norm on each query and key head."""
    attention = read_attention(config, qk_norm="per-head", bias=config.read_flag("attention_bias"))
    feed = FeedForward(ffn=config.read_ffn(), gated=False, activation=config.read_activation("xielu"))
    return build_decoder(config, name, attention, feed, DecoderStyle(extras=(("activations", 2 * config.layers),)))


def read_arcee(config: ModelConfig, name: str) -> Architecture:
    """AFM: Llama with squared ReLU and without a gate."""
    bias = config.read_flag("mlp_bias")
    feed = FeedForward(ffn=config.read_ffn(), gated=False, bias=bias, activation=config.read_activation("relu2"))
    return build_decoder(config, name, read_attention(config, bias=config.read_flag("attention_bias")), feed, DecoderStyle())


def read_cohere(config: ModelConfig, name: str) -> Architecture:
    """Command R: one norm without a shift, read by both halves in parallel; tied."""
    qk_norm = "full" if config.read_flag("use_qk_norm") else "none"
    attention = read_attention(config, qk_norm=qk_norm, bias=config.read_flag("attention_bias"))
    style = DecoderStyle(norm="layernorm-no-bias", norms=1, tied=True, written=PIECEWISE_NORMS)
    return build_decoder(config, name, attention, _read_gated_feed_forward(config), style)


def read_cohere2(config: ModelConfig, name: str) -> Architecture:
    """Command R7B and Command A: Command R with a sliding window in three of four layers."""
    attention = read_attention(config, bias=config.read_flag("attention_bias"))
    every = config.read_size("sliding_window_pattern", "_sliding_window_pattern", default=4)
    windows = read_windows(config, config.read_size("sliding_window", default=4096), every=every)
    style = DecoderStyle(norm="layernorm-no-bias", norms=1, tied=True, windows=windows, written=PIECEWISE_NORMS)
    return build_decoder(config, name, attention, _read_gated_feed_forward(config), style)


def _read_gated_feed_forward(config: ModelConfig, activation: str = "silu") -> FeedForward:
    return FeedForward(
        ffn=config.read_ffn(), gated=True, bias=config.read_flag("mlp_bias"), activation=config.read_activation(activation)
    )


UNROTATED = LayerImplementation(rotated=False)


def read_gpt2(config: ModelConfig, name: str) -> Architecture:
    """GPT-2: learned positions, tied."""
    style = _build_learned_style(config, positions=config.read_positions(1024), tied=True)
    style = replace(style, written=LayerImplementation(rotated=False, wide_softmax=False, drops=True))
    return build_decoder(
        config, name, read_plain_attention(config, fused=True), _read_plain_feed_forward(config, "gelu_new"), style
    )


def read_gpt_bigcode(config: ModelConfig, name: str) -> Architecture:
    """StarCoder 1: GPT-2 in which all query heads share one key head."""
    attention = read_plain_attention(config, kv_heads=1 if config.read_flag("multi_query", default=True) else None, fused=True)
    style = _build_learned_style(config, positions=config.read_positions(1024), tied=True)
    return build_decoder(config, name, attention, _read_plain_feed_forward(config, "gelu_pytorch_tanh"), style)


def read_gpt_neo(config: ModelConfig, name: str) -> Architecture:
    """GPT-Neo: no bias on query, key and value; every other layer has a window."""
    local = config.read_size("window_size", default=256)
    kinds = _read_layer_kinds(config)
    style = _build_learned_style(
        config,
        positions=config.read_positions(2048),
        tied=True,
        windows=tuple(local if kind == "local" else None for kind in kinds),
    )
    style = replace(style, written=LayerImplementation(rotated=False, wide_scores=True))
    return build_decoder(
        config, name, read_plain_attention(config, qkv_bias=False), _read_plain_feed_forward(config, "gelu_new"), style
    )


def read_gptj(config: ModelConfig, name: str) -> Architecture:
    """GPT-J: one norm, read by both halves in parallel; the head has a bias."""
    attention = read_plain_attention(config, qkv_bias=False, out_bias=False)
    written = LayerImplementation(joined=True, side_by_side=True, wide_scores=True)
    style = DecoderStyle(norm="layernorm", norms=1, head_bias=True, written=written)
    return build_decoder(config, name, attention, _read_plain_feed_forward(config, "gelu_new"), style)


def read_gpt_neox(config: ModelConfig, name: str) -> Architecture:
    """GPT-NeoX and Pythia: two norms, rotary positions, not tied."""
    bias = config.read_flag("attention_bias", default=True)
    attention = replace(read_plain_attention(config, qkv_bias=bias, out_bias=bias, fused=True), packed=True)
    written = LayerImplementation(joined=True, side_by_side=config.read_flag("use_parallel_residual", default=True))
    return build_decoder(
        config, name, attention, _read_plain_feed_forward(config, "gelu"), DecoderStyle(norm="layernorm", written=written)
    )


def read_phi(config: ModelConfig, name: str) -> Architecture:
    """Phi 1, 1.5 and 2: one norm for both halves; biases everywhere, including the head."""
    normed = config.read_flag("qk_layernorm")
    attention = read_attention(config, bias=True, qk_norm="per-head" if normed else "none")
    shifts = 2 * attention.head_dim * config.layers if normed else 0
    written = LayerImplementation(joined=True, side_by_side=True)
    style = DecoderStyle(norm="layernorm", norms=1, head_bias=True, extras=(("qk_norm.shifts", shifts),), written=written)
    return build_decoder(config, name, attention, _read_plain_feed_forward(config, "gelu_new"), style)


def read_falcon(config: ModelConfig, name: str) -> Architecture:
    """Falcon: one key head (7B), or key groups and two norms per layer (40B, 180B: `new_decoder_architecture`).

    The first uploads have the types RefinedWebModel (7B) and RefinedWeb (40B) and the key `n_head_kv`.
    """
    grouped = config.read_flag("new_decoder_architecture", default=config.values.get("model_type") == "RefinedWeb")
    bias = config.read_flag("bias")
    shared = _read_falcon_kv_heads(config, grouped=grouped)
    attention = read_plain_attention(config, kv_heads=shared, qkv_bias=bias, out_bias=bias, fused=True)
    attention = replace(attention, packed=not config.read_flag("alibi"))
    side_by_side = config.read_flag("parallel_attn", default=True)
    norms = config.read_size("num_ln_in_parallel_attn", default=2 if grouped else 1) if side_by_side or grouped else 2
    written = LayerImplementation(
        side_by_side=side_by_side or grouped,
        broadcast=shared == 1 and not grouped,
        rotated=not config.read_flag("alibi"),
        wide_softmax=False,
    )
    style = DecoderStyle(norm="layernorm", norms=norms, tied=True, written=written)
    return build_decoder(config, name, attention, _read_plain_feed_forward(config, "gelu", bias=bias), style)


def read_mpt(config: ModelConfig, name: str) -> Architecture:
    """MPT: ALiBi or learned positions; no biases (not even in norms) unless `no_bias` is false; tied.

    transformers' class supports neither learned positions nor biases; the count with them is that of llm-foundry.
    """
    inner = config.get_part("attn_config")
    bias = not config.read_flag("no_bias", default=True)
    shared = inner.read_size(
        "kv_n_heads", default=1 if inner.read_word("attn_type", default="") == "multiquery_attention" else config.heads
    )
    _check_divides(config, shared, inner.name_field("kv_n_heads"))
    attention = read_plain_attention(config, kv_heads=shared, qkv_bias=bias, out_bias=bias, fused=True)
    ffn = config.read_size("expansion_ratio", default=4, most=1000) * config.hidden
    feed_forward = FeedForward(ffn=ffn, gated=False, bias=bias, activation="gelu")
    learned = config.read_flag("learned_pos_emb", default=True) and not inner.read_flag("alibi", default=True)
    positions = config.read_positions(2048) if learned else None
    style = DecoderStyle(
        norm="layernorm" if bias else "layernorm-no-bias",
        tied=True,
        positions=positions,
        extras=(("positions", (positions or 0) * config.hidden),),
        written=UNROTATED,
    )
    return build_decoder(config, name, attention, feed_forward, style)


def read_opt(config: ModelConfig, name: str) -> Architecture:
    """OPT: learned positions with two spare rows.

    The 350M model has a narrower embedding that is projected in and out, and no final norm.
    """
    hidden, width = config.hidden, config.read_size("word_embed_proj_dim", default=config.hidden)
    affine = config.read_flag("layer_norm_elementwise_affine", default=True)
    last = config.read_flag("do_layer_norm_before", default=True) and not config.read_flag("_remove_final_layer_norm")
    bias = config.read_flag("enable_bias", default=True)
    positions = config.read_positions(2048)
    style = DecoderStyle(
        norm="layernorm" if affine else "layernorm-no-parameters",
        tied=True,
        final_norm=last,
        positions=positions,
        vocab_width=width,
        extras=(("positions", (positions + 2) * hidden), ("projections", 2 * width * hidden if width != hidden else 0)),
        written=LayerImplementation(
            rotated=False, masked=False, norms_after=not config.read_flag("do_layer_norm_before", default=True)
        ),
    )
    attention = read_plain_attention(config, qkv_bias=bias, out_bias=bias)
    return build_decoder(config, name, attention, _read_plain_feed_forward(config, "relu", bias=bias), style)


def read_bloom(config: ModelConfig, name: str) -> Architecture:
    """BLOOM: ALiBi, a norm after the embedding, tied."""
    written = LayerImplementation(rotated=False, normed_embedding=True)
    style = DecoderStyle(norm="layernorm", tied=True, extras=(("embedding_norm", 2 * config.hidden),), written=written)
    feed_forward = FeedForward(ffn=4 * config.hidden, gated=False, bias=True, activation="gelu")
    return build_decoder(config, name, read_plain_attention(config, fused=True), feed_forward, style)


def _build_learned_style(
    config: ModelConfig, *, positions: int, tied: bool, windows: tuple[int | None, ...] = ()
) -> DecoderStyle:
    extras = (("positions", positions * config.hidden),)
    return DecoderStyle(norm="layernorm", tied=tied, positions=positions, extras=extras, windows=windows, written=UNROTATED)


def _read_plain_feed_forward(config: ModelConfig, activation: str, *, bias: bool = True) -> FeedForward:
    """Return a feed-forward without a gate, four times as wide as the model unless the config states a width."""
    return FeedForward(
        ffn=config.read_ffn(4 * config.hidden), gated=False, bias=bias, activation=config.read_activation(activation)
    )


def _read_falcon_kv_heads(config: ModelConfig, *, grouped: bool) -> int:
    if not grouped:
        return 1 if config.read_flag("multi_query", default=True) else config.heads
    shared = config.read_size("num_kv_heads", "n_head_kv", default=config.heads)
    _check_divides(config, shared, config.name_field("num_kv_heads"))
    return shared


def _check_divides(config: ModelConfig, shared: int, field: str) -> None:
    heads = config.heads
    require(heads % shared == 0, field, f"{shared} does not divide the {heads} query heads", f"write a divisor of {heads}")


def _read_layer_kinds(config: ModelConfig) -> list[str]:
    """Return the kind of each layer from `attention_types`: [[["global", "local"], 12]] is 24 layers.

    If the key is absent, every other layer is local.
    """
    layers = config.layers
    kinds: list[str] = []
    for run in config.read_items("attention_types") or [[["global", "local"], -(-layers // 2)]]:
        match run:
            case [list() as names, int() as times] if 0 < times <= layers and all(isinstance(n, str) for n in names):
                kinds += names * min(times, -(-layers // max(1, len(names))))
            case _:
                raise InputError(
                    f"{describe_value(run)} is not a run of layers",
                    field=config.name_field("attention_types"),
                    hint='write [[["global", "local"], 12]]',
                )
    require(
        len(kinds) >= layers,
        config.name_field("attention_types"),
        f"names {len(kinds)} layers of {layers}",
        "write one name for each layer",
    )
    return kinds[:layers]
