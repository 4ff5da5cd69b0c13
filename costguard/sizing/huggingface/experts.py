"""Readers of the decoders with experts: which layers have them, how many a token passes, what every token shares.

A router's balancing bias (DeepSeek-V3) is state, not a parameter, and is left out as transformers leaves it out; so are
the modules that predict further tokens (`num_nextn_predict_layers`), which the published counts leave out too.
"""

from __future__ import annotations

from collections.abc import Callable

from costguard.sizing.architecture import Architecture, Attention, FeedForward
from costguard.sizing.huggingface.config import Config
from costguard.sizing.huggingface.decoders import qwen_windows
from costguard.sizing.huggingface.layers import Style, attention_of, decoder, windows_of
from costguard.sizing.latent import Latent
from costguard.sizing.layer_implementation import Written
from costguard.values.checks import require_whole_number


def mixtral(config: Config, name: str) -> Architecture:
    """Mixtral: experts in every layer."""
    experts = _experts(config, ffn=config.ffn(), experts=("num_local_experts", 8), each=2)
    return decoder(config, name, attention_of(config, kv_heads=8, window=config.optional("sliding_window")), experts, Style())


def phimoe(config: Config, name: str) -> Architecture:
    """Phi-3.5-MoE: layer norms, a bias on the attention and the head where the config says."""
    bias = config.flag("attention_bias")
    attention = attention_of(config, kv_heads=8, bias=bias, window=config.optional("sliding_window"))
    experts = _experts(config, ffn=config.ffn(), experts=("num_local_experts", 16), each=2)
    return decoder(config, name, attention, experts, Style(norm="layernorm", head_bias=config.flag("lm_head_bias")))


def qwen2_moe(config: Config, name: str) -> Architecture:
    """Qwen 1.5 and 2 MoE: one large shared expert behind a gate of its own."""
    attention = attention_of(config, qkv_bias=config.flag("qkv_bias", default=True))
    experts = _experts(
        config,
        ffn=config.size("moe_intermediate_size", default=1408),
        experts=("num_experts", 60),
        each=4,
        shared=config.size("shared_expert_intermediate_size", default=5632),
        shared_gate=True,
    )
    return decoder(config, name, attention, _qwen_layers(config, experts), Style(windows=qwen_windows(config)))


def qwen3_moe(config: Config, name: str) -> Architecture:
    """Qwen 3 MoE: experts in every layer, none shared, a norm on each query and key head."""
    bias = config.flag("attention_bias")
    attention = attention_of(config, kv_heads=4, qk_norm="per-head", bias=bias)
    ffn = config.size("moe_intermediate_size", default=768)
    experts = _experts(config, ffn=ffn, experts=("num_experts", 128), each=8)
    return decoder(config, name, attention, _qwen_layers(config, experts), Style(windows=qwen_windows(config)))


def olmoe(config: Config, name: str) -> Architecture:
    """OLMoE: OLMo 2's attention, experts in every layer."""
    bias = config.flag("attention_bias")
    attention = attention_of(config, qk_norm="full", bias=bias)
    return decoder(config, name, attention, _experts(config, ffn=config.ffn(), experts=("num_experts", 64), each=8), Style())


def gpt_oss(config: Config, name: str) -> Architecture:
    """gpt-oss: biases everywhere, a sink for each head, every other layer slides."""
    bias = config.flag("attention_bias", default=True)
    attention = attention_of(config, kv_heads=8, head_dim=64, bias=bias, sinks=True)
    windows = windows_of(config, config.size("sliding_window", default=128), every=2)
    experts = _experts(config, ffn=config.ffn(), experts=("num_local_experts", 128), each=4, bias=True)
    return decoder(config, name, attention, experts, Style(windows=windows))


