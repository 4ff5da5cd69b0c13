"""Readers of models with convolutions: ResNet (transformers config) and Stable Diffusion's U-Net (diffusers config).

A sample counts as one token, so the `tokens` of such a job are images x epochs. The models are counted layer by layer
(`sizing/convnet.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from costguard.sizing.architecture import Architecture
from costguard.sizing.convnet import (
    CheckpointUnit,
    LayerWalk,
    build_activation,
    build_attention,
    build_convolution,
    build_gated_product,
    build_linear,
    build_max_pool,
    build_norm,
    sum_units,
)
from costguard.sizing.huggingface.config import ModelConfig
from costguard.values.checks import require, require_whole_number

RESNET_DEFAULTS: Mapping[str, object] = {"embedding_size": 64, "num_channels": 3, "image_size": 224, "num_labels": 1000}
SHRINKS = 4
"""A bottleneck works on a quarter of its width."""
TEXT_TOKENS = 77
"""Tokens of CLIP's text encoder, which a U-Net attends to."""
CLIP_WIDTH, SMALL_HEADS, HEAD_WIDTH = 768, 8, 64
"""Stable Diffusion 1 reads text 768 wide (CLIP) and has 8 heads at every width; 2 and XL have heads 64 wide (attention_head_dim
in the unet/config.json of each)."""
VAE = ("VAE", 83_653_863)
TEXT_ENCODERS = {768: 123_060_480, 1024: 340_387_840, 2048: 123_060_480 + 694_659_840}
"""Width of the text that a U-Net reads -> parameters of the text encoders of its pipeline: CLIP ViT-L, OpenCLIP ViT-H, and for
XL CLIP ViT-L and OpenCLIP ViT-bigG (model.safetensors of stable-diffusion-v1-5, -2-1 and -xl-base-1.0, 2026-11)."""
TIME_WIDTHS = 4
"""The time embedding is this many times as wide as the first block."""


def read_resnet(config: ModelConfig, name: str) -> Architecture:
    """Read a ResNet with bottlenecks, version 1.5 (the stride is in the 3 x 3 convolution)."""
    c = config.fill_defaults(RESNET_DEFAULTS)
    require(
        c.read_word("layer_type", default="bottleneck") == "bottleneck", "layer_type", "is not 'bottleneck'", "not read yet"
    )
    widths, depths = _read_sizes(c, "hidden_sizes"), _read_sizes(c, "depths")
    stem, image, labels = c.read_size("embedding_size"), c.read_size("image_size"), c.read_size("num_labels")
    units = list(_list_resnet_units(widths, depths, stem, image, c.read_size("num_channels")))
    head = CheckpointUnit((build_linear(widths[-1], labels, 1, kept_numbers=widths[-1]),), widths[-1])
    return _build_architecture(name, "convnet", sum_units([*units, head]))


def read_unet(config: ModelConfig, name: str) -> Architecture:
    """UNet2DConditionModel of Stable Diffusion 1, 2 and XL; a sample is one image's latent."""
    c = config
    unread = [key for key in ("class_embed_type", "encoder_hid_dim") if c.values.get(key) is not None]
    require(not unread, unread[0] if unread else "", "is set, and such a U-Net is not read", "state another model")
    unet = _build_architecture(name, "unet", sum_units(_list_unet_units(c)))
    text = TEXT_ENCODERS.get(c.read_size("cross_attention_dim"))
    return replace(unet, companions=(VAE, *((("text encoders", text),) if text else ())))


def _build_architecture(name: str, kind: str, walk: LayerWalk) -> Architecture:
    return Architecture(
        name=name, kind=kind, blocks=(), has_head=False, vocab_width=1, sample_tokens=1, sample_unit="images", walk=walk
    )


def _read_sizes(config: ModelConfig, key: str) -> list[int]:
    sizes = config.read_items(key) or []
    require(bool(sizes), key, "is missing", "copy it from the model's config.json")
    return [require_whole_number(v, key, most=1_000_000) for v in sizes]


