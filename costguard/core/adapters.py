"""Low-rank adapters: which matrices carry one, and how many parameters they add.

Example: rank 16 on all seven matrices of Llama-2-7B adds 16 x (4 x (4096 + 4096) + 3 x (4096 + 11008)) a layer, 40.0 M in all.
"""

from __future__ import annotations

from costguard.core.architecture import Architecture, Block
from costguard.core.recipe import Lora


def targets_of(architecture: Architecture, lora: Lora) -> frozenset[str]:
    """Names of the matrices that carry an adapter."""
    if not isinstance(lora.targets, str):
        return frozenset(lora.targets)
    block = architecture.main
    attention = frozenset(block.attention.matrices(block.hidden))
    return attention if lora.targets == "attention" else attention | frozenset(block.feed_forward.matrices(block.hidden))


def adapter_parameters(block: Block, targets: frozenset[str], rank: int) -> int:
    """Parameters added to one layer: rank x (inputs + outputs) for each adapted matrix, of each expert where there are some."""
    feed_forward = block.feed_forward
    attention = sum(i + o for name, (i, o) in block.attention.matrices(block.hidden).items() if name in targets)
    feed = sum(i + o for name, (i, o) in feed_forward.matrices(block.hidden).items() if name in targets)
    return rank * ((2 if block.cross_attention else 1) * attention + max(feed_forward.experts, 1) * feed)
