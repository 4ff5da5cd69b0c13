"""How answers put figures into words."""

from __future__ import annotations

import pytest

from costguard.sizing.recipe import Parallelism
from costguard.values.interval import Interval
from costguard.views.job import build_interval_data, format_hours, format_split, round_digits


@pytest.mark.parametrize(
    ("hours", "text"),
    [
        (0.0, "0 min"), (0.4, "24 min"), (7.4, "7.4 h"), (47.9, "47.9 h"), (76.8, "3.2 d"), (8760 * 2.1, "2.1 y"),
        (1e9, "114,155.3 y"),
    ],
)  # fmt: skip
def test_hours_are_said_as_people_say_them(hours: float, text: str) -> None:
    assert format_hours(hours) == text


@pytest.mark.parametrize(
    ("value", "digits", "result"), [(12.3456, 4, 12.35), (0.000123456, 3, 0.000123), (98765.4, 3, 98800.0)]
)
def test_figures_have_so_many_digits(value: float, digits: int, result: float) -> None:
    assert round_digits(value, digits) == result


def test_rounding_keeps_an_interval_in_order() -> None:
    data = build_interval_data(Interval(0.99994, 0.99996, 1.00004))
    assert data
    assert data["low"] <= data["expected"] <= data["high"]
    assert build_interval_data(None) is None


@pytest.mark.parametrize(
    ("split", "text"),
    [
        (Parallelism(), "-"),
        (Parallelism(fsdp=True), "fsdp"),
        (Parallelism(zero=2), "zero2"),
        (Parallelism(tp=4, pp=2), "tp4 pp2"),
        (Parallelism(zero=1, ep=8, offload="optimizer"), "zero1 ep8 offload-optimizer"),
    ],
)
def test_a_split_is_said_in_a_few_letters(split: Parallelism, text: str) -> None:
    assert format_split(split) == text
