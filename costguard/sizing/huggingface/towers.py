"""Image towers beside a language model: Qwen-VL, LLaVA, InternVL, SmolVLM, Kimi and Mistral, counted to the last parameter.

Each function takes the whole config.json and the language model that was read from it, and adds the tower, its patches and
positions, and the projector between the two.

Example: the tower of Qwen3-VL-8B has 27 layers of 1,152 and four mergers (3 for "deepstack"), 576 M parameters of 8.77 B.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from costguard.sizing.architecture import Architecture
from costguard.sizing.huggingface.config import MOST_LAYERS, ModelConfig
from costguard.sizing.huggingface.layers import drop_empty_extras
from costguard.sizing.huggingface.vision import PIXTRAL, SIGLIP, add_tower, build_tower, count_patch_weights, count_patches
from costguard.values.checks import require_number

Tower = Callable[[ModelConfig, Architecture], Architecture]

QWEN_VISION: Mapping[str, object] = {
    "depth": 32,
    "num_heads": 16,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "embed_dim": 1280,
    "out_hidden_size": 3584,
    "intermediate_size": 3420,
}
QWEN3_VISION: Mapping[str, object] = {
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_heads": 16,
    "patch_size": 16,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "out_hidden_size": 3584,
    "num_position_embeddings": 2304,
}
QWEN_PATCHES = 2304
"""Patches of one image where the config fixes none: 48 x 48, as many as Qwen 3 has positions."""
INTERN_VISION: Mapping[str, object] = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 448,
    "patch_size": 14,
}
LLAVA_VISION: Mapping[str, object] = {**INTERN_VISION, "image_size": 336}
SMOL_VISION: Mapping[str, object] = {**SIGLIP, "hidden_size": 1152, "num_attention_heads": 16, "patch_size": 32}
KIMI_VISION: Mapping[str, object] = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "patch_size": 14,
    "pos_emb_height": 64,
    "pos_emb_width": 64,
}

GEMMA_PATCHES: Mapping[str, object] = {"mm_embed_dim": 3840, "model_patch_size": 48, "mm_posemb_size": 1120}


def add_qwen2_tower(config: ModelConfig, model: Architecture) -> Architecture:
    """Qwen2-VL and Qwen2.5-VL: patches of two frames, no positions; 2.5 has gates and RMS norms in its tower."""
    newer = config.read_word("model_type", default="") == "qwen2_5_vl"
    part = config.get_part("vision_config", QWEN_VISION)
    wide = part.read_size("hidden_size", default=1280) if newer else part.read_size("embed_dim")
    ratio = require_number(part.values.get("mlp_ratio", 4), part.name_field("mlp_ratio"), least=0.01, most=100)
    ffn = part.read_size("intermediate_size") if newer else round(ratio * wide)
    out = part.read_size("out_hidden_size") if newer else part.read_size("hidden_size", default=model.hidden)
    vision = _read_qwen_vision(part, wide, ffn)
    norm = "rmsnorm" if newer else "layernorm"
    tower = build_tower(vision, tokens=QWEN_PATCHES, norm=norm, gated=newer, activation="silu" if newer else "quick_gelu")
    patches = vision.read_size("temporal_patch_size", most=1000) * count_patch_weights(vision)
    merger = _count_merger(vision, out, norm=wide if newer else 2 * wide)
    return add_tower(model, tower, ("vision.patches", patches), ("projector", merger))


def add_qwen3_tower(config: ModelConfig, model: Architecture) -> Architecture:
    """Qwen3-VL and Qwen 3.5: learned positions; Qwen3-VL merges the results of three more layers ("deepstack")."""
    part = config.get_part("vision_config", QWEN3_VISION)
    vision = _read_qwen_vision(part, part.hidden, part.read_ffn())
    wide, places, out = vision.hidden, vision.read_size("num_position_embeddings"), vision.read_size("out_hidden_size")
    merged = wide * vision.read_size("spatial_merge_size", most=1000) ** 2
    usual = 3 if config.read_word("model_type", default="").startswith("qwen3_vl") else 0
    listed = vision.read_items("deepstack_visual_indexes")
    deep = usual if listed is None else len(listed)
    return add_tower(
        model,
        build_tower(vision, tokens=places, activation="gelu_pytorch_tanh"),
        ("vision.patches", vision.read_size("temporal_patch_size", most=1000) * count_patch_weights(vision) + wide),
        ("vision.positions", places * wide),
        ("projector", _count_merger(vision, out, norm=2 * wide) + deep * _count_merger(vision, out, norm=2 * merged)),
    )


def _read_qwen_vision(part: ModelConfig, wide: int, ffn: int) -> ModelConfig:
    sizes = {
        "hidden_size": wide,
        "intermediate_size": ffn,
        "num_hidden_layers": part.read_size("depth", most=MOST_LAYERS),
        "num_attention_heads": part.read_size("num_heads"),
        "num_channels": part.read_size("in_channels", "in_chans", "num_channels", default=3),
    }
    return ModelConfig({**part.values, **sizes}, part.where)


def _count_merger(vision: ModelConfig, out: int, *, norm: int) -> int:
    """Return the parameters of what joins 2 x 2 patches to one token of width `out`."""
    merged = vision.hidden * vision.read_size("spatial_merge_size", most=1000) ** 2
    return norm + merged * (merged + 1) + (merged + 1) * out


def add_llava_tower(config: ModelConfig, model: Architecture) -> Architecture:
    """LLaVA 1.5 and 1.6: CLIP's tower (or SigLIP's, which has no class token), and two layers between it and the model."""
    vision = config.get_part("vision_config", LLAVA_VISION)
    clip = vision.read_word("model_type", default="clip_vision_model") == "clip_vision_model"
    wide, tokens, text = vision.hidden, count_patches(vision) + clip, model.hidden
    bias = config.read_flag("multimodal_projector_bias", default=True)
    next_line = text if config.read_word("model_type", default="") == "llava_next" else 0
    return add_tower(
        model,
        build_tower(vision, tokens=tokens, activation="quick_gelu"),
        ("vision.patches", count_patch_weights(vision) + (0 if clip else wide)),
        ("vision.class_token", wide * clip),
        ("vision.positions", tokens * wide),
        ("vision.norms", (2 + 2 * clip) * wide),
        ("projector", (wide + text) * text + 2 * text * bias + next_line),
    )


def add_intern_tower(config: ModelConfig, model: Architecture) -> Architecture:
    """InternVL: InternViT with scaled halves, 2 x 2 patches joined to one token."""
    vision = config.get_part("vision_config", INTERN_VISION)
    wide, tokens, text = vision.hidden, count_patches(vision) + 1, model.hidden
    biased = vision.read_flag("attention_bias", default=vision.read_flag("qkv_bias", default=True))
    ratio = require_number(config.values.get("downsample_ratio", 0.5), "downsample_ratio", least=0.01, most=1)
    joined = wide * round(1 / ratio) ** 2
    tower = build_tower(vision, tokens=tokens, qkv_bias=biased)
    normed = vision.read_flag("use_qk_norm", default=vision.read_flag("qk_normalization"))
    pooled = vision.read_flag("use_mean_pooling", default=True)
    return add_tower(
        model,
        replace(tower, attention=replace(tower.attention, qk_norm="full" if normed else "none")),
        ("vision.patches", count_patch_weights(vision) + wide),
        ("vision.class_token", wide),
        ("vision.positions", tokens * wide),
        ("vision.scales", 2 * wide * vision.layers),
        ("vision.final_norm", 0 if pooled else 2 * wide),
        ("projector", 2 * joined + (joined + 1) * text + (text + 1) * text),
    )


def add_smol_tower(config: ModelConfig, model: Architecture) -> Architecture:
    """Idefics 3 and SmolVLM: SigLIP's tower; `scale_factor` x `scale_factor` patches become one token."""
    vision = config.get_part("vision_config", SMOL_VISION)
    wide, tokens = vision.hidden, count_patches(vision)
    return add_tower(
        model,
        build_tower(vision, tokens=tokens, activation="gelu_pytorch_tanh"),
        ("vision.patches", count_patch_weights(vision) + wide),
        ("vision.positions", tokens * wide),
        ("vision.final_norm", 2 * wide),
        ("projector", wide * config.read_size("scale_factor", default=2, most=1000) ** 2 * model.hidden),
    )


