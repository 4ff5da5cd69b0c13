"""Readers of diffusion transformers: DiT, FLUX, Stable Diffusion 3, Qwen-Image, Wan, CogVideoX (diffusers configs).

DiT is a transformer over the patches of an image's latent, conditioned on time and class (Peebles and Xie, arXiv 2212.09748).

Example: DiT-XL/2 at 256 pixels has a latent of 32 x 32 x 4, so 16 x 16 = 256 tokens: 28 layers of 1152, 675,129,632 parameters.
A third of them (adaLN's modulation, 6 x 1152^2 per layer) run once per sample instead of once per token: they count as memory,
but hardly as FLOPs (118.6 G multiply-adds per image). A layer keeps 40.1 x 1152 bytes per token in bf16, the same as autograd's
saved tensors (40.1; 80.2 in fp32; torch 2.13, 2026-11).

In FLUX, SD 3 and Qwen-Image, image and text are two streams with weights of their own that attend to each other: one LayerBlock
each; scores between the two are not counted (a tenth of the scores at 1024 pixels). In FLUX's single layers, CogVideoX and Wan
both are one sequence, or the text is read by cross-attention. VAEs and text encoders are separate models, which are excluded
in training steps: people encode their data once. diffusers' scripts do that with all models on the GPU (examples/dreambooth,
train_dreambooth_lora_flux.py), so the peak of a small LoRA is its start: 3.4 GB of CogVideoX-2B beside 9.5 GB of T5.

Example: FLUX.1-dev at 1024 pixels has 64 x 64 = 4,096 image tokens and 512 of text: 19 double and 38 single layers of 3072,
11,901,408,320 parameters, of which 3.2 G (modulations) run once per image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from costguard.sizing.architecture import Architecture, Attention, FeedForward, LayerBlock
from costguard.sizing.huggingface.config import ModelConfig
from costguard.sizing.huggingface.layers import ExtraTensors, drop_empty_extras
from costguard.sizing.layer_implementation import LayerImplementation
from costguard.values.checks import require, require_number, require_whole_number

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
        sample_unit="images",
        positions=tokens,
    )


SINGLE_MODULATIONS = 3
"""Shift, scale and gate of a layer whose halves run side by side."""
USUAL_SIDE = 1024
"""Pixels of an image's side unless `image_size` states it: what FLUX, SD 3 and Qwen-Image are trained and fine-tuned at."""
NOTES = ("only the transformer is counted: text encoders and VAE are excluded",)
NOTES_LOADED = ("text encoders and VAE are counted while a job loads them, as diffusers' scripts do, and not in its steps",)
T5_XXL, CLIP_L, CLIP_G, UMT5_XXL = 4_762_310_656, 123_060_480, 694_659_840, 5_680_910_336
"""Parameters of text encoders, counted from their shapes: T5 v1.1 XXL's encoder has 24 layers of 4096 with gated feed-forwards
of 10,240 and 32,128 words, UMT5-XXL's 256,384 words and a position bias in each layer; CLIP-L and OpenCLIP bigG are SDXL's."""
IMAGE_VAE, COGVIDEOX_VAE, WAN_VAE = 83_819_683, 215_583_907, 126_892_531
"""Parameters of the autoencoders of FLUX and SD 3, CogVideoX, and Wan 2.1 (made with diffusers 0.42, 2026-11)."""