def _list_resnet_units(widths: list[int], depths: list[int], stem: int, image: int, colours: int) -> Iterator[CheckpointUnit]:
    side = image // 2
    first = build_convolution(colours, stem, 7, side, bias=False, kept_numbers=colours * image * image)
    pooled = side // 2
    yield CheckpointUnit(
        (first, build_norm(stem, side * side), build_activation(stem, side * side), build_max_pool(stem, pooled * pooled)),
        colours * image * image,
    )
    inputs, side = stem, pooled
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        for n in range(depth):
            stride = 2 if stage and not n else 1
            yield _build_bottleneck(inputs, width, side, stride)
            inputs, side = width, side // stride


def _build_bottleneck(inputs: int, width: int, side: int, stride: int) -> CheckpointUnit:
    inner, out = width // SHRINKS, side // stride
    layers = [
        build_convolution(inputs, inner, 1, side, bias=False, kept_numbers=0),
        build_norm(inner, side * side),
        build_activation(inner, side * side),
        build_convolution(inner, inner, 3, out, bias=False, kept_numbers=0),
        build_norm(inner, out * out),
        build_activation(inner, out * out),
        build_convolution(inner, width, 1, out, bias=False, kept_numbers=0),
        build_norm(width, out * out),
        build_activation(width, out * out),
    ]
    if inputs != width or stride > 1:
        layers += [build_convolution(inputs, width, 1, out, bias=False, kept_numbers=0), build_norm(width, out * out)]
    return CheckpointUnit(tuple(layers), inputs * side * side)


