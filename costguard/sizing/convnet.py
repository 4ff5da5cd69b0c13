"""Counts parameters, multiply-adds and kept numbers of models whose layers differ in size (convolutions, U-Nets).

A `CheckpointUnit` is the unit that checkpointing recomputes as a whole: a residual block, or a transformer inside a U-Net. A
model is a list of units, and a unit is a list of layers. "Kept" are the numbers that autograd stores for the backward pass,
each storage counted once: a convolution, a batch norm and a SiLU keep their input, an in-place ReLU keeps its result.

Example: ResNet-50 at 224 pixels has 25,557,032 parameters and 4.09 G multiply-adds (4.1 "GFLOPs" in papers, which count a
multiply-add as one), and keeps 21.9 M numbers, 44 MB per image in 16 bits. Checked against autograd's saved tensors (torch
2.13, 2026-11): transformers' ResNet-50 keeps 86.0 MB in fp32 (here 87.5); a residual block of Stable Diffusion's U-Net keeps
1.968 M numbers (here 1.967 M), its transformer 10.29 M at 32 x 32 (here 10.21 M, because statistics and the text are not
counted).

Frozen convolutions and linear layers keep nothing; a low-rank adapter keeps its input once, which query, key and value share,
and `rank` numbers a place. Example: rank 16 on the attention of SDXL's U-Net has 23,224,320 parameters (PEFT 0.21 counts the
same), and a step at 1024 pixels in bf16 keeps 5.4 GB (autograd 5.6 GB; torch 2.15, 2026-11-24).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

INDEX_NUMBERS = 4
"""A max-pool keeps an 8-byte index for each result: as much as four 16-bit numbers."""


@dataclass(frozen=True, slots=True)
class ConvnetLayer:
    """One layer, for one sample.

    `kept`: numbers stored for its backward pass. `largest`: numbers of its largest tensor. `weighs`: what it keeps is needed
    for the gradient of its weights only. `matrix`: the name by which an adapter finds it; "": none does. `read`: numbers of
    its input that an adapter keeps, 0 if another layer keeps them anyway; `sides`: its inputs + outputs; `places`: how often it
    runs. `shares`: it reads what the layer before it reads. `scores`: numbers of the scores that eager attention makes.
    """

    parameters: int
    multiply_adds: int
    kept: int
    largest: int
    weighs: bool = False
    matrix: str = ""
    read: int = 0
    sides: int = 0
    places: int = 0
    shares: bool = False
    scores: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointUnit:
    """Layers that checkpointing recomputes together.

    `entry`: numbers of the unit's input.
    """

    layers: tuple[ConvnetLayer, ...]
    entry: int

    @property
    def kept(self) -> int:
        """Return the numbers that all its layers keep if all weights are trained."""
        return sum(layer.kept for layer in self.layers)

    @property
    def scores(self) -> int:
        """Return the numbers of all scores, which eager attention keeps once: the softmax's result."""
        return sum(layer.scores for layer in self.layers)

    def count_kept(self, adapted: frozenset[str], rank: int) -> int:
        """Return the numbers that its layers keep if only adapters on the matrices `adapted` are trained."""
        return sum(_list_kept(self.layers, adapted, rank))


