"""Bytes a number: what each kind of tensor is stored in, and what a framework's modules keep of it.

Example: plain bf16 stores weights, gradients and both AdamW moments in 2 bytes each, 8 a parameter. Under autocast
(`bf16-amp`) all four are fp32, 16 a parameter, while matrices are multiplied in copies of 2 bytes.
DeepSpeed and Megatron keep those copies as the weights and the fp32 ones as a master with the optimizer: 2+2+12 and 2+4+12.
"""

from __future__ import annotations

from dataclasses import dataclass

from costguard.sizing.memory.frameworks import get_framework
from costguard.sizing.recipe import Parallelism, Recipe

FP32 = 4
HALF = 2

OPTIMIZER_MOMENTS = {
    "adamw": 2,
    "paged-adamw": 2,
    "adamw-8bit": 2,
    "paged-adamw-8bit": 2,
    "lion": 1,
    "lion-8bit": 1,
    "sgd-momentum": 1,
    "adafactor": 0,
    "sgd": 0,
}
"""Numbers kept per trained parameter. Adafactor keeps sums of rows and columns: under 0.1% of a matrix, taken as nothing."""

FP8_COPIES = 2
"""Transformer Engine keeps each matrix and its transpose in fp8 beside the 16-bit weight (te.Linear's weight cache)."""

MOMENT_8BIT = 1 + 4 / 256
"""An 8-bit moment: one byte, and an fp32 scale for each block of 256 (bitsandbytes 0.43+ blockwise optimizers)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """Bytes of one number of each kind.

    `master`: an fp32 copy held with the optimizer, 0 where the weights are the master. `compute`: operands and results of
    matrix products. `residual`: the stream between layers. `autocast`: weights are cast to `compute` on each use.
    `operand`: what is kept of a product's input. `copies`: fp8 copies of a matrix's weight, beside the weight itself.
    `accumulator`: an fp32 sum of gradients beside the 16-bit ones (DeepSpeed's BF16_Optimizer).
    """

    weight: int
    frozen: int
    gradient: int
    moment: float
    master: int
    compute: int
    residual: int
    operand: int
    copies: int
    accumulator: int
    autocast: bool


def choose_numerics(recipe: Recipe, parallel: Parallelism) -> Numerics:
    """The bytes of each kind of number in this recipe under this sharding."""
    wide, known = recipe.precision == "fp32", get_framework(recipe)
    compute = FP32 if wide else HALF
    sharded = parallel.stage > 0
    master = recipe.amp and (known.masters or (sharded and not parallel.fsdp))
    fp32_weights = wide or (recipe.amp and not master)
    autocast = recipe.amp and not master and not parallel.fsdp and recipe.trains
    trained = FP32 if fp32_weights or (recipe.adapters and known.adapters_fp32) else HALF
    return Numerics(
        weight=trained,
        frozen=FP32 if fp32_weights and recipe.trains else compute,
        gradient=FP32 if known.gradients_fp32 and master else trained,
        moment=_compute_moment_bytes(recipe, FP32 if master else trained),
        master=FP32 if master else 0,
        compute=compute,
        residual=FP32 if wide or autocast else HALF,
        operand=1 if recipe.precision in ("fp8", "fp4") else compute,
        accumulator=FP32 if master and recipe.framework == "deepspeed" and recipe.gradient_accumulation > 1 else 0,
        copies=FP8_COPIES if recipe.precision in ("fp8", "fp4") and recipe.trains else 0,
        autocast=autocast,
    )


def _compute_moment_bytes(recipe: Recipe, each: int) -> float:
    return OPTIMIZER_MOMENTS[recipe.optimizer] * (MOMENT_8BIT if recipe.optimizer.endswith("8bit") else each)
