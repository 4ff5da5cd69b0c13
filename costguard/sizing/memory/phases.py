"""A moment of a job and what is alive then on one GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TERMS = ("weights", "gradients", "optimizer", "activations", "logits", "buffers")


@dataclass(frozen=True, slots=True)
class MemoryPhase:
    """`terms`: bytes of each of `TERMS` on one GPU; `total`: their sum."""

    name: str
    terms: Mapping[str, int]
    total: int


def build_phase(  # noqa: PLR0917 - called by place where it counts, see below
    name: str,
    weights: float,
    gradients: float = 0.0,
    optimizer: float = 0.0,
    activations: float = 0.0,
    logits: float = 0.0,
    buffers: float = 0.0,
) -> MemoryPhase:
    """The Phase of these terms in whole bytes; a term cannot be negative."""
    # Written out: this runs ten times a footprint, and a footprint dozens of times a quote (bench/quote.py).
    w, g, o = int(weights), int(gradients), int(optimizer)
    a, x, b = int(activations), int(logits), int(buffers)
    if w < 0 or g < 0 or o < 0 or a < 0 or x < 0 or b < 0:
        w, g, o, a, x, b = max(w, 0), max(g, 0), max(o, 0), max(a, 0), max(x, 0), max(b, 0)
    terms = {"weights": w, "gradients": g, "optimizer": o, "activations": a, "logits": x, "buffers": b}
    return MemoryPhase(name, terms, w + g + o + a + x + b)