def _list_unet_units(c: ModelConfig) -> Iterator[CheckpointUnit]:
    """Yield the units of the down path, the middle and the up path.

    Each block of the up path also takes the output of its counterpart on the down path as input.
    """
    widths, each, side = _read_sizes(c, "block_out_channels"), c.read_size("layers_per_block"), c.read_size("sample_size")
    text, time = c.read_size("cross_attention_dim"), TIME_WIDTHS * widths[0]
    attends = ["Attn" in str(kind) for kind in c.read_items("down_block_types") or []]
    require(len(attends) == len(widths), "down_block_types", "must be as many as block_out_channels", "write one a block")
    depths = _read_depths(c, attends)
    yield _build_embedding(widths[0], time, kept_numbers=0)
    if c.values.get("addition_embed_type") is not None:  # SDXL: sizes, crops and the pooled text beside the time
        embedding_width = c.read_size("projection_class_embeddings_input_dim")
        yield _build_embedding(embedding_width, time, kept_numbers=embedding_width)
    latent = c.read_size("in_channels")
    yield CheckpointUnit(
        (build_convolution(latent, widths[0], 3, side, bias=True, kept_numbers=latent * side * side),), latent * side * side
    )
    skip_widths, now = [widths[0]], widths[0]
    for n, width in enumerate(widths):
        for _ in range(each):
            yield from _list_stage_units(now, width, side, time, text, depths[n])
            now = width
            skip_widths.append(now)
        if n < len(widths) - 1:
            yield _build_resampling(now, side // 2, kept_numbers=now * side * side)
            side //= 2
            skip_widths.append(now)
    yield _build_residual(now, now, side, time)
    yield _build_transformer(now, side * side, text, max(depths[-1], 1))
    yield _build_residual(now, now, side, time)
    for n, width in reversed(list(enumerate(widths))):
        for _ in range(each + 1):
            yield from _list_stage_units(now + skip_widths.pop(), width, side, time, text, depths[n])
            now = width
        if n:
            side *= 2
            yield _build_resampling(now, side, kept_numbers=now * side * side)
    places = side * side
    out = build_convolution(now, c.read_size("out_channels"), 3, side, bias=True, kept_numbers=now * places)
    yield CheckpointUnit((build_norm(now, places), build_activation(now, places), out), now * places)


def _build_embedding(inputs: int, time: int, *, kept_numbers: int) -> CheckpointUnit:
    """Return the two linear layers that embed the time, or sizes and pooled text."""
    first = build_linear(inputs, time, 1, kept_numbers=kept_numbers, matrix="linear_1")
    return CheckpointUnit((first, build_linear(time, time, 1, kept_numbers=time, matrix="linear_2")), time)


def _read_depths(c: ModelConfig, attends: list[bool]) -> list[int]:
    """Return the transformer layers after each residual block of a stage: 0 if it has none, 1 unless stated (SDXL: 2, 10)."""
    depths = c.values.get("transformer_layers_per_block", 1)
    each = [require_whole_number(x, "transformer_layers_per_block") for x in (depths if isinstance(depths, list) else [depths])]
    each = each if len(each) > 1 else each * len(attends)
    require(
        len(each) == len(attends), "transformer_layers_per_block", "must be as many as block_out_channels", "write one a block"
    )
    return [depth if attended else 0 for depth, attended in zip(each, attends, strict=True)]


def _list_stage_units(  # noqa: PLR0917 - the sizes of one place in the walk
    inputs: int, width: int, side: int, time: int, text: int, depth: int
) -> Iterator[CheckpointUnit]:
    yield _build_residual(inputs, width, side, time)
    if depth:
        yield _build_transformer(width, side * side, text, depth)


def _build_resampling(width: int, side: int, *, kept_numbers: int) -> CheckpointUnit:
    """Return the convolution between two resolutions."""
    return CheckpointUnit((build_convolution(width, width, 3, side, bias=True, kept_numbers=kept_numbers),), kept_numbers)


def _build_residual(inputs: int, width: int, side: int, time: int) -> CheckpointUnit:
    places = side * side
    layers = [
        build_norm(inputs, places),
        build_activation(inputs, places),
        build_convolution(inputs, width, 3, side, bias=True, kept_numbers=inputs * places),
        build_linear(time, width, 1, kept_numbers=time, matrix="time_emb_proj"),
        build_norm(width, places),
        build_activation(width, places),
        build_convolution(width, width, 3, side, bias=True, kept_numbers=width * places),
    ]
    if inputs != width:
        layers.append(build_convolution(inputs, width, 1, side, bias=True, kept_numbers=0))
    return CheckpointUnit(tuple(layers), inputs * places)


def _build_transformer(width: int, places: int, text: int, depth: int) -> CheckpointUnit:
    """Return `depth` transformer layers between a projection in and one out.

    Each has self-attention, attention to the text and a gated feed-forward of four times the width.
    """
    wide, numbers, heads = 4 * width, width * places, SMALL_HEADS if text == CLIP_WIDTH else width // HEAD_WIDTH
    layer = (
        build_norm(width, places),
        *(
            build_linear(width, width, places, bias=False, kept_numbers=0 if n else numbers, matrix=name, shares=n > 0)
            for n, name in enumerate(("q_proj", "k_proj", "v_proj"))
        ),
        build_attention(width, places, places, heads),
        build_linear(width, width, places, matrix="o_proj"),
        build_norm(width, places),
        build_linear(width, width, places, bias=False, kept_numbers=numbers, matrix="q_proj"),
        *(build_linear(text, width, TEXT_TOKENS, bias=False, matrix=name) for name in ("k_proj", "v_proj")),
        build_attention(width, places, TEXT_TOKENS, heads),
        build_linear(width, width, places, matrix="o_proj"),
        build_norm(width, places),
        build_linear(width, 2 * wide, places, kept_numbers=numbers, matrix="up_proj"),
        build_gated_product(wide, places),
        build_linear(wide, width, places, kept_numbers=wide * places, matrix="down_proj"),
    )
    input_layers = (build_norm(width, places), build_linear(width, width, places, kept_numbers=numbers, matrix="proj_in"))
    output_layer = build_linear(width, width, places, kept_numbers=numbers, matrix="proj_out")
    return CheckpointUnit((*input_layers, *layer * depth, output_layer), numbers)
