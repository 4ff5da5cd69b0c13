"""Readers of decoders whose layers differ in their attention: linear and full in turn, or keys that later layers share.

Qwen3-Next and Qwen 3.5: three of four layers are a gated delta net, a `LinearState` of value heads x key width x value width,
and the fourth is attention with a gate on its result. Nemotron-H and Nemotron 3: Mamba 2 layers with some attention, each
followed by a feed-forward or not. Gemma 4: five of six layers have a window; global layers have wider heads, may use keys as
values, and the last layers of the small models read the keys of earlier ones. Gemma 3n has the same embeddings of layers.

Example: a linear layer of Qwen3-Next-80B-A3B has 16 key and 32 value heads of 128. It projects 2048 to 2 x 2048 + 2 x 4096 + 2
x 32, and its state is 32 x 128 x 128 numbers of a sequence, 2 MiB in fp32, where 12,288 tokens of full attention would cache as
much.

Class defaults are those of transformers 5.24 (2026).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from costguard.sizing.architecture import Architecture, Attention, FeedForward, LinearState
from costguard.sizing.huggingface.config import MOST_LAYERS, ModelConfig
from costguard.sizing.huggingface.experts import read_dense_first_layers, read_experts, read_latent_attention, read_qwen_layers
from costguard.sizing.huggingface.layers import DecoderStyle, build_decoder, drop_empty_extras, read_attention, read_windows
from costguard.sizing.huggingface.vision import add_tower, build_tower, count_patch_weights, read_text_config
from costguard.sizing.layer_implementation import LayerImplementation
from costguard.values.checks import require, require_number

WIDE_NORMS = LayerImplementation(norms="wide")

LINEAR_DEFAULTS: Mapping[str, object] = {
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "shared_expert_intermediate_size": 512,
}
GEMMA4_TEXT: Mapping[str, object] = {
    "vocab_size": 262_144,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 30,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "sliding_window": 512,
    "vocab_size_per_layer_input": 262_144,
    "hidden_size_per_layer_input": 256,
}
GEMMA3N_TEXT: Mapping[str, object] = {
    "vocab_size": 262_400,
    "hidden_size": 2048,
    "intermediate_size": 16_384,
    "num_hidden_layers": 35,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "sliding_window": 512,
    "vocab_size_per_layer_input": 262_144,
    "hidden_size_per_layer_input": 256,
    "altup_num_inputs": 4,
    "num_kv_shared_layers": 15,
    "laurel_rank": 64,
}
"""Those of E4B."""
GEMMA4_VISION: Mapping[str, object] = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 16,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
    "head_dim": 64,
    "patch_size": 16,
    "position_embedding_size": 10_240,
}
GEMMA4_AUDIO: Mapping[str, object] = {
    "hidden_size": 1024,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "conv_kernel_size": 5,
    "output_proj_dims": 1536,
}
GEMMA4_PATCHES = 2520
"""Patches of an image at Gemma 4's usual budget of 280 tokens, each pooled from 3 x 3 patches (model card, 2026)."""
AUDIO_CHANNELS = (128, 32)
"""Channels of Gemma 4's two sound convolutions, the first over 128 bands."""
NEMOTRON_DEFAULTS: Mapping[str, object] = {
    "mamba_num_heads": 128,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
    "moe_intermediate_size": 7688,
    "moe_shared_expert_intermediate_size": 7688,
}
NEMOTRON_LAYERS = {
    "M": "mamba",
    "*": "attention",
    "-": "mlp",
    "E": "moe",
    "linear_attention": "mamba",
    "full_attention": "attention",
    "mamba": "mamba",
    "attention": "attention",
    "mlp": "mlp",
    "moe": "moe",
}
"""How `hybrid_override_pattern` and `layers_block_type` name the four kinds of layers."""


def read_qwen3_next(config: ModelConfig, name: str) -> Architecture:
    """Qwen3-Next (experts) and the text models of Qwen 3.5 (experts or dense)."""
    c = config.fill_defaults(LINEAR_DEFAULTS)
    dense = c.read_word("model_type", default="") == "qwen3_5_text"
    full = read_attention(c, kv_heads=4 if dense else 2, head_dim=256, qk_norm="per-head", bias=c.read_flag("attention_bias"))
    full, linear = replace(full, output_gate=True), _read_delta_net(c)
    every = c.read_size("full_attention_interval", default=4)
    kinds = c.read_items("layer_types") or ["full_attention" if (i + 1) % every == 0 else "" for i in range(c.layers)]
    require(len(kinds) == c.layers, c.name_field("layer_types"), f"names {len(kinds)} layers of {c.layers}", "name each layer")
    feed = FeedForward(ffn=c.read_ffn(), activation=c.read_activation()) if dense else _read_shared_experts(c)
    return build_decoder(
        c, name, lambda i: full if kinds[i] == "full_attention" else linear, feed, DecoderStyle(written=WIDE_NORMS)
    )


