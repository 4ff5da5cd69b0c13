"""Readers of vision models: ViT, CLIP, DiT, and language models with a vision tower.

A tower always processes the same number of tokens, one per patch (plus one class token): `LayerBlock.tokens`. A ViT-B/16 at 224
pixels has 14 x 14 patches + 1 = 197.

DiT is a transformer over the patches of an image's latent, conditioned on time and class (Peebles and Xie, arXiv 2212.09748).

Example: DiT-XL/2 at 256 pixels has a latent of 32 x 32 x 4, so 16 x 16 = 256 tokens: 28 layers of 1152, 675,129,632 parameters.
A third of them (adaLN's modulation, 6 x 1152^2 per layer) run once per sample instead of once per token: they count as memory,
but hardly as FLOPs (118.6 G multiply-adds per image). A layer keeps 40.1 x 1152 bytes per token in bf16, the same as autograd's
saved tensors (40.1; 80.2 in fp32; torch 2.13, 2026-11).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from costguard.errors import InputError
from costguard.sizing.architecture import Architecture, Attention, FeedForward, LayerBlock
from costguard.sizing.huggingface.config import ModelConfig
from costguard.sizing.huggingface.decoders import read_gemma3, read_mistral
from costguard.sizing.huggingface.experts import read_llama4
from costguard.sizing.huggingface.layers import drop_empty_extras, read_plain_attention
from costguard.sizing.layer_implementation import LayerImplementation
from costguard.values.checks import describe_value, require, require_whole_number

MOST_PIXELS = 100_000

CLIP_TEXT: Mapping[str, object] = {
    "vocab_size": 49_408,
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "max_position_embeddings": 77,
}
CLIP_VISION: Mapping[str, object] = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 32,
}
SIGLIP: Mapping[str, object] = {**CLIP_VISION, "patch_size": 16}
PIXTRAL: Mapping[str, object] = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 1024,
    "patch_size": 16,
}
LLAMA4_VISION: Mapping[str, object] = {
    "hidden_size": 768,
    "intermediate_size": 5632,
    "num_hidden_layers": 34,
    "num_attention_heads": 16,
    "image_size": 448,
    "patch_size": 14,
}
GEMMA3_TEXT: Mapping[str, object] = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
}
LLAMA4_TEXT: Mapping[str, object] = {
    "vocab_size": 202_048,
    "hidden_size": 5120,
    "intermediate_size": 8192,
    "num_hidden_layers": 48,
    "num_attention_heads": 40,
}
MISTRAL_TEXT: Mapping[str, object] = {
    "vocab_size": 32_000,
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
}
"""What the nested tables of a config.json leave out, since they only state what differs from their class."""


def read_vit(config: ModelConfig, name: str) -> Architecture:
    """ViT: a class token, learned positions, biases, and a classifier or a pooler."""
    hidden, tokens = config.hidden, _count_patches(config) + 1
    block = _build_tower(config, tokens=tokens, qkv_bias=config.read_flag("qkv_bias", default=True))
    classifier = config.labels * (hidden + 1)
    top = ("classifier", classifier) if config.task == "ForImageClassification" else ("pooler", hidden * hidden + hidden)
    return Architecture(
        name=name,
        kind="vit",
        blocks=(block,),
        has_head=False,
        extras=(
            ("patches", _count_patch_weights(config) + hidden),
            ("class_token", hidden),
            ("positions", tokens * hidden),
            ("final_norm", 2 * hidden),
            top,
        ),
        sample_tokens=tokens,
        positions=tokens,
    )


def read_clip(config: ModelConfig, name: str) -> Architecture:
    """CLIP: an image tower and a causal text tower, both projected to one space; one sample is an image and its text."""
    text = _read_clip_part(config, "text_config", CLIP_TEXT)
    vision = _read_clip_part(config, "vision_config", CLIP_VISION)
    words, tokens = text.read_positions(), _count_patches(vision) + 1
    projection = config.read_size("projection_dim", default=512)
    blocks = (
        _build_tower(vision, tokens=tokens, activation="quick_gelu"),
        _build_tower(text, tokens=words, causal=True, activation="quick_gelu"),
    )
    return Architecture(
        name=name,
        kind="clip",
        blocks=blocks,
        vocab=text.vocab,
        has_head=False,
        extras=(
            ("text.positions", words * text.hidden),
            ("text.final_norm", 2 * text.hidden),
            ("vision.patches", _count_patch_weights(vision)),
            ("vision.class_token", vision.hidden),
            ("vision.positions", tokens * vision.hidden),
            ("vision.norms", 4 * vision.hidden),
            ("projections", projection * (text.hidden + vision.hidden)),
            ("logit_scale", 1),
        ),
        sample_tokens=words + tokens,
        positions=words,
        vocab_width=text.hidden,
    )


def read_gemma3_multimodal(config: ModelConfig, name: str) -> Architecture:
    """Gemma 3 from 4B up: the text model plus a SigLIP tower of 4,096 patches that are pooled to 256 tokens."""
    text, vision = _read_text_config(config, GEMMA3_TEXT), config.get_part("vision_config", SIGLIP)
    wide, ffn = vision.hidden, vision.read_ffn()
    tower = _build_tower(vision, tokens=_count_patches(vision), activation="gelu_pytorch_tanh")
    pooling = 4 * (wide * wide + wide) + 2 * wide * ffn + ffn + wide + 3 * wide
    return _add_tower(
        read_gemma3(text, name),
        tower,
        ("vision.patches", _count_patch_weights(vision) + wide),
        ("vision.positions", _count_patches(vision) * wide),
        ("vision.final_norm", 2 * wide),
        ("vision.pooling", pooling if vision.read_flag("vision_use_head", default=True) else 0),
        ("projector", wide * text.hidden + wide),
    )


def read_llama4_multimodal(config: ModelConfig, name: str) -> Architecture:
    """Llama 4: the text model plus a tower of 1,024 patches and a class token, reduced to a quarter by pixel shuffle."""
    text, vision = _read_text_config(config, LLAMA4_TEXT), config.get_part("vision_config", LLAMA4_VISION)
    wide, tokens = vision.hidden, _count_patches(vision) + 1
    out = vision.read_size("projector_output_dim", default=4096)
    return _add_tower(
        read_llama4(text, name),
        _build_tower(vision, tokens=tokens),
        ("vision.patches", _count_patch_weights(vision)),
        ("vision.class_token", wide),
        ("vision.positions", tokens * wide),
        ("vision.norms", 4 * wide),
        ("vision.adapter", vision.read_ffn() * vision.read_size("projector_input_dim", default=4096) + out * out),
        ("projector", vision.read_size("vision_output_dim", default=7680) * text.hidden),
    )


def read_mistral3(config: ModelConfig, name: str) -> Architecture:
    """Mistral Small 3.1 and later: Mistral plus a Pixtral tower.

    The number of patches grows with the image; the largest number is counted.
    """
    text, vision = _read_text_config(config, MISTRAL_TEXT), config.get_part("vision_config", PIXTRAL)
    wide, hidden = vision.hidden, text.hidden
    merged = config.read_size("spatial_merge_size", default=2, most=1000) ** 2
    tower = _build_tower(vision, tokens=_count_patches(vision), norm="rmsnorm", gated=True, bias=False)
    bias = 2 * hidden if config.read_flag("multimodal_projector_bias") else 0
    return _add_tower(
        read_mistral(text, name),
        tower,
        ("vision.patches", _count_patch_weights(vision)),
        ("vision.norm", wide),
        ("projector", wide + merged * wide * wide + wide * hidden + hidden * hidden + bias),
    )


def read_text_model(config: ModelConfig, name: str, reader: Callable[[ModelConfig, str], Architecture]) -> Architecture:
    """Return only the language model of a config whose other towers have no reader; a note states that they are excluded."""
    model = reader(_read_text_config(config, {}), name)
    return replace(model, notes=(*model.notes, "only the language model is counted: image and sound encoders are excluded"))


def _read_text_config(config: ModelConfig, defaults: Mapping[str, object]) -> ModelConfig:
    """Return the text model's table.

    The keys for tied embeddings, task and classes in the outer table also apply to it.
    """
    shared = ("tie_word_embeddings", "architectures", "id2label", "num_labels")
    outer = {k: config.values[k] for k in shared if config.values.get(k) is not None}
    return config.get_part("text_config", {**defaults, **outer})


def _add_tower(model: Architecture, tower: LayerBlock, *extras: tuple[str, int]) -> Architecture:
    return replace(
        model, blocks=(*model.blocks, tower), extras=(*model.extras, *drop_empty_extras(extras)), vocab_width=model.hidden
    )


def _build_tower(
    config: ModelConfig,
    *,
    tokens: int,
    causal: bool = False,
    norm: str = "layernorm",
    gated: bool = False,
    bias: bool = True,
    qkv_bias: bool = True,
    activation: str = "gelu",
) -> LayerBlock:
    return LayerBlock(
        layers=config.layers,
        hidden=config.hidden,
        attention=read_plain_attention(config, qkv_bias=bias and qkv_bias, out_bias=bias),
        feed_forward=FeedForward(ffn=config.read_ffn(), gated=gated, bias=bias, activation=config.read_activation(activation)),
        norm=norm,
        causal=causal,
        tokens=tokens,
        written=LayerImplementation(rotated=False),
    )


def _count_patches(config: ModelConfig) -> int:
    """Return the patches of a square image, or of an image of `[height, width]`."""
    (high, wide), (tall, broad) = (
        _read_sides(config, key, default) for key, default in (("image_size", 224), ("patch_size", 16))
    )
    require(
        high >= tall and wide >= broad,
        config.name_field("patch_size"),
        f"{tall} x {broad} is larger than the image ({high} x {wide})",
        "write the patch's side in pixels",
    )
    return (high // tall) * (wide // broad)


def _count_patch_weights(config: ModelConfig) -> int:
    """Return the number of weights that turn a patch's pixels into a token."""
    tall, broad = _read_sides(config, "patch_size", 16)
    return config.read_size("num_channels", default=3) * tall * broad * config.hidden


