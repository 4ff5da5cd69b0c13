"""Measures a model that is counted layer by layer (ResNet, U-Net), with the same kinds of bytes as a transformer.

Example: ResNet-50 in fp16 keeps 21.9 M numbers of 2 bytes per image between its passes, 44 MB; the unit in its backward pass
adds the gradients of its widest tensors. Convolutions count as matrices, so sharding and autocast apply to them. With adapters,
frozen layers keep nothing, and each adapter its input (`sizing/convnet.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from costguard.sizing.architecture import Architecture
from costguard.sizing.convnet import LayerWalk
from costguard.sizing.memory.activations import LayerActivations
from costguard.sizing.memory.adapters import list_adapted_matrices
from costguard.sizing.memory.frameworks import Numerics
from costguard.sizing.memory.model_measure import ModelMeasure
from costguard.sizing.recipe import Recipe
from costguard.values.checks import require

IN_WORK = 2
"""Gradients of a layer's input and result are alive at once on the way back."""


def measure_convnet(architecture: Architecture, walk: LayerWalk, recipe: Recipe, numbers: Numerics) -> ModelMeasure:
    """Return the measure of `walk` under `recipe`."""
    require(recipe.quant == "none", "quant", f"is not counted for {architecture.name}", "write method = 'lora' or 'full'")
    adapted = list_adapted_matrices(architecture, recipe.lora) if recipe.adapters else frozenset[str]()
    require(
        bool(adapted) or not recipe.adapters,
        "method",
        f"'{recipe.method}' needs linear layers, and {architecture.name} has convolutions",
        "write method = 'full' or 'pretrain'",
    )
    compute, casts = numbers.compute, numbers.compute * numbers.autocast
    kept_by_unit = [unit.count_kept(adapted, recipe.lora.rank) if recipe.adapters else unit.kept for unit in walk.units]
    largest = walk.largest
    if recipe.attention == "eager":
        kept_by_unit = [numbers_kept + unit.scores for numbers_kept, unit in zip(kept_by_unit, walk.units, strict=True)]
        largest = max(largest, *(layer.scores for unit in walk.units for layer in unit.layers))
    has = {
        "numbers": numbers,
        "matrices": walk.parameters,
        "small": architecture.parameters - walk.parameters,
        "layer_parameters": walk.largest_parameters,
        "down_parameters": walk.largest_parameters,
        "largest_matrix": walk.largest_parameters,
        "tokens": recipe.micro_batch,
        "waiting": float(compute * (sum(kept_by_unit) if recipe.checkpointing == "none" else walk.entries)),
        "layer": _measure_widest_unit(walk, numbers, max(kept_by_unit), largest),
        "beside": sum(parameters for _, parameters in architecture.companions),
        "adapters": walk.count_adapter_parameters(adapted, recipe.lora.rank) if recipe.adapters else 0,
        "casts": casts * walk.parameters,
        "cast_layer": casts * walk.largest_parameters,
        "casts_cached": numbers.autocast and not recipe.adapters,
        "hidden": 1,
        "loss_number": compute,
        "cache_splits": 1,
        "content": "images",
    }
    return ModelMeasure(**_fill_with_zeros(ModelMeasure, has))  # type: ignore[arg-type]  # each value stands beside its name above


def _measure_widest_unit(walk: LayerWalk, numbers: Numerics, widest: int, largest: int) -> LayerActivations:
    """Return the activations of the widest unit, which keeps `widest` numbers, all counted as feed-forward.

    `largest`: numbers of the largest tensor of any unit.
    """
    compute = numbers.compute
    has = {
        "feed_forward": float(compute * widest),
        "whole": float(compute * widest),
        "feed_forward_work": float(IN_WORK * compute * largest),
        "passing": float(IN_WORK * compute * largest),
        "selective": float(compute * walk.entries),
        "casts": compute * numbers.autocast * walk.largest_parameters,
    }
    return LayerActivations(**_fill_with_zeros(LayerActivations, has))  # type: ignore[arg-type]  # each value stands beside its name above


def _fill_with_zeros(kind: type[ModelMeasure | LayerActivations], has: Mapping[str, object]) -> dict[str, object]:
    """Return `has`, with 0 for every field of `kind` that a convnet lacks (embeddings, heads, experts, keys)."""
    return {field.name: has.get(field.name, 0) for field in fields(kind)}