def _read_delta_net(c: ModelConfig) -> Attention:
    """Return the gated delta net: one projection to queries, keys, values and gates, a convolution, a state a value head."""
    keys, values = c.read_size("linear_num_key_heads"), c.read_size("linear_num_value_heads")
    key_dim, value_dim = c.read_size("linear_key_head_dim"), c.read_size("linear_value_head_dim")
    kernel, mixed = c.read_size("linear_conv_kernel_dim"), 2 * keys * key_dim + values * value_dim
    return Attention(
        heads=values,
        kv_heads=values,
        head_dim=value_dim,
        state=LinearState(
            in_width=mixed + values * value_dim + 2 * values,
            small=kernel * mixed + 2 * values + value_dim,
            size=values * key_dim * value_dim + kernel * mixed,
        ),
    )


def _read_shared_experts(c: ModelConfig) -> Callable[[int], FeedForward]:
    experts = read_experts(
        c,
        ffn=c.read_size("moe_intermediate_size", default=512),
        experts=("num_experts", 512),
        each=10,
        shared=c.read_size("shared_expert_intermediate_size"),
        shared_gate=True,
    )
    return read_qwen_layers(c.fill_defaults({"intermediate_size": 5632}), experts)


def read_gemma3n(config: ModelConfig, name: str) -> Architecture:
    """The text model of Gemma 3n: embeddings for each layer, a low-rank path beside it (LAuReL), four streams (AltUp)."""
    c = config.fill_defaults(GEMMA3N_TEXT)
    widths = c.read_items("intermediate_size") if isinstance(c.values["intermediate_size"], list) else None
    if widths and all(width == widths[0] for width in widths):  # configs of transformers before 5 list one width for each layer
        c = ModelConfig({**c.values, "intermediate_size": widths[0]}, c.where)
    layers, hidden, rank = c.layers, c.hidden, c.read_size("laurel_rank")
    streams = c.read_size("altup_num_inputs", most=64)
    shared = c.read_size("num_kv_shared_layers", least=0, most=layers)
    entries = _list_layer_entries(c, layers, hidden, c.read_size("hidden_size_per_layer_input", least=0))
    mixing = 2 * hidden + hidden * streams + streams**2 + streams**3
    extras = (
        *entries,
        ("laurel", layers * (2 * hidden * rank + hidden)),
        ("altup", layers * mixing + 2 * (streams - 1) * hidden**2),
    )
    notes = [f"its {streams} residual streams are counted as one: activations can take up to {streams} times as much"]
    notes += [f"a cache is counted for the {shared} layers too that read the keys of earlier ones"] if shared else []
    style = DecoderStyle(
        norms=4,
        tied=True,
        windows=read_windows(c, c.read_size("sliding_window"), every=5),
        extras=extras,
        notes=tuple(notes),
        written=LayerImplementation(norms="wide", capped_logits=c.has_cap("final_logit_softcapping")),
    )
    feed = FeedForward(ffn=c.read_ffn(), activation=c.read_activation("gelu_pytorch_tanh"))
    return build_decoder(c, name, read_attention(c, qk_norm="per-head", bias=c.read_flag("attention_bias")), feed, style)