def llama4(config: Config, name: str) -> Architecture:
    """Llama 4: experts in each `interleave_moe_layer_step`-th layer beside one shared; three layers in four see a chunk."""
    bias = config.flag("attention_bias")
    attention = attention_of(config, kv_heads=8, head_dim=128, bias=bias)
    ffn = config.ffn()
    sparse = _experts(config, ffn=ffn, experts=("num_local_experts", 16), each=1, shared=ffn)
    dense = FeedForward(ffn=config.size("intermediate_size_mlp", default=16_384), activation=config.activation())
    step = config.size("interleave_moe_layer_step", default=1)
    stated = _layer_indices(config, "moe_layers")
    chunk = config.size("attention_chunk_size", default=8192, least=0) or None
    windows = windows_of(config, chunk, every=config.size("no_rope_layer_interval", default=4))
    return decoder(
        config,
        name,
        attention,
        lambda i: sparse if (i in stated if stated is not None else (i + 1) % step == 0) else dense,
        Style(windows=windows),
    )


def deepseek(config: Config, name: str) -> Architecture:
    """DeepSeek V2 and V3, R1, Kimi K2: latent attention, dense layers first, then experts beside shared ones."""
    return decoder(config, name, _latent_attention(config), _dense_first(config), Style())


def glm4_moe(config: Config, name: str) -> Architecture:
    """GLM 4.5: DeepSeek's layers of experts under grouped-query attention."""
    qk_norm = "per-head" if config.flag("use_qk_norm") else "none"
    attention = attention_of(config, kv_heads=8, qkv_bias=config.flag("attention_bias"), qk_norm=qk_norm)
    return decoder(config, name, attention, _dense_first(config), Style(written=Written(joined=True)))


def _experts(
    config: Config,
    *,
    ffn: int,
    experts: tuple[str, int | None],
    each: int,
    shared: int = 0,
    shared_gate: bool = False,
    bias: bool = False,
) -> FeedForward:
    """Experts of width `ffn`; `experts`: the key of their number, and its default; `each`: default of a token's share."""
    key, default = experts
    return FeedForward(
        ffn=ffn,
        bias=bias,
        activation=config.activation(),
        experts=config.size(key, "num_experts", "num_local_experts", default=default),
        experts_per_token=config.size("num_experts_per_tok", "experts_per_token", default=each),
        shared_ffn=shared,
        shared_gate=shared_gate,
        router_bias=bias,
    )


def _qwen_layers(config: Config, experts: FeedForward) -> Callable[[int], FeedForward]:
    """Experts in each `decoder_sparse_step`-th layer that `mlp_only_layers` does not name."""
    dense = FeedForward(ffn=config.ffn(), activation=config.activation())
    step = config.size("decoder_sparse_step", default=1)
    excluded = _layer_indices(config, "mlp_only_layers") or frozenset()
    return lambda i: dense if i in excluded or (i + 1) % step else experts


def _dense_first(config: Config) -> Callable[[int], FeedForward]:
    """`first_k_dense_replace` layers of the plain feed-forward, then `moe_intermediate_size` wide experts."""
    dense = FeedForward(ffn=config.ffn(), activation=config.activation())
    ffn = config.size("moe_intermediate_size")
    experts = _experts(
        config,
        ffn=ffn,
        experts=("n_routed_experts", None),
        each=8,
        shared=ffn * config.size("n_shared_experts", default=0, least=0),
    )
    first, every = config.size("first_k_dense_replace", default=0, least=0), config.size("moe_layer_freq", default=1)
    return lambda i: dense if i < first or i % every else experts


def _latent_attention(config: Config) -> Attention:
    """Ranks as every release states them; `q_lora_rank: null` (V2-Lite) means that queries pass no latent."""
    latent = Latent(
        q_rank=config.optional("q_lora_rank") or 0,
        kv_rank=config.size("kv_lora_rank"),
        rope_dim=config.size("qk_rope_head_dim"),
        nope_dim=config.size("qk_nope_head_dim"),
        value_dim=config.size("v_head_dim"),
    )
    bias = config.flag("attention_bias")
    heads = config.heads
    return Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=latent.nope_dim + latent.rope_dim,
        qkv_bias=bias,
        out_bias=bias,
        latent=latent,
    )


def _layer_indices(config: Config, key: str) -> frozenset[int] | None:
    listed = config.items(key)
    return None if listed is None else frozenset(require_whole_number(i, config.field(key), least=0) for i in listed)
