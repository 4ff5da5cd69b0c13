"""The fit of price drift finds what made up series were made with, and mixes nothing that is not alike."""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

import pytest

from costguard.data import ShippedFacts
from scripts.fit_price_drift import (
    HISTORY,
    OUTPUT,
    SOLD,
    fit_class,
    fit_trend,
    read_history,
    weigh_pairs,
    write_constants,
)

COLUMNS = (
    "provider",
    "gpu",
    "gpu_count",
    "tier",
    "region",
    "usd_per_hour",
    "observed_on",
    "source",
    "instance_type",
    "collector",
)
START = date(2025, 1, 1)


def write_history(path: Path, rows: Sequence[tuple[object, ...]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    return path


def make_walks(growth: float, *, series: int = 60, drift: float = 0.0) -> list[tuple[object, ...]]:
    """Weekly spot prices whose logarithm walks at random: 80 % of its steps over n days are below growth * sqrt(n)."""
    chance = random.Random(4)  # noqa: S311 - no secret
    sigma = growth / 1.2816
    rows: list[tuple[object, ...]] = []
    for number in range(series):
        height = 0.0
        for week in range(60):
            day = START + timedelta(days=7 * week)
            usd = 2 * math.exp(height)
            rows.append(("acme", f"H{number}00", 1, "spot", "r", f"{usd:.6f}", day.isoformat(), "made up", "t", "x"))
            height += chance.gauss(drift * 7, sigma * math.sqrt(7))
    return rows


@pytest.mark.parametrize("growth", [0.02])
def test_a_random_walk_is_found_again(tmp_path: Path, growth: float) -> None:
    spans = weigh_pairs(read_history(write_history(tmp_path / "h.csv", make_walks(growth))))
    fitted = fit_class("spot", [spans], spans)
    for age in (60, 135, 270):
        half = -math.log(fitted.estimate_factor(age).low)
        assert half == pytest.approx(growth * math.sqrt(age), rel=0.25), age


def test_a_rise_is_a_trend_by_half_and_a_fall_is_none(tmp_path: Path) -> None:
    for drift, expected in ((0.002, 0.001), (-0.002, 0.0)):
        spans = weigh_pairs(read_history(write_history(tmp_path / "h.csv", make_walks(0.001, series=5, drift=drift))))
        assert fit_trend(spans, 0) == pytest.approx(expected, abs=0.0001)


def test_two_collectors_are_never_one_series(tmp_path: Path) -> None:
    base = ("acme", "H100-SXM", 1, "secure", "global")
    rows = [
        (*base, "2", "2026-01-01", "a", "", "x"),
        (*base, "2", "2026-02-01", "a", "", "x"),
        (*base, "9", "2026-01-15", "b", "", "y"),
        (*base, "9", "2026-02-15", "b", "", "y"),
    ]
    series = read_history(write_history(tmp_path / "h.csv", rows))
    assert [[pair.log_ratio for pair in one.list_pairs()] for one in series] == [[0.0], [0.0]]


def test_a_collector_with_many_series_weighs_as_much_as_one_with_few(tmp_path: Path) -> None:
    days = (("2026-01-01", 1.0), ("2026-01-20", 1.0))
    many = [("acme", f"H{n}00", 1, "spot", "r", usd, day, "a", "", "x") for n in range(50) for day, usd in days]
    few = [("acme", "T4", 1, "spot", "r", usd * n, day, "b", "", "y") for n, (day, usd) in enumerate(days, 1)]
    ((_, pairs),) = weigh_pairs(read_history(write_history(tmp_path / "h.csv", many + few))).items()
    assert sum(weight for _, y, weight in pairs if y) == pytest.approx(0.5)
    assert sum(weight for _, _, weight in pairs) == pytest.approx(1)


def test_placeholders_zeros_and_days_of_several_sources_are_left_out(tmp_path: Path) -> None:
    rows = [
        ("runpod", "H200-SXM", 1, "secure", "global", "0.5", "2026-01-01", "a", "", "h"),
        ("runpod", "RTX-4090", 1, "secure", "global", "0.5", "2026-01-01", "a", "", "h"),
        ("runpod", "A40", 1, "secure", "global", "0", "2026-01-01", "a", "", "h"),
        ("runpod", "L4", 1, "secure", "global", "0.4", "2026-01-01", "a", "", "p"),
    ]
    assert [one.offer.gpu for one in read_history(write_history(tmp_path / "h.csv", rows))] == ["RTX-4090"]


def test_a_constant_that_no_price_decided_is_called_an_assumption(tmp_path: Path) -> None:
    series = read_history(write_history(tmp_path / "h.csv", make_walks(0.02, series=3)))
    write_constants(tmp_path / "drift.csv", series, ShippedFacts().get_price_drift(), "h.csv")
    with (tmp_path / "drift.csv").open(encoding="utf-8", newline="") as file:
        sources = {(row["drift_class"], row["constant"]): row["source"] for row in csv.DictReader(file)}
    assert sources["spot", "growth"] == "h.csv: 3 series of collectors x, 2025-01-01 to 2026-02-18"
    assert sources["hyperscaler", "grace_days"].startswith("assumption: as long as")
    assert sources["list", "most"].startswith("assumption: the least that is believed")
    assert sources["spot", "fresh_days"].startswith("assumption: half of them move")


@pytest.mark.proof
@pytest.mark.skipif(not (HISTORY.is_file() and SOLD.is_file()), reason=f"the history of prices is not at {HISTORY}")
def test_the_shipped_constants_are_what_the_history_says(tmp_path: Path) -> None:
    from scripts.fit_price_drift import fit_all

    series = read_history(HISTORY)
    write_constants(tmp_path / "drift.csv", series, fit_all(series), HISTORY.name)
    assert (tmp_path / "drift.csv").read_text(encoding="utf-8") == OUTPUT.read_text(encoding="utf-8")
