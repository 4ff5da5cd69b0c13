"""Split conformal prediction over sources: levels, weights and coverage."""

from __future__ import annotations

import random

import pytest

from scripts.conformal import SourceScore, compute_conformal_width, compute_coverage, compute_source_quantile


def test_a_source_with_many_rows_counts_as_one() -> None:
    many = [SourceScore("large", 0.1)] * 60
    others = [SourceScore(name, 0.5) for name in "abc"]
    assert compute_source_quantile([*many, *others], 0.5) == pytest.approx(0.5)


def test_coverage_counts_sources_alike() -> None:
    inside = [("a", True)] * 9 + [("b", False)]
    assert compute_coverage(inside) == 0.5


def test_four_in_five_rows_of_a_new_source_are_inside() -> None:
    """Sources whose errors share a part, as published ones do: rows taken as independent would cover far fewer."""
    chance = random.Random(22)  # noqa: S311 - a simulation
    held = []
    for _ in range(400):
        sources = {name: _draw(chance) for name in range(21)}
        new = sources.pop(0)
        width = compute_conformal_width([SourceScore(str(name), abs(x)) for name, rows in sources.items() for x in rows])
        held.append(sum(abs(x) <= width for x in new) / len(new))
    assert 0.77 <= sum(held) / len(held) <= 0.86


def _draw(chance: random.Random) -> list[float]:
    shared = chance.gauss(0, 0.3)
    return [shared + chance.gauss(0, 0.1) for _ in range(chance.choice((1, 3, 60)))]
