"""Split conformal prediction over sources: how wide an interval must be to hold four in five runs of a source nobody has seen.

Rows of one source are not independent: they share a machine, a person and a way to measure. So each source has the same weight,
however many rows it has, and the level is 0.8 (k + 1) / k for k sources (Vovk et al. 2005; with sources in place of rows: Dunn,
Wasserman and Ramdas 2022, "Distribution-free prediction sets for two-layer hierarchical models").

Example: five sources of one row each err by 0.05, 0.1, 0.2, 0.3 and 0.6 (logs). The level is 0.8 x 6 / 5 = 0.96 and the width
lies at the fifth: 0.6. With 23 sources the level is 0.835.

Standard library only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

COVERED = 0.8


class SourceScore(NamedTuple):
    """A row's `score` (how far off it was, over what is usual for its class) and the `source` of the row."""

    source: str
    score: float


def compute_conformal_width(scores: Sequence[SourceScore], *, covered: float = COVERED) -> float:
    """Return the score that holds the share `covered` of rows of a source that is not among `scores`.

    The largest one where too few sources are there to tell.
    """
    sources = len({s.source for s in scores})
    if not sources:
        return 0.0
    return compute_source_quantile(scores, min(1.0, covered * (sources + 1) / sources))


def compute_source_quantile(scores: Iterable[SourceScore], q: float) -> float:
    """Return the quantile `q` of the scores, each source with the same weight; 0 of no scores."""
    found = list(scores)
    rows = Counter(s.source for s in found)
    return compute_weighted_quantile([(s.score, 1 / rows[s.source]) for s in found], q) if found else 0.0


def compute_weighted_quantile(counted: list[tuple[float, float]], q: float) -> float:
    """Return the quantile `q` of (value, weight) pairs: each value stands in the middle of its weight, between them a line."""
    total, below = sum(w for _, w in counted), 0.0
    earlier: tuple[float, float] | None = None
    for value, weight in sorted(counted):
        at = (below + weight / 2) / total
        if at >= q:
            return value if earlier is None else earlier[0] + (q - earlier[1]) / (at - earlier[1]) * (value - earlier[0])
        below, earlier = below + weight, (value, at)
    return max(value for value, _ in counted)


def compute_coverage(inside: Iterable[tuple[str, bool]]) -> float:
    """Return the mean over sources of the share of (source, whether inside) pairs that are inside."""
    by_source: dict[str, list[bool]] = {}
    for source, held in inside:
        by_source.setdefault(source, []).append(held)
    return sum(sum(held) / len(held) for held in by_source.values()) / len(by_source) if by_source else 0.0