FLUX_DEFAULTS: Mapping[str, object] = {
    "in_channels": 64,
    "num_layers": 19,
    "num_single_layers": 38,
    "attention_head_dim": 128,
    "num_attention_heads": 24,
    "joint_attention_dim": 4096,
    "pooled_projection_dim": 768,
    "text_tokens": 512,
    "pixels_per_token": 16,
}
FLUX2_DEFAULTS: Mapping[str, object] = {
    **FLUX_DEFAULTS,
    "in_channels": 128,
    "num_layers": 8,
    "num_single_layers": 48,
    "num_attention_heads": 48,
    "joint_attention_dim": 15_360,
}
SD3_DEFAULTS: Mapping[str, object] = {
    "patch_size": 2,
    "in_channels": 16,
    "num_layers": 18,
    "attention_head_dim": 64,
    "num_attention_heads": 18,
    "joint_attention_dim": 4096,
    "pooled_projection_dim": 2048,
    "text_tokens": 333,
    "pixels_per_token": 16,
}
QWEN_IMAGE_DEFAULTS: Mapping[str, object] = {
    "in_channels": 64,
    "num_layers": 60,
    "attention_head_dim": 128,
    "num_attention_heads": 24,
    "joint_attention_dim": 3584,
    "text_tokens": 512,
    "pixels_per_token": 16,
}
Z_IMAGE_DEFAULTS: Mapping[str, object] = {
    "dim": 3840,
    "n_layers": 30,
    "n_refiner_layers": 2,
    "n_heads": 30,
    "in_channels": 16,
    "cap_feat_dim": 2560,
    "text_tokens": 512,
    "pixels_per_token": 16,
}
WAN_DEFAULTS: Mapping[str, object] = {
    "num_attention_heads": 40,
    "attention_head_dim": 128,
    "in_channels": 16,
    "text_dim": 4096,
    "freq_dim": 256,
    "ffn_dim": 13_824,
    "num_layers": 40,
    "text_tokens": 512,
    "sample_height": 480,
    "sample_width": 832,
    "sample_frames": 81,
    "pixels_per_token": 16,
    "frames_per_latent": 4,
}
"""A clip of Wan 2.1 at 480p; 720p is 720 x 1280."""
COGVIDEOX_DEFAULTS: Mapping[str, object] = {
    "num_attention_heads": 30,
    "attention_head_dim": 64,
    "in_channels": 16,
    "time_embed_dim": 512,
    "text_embed_dim": 4096,
    "num_layers": 30,
    "sample_width": 90,
    "sample_height": 60,
    "sample_frames": 49,
    "patch_size": 2,
    "temporal_compression_ratio": 4,
    "max_text_seq_length": 226,
}


def read_flux(config: ModelConfig, name: str) -> Architecture:
    """FLUX.1: double layers of an image and a text stream, then single layers of both together."""
    c = config.fill_defaults(FLUX_DEFAULTS)
    wide, double, single = _read_width(c), c.read_size("num_layers"), c.read_size("num_single_layers")
    each, latent = _count_dense(wide, wide), c.read_size("in_channels")
    image, text = _count_image_tokens(c), c.read_size("text_tokens")
    stream = _build_stream(c, double, image, qk_norm="per-head")
    both = LayerBlock(
        layers=single,
        hidden=wide,
        attention=_build_attention(c, out_bias=False, qk_norm="per-head"),
        feed_forward=FeedForward(ffn=4 * wide, gated=False, bias=True, activation="gelu_pytorch_tanh"),
        norm="layernorm-no-parameters",
        norms=KEPT_TENSORS // 2,
        causal=False,
        tokens=image + text,
        written=LayerImplementation(side_by_side=True),
    )
    extras = (
        ("modulation", (2 * MODULATIONS * double + SINGLE_MODULATIONS * single) * each),
        *_list_time_tensors(c, wide, pooled=c.read_size("pooled_projection_dim")),
        ("patches", _count_dense(latent, wide)),
        ("text", _count_dense(c.read_size("joint_attention_dim"), wide)),
        ("final", 2 * each + _count_dense(wide, latent)),
    )
    blocks = (stream, _build_stream(c, double, text, qk_norm="per-head"), both)
    return _add_encoders(_build_images(name, blocks, image, extras), T5_XXL + CLIP_L, IMAGE_VAE)


