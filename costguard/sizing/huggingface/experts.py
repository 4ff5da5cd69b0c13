"""Readers of mixture-of-experts decoders: which layers have experts, how many process a token, which are shared.

The router's balancing bias (DeepSeek-V3) is state, not a parameter; it is not counted, as in transformers. Modules that predict
further tokens (`num_nextn_predict_layers`) are not counted either, as in the published counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from costguard.sizing.architecture import Architecture, Attention, FeedForward, LatentAttention
from costguard.sizing.huggingface.config import ModelConfig
from costguard.sizing.huggingface.decoders import read_qwen_windows
from costguard.sizing.huggingface.layers import DecoderStyle, build_decoder, read_attention, read_windows
from costguard.sizing.layer_implementation import LayerImplementation
from costguard.values.checks import require, require_whole_number


def read_mixtral(config: ModelConfig, name: str) -> Architecture:
    """Mixtral: experts in every layer."""
    experts = read_experts(config, ffn=config.read_ffn(), experts=("num_local_experts", 8), each=2)
    return build_decoder(
        config, name, read_attention(config, kv_heads=8, window=config.read_optional("sliding_window")), experts, DecoderStyle()
    )


def read_phimoe(config: ModelConfig, name: str) -> Architecture:
    """Phi-3.5-MoE: layer norms; biases on attention and head if the config states them."""
    bias = config.read_flag("attention_bias")
    attention = read_attention(config, kv_heads=8, bias=bias, window=config.read_optional("sliding_window"))
    experts = read_experts(config, ffn=config.read_ffn(), experts=("num_local_experts", 16), each=2)
    return build_decoder(
        config, name, attention, experts, DecoderStyle(norm="layernorm", head_bias=config.read_flag("lm_head_bias"))
    )


def read_qwen2_moe(config: ModelConfig, name: str) -> Architecture:
    """Qwen 1.5 and 2 MoE: one large shared expert with its own gate."""
    attention = read_attention(config, qkv_bias=config.read_flag("qkv_bias", default=True))
    experts = read_experts(
        config,
        ffn=config.read_size("moe_intermediate_size", default=1408),
        experts=("num_experts", 60),
        each=4,
        shared=config.read_size("shared_expert_intermediate_size", default=5632),
        shared_gate=True,
    )
    return build_decoder(
        config, name, attention, read_qwen_layers(config, experts), DecoderStyle(windows=read_qwen_windows(config))
    )


def read_qwen3_moe(config: ModelConfig, name: str) -> Architecture:
    """Qwen 3 MoE: experts in every layer, no shared expert, a norm on each query and key head."""
    bias = config.read_flag("attention_bias")
    attention = read_attention(config, kv_heads=4, qk_norm="per-head", bias=bias)
    ffn = config.read_size("moe_intermediate_size", default=768)
    experts = read_experts(config, ffn=ffn, experts=("num_experts", 128), each=8)
    return build_decoder(
        config, name, attention, read_qwen_layers(config, experts), DecoderStyle(windows=read_qwen_windows(config))
    )


def read_olmoe(config: ModelConfig, name: str) -> Architecture:
    """OLMoE: OLMo 2's attention, experts in every layer."""
    bias = config.read_flag("attention_bias")
    attention = read_attention(config, qk_norm="full", bias=bias)
    return build_decoder(
        config,
        name,
        attention,
        read_experts(config, ffn=config.read_ffn(), experts=("num_experts", 64), each=8),
        DecoderStyle(),
    )


def read_gpt_oss(config: ModelConfig, name: str) -> Architecture:
    """gpt-oss: biases everywhere, an attention sink per head; every other layer has a sliding window."""
    bias = config.read_flag("attention_bias", default=True)
    attention = read_attention(config, kv_heads=8, head_dim=64, bias=bias, sinks=True)
    windows = read_windows(config, config.read_size("sliding_window", default=128), every=2)
    experts = read_experts(config, ffn=config.read_ffn(), experts=("num_local_experts", 128), each=4, bias=True)
    return build_decoder(config, name, attention, experts, DecoderStyle(windows=windows))