def _read_sides(config: ModelConfig, key: str, default: int) -> tuple[int, int]:
    stated_sides = config.values.get(key)
    match default if stated_sides is None else stated_sides:
        case [high, wide]:
            return require_whole_number(high, config.name_field(key), most=MOST_PIXELS), require_whole_number(
                wide, config.name_field(key), most=MOST_PIXELS
            )
        case list() as sides:
            raise InputError(
                f"must be one side or two, not {describe_value(sides)}", field=config.name_field(key), hint="write 224"
            )
        case side:
            return (require_whole_number(side, config.name_field(key), most=MOST_PIXELS),) * 2


def _read_clip_part(config: ModelConfig, key: str, defaults: Mapping[str, object]) -> ModelConfig:
    """Return the table `key`; CLIP's first releases repeat it under `..._dict`, which takes precedence."""
    return config.get_part(key + "_dict", config.get_part(key, defaults).values)


DIT_DEFAULTS: Mapping[str, object] = {
    "image_size": 256,
    "patch_size": 2,
    "in_channels": 4,
    "num_labels": 1000,
    "latent_shrinks": 8,
}
FREQUENCIES = 256
"""Width of the time step's sines."""
MODULATIONS = 6
"""Shift, scale and gate of each half of a layer."""
KEPT_TENSORS = 6
"""Tensors of a layer's width kept as norms keep their input: two norms' inputs, what is scaled twice, what is gated twice."""