def add_kimi_tower(config: ModelConfig, model: Architecture) -> Architecture:
    """Kimi K2.5 and later: MoonViT, whose 2 x 2 patches become one token."""
    vision = config.get_part("vision_config", KIMI_VISION)
    wide, tokens = vision.hidden, vision.read_size("pos_emb_height") * vision.read_size("pos_emb_width")
    joined = wide * config.read_size("spatial_merge_size", default=2, most=1000) ** 2
    return add_tower(
        model,
        build_tower(vision, tokens=tokens, activation="gelu_pytorch_tanh"),
        ("vision.patches", count_patch_weights(vision) + wide),
        ("vision.positions", tokens * wide),
        ("vision.final_norm", 2 * wide),
        ("projector", 2 * wide + joined * (joined + 1) + (joined + 1) * model.hidden),
    )


def add_gemma_patches(config: ModelConfig, model: Architecture) -> Architecture:
    """Gemma 4 12B: no tower; patches of 48 x 48 pixels and frames of sound are projected into the language model."""
    vision, sound = config.get_part("vision_config", GEMMA_PATCHES), config.get_part("audio_config", {"audio_embed_dim": 640})
    wide, side = vision.read_size("mm_embed_dim"), vision.read_size("model_patch_size")
    pixels = 3 * side * side
    patches = 2 * pixels + (pixels + 1) * wide + 2 * wide
    places = 2 * vision.read_size("mm_posemb_size") * wide + 2 * wide
    audio = sound.read_size("audio_embed_dim") if config.values.get("audio_config") is not None else 0
    image = ("vision.patches", patches), ("vision.positions", places), ("projector", wide * model.hidden)
    extras = (*(image if config.values.get("vision_config") is not None else ()), ("sound", audio * model.hidden))
    return replace(model, extras=drop_empty_extras((*model.extras, *extras)))