def read_gemma4(config: ModelConfig, name: str) -> Architecture:
    """The text model of Gemma 4: five of six layers have a window; small models have an embedding for each layer."""
    c = config.fill_defaults(GEMMA4_TEXT)
    layers, hidden = c.layers, c.hidden
    windows = read_windows(c, c.read_size("sliding_window"), every=6)
    windows[-1] = None
    shared_from = layers - c.read_size("num_kv_shared_layers", default=0, least=0, most=layers)
    bias, alike = c.read_flag("attention_bias"), c.read_flag("attention_k_eq_v")
    local = read_attention(c, head_dim=256, qk_norm="per-head", bias=bias, window=c.read_size("sliding_window"))
    wide = c.read_size("global_head_dim", default=512)
    kv_heads = c.read_size("num_global_key_value_heads", default=local.kv_heads) if alike else local.kv_heads
    global_attention = replace(local, head_dim=wide, kv_heads=kv_heads, key_value="shared" if alike else "own", window=None)

    def attend(i: int) -> Attention:
        attention = local if windows[i] else global_attention
        return replace(attention, key_value="earlier") if i >= shared_from else attention

    plain = FeedForward(ffn=c.read_ffn(), activation=c.read_activation("gelu_pytorch_tanh"))
    doubled = replace(plain, ffn=2 * plain.ffn) if c.read_flag("use_double_wide_mlp") else plain
    moe = c.read_flag("enable_moe_block")
    experts = _read_gemma_experts(c, plain) if moe else plain
    entries = c.read_size("hidden_size_per_layer_input", least=0)
    extras = _list_layer_entries(c, layers, hidden, entries)
    style = DecoderStyle(
        norms=7 if moe else 4,
        tied=True,
        windows=windows,
        extras=(*extras, ("router_scales", layers * (hidden + experts.experts) if moe else 0)),
        written=LayerImplementation(norms="wide", capped_logits=bool(c.values.get("final_logit_softcapping"))),
    )
    return build_decoder(c, name, attend, lambda i: doubled if i >= shared_from else experts, style)


def read_gemma4_unified(config: ModelConfig, name: str) -> Architecture:
    """The text model of Gemma 4 12B, which has no embedding for each layer."""
    return read_gemma4(config.fill_defaults({"hidden_size_per_layer_input": 0, "sliding_window": 1024}), name)


def _read_gemma_experts(c: ModelConfig, dense: FeedForward) -> FeedForward:
    """Return the experts beside the dense feed-forward, which every token passes."""
    return replace(
        dense,
        ffn=c.read_size("moe_intermediate_size"),
        experts=c.read_size("num_experts"),
        experts_per_token=c.read_size("top_k_experts"),
        shared_ffn=dense.ffn,
    )


def _list_layer_entries(c: ModelConfig, layers: int, hidden: int, width: int) -> tuple[tuple[str, int], ...]:
    """Return the embedding of each layer (E2B, E4B): a second table, its projections, and three tensors a layer."""
    if not width:
        return ()
    return (
        ("layer_embeddings", c.read_size("vocab_size_per_layer_input") * layers * width),
        ("layer_projections", hidden * layers * width + width),
        ("layer_entries", layers * (2 * hidden * width + hidden)),
    )


def read_gemma4_multimodal(config: ModelConfig, name: str) -> Architecture:
    """Gemma 4: the text model, an image tower, and (E2B, E4B) a sound tower, which is counted and adds no time."""
    text = read_text_config(config, GEMMA4_TEXT)
    model, vision = read_gemma4(text, name), config.get_part("vision_config", GEMMA4_VISION)
    sound = _count_sound_parameters(config.get_part("audio_config", GEMMA4_AUDIO), text.hidden)
    sound_extra = ("sound", sound if config.values.get("audio_config") is not None else 0)
    if config.values.get("vision_config") is None:
        return replace(model, extras=drop_empty_extras((*model.extras, sound_extra)))
    wide = vision.hidden
    tower = build_tower(vision, tokens=GEMMA4_PATCHES, norm="rmsnorm", gated=True, bias=False, activation="gelu_pytorch_tanh")
    head = vision.read_size("head_dim", default=64)
    attention = read_attention(vision, head_dim=head, qk_norm="per-head")
    return add_tower(
        model,
        replace(tower, attention=attention, norms=4),
        ("vision.patches", count_patch_weights(vision)),
        ("vision.positions", 2 * vision.read_size("position_embedding_size") * wide),
        ("projector", wide * text.hidden),
        sound_extra,
    )


def _count_sound_parameters(audio: ModelConfig, hidden: int) -> int:
    """Return the parameters of Gemma 4's conformer of `audio` and of its projection to `hidden`."""
    wide, out = audio.hidden, audio.read_size("output_proj_dims")
    first, second = AUDIO_CHANNELS
    stem = 9 * first + first + 9 * first * second + second + first // 4 * second * wide
    feeds = 2 * (8 * wide * wide + 2 * wide)
    attention = 5 * wide * wide + wide // audio.heads
    convolution = 3 * wide * wide + audio.read_size("conv_kernel_size") * wide + 2 * wide
    return stem + audio.layers * (feeds + attention + convolution + 3 * wide) + wide * out + out + out * hidden


