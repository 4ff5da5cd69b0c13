"""Readers of models that see: ViT, CLIP, and language models with a vision tower in front.

A tower always works on the same number of tokens, one for each patch (and one for the class): `Block.tokens`.
A ViT-B/16 at 224 pixels has 14 x 14 patches + 1 = 197.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from costguard.errors import InputError
from costguard.sizing.architecture import Architecture, Block, FeedForward
from costguard.sizing.huggingface.config import Config
from costguard.sizing.huggingface.decoders import gemma3, mistral
from costguard.sizing.huggingface.experts import llama4
from costguard.sizing.huggingface.layers import plain_attention, stated
from costguard.sizing.layer_implementation import Written
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


def vit(config: Config, name: str) -> Architecture:
    """ViT: a class token, learned positions, biases; a classifier, or else a pooler."""
    hidden, tokens = config.hidden, _patches(config) + 1
    block = _tower(config, tokens=tokens, qkv_bias=config.flag("qkv_bias", default=True))
    classifier = config.labels * (hidden + 1)
    top = ("classifier", classifier) if config.task == "ForImageClassification" else ("pooler", hidden * hidden + hidden)
    return Architecture(
        name=name,
        kind="vit",
        blocks=(block,),
        has_head=False,
        extras=(
            ("patches", _patch_matrix(config) + hidden),
            ("class_token", hidden),
            ("positions", tokens * hidden),
            ("final_norm", 2 * hidden),
            top,
        ),
        sample_tokens=tokens,
        positions=tokens,
    )


def clip(config: Config, name: str) -> Architecture:
    """CLIP: an image tower and a causal text tower, each projected to one space. One sample is an image and its text."""
    text = _clip_part(config, "text_config", CLIP_TEXT)
    vision = _clip_part(config, "vision_config", CLIP_VISION)
    words, tokens = text.positions(), _patches(vision) + 1
    projection = config.size("projection_dim", default=512)
    blocks = (
        _tower(vision, tokens=tokens, activation="quick_gelu"),
        _tower(text, tokens=words, causal=True, activation="quick_gelu"),
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
            ("vision.patches", _patch_matrix(vision)),
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


def gemma3_multimodal(config: Config, name: str) -> Architecture:
    """Gemma 3 from 4B up: the text model behind a SigLIP tower of 4,096 patches, pooled to 256 tokens."""
    text, vision = _text(config, GEMMA3_TEXT), config.part("vision_config", SIGLIP)
    wide, ffn = vision.hidden, vision.ffn()
    tower = _tower(vision, tokens=_patches(vision), activation="gelu_pytorch_tanh")
    pooling = 4 * (wide * wide + wide) + 2 * wide * ffn + ffn + wide + 3 * wide
    return _with_tower(
        gemma3(text, name),
        tower,
        ("vision.patches", _patch_matrix(vision) + wide),
        ("vision.positions", _patches(vision) * wide),
        ("vision.final_norm", 2 * wide),
        ("vision.pooling", pooling if vision.flag("vision_use_head", default=True) else 0),
        ("projector", wide * text.hidden + wide),
    )


def llama4_multimodal(config: Config, name: str) -> Architecture:
    """Llama 4: the text model behind a tower of 1,024 patches and a class token, shuffled to a quarter."""
    text, vision = _text(config, LLAMA4_TEXT), config.part("vision_config", LLAMA4_VISION)
    wide, tokens = vision.hidden, _patches(vision) + 1
    out = vision.size("projector_output_dim", default=4096)
    return _with_tower(
        llama4(text, name),
        _tower(vision, tokens=tokens),
        ("vision.patches", _patch_matrix(vision)),
        ("vision.class_token", wide),
        ("vision.positions", tokens * wide),
        ("vision.norms", 4 * wide),
        ("vision.adapter", vision.ffn() * vision.size("projector_input_dim", default=4096) + out * out),
        ("projector", vision.size("vision_output_dim", default=7680) * text.hidden),
    )


def mistral3(config: Config, name: str) -> Architecture:
    """Mistral Small 3.1 and later: Mistral behind a Pixtral tower; its patches grow with the image, counted at their most."""
    text, vision = _text(config, MISTRAL_TEXT), config.part("vision_config", PIXTRAL)
    wide, hidden = vision.hidden, text.hidden
    merged = config.size("spatial_merge_size", default=2, most=1000) ** 2
    tower = _tower(vision, tokens=_patches(vision), norm="rmsnorm", gated=True, bias=False)
    bias = 2 * hidden if config.flag("multimodal_projector_bias") else 0
    return _with_tower(
        mistral(text, name),
        tower,
        ("vision.patches", _patch_matrix(vision)),
        ("vision.norm", wide),
        ("projector", wide + merged * wide * wide + wide * hidden + hidden * hidden + bias),
    )


def text_model(config: Config, name: str, reader: Callable[[Config, str], Architecture]) -> Architecture:
    """Only the language model of a config whose other towers nobody here can count; `notes` says so."""
    model = reader(_text(config, {}), name)
    return replace(model, notes=(*model.notes, "only the language model is counted: what reads images or sound is left out"))


def _text(config: Config, defaults: Mapping[str, object]) -> Config:
    """The text model's table; the tie, the task and the classes that are stated beside it hold for it."""
    shared = ("tie_word_embeddings", "architectures", "id2label", "num_labels")
    outer = {k: config.values[k] for k in shared if config.values.get(k) is not None}
    return config.part("text_config", {**defaults, **outer})