def read_llama4(config: ModelConfig, name: str) -> Architecture:
    """Llama 4: every `interleave_moe_layer_step`-th layer has experts plus one shared expert.

    Three of four layers attend within a chunk only.
    """
    bias = config.read_flag("attention_bias")
    attention = read_attention(config, kv_heads=8, head_dim=128, bias=bias)
    ffn = config.read_ffn()
    sparse = read_experts(config, ffn=ffn, experts=("num_local_experts", 16), each=1, shared=ffn)
    dense = FeedForward(ffn=config.read_size("intermediate_size_mlp", default=16_384), activation=config.read_activation())
    step = config.read_size("interleave_moe_layer_step", default=1)
    moe_layers = _read_layer_indices(config, "moe_layers")
    chunk = config.read_size("attention_chunk_size", default=8192, least=0) or None
    windows = read_windows(config, chunk, every=config.read_size("no_rope_layer_interval", default=4))
    return build_decoder(
        config,
        name,
        attention,
        lambda i: sparse if (i in moe_layers if moe_layers is not None else (i + 1) % step == 0) else dense,
        DecoderStyle(windows=windows),
    )


def read_deepseek(config: ModelConfig, name: str) -> Architecture:
    """DeepSeek V2 and V3, R1, Kimi K2: latent attention; dense layers first, then layers with routed and shared experts."""
    return build_decoder(config, name, read_latent_attention(config), read_dense_first_layers(config), DecoderStyle())


def read_minimax_m2(config: ModelConfig, name: str) -> Architecture:
    """MiniMax-M2: a norm over all query heads and one over all key heads, experts in every layer."""
    attention = read_attention(config, kv_heads=8, head_dim=128, qk_norm="full")
    experts = read_experts(config, ffn=config.read_ffn(), experts=("num_local_experts", 256), each=8)
    return build_decoder(config, name, attention, experts, DecoderStyle(written=LayerImplementation(joined=True)))


def read_granitemoe(config: ModelConfig, name: str) -> Architecture:
    """Granite 3 MoE: small experts in every layer."""
    attention = read_attention(config, bias=config.read_flag("attention_bias"))
    experts = read_experts(config, ffn=config.read_ffn(), experts=("num_local_experts", 8), each=2)
    return build_decoder(config, name, attention, experts, DecoderStyle())


def read_glm4_moe(config: ModelConfig, name: str) -> Architecture:
    """GLM 4.5: the expert layers of DeepSeek with grouped-query attention."""
    qk_norm = "per-head" if config.read_flag("use_qk_norm") else "none"
    attention = read_attention(config, kv_heads=8, qkv_bias=config.read_flag("attention_bias"), qk_norm=qk_norm)
    return build_decoder(
        config, name, attention, read_dense_first_layers(config), DecoderStyle(written=LayerImplementation(joined=True))
    )


SHARED_EXPERTS = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")