def read_nemotron_h(config: ModelConfig, name: str) -> Architecture:
    """Nemotron-H and Nemotron 3: Mamba 2 and attention layers, some followed by a feed-forward, which counts as their half."""
    c = config.fill_defaults(NEMOTRON_DEFAULTS)
    pairs = _pair_layers(_read_layer_kinds(c), c.name_field("hybrid_override_pattern"))
    attention = read_attention(c, kv_heads=8, head_dim=128)
    mamba = _read_mamba(c)
    mlp = FeedForward(
        ffn=c.read_ffn(21_504),
        gated=False,
        bias=c.read_flag("mlp_bias"),
        activation=c.read_word("mlp_hidden_act", default="relu2"),
    )
    feeds = {"mlp": mlp, "": replace(mlp, ffn=0)}
    if any(feed == "moe" for _, feed in pairs):
        feeds["moe"] = replace(
            mlp,
            ffn=c.read_size("moe_intermediate_size"),
            experts=c.read_size("n_routed_experts", default=8),
            experts_per_token=c.read_size("num_experts_per_tok", default=2),
            shared_ffn=c.read_size("moe_shared_expert_intermediate_size"),
            latent=c.read_optional("moe_latent_size") or 0,
        )
    style = DecoderStyle(windows=[None] * len(pairs))
    return build_decoder(c, name, lambda i: mamba if pairs[i][0] == "mamba" else attention, lambda i: feeds[pairs[i][1]], style)


def _read_mamba(c: ModelConfig) -> Attention:
    """Return a Mamba 2 layer: one projection to gate, values, two inputs of the state and a step a head."""
    heads, width, size = c.read_size("mamba_num_heads"), c.read_size("mamba_head_dim"), c.read_size("ssm_state_size")
    kernel, values = c.read_size("conv_kernel"), heads * width
    mixed = values + 2 * c.read_size("n_groups") * size
    bias = c.read_flag("use_conv_bias", default=True)
    return Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=width,
        state=LinearState(
            in_width=values + mixed + heads,
            small=(kernel + bias) * mixed + 3 * heads + values,
            size=values * size + kernel * mixed,
        ),
    )


def read_granite_hybrid(config: ModelConfig, name: str) -> Architecture:
    """Granite 4: Mamba 2 and attention layers, each with a shared feed-forward and, in the larger ones, small experts."""
    heads = config.read_size("mamba_n_heads")
    width = config.values.get("mamba_d_head")
    c = ModelConfig(
        {
            **config.values,
            "mamba_num_heads": heads,
            "mamba_head_dim": config.read_size("mamba_expand", default=2) * config.hidden // heads
            if width == "auto"
            else width,
            "ssm_state_size": config.read_size("mamba_d_state"),
            "n_groups": config.read_size("mamba_n_groups", default=1),
            "conv_kernel": config.read_size("mamba_d_conv"),
            "use_conv_bias": config.read_flag("mamba_conv_bias", default=True),
        },
        config.where,
    )
    kinds = _read_kinds(c, "layer_types", ("mamba", "linear_attention"), ("attention", "full_attention"))
    attention, mamba = read_attention(c, bias=c.read_flag("attention_bias")), _read_mamba(c)
    shared = FeedForward(ffn=c.read_size("shared_intermediate_size"), activation=c.read_activation())
    experts = c.read_size("num_local_experts", default=0, least=0)
    sparse = replace(
        shared,
        ffn=c.read_ffn(),
        experts=experts,
        experts_per_token=c.read_size("num_experts_per_tok", default=2) if experts else 0,
        shared_ffn=shared.ffn,
    )
    return build_decoder(
        c,
        name,
        lambda i: mamba if kinds[i] else attention,
        sparse if experts else shared,
        DecoderStyle(windows=[None] * c.layers),
    )


def read_lfm2(config: ModelConfig, name: str) -> Architecture:
    """LFM2: short convolutions with two gates in most layers, attention in the others; LFM2-MoE has experts from layer 3 on."""
    hidden, kernel, bias = config.hidden, config.read_size("conv_L_cache", default=3), config.read_flag("conv_bias")
    full = config.read_items("full_attn_idxs")
    if config.values.get("layer_types") is None and full is not None:
        kinds = [i not in full for i in range(config.layers)]
    else:
        kinds = _read_kinds(config, "layer_types", ("conv",), ("full_attention",))
    attention = read_attention(config, kv_heads=8, qk_norm="per-head")
    conv = replace(
        attention,
        kv_heads=attention.heads,
        head_dim=hidden // attention.heads,
        state=LinearState(in_width=3 * hidden, small=hidden * kernel + 5 * hidden * bias, size=hidden * kernel),
    )
    moe = config.values.get("num_experts") is not None
    dense = FeedForward(ffn=config.read_ffn() if moe else _read_lfm2_width(config))
    sparse = (
        read_experts(config, ffn=config.read_size("moe_intermediate_size"), experts=("num_experts", 32), each=4)
        if moe
        else dense
    )
    first = config.read_size("num_dense_layers", default=2, least=0) if moe else 0
    style = DecoderStyle(tied=config.read_flag("tie_embedding", default=True), windows=[None] * config.layers)
    return build_decoder(
        config, name, lambda i: conv if kinds[i] else attention, lambda i: dense if i < first else sparse, style
    )


