"""A layer walk: parameters, multiply-adds and kept numbers of models whose layers differ in size (convolutions, U-Nets).

A `Unit` is what checkpointing would compute again as one: a residual block, a transformer inside a U-Net. Units are added
up, so a model is a list of units, and a unit a list of layers. "Kept" is what autograd keeps for the backward pass, each
storage once: a convolution its input, a batch norm its input, a ReLU in place its result, a SiLU its input.

Example: ResNet-50 at 224 pixels: 25,557,032 parameters, 4.09 G multiply-adds (4.1 "GFLOPs" in papers, which count
one for two), and 21.9 M numbers kept, 44 MB an image in 16 bits. Checked against autograd's saved tensors (torch 2.13,
2026-11): transformers' ResNet-50 keeps 86.0 MB in fp32 (here 87.5), a residual block of Stable Diffusion's U-Net 1.968 M
numbers (1.967 M), its transformer 10.29 M at 32 x 32 (10.21 M: statistics and the text are left out).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

INDEX_NUMBERS = 4
"""A max-pool keeps an 8-byte index for each result: as much as four 16-bit numbers."""


@dataclass(frozen=True, slots=True)
class ConvnetLayer:
    """One layer of one sample: `kept` numbers for its backward pass, `largest`: of its tensors."""

    parameters: int
    multiply_adds: int
    kept: int
    largest: int


@dataclass(frozen=True, slots=True)
class CheckpointUnit:
    """Layers that checkpointing computes again as one; `entry`: numbers of its input."""

    layers: tuple[ConvnetLayer, ...]
    entry: int

    @property
    def kept(self) -> int:
        """Numbers all its layers keep."""
        return sum(layer.kept for layer in self.layers)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWalk:
    """A whole model, a sample: see the module. `entries`: inputs of all units; `widest`: what one unit keeps at most."""

    parameters: int
    multiply_adds: int
    kept: int
    entries: int
    widest: int
    largest: int
    largest_parameters: int


def sum_units(units: Iterable[CheckpointUnit]) -> LayerWalk:
    """The sum of `units`."""
    all_units = tuple(units)
    layers = [layer for unit in all_units for layer in unit.layers]
    return LayerWalk(
        parameters=sum(x.parameters for x in layers),
        multiply_adds=sum(x.multiply_adds for x in layers),
        kept=sum(x.kept for x in layers),
        entries=sum(unit.entry for unit in all_units),
        widest=max(unit.kept for unit in all_units),
        largest=max(x.largest for x in layers),
        largest_parameters=max(x.parameters for x in layers),
    )


def build_convolution(inputs: int, outputs: int, kernel: int, side: int, *, bias: bool, kept: int) -> ConvnetLayer:
    """A square convolution with a result of `side` x `side`; `kept`: numbers of its input, 0 where they are kept already."""
    weights = inputs * outputs * kernel * kernel
    return ConvnetLayer(
        parameters=weights + bias * outputs, multiply_adds=weights * side * side, kept=kept, largest=outputs * side * side
    )


def build_norm(channels: int, places: int) -> ConvnetLayer:
    """A batch, group or layer norm: a scale and a shift a channel; keeps its input."""
    return ConvnetLayer(2 * channels, 0, channels * places, channels * places)


def build_activation(channels: int, places: int) -> ConvnetLayer:
    """Keeps one tensor: a SiLU its input, a ReLU in place its result."""
    return ConvnetLayer(0, 0, channels * places, channels * places)


def build_max_pool(channels: int, places: int) -> ConvnetLayer:
    """Keeps where each maximum came from, and its result, which is what comes next."""
    return ConvnetLayer(0, 0, (1 + INDEX_NUMBERS) * channels * places, channels * places)


def build_linear(inputs: int, outputs: int, places: int, *, bias: bool = True, kept: int = 0) -> ConvnetLayer:
    """A linear layer at `places` places."""
    return ConvnetLayer(inputs * outputs + bias * outputs, inputs * outputs * places, kept, outputs * places)


def build_attention(width: int, places: int, others: int) -> ConvnetLayer:
    """Scores and values of `places` queries over `others` keys by a flash kernel: keeps queries, keys, values, the result."""
    return ConvnetLayer(0, 2 * width * places * others, 2 * width * places + 2 * width * others, width * places)


def build_gated_product(channels: int, places: int) -> ConvnetLayer:
    """A gated product, gate through a GELU: keeps both halves as they came and the GELU's result."""
    return ConvnetLayer(0, 0, 3 * channels * places, 2 * channels * places)
