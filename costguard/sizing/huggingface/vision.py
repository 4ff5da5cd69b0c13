"""Readers of vision models: ViT, CLIP, and language models with a vision tower.

A tower always processes the same number of tokens, one per patch (plus one class token): `LayerBlock.tokens`. A ViT-B/16 at 224
pixels has 14 x 14 patches + 1 = 197.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from costguard.errors import InputError
from costguard.sizing.architecture import Architecture, FeedForward, LayerBlock
from costguard.sizing.huggingface.config import ModelConfig
from costguard.sizing.huggingface.decoders import read_gemma3
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
"""What the nested tables of a config.json leave out, since they only state what differs from their class."""


def read_vit(config: ModelConfig, name: str) -> Architecture:
    """ViT: a class token, learned positions, biases, and a classifier or a pooler."""
    hidden, tokens = config.hidden, count_patches(config) + 1
    block = build_tower(config, tokens=tokens, qkv_bias=config.read_flag("qkv_bias", default=True))
    classifier = config.labels * (hidden + 1)
    top = ("classifier", classifier) if config.task == "ForImageClassification" else ("pooler", hidden * hidden + hidden)
    return Architecture(
        name=name,
        kind="vit",
        blocks=(block,),
        has_head=False,
        extras=(
            ("patches", count_patch_weights(config) + hidden),
            ("class_token", hidden),
            ("positions", tokens * hidden),
            ("final_norm", 2 * hidden),
            top,
        ),
        sample_tokens=tokens,
        sample_unit="images",
        positions=tokens,
    )


def read_clip(config: ModelConfig, name: str) -> Architecture:
    """CLIP: an image tower and a causal text tower, both projected to one space; one sample is an image and its text."""
    text = _read_clip_part(config, "text_config", CLIP_TEXT)
    vision = _read_clip_part(config, "vision_config", CLIP_VISION)
    words, tokens = text.read_positions(), count_patches(vision) + 1
    projection = config.read_size("projection_dim", default=512)
    blocks = (
        build_tower(vision, tokens=tokens, activation="quick_gelu"),
        build_tower(text, tokens=words, causal=True, activation="quick_gelu"),
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
            ("vision.patches", count_patch_weights(vision)),
            ("vision.class_token", vision.hidden),
            ("vision.positions", tokens * vision.hidden),
            ("vision.norms", 4 * vision.hidden),
            ("projections", projection * (text.hidden + vision.hidden)),
            ("logit_scale", 1),
        ),
        sample_tokens=words + tokens,
        sample_unit="images",
        positions=words,
        vocab_width=text.hidden,
    )


def read_gemma3_multimodal(config: ModelConfig, name: str) -> Architecture:
    """Gemma 3 from 4B up: the text model plus a SigLIP tower of 4,096 patches that are pooled to 256 tokens."""
    text, vision = read_text_config(config, GEMMA3_TEXT), config.get_part("vision_config", SIGLIP)
    wide, ffn = vision.hidden, vision.read_ffn()
    tower = build_tower(vision, tokens=count_patches(vision), activation="gelu_pytorch_tanh")
    pooling = 4 * (wide * wide + wide) + 2 * wide * ffn + ffn + wide + 3 * wide
    return add_tower(
        read_gemma3(text, name),
        tower,
        ("vision.patches", count_patch_weights(vision) + wide),
        ("vision.positions", count_patches(vision) * wide),
        ("vision.final_norm", 2 * wide),
        ("vision.pooling", pooling if vision.read_flag("vision_use_head", default=True) else 0),
        ("projector", wide * text.hidden + wide),
    )


def read_llama4_multimodal(config: ModelConfig, name: str) -> Architecture:
    """Llama 4: the text model plus a tower of 1,024 patches and a class token, reduced to a quarter by pixel shuffle."""
    text, vision = read_text_config(config, LLAMA4_TEXT), config.get_part("vision_config", LLAMA4_VISION)
    wide, tokens = vision.hidden, count_patches(vision) + 1
    out = vision.read_size("projector_output_dim", default=4096)
    return add_tower(
        read_llama4(text, name),
        build_tower(vision, tokens=tokens),
        ("vision.patches", count_patch_weights(vision)),
        ("vision.class_token", wide),
        ("vision.positions", tokens * wide),
        ("vision.norms", 4 * wide),
        ("vision.adapter", vision.read_ffn() * vision.read_size("projector_input_dim", default=4096) + out * out),
        ("projector", vision.read_size("vision_output_dim", default=7680) * text.hidden),
    )


def read_text_config(config: ModelConfig, defaults: Mapping[str, object], key: str = "text_config") -> ModelConfig:
    """Return the text model's table.

    The keys for tied embeddings, task and classes in the outer table also apply to it.
    """
    shared = ("tie_word_embeddings", "architectures", "id2label", "num_labels")
    outer = {k: config.values[k] for k in shared if config.values.get(k) is not None}
    return config.get_part(key, {**defaults, **outer})


def add_tower(model: Architecture, tower: LayerBlock, *extras: tuple[str, int]) -> Architecture:
    """Return `model` with a tower beside it, and `extras` that belong to neither's layers."""
    return replace(
        model,
        blocks=(*model.blocks, tower),
        extras=(*model.extras, *drop_empty_extras(extras)),
        vocab_width=model.hidden,
        notes=(*model.notes, f"one image of {tower.tokens:,} patches is counted in each sample, beside its tokens"),
    )


def build_tower(
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
    """Return the layers of an image tower (or of CLIP's text) of `config`, which process `tokens` a sample."""
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


def count_patches(config: ModelConfig) -> int:
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


def count_patch_weights(config: ModelConfig) -> int:
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