def _list_kept(layers: Iterable[ConvnetLayer], adapted: frozenset[str], rank: int) -> Iterator[int]:
    is_input_kept = False
    for layer in layers:
        if not layer.weighs:
            yield layer.kept
            continue
        is_input_kept = is_input_kept and layer.shares
        if layer.matrix in adapted:
            yield rank * layer.places + (0 if is_input_kept else layer.read)
            is_input_kept = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWalk:
    """Totals of a whole model for one sample; the module docstring explains the counts.

    `entries`: numbers of the inputs of all units.
    """

    parameters: int
    multiply_adds: int
    kept: int
    entries: int
    largest: int
    largest_parameters: int
    units: tuple[CheckpointUnit, ...] = field(default=(), compare=False, repr=False)

    @property
    def matrices(self) -> frozenset[str]:
        """Return the names of the matrices that adapters can be put on."""
        return frozenset(layer.matrix for unit in self.units for layer in unit.layers if layer.matrix)

    def count_adapter_parameters(self, adapted: frozenset[str], rank: int) -> int:
        """Return rank x (inputs + outputs) of every matrix in `adapted`."""
        return rank * sum(layer.sides for layer in self._list_adapted(adapted))

    def count_adapter_multiply_adds(self, adapted: frozenset[str], rank: int) -> int:
        """Return what the adapters add to `multiply_adds`."""
        return rank * sum(layer.sides * layer.places for layer in self._list_adapted(adapted))

    def _list_adapted(self, adapted: frozenset[str]) -> Iterator[ConvnetLayer]:
        return (layer for unit in self.units for layer in unit.layers if layer.matrix in adapted)


def sum_units(units: Iterable[CheckpointUnit]) -> LayerWalk:
    """Return the totals of `units`."""
    all_units = tuple(units)
    layers = [layer for unit in all_units for layer in unit.layers]
    return LayerWalk(
        parameters=sum(x.parameters for x in layers),
        multiply_adds=sum(x.multiply_adds for x in layers),
        kept=sum(x.kept for x in layers),
        entries=sum(unit.entry for unit in all_units),
        largest=max(x.largest for x in layers),
        largest_parameters=max(x.parameters for x in layers),
        units=all_units,
    )


def build_convolution(inputs: int, outputs: int, kernel: int, side: int, *, bias: bool, kept_numbers: int) -> ConvnetLayer:
    """Return a square convolution whose result is `side` x `side`.

    `kept_numbers`: numbers of its input; 0 if another layer keeps them already.
    """
    weights = inputs * outputs * kernel * kernel
    return ConvnetLayer(
        parameters=weights + bias * outputs,
        multiply_adds=weights * side * side,
        kept=kept_numbers,
        largest=outputs * side * side,
        weighs=True,
    )


def build_norm(channels: int, places: int) -> ConvnetLayer:
    """Return a batch, group or layer norm with a scale and a shift per channel; it keeps its input."""
    return ConvnetLayer(2 * channels, 0, channels * places, channels * places)


def build_activation(channels: int, places: int) -> ConvnetLayer:
    """Return an activation, which keeps one tensor: a SiLU its input, an in-place ReLU its result."""
    return ConvnetLayer(0, 0, channels * places, channels * places)


def build_max_pool(channels: int, places: int) -> ConvnetLayer:
    """Return a max-pool, which keeps the position of each maximum and its result, the input of the next layer."""
    return ConvnetLayer(0, 0, (1 + INDEX_NUMBERS) * channels * places, channels * places)


def build_linear(
    inputs: int, outputs: int, places: int, *, bias: bool = True, kept_numbers: int = 0, matrix: str = "", shares: bool = False
) -> ConvnetLayer:
    """Return a linear layer that runs at `places` positions; `matrix` and `shares` as in `ConvnetLayer`."""
    return ConvnetLayer(
        inputs * outputs + bias * outputs,
        inputs * outputs * places,
        kept_numbers,
        outputs * places,
        weighs=True,
        matrix=matrix,
        read=inputs * places if shares else kept_numbers,
        sides=inputs + outputs,
        places=places,
        shares=shares,
    )


def build_attention(width: int, places: int, others: int, heads: int) -> ConvnetLayer:
    """Return the attention of `places` queries over `others` keys by a flash kernel, and its `scores` without one.

    It keeps queries, keys, values and the result.
    """
    kept_numbers = 2 * width * places + 2 * width * others
    return ConvnetLayer(0, 2 * width * places * others, kept_numbers, width * places, scores=heads * places * others)


def build_gated_product(channels: int, places: int) -> ConvnetLayer:
    """Return a gated product with a GELU on the gate; it keeps both input halves and the GELU's result."""
    return ConvnetLayer(0, 0, 3 * channels * places, 2 * channels * places)