def add_pixtral_tower(config: ModelConfig, model: Architecture) -> Architecture:
    """Mistral Small 3.1 and later: a Pixtral tower. The patches grow with the image; the largest number is counted."""
    vision = config.get_part("vision_config", PIXTRAL)
    wide, hidden = vision.hidden, model.hidden
    merged = config.read_size("spatial_merge_size", default=2, most=1000) ** 2
    tower = build_tower(vision, tokens=count_patches(vision), norm="rmsnorm", gated=True, bias=False)
    bias = 2 * hidden if config.read_flag("multimodal_projector_bias") else 0
    return add_tower(
        model,
        tower,
        ("vision.patches", count_patch_weights(vision)),
        ("vision.norm", wide),
        ("projector", wide + merged * wide * wide + wide * hidden + hidden * hidden + bias),
    )


TOWERS: Mapping[str, tuple[str, Tower]] = {
    "gemma4_unified": ("gemma4_unified_text", add_gemma_patches),
    "idefics3": ("llama", add_smol_tower),
    "internvl": ("qwen2", add_intern_tower),
    "internvl_chat": ("qwen2", add_intern_tower),
    "kimi_k25": ("deepseek_v3", add_kimi_tower),
    "llava": ("llama", add_llava_tower),
    "llava_next": ("llama", add_llava_tower),
    "mistral3": ("mistral", add_pixtral_tower),
    "qwen2_5_vl": ("qwen2_5_vl_text", add_qwen2_tower),
    "qwen2_vl": ("qwen2_vl_text", add_qwen2_tower),
    "qwen3_5": ("qwen3_5_text", add_qwen3_tower),
    "qwen3_5_moe": ("qwen3_5_moe_text", add_qwen3_tower),
    "qwen3_vl": ("qwen3_vl_text", add_qwen3_tower),
    "qwen3_vl_moe": ("qwen3_vl_moe_text", add_qwen3_tower),
    "smolvlm": ("llama", add_smol_tower),
}
"""Model type -> what its language model is unless the config states it, and what adds the tower."""
