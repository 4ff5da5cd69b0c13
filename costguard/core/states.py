"""Weights, gradients and optimizer states one GPU holds, before and after sharding.

Example: 7.5 billion parameters in mixed precision on 64 GPUs need 120 GB a GPU in whole copies, 31.4 GB with the
optimizer sharded (ZeRO-1), 16.6 GB with the gradients too (ZeRO-2), and 1.9 GB with everything sharded (ZeRO-3).
"""

from __future__ import annotations

from dataclasses import dataclass

from costguard.core.architecture import Architecture, Block
from costguard.core.numerics import Numerics
from costguard.core.recipe import Lora, Recipe

QUANT_BITS = {"nf4": 4.5, "int4": 4.5, "int8": 8.0}
"""Bits a quantised weight: nf4 has an fp32 scale for each 64 (bitsandbytes), int4 the same as two halves for 64 (GPTQ/AWQ
group 128 is 4.25), int8 one fp32 scale a row, which is nothing."""

DOUBLE_QUANT_BITS = 4.127
"""nf4 with its scales in 8 bits: 4 + 8/64 + 32/(64*256) (QLoRA, arXiv 2305.14314, section 3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Parameters of one pipeline stage on one tensor-parallel rank.

    `quantised`: in layers' matrices (the ones a quantiser takes). `rest`: others. `experts`: of both, those of experts.
    `adapters`: trained low-rank parameters.
    """

    matrices: int
    rest: int
    experts: int
    adapters: int
    outside: int
    layer: int

    @property
    def base(self) -> int:
        """All parameters of the model itself."""
        return self.matrices + self.rest


def targets_of(architecture: Architecture, lora: Lora) -> frozenset[str]:
    """Names of the matrices that carry an adapter."""
    if not isinstance(lora.targets, str):
        return frozenset(lora.targets)
    block = architecture.main
    attention = frozenset(block.attention.matrices(block.hidden))
    return attention if lora.targets == "attention" else attention | frozenset(block.feed_forward.matrices(block.hidden))


def adapter_parameters(block: Block, targets: frozenset[str], rank: int) -> int:
    """Low-rank parameters of one layer: rank x (inputs + outputs) for each adapted matrix."""
    f = block.feed_forward
    attention = sum(i + o for name, (i, o) in block.attention.matrices(block.hidden).items() if name in targets)
    feed = sum(i + o for name, (i, o) in f.matrices(block.hidden).items() if name in targets)
    return rank * ((2 if block.cross_attention else 1) * attention + max(f.experts, 1) * feed)


def weight_bytes(recipe: Recipe, numbers: Numerics, matrices: float, rest: float) -> float:
    """Bytes of the model's own weights: quantised matrices, the rest as stored."""
    each = numbers.frozen if recipe.adapters or not recipe.trains else numbers.weight
    if recipe.quant == "none":
        return each * (matrices + rest)
    bits = DOUBLE_QUANT_BITS if recipe.quant == "nf4" and recipe.double_quant else QUANT_BITS[recipe.quant]
    return bits / 8 * matrices + numbers.compute * rest
