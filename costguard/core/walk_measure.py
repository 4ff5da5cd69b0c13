"""The measure of a model that is walked layer by layer (ResNet, U-Net): the same kinds of bytes, for other layers.

Example: ResNet-50 in fp16 keeps 21.9 M numbers of 2 bytes an image between its passes, 44 MB; the unit at work adds the
gradients of its widest tensors. Its convolutions count as matrices, so sharding and autocast treat them as such.
"""

from __future__ import annotations

from costguard.core.activations import Kept
from costguard.core.architecture import Architecture
from costguard.core.checks import require
from costguard.core.convnet import Walk
from costguard.core.measure import Measure
from costguard.core.numerics import Numerics
from costguard.core.recipe import Recipe

IN_WORK = 2
"""Gradients of a layer's input and result are alive at once on the way back."""


def walked_measure(architecture: Architecture, walk: Walk, recipe: Recipe, numbers: Numerics) -> Measure:
    """The measure of `walk` under `recipe`."""
    require(
        not recipe.adapters,
        "method",
        f"adapters are not counted for {architecture.name}: it is walked layer by layer",
        "write method = 'full' or 'pretrain'",
    )
    compute = numbers.compute
    kept = walk.kept if recipe.checkpointing == "none" else walk.entries
    return Measure(
        numbers=numbers,
        matrices=walk.parameters,
        experts=0,
        small=architecture.parameters - walk.parameters,
        embedding=0,
        head=0,
        adapters=0,
        tied=False,
        layer_parameters=walk.largest_parameters,
        attention_parameters=0,
        down_parameters=walk.largest_parameters,
        largest_matrix=walk.largest_parameters,
        head_quantised=False,
        tokens=recipe.micro_batch,
        waiting=float(compute * kept),
        layer=_unit(walk, numbers),
        stem=0.0,
        outside=0.0,
        mask=0.0,
        unneeded=0.0,
        casts=compute * walk.parameters if numbers.autocast else 0,
        cast_layer=compute * walk.largest_parameters if numbers.autocast else 0,
        cast_head=0,
        casts_cached=numbers.autocast,
        vocab=0,
        hidden=1,
        loss_number=compute,
        cached=0,
        cache_splits=1,
    )


def _unit(walk: Walk, numbers: Numerics) -> Kept:
    """The widest unit, as if all of it were a feed-forward."""
    compute = numbers.compute
    return Kept(
        attention=0.0,
        feed_forward=float(compute * walk.widest),
        entry=0,
        attention_work=0.0,
        feed_forward_work=float(IN_WORK * compute * walk.largest),
        casts=compute * walk.largest_parameters if numbers.autocast else 0,
        whole=float(compute * walk.widest),
        passing=float(IN_WORK * compute * walk.largest),
        selective=float(compute * walk.entries),
        gathers=0,
    )
