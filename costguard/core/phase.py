"""A moment of a job and what is alive then on one GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TERMS = ("weights", "gradients", "optimizer", "activations", "logits", "buffers")


@dataclass(frozen=True, slots=True)
class Phase:
    """`terms`: bytes of each of `TERMS` on one GPU; `total`: their sum."""

    name: str
    terms: Mapping[str, int]
    total: int


def phase(
    name: str,
    *,
    weights: float,
    gradients: float = 0.0,
    optimizer: float = 0.0,
    activations: float = 0.0,
    logits: float = 0.0,
    buffers: float = 0.0,
) -> Phase:
    """The Phase of these terms in whole bytes; a term cannot be negative."""
    parts = (weights, gradients, optimizer, activations, logits, buffers)
    terms = {term: int(value) if value > 0 else 0 for term, value in zip(TERMS, parts, strict=True)}
    return Phase(name, terms, sum(terms.values()))
