"""The precision in which a job runs on one kind of GPU: as stated, or the one that takes its place where the GPU lacks it.

Example: a full fine-tune in bf16 on a V100, which has no bf16 arithmetic, runs as fp16-amp: fp16 gradients need a loss scale
and fp32 weights to be added to. Its memory is that of fp16-amp, twice that of pure bf16. Adapters and served models keep their
weights in 16 bits and run in fp16. A P40 has no fast 16-bit arithmetic at all: weights are trained in fp32 there.

Training in fp8 or fp4 is refused where the GPU computes neither; a served model's weights are converted as they are read.
"""

from __future__ import annotations

from dataclasses import replace

from costguard.sizing.recipe import Recipe
from costguard.sizing.speed.flops import REDUCED_PRECISIONS
from costguard.values.gpu import Gpu


def adapt_recipe(recipe: Recipe, gpu: Gpu) -> Recipe:
    """Return `recipe` in the precision in which it runs on `gpu`; the same object if that is the stated one."""
    precision = choose_precision(recipe, gpu)
    return recipe if precision == recipe.precision else replace(recipe, precision=precision)


def choose_precision(recipe: Recipe, gpu: Gpu) -> str:
    """Return the precision in which `recipe` runs on `gpu`."""
    if gpu.has_bf16 or not recipe.precision.startswith("bf16"):
        return recipe.precision
    if not recipe.trains or recipe.adapters:
        return recipe.precision.replace("bf16", "fp16")
    return "fp32" if gpu.bf16_tflops is None and gpu.fp32_tflops is not None else "fp16-amp"


def list_precision_notes(recipe: Recipe, gpu: Gpu) -> tuple[str, ...]:
    """Return a note on the precision that takes the place of the stated one; empty if none does."""
    precision = choose_precision(recipe, gpu)
    if precision == recipe.precision:
        return ()
    how = ", with a loss scale (torch.amp.GradScaler)" if recipe.trains and precision.startswith("fp16") else ""
    return (
        f"{gpu.name} has no bf16 arithmetic: its memory and hours are those of {precision}{how}, not of {recipe.precision}",
    )


def explain_missing_precision(recipe: Recipe, gpu: Gpu) -> str | None:
    """Return why `recipe` cannot be trained in its precision on `gpu`; None if it can, or serves."""
    precision = recipe.precision
    if not recipe.trains or precision not in REDUCED_PRECISIONS:
        return None
    if gpu.fp8_tflops or (precision == "fp4" and gpu.fp4_tflops):
        return None
    return f"'{precision}' is not supported by {gpu.name}"