def read_deepseek_sparse(config: ModelConfig, name: str) -> Architecture:
    """DeepSeek V3.2 and GLM-5: DeepSeek-V3 with an indexer that chooses the keys of each query; its own keys are cached too."""
    layers, hidden, rank = config.layers, config.hidden, config.read_size("q_lora_rank")
    heads, width = config.read_size("index_n_heads"), config.read_size("index_head_dim")
    every, first = (
        config.read_size("index_topk_freq", default=1),
        config.read_size("index_skip_topk_offset", default=2, least=0),
    )
    usual = ["full" if max(i - first + 1, 0) % every == 0 else "shared" for i in range(layers)]
    full = (config.read_items("indexer_types") or usual).count("full")
    attention = read_latent_attention(config)
    attention = replace(attention, cached=attention.cached_width + width * full // layers)
    indexer = full * (rank * heads * width + hidden * (width + heads) + 2 * width)
    style = DecoderStyle(extras=(("indexer", indexer),))
    return build_decoder(config, name, attention, read_dense_first_layers(config), style)


COMPRESSIONS = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
"""DeepSeek V4's kinds of layers, and how many tokens share one entry of the KV cache; 0: only the window's are kept."""


def read_deepseek_v4(config: ModelConfig, name: str) -> Architecture:
    """DeepSeek V4: one key head, caches of compressed tokens, a low-rank output in groups, four residual streams.

    Example: a layer of V4-Flash that compresses 4 tokens to 1 caches (512 + 128) / 4 = 160 numbers a token.
    """
    layers, hidden, head, rank = config.layers, config.hidden, config.read_size("head_dim"), config.read_size("q_lora_rank")
    groups, streams = config.read_size("o_groups"), config.read_size("hc_mult")
    index, index_heads = config.read_size("index_head_dim"), config.read_size("index_n_heads")
    rates = _read_compressions(config)
    attention = Attention(
        heads=config.heads,
        kv_heads=1,
        head_dim=head,
        key_value="shared",
        sinks=True,
        query_rank=rank,
        output_rank=groups * config.read_size("o_lora_rank"),
        output_groups=groups,
    )

    def attend(i: int) -> Attention:
        index_width = index if rates[i] == COMPRESSIONS["compressed_sparse_attention"] else 0
        window = config.read_size("sliding_window") if not rates[i] else None
        return replace(attention, cached=(head + index_width) // rates[i] if rates[i] else head, window=window)

    def compress(rate: int, width: int, share: int) -> int:
        return 2 * hidden * share * width + rate * share * width + width

    sparse, heavy = COMPRESSIONS["compressed_sparse_attention"], COMPRESSIONS["heavily_compressed_attention"]
    indexer = compress(sparse, index, 2) + index_heads * (rank * index + hidden)
    mixing, joined = (2 + streams) * streams, streams * hidden
    extras = (
        (
            "compressors",
            rates.count(sparse) * (compress(sparse, head, 2) + indexer) + rates.count(heavy) * compress(heavy, head, 1),
        ),
        ("hyper_connections", 2 * layers * (mixing * (joined + 1) + 3) + streams * (joined + 1) + 1),
        ("key_norms", layers * head),
    )
    experts = read_dense_first_layers(
        ModelConfig(
            {**config.values, "intermediate_size": config.read_size("moe_intermediate_size"), "mlp_layer_types": None},
            config.where,
        )
    )
    notes = (f"its {streams} residual streams are counted as one: activations can take up to {streams} times as much",)
    return build_decoder(config, name, attend, experts, DecoderStyle(extras=extras, notes=notes))


def _read_compressions(config: ModelConfig) -> list[int]:
    """Return how many tokens each layer's cache joins: by `compress_ratios`, `layer_types`, or as in V4-Pro."""
    layers = config.layers
    listed = config.read_items("compress_ratios")
    sparse, heavy = "compressed_sparse_attention", "heavily_compressed_attention"
    usual = [heavy if i < 2 or i % 2 == 0 else sparse for i in range(layers)]  # noqa: PLR2004 - V4-Pro starts with two
    rates = listed or [COMPRESSIONS.get(str(kind), -1) for kind in config.read_items("layer_types") or usual]
    field = config.name_field("compress_ratios" if listed else "layer_types")
    require(
        len(rates) >= layers and set(rates) <= set(COMPRESSIONS.values()),
        field,
        "must name each layer's kind",
        "write 0, 4 or 128 for each layer",
    )
    return [require_whole_number(rate, field, least=0) for rate in rates[:layers]]


def read_longcat(config: ModelConfig, name: str) -> Architecture:
    """LongCat-Flash: a layer has two attentions, each with a dense feed-forward, and experts beside both.

    A third of the router's choices are experts that do nothing: of 12 chosen of 768, 8 of the 512 real ones compute.
    """
    layers, hidden = config.read_size("num_layers", "num_hidden_layers"), config.hidden
    real, idle = config.read_size("n_routed_experts"), config.read_size("zero_expert_num", default=0, least=0)
    dense = FeedForward(ffn=config.read_ffn(), activation=config.read_activation())
    sparse = replace(
        dense,
        ffn=config.read_size("expert_ffn_hidden_size"),
        experts=real,
        experts_per_token=max(1, round(config.read_size("moe_topk") * real / (real + idle))),
        shared_ffn=dense.ffn,
    )
    c = ModelConfig({**config.values, "num_hidden_layers": 2 * layers, "intermediate_size": dense.ffn}, config.where)
    style = DecoderStyle(extras=(("router.idle_experts", layers * idle * hidden),))
    return build_decoder(c, name, read_latent_attention(c), lambda i: dense if i % 2 else sparse, style)


def read_ernie_moe(config: ModelConfig, name: str) -> Architecture:
    """ERNIE 4.5: dense layers first, then small experts beside shared ones."""
    first, last = config.read_size("moe_layer_start_index"), config.read_size("moe_layer_end_index", default=config.layers - 1)
    every, ffn, bias = (
        config.read_size("moe_layer_interval"),
        config.read_size("moe_intermediate_size"),
        config.read_flag("use_bias"),
    )
    shared = ffn * config.read_size(*SHARED_EXPERTS, default=0, least=0)
    experts = read_experts(config, ffn=ffn, experts=("moe_num_experts", 64), each=6, shared=shared)
    dense = FeedForward(ffn=config.read_ffn(), bias=bias, activation=config.read_activation())
    attention = read_attention(config, bias=bias)
    return build_decoder(
        config,
        name,
        attention,
        lambda i: experts if first <= i <= last and (i + 1) % every == 0 else dense,
        DecoderStyle(tied=True),
    )


def read_bailing_moe(config: ModelConfig, name: str) -> Architecture:
    """Ling and Ring 2.0: GLM 4.5's expert layers, norms on each query and key head."""
    bias = config.read_flag("use_qkv_bias")
    attention = read_attention(
        config, qkv_bias=bias, qk_norm="per-head" if config.read_flag("use_qk_norm", default=True) else "none"
    )
    return build_decoder(config, name, attention, read_dense_first_layers(config), DecoderStyle())


def read_experts(
    config: ModelConfig,
    *,
    ffn: int,
    experts: tuple[str, int | None],
    each: int,
    shared: int = 0,
    shared_gate: bool = False,
    bias: bool = False,
) -> FeedForward:
    """Return experts of width `ffn`.

    `experts`: config key of their number and its default. `each`: default number of experts that process one token.
    """
    key, default = experts
    return FeedForward(
        ffn=ffn,
        bias=bias,
        activation=config.read_activation(),
        experts=config.read_size(key, "num_experts", "num_local_experts", "moe_num_experts", default=default),
        experts_per_token=config.read_size(
            "num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk", "moe_k", default=each
        ),
        shared_ffn=shared,
        shared_gate=shared_gate,
        router_bias=bias,
    )


def read_qwen_layers(config: ModelConfig, experts: FeedForward) -> Callable[[int], FeedForward]:
    """Return a function from layer index to its feed-forward.

    Every `decoder_sparse_step`-th layer has experts, except those listed in `mlp_only_layers`.
    """
    dense = FeedForward(ffn=config.read_ffn(), activation=config.read_activation())
    step = config.read_size("decoder_sparse_step", default=1)
    excluded = _read_layer_indices(config, "mlp_only_layers") or frozenset()
    return lambda i: dense if i in excluded or (i + 1) % step else experts


def read_dense_first_layers(config: ModelConfig) -> Callable[[int], FeedForward]:
    """Return a function from layer index to its feed-forward.

    The first `first_k_dense_replace` layers are dense, or those that `mlp_layer_types` calls so; the others have experts of
    width `moe_intermediate_size`.
    """
    dense = FeedForward(ffn=config.read_ffn(), activation=config.read_activation())
    ffn = config.read_size("moe_intermediate_size")
    experts = read_experts(
        config,
        ffn=ffn,
        experts=("n_routed_experts", None),
        each=8,
        shared=ffn * config.read_size(*SHARED_EXPERTS, default=0, least=0),
    )
    kinds = config.read_items("mlp_layer_types")
    if kinds is not None:
        require(
            len(kinds) == config.layers, config.name_field("mlp_layer_types"), f"names {len(kinds)} layers of {config.layers}"
        )
        return lambda i: dense if kinds[i] == "dense" else experts
    first, every = config.read_size("first_k_dense_replace", default=0, least=0), config.read_size("moe_layer_freq", default=1)
    return lambda i: dense if i < first or i % every else experts


def read_latent_attention(config: ModelConfig) -> Attention:
    """Return latent attention with the ranks that every release states.

    `q_lora_rank: null` (V2-Lite) means that queries have no latent.
    """
    latent = LatentAttention(
        q_rank=config.read_optional("q_lora_rank") or 0,
        kv_rank=config.read_size("kv_lora_rank"),
        rope_dim=config.read_size("qk_rope_head_dim"),
        nope_dim=config.read_size("qk_nope_head_dim"),
        value_dim=config.read_size("v_head_dim"),
    )
    bias = config.read_flag("attention_bias")
    heads = config.heads
    return Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=latent.nope_dim + latent.rope_dim,
        qkv_bias=bias,
        out_bias=bias,
        latent=latent,
    )


def _read_layer_indices(config: ModelConfig, key: str) -> frozenset[int] | None:
    listed = config.read_items(key)
    return None if listed is None else frozenset(require_whole_number(i, config.name_field(key), least=0) for i in listed)