def read_dit(config: ModelConfig, name: str) -> Architecture:
    """Read a DiT with learned variance, as published."""
    c = config.fill_defaults(DIT_DEFAULTS)
    hidden, layers, heads = c.read_size("hidden_size"), c.read_size("num_hidden_layers"), c.read_size("num_attention_heads")
    patch, latent, labels = c.read_size("patch_size"), c.read_size("in_channels"), c.read_size("num_labels")
    require(hidden % heads == 0, "num_attention_heads", f"{heads} do not divide {hidden}", f"write a divisor of {hidden}")
    tokens = (c.read_size("image_size") // c.read_size("latent_shrinks") // patch) ** 2
    block = LayerBlock(
        layers=layers,
        hidden=hidden,
        attention=Attention(heads=heads, kv_heads=heads, head_dim=hidden // heads, qkv_bias=True, out_bias=True),
        feed_forward=FeedForward(ffn=4 * hidden, gated=False, bias=True, activation="gelu"),
        norm="layernorm-no-parameters",
        norms=KEPT_TENSORS,
        causal=False,
        tokens=tokens,
    )
    values = patch * patch * latent
    return Architecture(
        name=name,
        kind="dit",
        blocks=(block,),
        has_head=False,
        extras=(
            ("modulation", layers * MODULATIONS * (hidden * hidden + hidden)),
            ("patches", values * hidden + hidden),
            ("positions", tokens * hidden),
            ("time", (FREQUENCIES + 1) * hidden + (hidden + 1) * hidden),
            ("classes", (labels + 1) * hidden),
            ("final", 2 * (hidden * hidden + hidden) + (hidden + 1) * 2 * values),
        ),
        sample_tokens=tokens,
        positions=tokens,
    )