def read_flux2(config: ModelConfig, name: str) -> Architecture:
    """FLUX.2: no biases, gated feed-forwards, and modulations shared by all layers of a kind."""
    c = config.fill_defaults(FLUX2_DEFAULTS)
    wide, latent, joint = _read_width(c), c.read_size("in_channels"), c.read_size("joint_attention_dim")
    ratio = require_number(c.values.get("mlp_ratio", 3.0), "mlp_ratio", least=0.01, most=100)
    feed = FeedForward(ffn=round(ratio * wide), gated=True, activation="silu", fused=True)
    attention = _build_attention(c, qkv_bias=False, out_bias=False, qk_norm="per-head")
    image, text = _count_image_tokens(c), c.read_size("text_tokens")

    def build(layers: int, tokens: int, norms: int, *, together: bool = False) -> LayerBlock:
        return LayerBlock(
            layers=layers,
            hidden=wide,
            attention=attention,
            feed_forward=feed,
            norm="layernorm-no-parameters",
            norms=norms,
            causal=False,
            tokens=tokens,
            written=LayerImplementation(side_by_side=together),
        )

    double = c.read_size("num_layers")
    single = build(c.read_size("num_single_layers"), image + text, KEPT_TENSORS // 2, together=True)
    channels = c.read_size("timestep_guidance_channels", default=FREQUENCIES)
    timed = 1 + c.read_flag("guidance_embeds", default=True)
    extras = (
        ("modulation", (2 * MODULATIONS + SINGLE_MODULATIONS) * wide * wide),
        ("time", timed * (channels * wide + wide * wide)),
        ("patches", latent * wide),
        ("text", joint * wide),
        ("final", 2 * wide * wide + wide * latent),
    )
    blocks = (build(double, image, KEPT_TENSORS), build(double, text, KEPT_TENSORS), single)
    return _build_images(name, blocks, image, extras)


def read_sd3(config: ModelConfig, name: str) -> Architecture:
    """Stable Diffusion 3 and 3.5: double layers; the last has no text output; 3.5-medium attends to the image twice."""
    c = config.fill_defaults(SD3_DEFAULTS)
    wide, layers = _read_width(c), c.read_size("num_layers")
    latent, patch = c.read_size("in_channels"), c.read_size("patch_size")
    norm = "per-head" if c.values.get("qk_norm") else "none"
    each, values = _count_dense(wide, wide), patch * patch * latent
    image, text = _count_image_tokens(c), c.read_size("text_tokens")
    twice = len(c.read_items("dual_attention_layers") or [])
    require(twice < layers, "dual_attention_layers", f"names {twice} layers of {layers}", "name fewer")
    head_norms = 2 * c.read_size("attention_head_dim") if norm == "per-head" else 0
    stream = _build_stream(c, layers, image, qk_norm=norm)
    blocks = [stream, _build_stream(c, layers - 1, text, qk_norm=norm)] if layers > 1 else [stream]
    extras = (
        ("modulation", (2 * MODULATIONS * layers + (SINGLE_MODULATIONS * twice)) * each),
        ("last_text_layer", 3 * each - (MODULATIONS - 2) * each + head_norms),
        ("second_attention", twice * (4 * each + head_norms)),
        *_list_time_tensors(c, wide, pooled=c.read_size("pooled_projection_dim")),
        ("patches", _count_dense(values, wide)),
        ("text", _count_dense(c.read_size("joint_attention_dim"), wide)),
        ("final", 2 * each + _count_dense(wide, values)),
    )
    return _add_encoders(_build_images(name, tuple(blocks), image, extras), T5_XXL + CLIP_L + CLIP_G, IMAGE_VAE)


def read_qwen_image(config: ModelConfig, name: str) -> Architecture:
    """Qwen-Image: double layers only; text comes from Qwen2.5-VL."""
    c = config.fill_defaults(QWEN_IMAGE_DEFAULTS)
    wide, layers, latent = _read_width(c), c.read_size("num_layers"), c.read_size("in_channels")
    each, joint = _count_dense(wide, wide), c.read_size("joint_attention_dim")
    image, text = _count_image_tokens(c), c.read_size("text_tokens")
    extras = (
        ("modulation", 2 * MODULATIONS * layers * each),
        *_list_time_tensors(c, wide),
        ("patches", _count_dense(latent, wide)),
        ("text", _count_dense(joint, wide) + joint),
        ("final", 2 * each + _count_dense(wide, latent)),
    )
    streams = tuple(_build_stream(c, layers, tokens, qk_norm="per-head") for tokens in (image, text))
    return _build_images(name, streams, image, extras)


def read_z_image(config: ModelConfig, name: str) -> Architecture:
    """Z-Image: refiners of the image and of the text, then layers of both together; gated feed-forwards, RMS norms."""
    c = config.fill_defaults(Z_IMAGE_DEFAULTS)
    wide, layers, refiners, heads = c.hidden, c.layers, c.read_size("n_refiner_layers"), c.heads
    require(wide % heads == 0, c.name_field("n_heads"), f"{heads} do not divide {wide}", f"write a divisor of {wide}")
    attention = Attention(heads=heads, kv_heads=heads, head_dim=wide // heads, qk_norm="per-head")
    image, text, latent = _count_image_tokens(c), c.read_size("text_tokens"), 4 * c.read_size("in_channels")

    def build(layers: int, tokens: int) -> LayerBlock:
        feed = FeedForward(ffn=wide * 8 // 3, gated=True)
        return LayerBlock(
            layers=layers, hidden=wide, attention=attention, feed_forward=feed, norms=4, causal=False, tokens=tokens
        )

    extras = (
        ("modulation", (layers + refiners) * _count_dense(min(wide, FREQUENCIES), 4 * wide)),
        ("time", _count_dense(FREQUENCIES, 1024) + _count_dense(1024, min(wide, FREQUENCIES))),
        ("patches", _count_dense(latent, wide) + 2 * wide),
        ("text", c.read_size("cap_feat_dim") + _count_dense(c.read_size("cap_feat_dim"), wide)),
        ("final", _count_dense(min(wide, FREQUENCIES), wide) + _count_dense(wide, latent)),
    )
    blocks = (build(refiners, image), build(refiners, text), build(layers, image + text))
    return _build_images(name, blocks, image, extras)


def read_wan(config: ModelConfig, name: str) -> Architecture:
    """Wan 2.1 and 2.2, text to video: attention over the clip, cross-attention to the text; a sample is one clip."""
    c = config.fill_defaults(WAN_DEFAULTS)
    require(c.values.get("image_dim") is None, "image_dim", "is set, and image-to-video with it is not read", "remove it")
    wide, layers, frames = _read_width(c), c.read_size("num_layers"), c.read_size("sample_frames")
    side = c.read_size("pixels_per_token")
    places = (c.read_size("sample_height") // side) * (c.read_size("sample_width") // side)
    tokens = max(1, places) * ((frames - 1) // c.read_size("frames_per_latent") + 1)
    channels, each = c.read_size("in_channels"), _count_dense(wide, wide)
    out = c.read_size("out_channels", default=channels)
    normed = c.read_flag("cross_attn_norm", default=True)
    block = LayerBlock(
        layers=layers,
        hidden=wide,
        attention=_build_attention(c, qk_norm="full"),
        feed_forward=FeedForward(ffn=c.read_size("ffn_dim"), gated=False, bias=True, activation="gelu_pytorch_tanh"),
        norm="layernorm-no-parameters",
        norms=KEPT_TENSORS,
        causal=False,
        cross_attention=True,
        tokens=tokens,
        cross_tokens=c.read_size("text_tokens"),
    )
    extras = (
        ("modulation", layers * MODULATIONS * wide + MODULATIONS * each + 2 * wide),
        ("cross_norms", layers * 2 * wide * normed),
        ("patches", _count_dense(4 * channels, wide)),
        ("time", _count_dense(c.read_size("freq_dim"), wide) + each),
        ("text", _count_dense(c.read_size("text_dim"), wide) + each),
        ("final", _count_dense(wide, 4 * out)),
    )
    return _add_encoders(_build_clips(name, block, tokens, frames, extras), UMT5_XXL, WAN_VAE)


def read_cogvideox(config: ModelConfig, name: str) -> Architecture:
    """CogVideoX 2B and 5B: text and clip are one sequence with the same weights; a sample is one clip."""
    c = config.fill_defaults(COGVIDEOX_DEFAULTS)
    unread = [k for k in ("patch_size_t", "ofs_embed_dim", "use_learned_positional_embeddings") if c.values.get(k)]
    require(not unread, unread[0] if unread else "", "is set, and such a model is not read", "state another model")
    wide, layers, timed = _read_width(c), c.read_size("num_layers"), c.read_size("time_embed_dim")
    frames, patch, latent = c.read_size("sample_frames"), c.read_size("patch_size"), c.read_size("in_channels")
    places = (c.read_size("sample_height") // patch) * (c.read_size("sample_width") // patch)
    text = c.read_size("max_text_seq_length")
    tokens = text + places * ((frames - 1) // c.read_size("temporal_compression_ratio") + 1)
    head, out = c.read_size("attention_head_dim"), c.read_size("out_channels", default=latent)
    block = LayerBlock(
        layers=layers,
        hidden=wide,
        attention=replace(_build_attention(c, qk_norm="per-head"), query_norm="layernorm"),
        feed_forward=FeedForward(ffn=4 * wide, gated=False, bias=True, activation="gelu_pytorch_tanh"),
        norm="layernorm-no-parameters",
        norms=KEPT_TENSORS,
        causal=False,
        tokens=tokens,
    )
    extras = (
        ("modulation", layers * 2 * _count_dense(timed, MODULATIONS * wide)),
        ("norms", layers * (4 * wide + 2 * head) + 2 * wide),
        ("patches", _count_dense(patch * patch * latent, wide)),
        ("text", _count_dense(c.read_size("text_embed_dim"), wide)),
        ("time", _count_dense(wide, timed) + _count_dense(timed, timed)),
        ("final", _count_dense(timed, 2 * wide) + 2 * wide + _count_dense(wide, patch * patch * out)),
    )
    return _add_encoders(_build_clips(name, block, tokens, frames, extras), T5_XXL, COGVIDEOX_VAE)


def _add_encoders(model: Architecture, parameters: int, vae: int) -> Architecture:
    """Return the model with text encoders and a VAE of so many parameters beside it."""
    return replace(model, companions=(("text encoders", parameters), ("VAE", vae)), notes=NOTES_LOADED)


def _read_width(c: ModelConfig) -> int:
    return c.heads * c.read_size("attention_head_dim")


def _count_dense(inputs: int, outputs: int) -> int:
    """Return the parameters of a linear layer with a bias."""
    return (inputs + 1) * outputs


def _count_image_tokens(c: ModelConfig) -> int:
    side = require_whole_number(c.values.get("image_size", USUAL_SIDE), c.name_field("image_size"), most=100_000)
    across = c.read_size("pixels_per_token")
    require(side >= across, c.name_field("image_size"), f"{side} is less than one token ({across} pixels)", "write 1024")
    return (side // across) ** 2


def _build_attention(c: ModelConfig, *, qk_norm: str, qkv_bias: bool = True, out_bias: bool = True) -> Attention:
    heads, width = c.heads, c.read_size("attention_head_dim")
    return Attention(heads=heads, kv_heads=heads, head_dim=width, qkv_bias=qkv_bias, out_bias=out_bias, qk_norm=qk_norm)


def _build_stream(c: ModelConfig, layers: int, tokens: int, *, qk_norm: str) -> LayerBlock:
    """Return one stream (image or text) of double layers."""
    wide = _read_width(c)
    return LayerBlock(
        layers=layers,
        hidden=wide,
        attention=_build_attention(c, qk_norm=qk_norm),
        feed_forward=FeedForward(ffn=4 * wide, gated=False, bias=True, activation="gelu_pytorch_tanh"),
        norm="layernorm-no-parameters",
        norms=KEPT_TENSORS,
        causal=False,
        tokens=tokens,
    )


def _list_time_tensors(c: ModelConfig, wide: int, *, pooled: int = 0) -> ExtraTensors:
    """Return what embeds the time, the guidance (if the model is distilled with it) and the pooled text."""
    each = _count_dense(wide, wide)
    timed = 1 + c.read_flag("guidance_embeds")
    return (
        ("time", timed * (_count_dense(FREQUENCIES, wide) + each)),
        ("pooled_text", _count_dense(pooled, wide) + each if pooled else 0),
    )


def _build_images(name: str, blocks: tuple[LayerBlock, ...], image: int, extras: ExtraTensors) -> Architecture:
    """Return a model that makes one image of `image` tokens a sample."""
    return Architecture(
        name=name,
        kind="dit",
        blocks=blocks,
        has_head=False,
        extras=drop_empty_extras(extras),
        sample_tokens=image,
        sample_unit="images",
        positions=image,
        notes=NOTES,
    )


def _build_clips(name: str, block: LayerBlock, tokens: int, frames: int, extras: ExtraTensors) -> Architecture:
    """Return a model that makes one clip of `frames` frames a sample."""
    return Architecture(
        name=name,
        kind="dit",
        blocks=(block,),
        has_head=False,
        extras=drop_empty_extras(extras),
        sample_tokens=tokens,
        sample_unit="frames",
        units_per_sample=frames,
        positions=tokens,
        notes=NOTES,
    )
