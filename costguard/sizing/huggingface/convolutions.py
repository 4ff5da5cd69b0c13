"""Readers of models with convolutions: ResNet (transformers' config) and the U-Net of Stable Diffusion (diffusers' config).

A sample is one token: `tokens` of such a job are images (times epochs). Counts are walked layer by layer (`core/convnet.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from costguard.sizing.architecture import Architecture
from costguard.sizing.convnet import Unit, Walk, activation, attention, convolution, linear, max_pool, norm, product, walked
from costguard.sizing.huggingface.config import Config
from costguard.values.checks import require, require_whole_number

RESNET: Mapping[str, object] = {"embedding_size": 64, "num_channels": 3, "image_size": 224, "num_labels": 1000}
SHRINKS = 4
"""A bottleneck works on a quarter of its width."""
TEXT_TOKENS = 77
"""Tokens of CLIP's text encoder, which a U-Net attends to."""
TIME_WIDTHS = 4
"""The time embedding is this many times as wide as the first block."""


def resnet(config: Config, name: str) -> Architecture:
    """ResNet with bottlenecks, v1.5 (the stride stands in the 3 x 3 convolution)."""
    c = config.over(RESNET)
    require(c.word("layer_type", default="bottleneck") == "bottleneck", "layer_type", "is not 'bottleneck'", "not read yet")
    widths, depths = _sizes(c, "hidden_sizes"), _sizes(c, "depths")
    stem, image, labels = c.size("embedding_size"), c.size("image_size"), c.size("num_labels")
    units = list(_resnet(widths, depths, stem, image, c.size("num_channels")))
    head = Unit((linear(widths[-1], labels, 1, kept=widths[-1]),), widths[-1])
    return _architecture(name, "convnet", walked([*units, head]))


def unet(config: Config, name: str) -> Architecture:
    """UNet2DConditionModel of Stable Diffusion 1 and 2; a sample is one image's latent."""
    c = config
    unread = [key for key in ("addition_embed_type", "class_embed_type", "encoder_hid_dim") if c.values.get(key) is not None]
    require(not unread, unread[0] if unread else "", "is set, and such a U-Net is not read", "state another model")
    return _architecture(name, "unet", walked(_unet(c)))


def _architecture(name: str, kind: str, walk: Walk) -> Architecture:
    return Architecture(name=name, kind=kind, blocks=(), has_head=False, vocab_width=1, sample_tokens=1, walk=walk)


def _sizes(config: Config, key: str) -> list[int]:
    found = config.items(key) or []
    require(bool(found), key, "is missing", "copy it from the model's config.json")
    return [require_whole_number(v, key, most=1_000_000) for v in found]


def _resnet(widths: list[int], depths: list[int], stem: int, image: int, colours: int) -> Iterator[Unit]:
    side = image // 2
    first = convolution(colours, stem, 7, side, bias=False, kept=colours * image * image)
    pooled = side // 2
    yield Unit(
        (first, norm(stem, side * side), activation(stem, side * side), max_pool(stem, pooled * pooled)),
        colours * image * image,
    )
    inputs, side = stem, pooled
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        for n in range(depth):
            stride = 2 if stage and not n else 1
            yield _bottleneck(inputs, width, side, stride)
            inputs, side = width, side // stride


def _bottleneck(inputs: int, width: int, side: int, stride: int) -> Unit:
    inner, out = width // SHRINKS, side // stride
    layers = [
        convolution(inputs, inner, 1, side, bias=False, kept=0),
        norm(inner, side * side),
        activation(inner, side * side),
        convolution(inner, inner, 3, out, bias=False, kept=0),
        norm(inner, out * out),
        activation(inner, out * out),
        convolution(inner, width, 1, out, bias=False, kept=0),
        norm(width, out * out),
        activation(width, out * out),
    ]
    if inputs != width or stride > 1:
        layers += [convolution(inputs, width, 1, out, bias=False, kept=0), norm(width, out * out)]
    return Unit(tuple(layers), inputs * side * side)


def _unet(c: Config) -> Iterator[Unit]:
    """Down, middle, up. Each block of the way up also gets what its partner on the way down gave."""
    widths, each, side = _sizes(c, "block_out_channels"), c.size("layers_per_block"), c.size("sample_size")
    text, time = c.size("cross_attention_dim"), TIME_WIDTHS * widths[0]
    attends = ["Attn" in str(kind) for kind in c.items("down_block_types") or []]
    require(len(attends) == len(widths), "down_block_types", "are not as many as block_out_channels", "write one a block")
    yield Unit((linear(widths[0], time, 1), linear(time, time, 1, kept=time)), time)
    latent = c.size("in_channels")
    yield Unit((convolution(latent, widths[0], 3, side, bias=True, kept=latent * side * side),), latent * side * side)
    given, now = [widths[0]], widths[0]
    for n, width in enumerate(widths):
        for _ in range(each):
            yield from _stage(now, width, side, time, text if attends[n] else 0)
            now = width
            given.append(now)
        if n < len(widths) - 1:
            yield _moved(now, side // 2, kept=now * side * side)
            side //= 2
            given.append(now)
    yield _residual(now, now, side, time)
    yield _transformer(now, side * side, text)
    yield _residual(now, now, side, time)
    for n, width in reversed(list(enumerate(widths))):
        for _ in range(each + 1):
            yield from _stage(now + given.pop(), width, side, time, text if attends[n] else 0)
            now = width
        if n:
            side *= 2
            yield _moved(now, side, kept=now * side * side)
    places = side * side
    out = convolution(now, c.size("out_channels"), 3, side, bias=True, kept=now * places)
    yield Unit((norm(now, places), activation(now, places), out), now * places)


def _stage(inputs: int, width: int, side: int, time: int, text: int) -> Iterator[Unit]:
    yield _residual(inputs, width, side, time)
    if text:
        yield _transformer(width, side * side, text)


def _moved(width: int, side: int, *, kept: int) -> Unit:
    """A convolution between two sizes."""
    return Unit((convolution(width, width, 3, side, bias=True, kept=kept),), kept)


def _residual(inputs: int, width: int, side: int, time: int) -> Unit:
    places = side * side
    layers = [
        norm(inputs, places),
        activation(inputs, places),
        convolution(inputs, width, 3, side, bias=True, kept=inputs * places),
        linear(time, width, 1, kept=time),
        norm(width, places),
        activation(width, places),
        convolution(width, width, 3, side, bias=True, kept=width * places),
    ]
    if inputs != width:
        layers.append(convolution(inputs, width, 1, side, bias=True, kept=0))
    return Unit(tuple(layers), inputs * places)


def _transformer(width: int, places: int, text: int) -> Unit:
    """One layer: self-attention, attention to the text, a gated feed-forward of four times the width."""
    wide, numbers = 4 * width, width * places
    layers = (
        norm(width, places),
        linear(width, width, places, kept=numbers),
        norm(width, places),
        *(linear(width, width, places, bias=False, kept=numbers if first else 0) for first in (True, False, False)),
        attention(width, places, places),
        linear(width, width, places),
        norm(width, places),
        linear(width, width, places, bias=False, kept=numbers),
        *(linear(text, width, TEXT_TOKENS, bias=False) for _ in range(2)),
        attention(width, places, TEXT_TOKENS),
        linear(width, width, places),
        norm(width, places),
        linear(width, 2 * wide, places, kept=numbers),
        product(wide, places),
        linear(wide, width, places, kept=wide * places),
        linear(width, width, places, kept=numbers),
    )
    return Unit(layers, numbers)