def _with_tower(model: Architecture, tower: Block, *extras: tuple[str, int]) -> Architecture:
    return replace(model, blocks=(*model.blocks, tower), extras=(*model.extras, *stated(extras)), vocab_width=model.hidden)


def _tower(
    config: Config,
    *,
    tokens: int,
    causal: bool = False,
    norm: str = "layernorm",
    gated: bool = False,
    bias: bool = True,
    qkv_bias: bool = True,
    activation: str = "gelu",
) -> Block:
    return Block(
        layers=config.layers,
        hidden=config.hidden,
        attention=plain_attention(config, qkv_bias=bias and qkv_bias, out_bias=bias),
        feed_forward=FeedForward(ffn=config.ffn(), gated=gated, bias=bias, activation=config.activation(activation)),
        norm=norm,
        causal=causal,
        tokens=tokens,
        written=Written(rotated=False),
    )


def _patches(config: Config) -> int:
    """Patches of a square image, or of `[height, width]`."""
    (high, wide), (tall, broad) = (_sides(config, key, default) for key, default in (("image_size", 224), ("patch_size", 16)))
    require(
        high >= tall and wide >= broad,
        config.field("patch_size"),
        f"{tall} x {broad} is larger than the image ({high} x {wide})",
        "write the patch's side in pixels",
    )
    return (high // tall) * (wide // broad)


def _patch_matrix(config: Config) -> int:
    """Weights that turn a patch's pixels into a token."""
    tall, broad = _sides(config, "patch_size", 16)
    return config.size("num_channels", default=3) * tall * broad * config.hidden


def _sides(config: Config, key: str, default: int) -> tuple[int, int]:
    stated_sides = config.values.get(key)
    match default if stated_sides is None else stated_sides:
        case [high, wide]:
            return require_whole_number(high, config.field(key), most=MOST_PIXELS), require_whole_number(
                wide, config.field(key), most=MOST_PIXELS
            )
        case list() as sides:
            raise InputError(f"must be one side or two, not {describe_value(sides)}", field=config.field(key), hint="write 224")
        case side:
            return (require_whole_number(side, config.field(key), most=MOST_PIXELS),) * 2


def _clip_part(config: Config, key: str, defaults: Mapping[str, object]) -> Config:
    """CLIP's first releases repeat each part under `..._dict`, which wins."""
    return config.part(key + "_dict", config.part(key, defaults).values)
