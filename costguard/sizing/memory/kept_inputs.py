"""What matrices keep of their inputs for the backward pass.

Example: q, k and v read one norm's result of 4096 numbers. Trained in bf16 they keep it once, 8,192 bytes a token; under
autocast a copy each, 24,576, unless they are one matrix. Frozen they keep nothing, but each fp32 adapter a copy of 16,384.
"""

from __future__ import annotations

from costguard.sizing.architecture import FeedForward
from costguard.sizing.memory.style import LayerStyle


def _compute_inputs_kept(
    style: LayerStyle, width: int, names: tuple[str, ...], *, fused: bool = False, again: bool = False
) -> float:
    """Bytes a token kept of an input of `width` read by the matrices `names`: one tensor, or a copy each where it is cast.

    `fused`: they are one matrix. `again`: another half of the layer keeps the same input already.
    Of frozen matrices only adapters keep it, each a copy where it is cast or some of it is dropped, with the mask.
    """
    n = style.numerics
    if style.trained:
        copies = 1 if fused else len(names)
        return width * n.operand * (copies if n.autocast else not again)
    adapted = sum(name in style.targets for name in names)
    adapted = min(adapted, 1) if fused and style.released else adapted
    number = n.compute if n.autocast or style.casts_adapters else n.weight
    shared = number == n.compute and not n.autocast
    copies = min(adapted, 1) if shared and not style.dropout else adapted
    kept = float(copies * width * number + adapted * style.rank * number + (adapted * width if style.dropout else 0))
    if style.quantised_input > number or not copies:
        kept += width * style.quantised_input
    return kept


def _list_first_matrices(f: FeedForward) -> tuple[str, ...]:
    """The matrices that read the feed-forward's input."""
    return ("gate_proj", "up_proj") if f.gated else ("up_proj",)