def _read_lfm2_width(config: ModelConfig) -> int:
    """Return two thirds of the stated width, times a factor, in whole multiples, unless the config says it is final."""
    ffn = config.read_size("block_ff_dim", "intermediate_size")
    if not config.read_flag("block_auto_adjust_ff_dim", default=True):
        return ffn
    multiple, factor = config.read_size("block_multiple_of", default=256), config.values.get("block_ffn_dim_multiplier", 1.0)
    width = int(require_number(factor, config.name_field("block_ffn_dim_multiplier"), least=0.01, most=100) * (2 * ffn // 3))
    return multiple * -(-width // multiple)


def read_kimi_linear(config: ModelConfig, name: str) -> Architecture:
    """Kimi Linear: three layers of gated delta attention, then one of latent attention; DeepSeek's experts."""
    linear = config.get_part("linear_attn_config")
    heads = linear.read_size("num_heads", default=config.read_size("linear_num_heads", default=32))
    width = linear.read_size("head_dim", default=config.read_size("linear_head_dim", default=128))
    kernel = linear.read_size("short_conv_kernel_size", default=config.read_size("linear_conv_kernel_dim", default=4))
    values, full_layers = heads * width, linear.read_items("full_attn_layers")
    if full_layers is None and config.values.get("layer_types") is not None:
        kinds = _read_kinds(config, "layer_types", ("linear_attention",), ("full_attention",))
    else:
        kinds = [i + 1 not in full_layers if full_layers is not None else not i or i % 4 != 0 for i in range(config.layers)]
    delta = Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=width,
        state=LinearState(
            in_width=3 * values + 2 * width + heads,
            small=3 * values * kernel + 2 * width * values + values + heads + width,
            size=values * width + 3 * values * kernel,
        ),
    )
    full = read_latent_attention(config)
    style = DecoderStyle(windows=[None] * config.layers)
    return build_decoder(config, name, lambda i: delta if kinds[i] else full, read_dense_first_layers(config), style)


def _read_kinds(c: ModelConfig, key: str, linear: tuple[str, ...], full: tuple[str, ...]) -> list[bool]:
    """Return for each layer whether `key` names it as one without a growing cache."""
    names, field = c.read_items(key) or [], c.name_field(key)
    require(len(names) == c.layers, field, f"names {len(names)} layers of {c.layers}", "name each layer")
    strange = [name for name in names if name not in (*linear, *full)]
    require(not strange, field, f"names a layer '{strange[0] if strange else ''}'", f"write {linear[0]} or {full[0]}")
    return [name in linear for name in names]


def _read_layer_kinds(c: ModelConfig) -> list[str]:
    """Return the kind of each layer, from `hybrid_override_pattern` ("M-M*-") or a list of names."""
    listed = c.read_items("layers_block_type") or c.read_items("layer_types")
    kinds = [str(kind) for kind in listed] if listed else list(c.read_word("hybrid_override_pattern", default="ME*-"))
    field, strange = c.name_field("hybrid_override_pattern"), [kind for kind in kinds if kind not in NEMOTRON_LAYERS]
    require(not strange, field, f"names a layer '{strange[0] if strange else ''}'", "write M, *, - or E for each layer")
    require(len(kinds) <= MOST_LAYERS, field, f"names {len(kinds)} layers", f"write {MOST_LAYERS} or fewer")
    return [NEMOTRON_LAYERS[kind] for kind in kinds]


def _pair_layers(kinds: list[str], field: str) -> list[tuple[str, str]]:
    """Return (mixer, feed-forward after it or "") of each pair of layers."""
    pairs: list[tuple[str, str]] = []
    for kind in kinds:
        if kind in ("mamba", "attention"):
            pairs.append((kind, ""))
            continue
        require(
            bool(pairs) and not pairs[-1][1], field, "has a feed-forward that follows no Mamba or attention layer", "write M-*-"
        )
        pairs[-1] = (pairs[-1][0], kind)
    return pairs
