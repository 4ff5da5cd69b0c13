"""What stands on the axes of a chart, and in the cells of a grid."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from costguard.renderers.html.charts import (
    add_unit,
    compute_ticks,
    format_given_text,
    format_short,
    format_ticks,
)

NUMBERS = st.floats(allow_nan=False, min_value=-1e300, max_value=1e300)


@pytest.mark.parametrize(
    ("high", "unit", "texts"),
    [
        (3700, "$", ("$0", "$1,000", "$2,000", "$3,000", "$4,000")),
        (0.07, "$", ("$0.00", "$0.02", "$0.04", "$0.06", "$0.08")),
        (9.2, "$", ("$0.0", "$2.5", "$5.0", "$7.5", "$10.0")),
        (38, "%", ("0%", "10%", "20%", "30%", "40%")),
        (41_000, "EUR", ("EUR 0", "EUR 20k", "EUR 40k", "EUR 60k")),
        (2_600_000, "GPU-hours", ("0 GPU-hours", "1M GPU-hours", "2M GPU-hours", "3M GPU-hours")),
        (0, "$", ("$0", "$1")),
    ],
)
def test_an_axis_says_round_numbers(high: float, unit: str, texts: tuple[str, ...]) -> None:
    assert format_ticks(compute_ticks(0, high), unit) == texts


@given(NUMBERS, NUMBERS)
@example(0.0, 1.4774805381264599e-12)
@example(0.0, 1.0001e-9)
@example(-1.0001e-9, 0.0)
def test_ticks_hold_every_value_and_zero_and_are_few_and_of_different_texts(one: float, other: float) -> None:
    low, high = sorted((one, other))
    at = compute_ticks(low, high)
    slack = (at[-1] - at[0]) * 1e-6
    assert at[0] - slack <= min(low, 0)
    assert at[-1] + slack >= max(high, 0)
    assert 0.0 in at, "an axis begins or passes there"
    assert 2 <= len(at) <= 7
    assert len(set(format_ticks(at, "$"))) == len(at)


@given(NUMBERS)
def test_a_cell_has_room_for_every_number(value: float) -> None:
    text = format_short(value)
    assert len(text) <= 7 if abs(value) >= 1e15 else len(text) <= 5
    assert (text == "0") == (value == 0)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"), (0.001, "~0"), (0.04, "0.04"), (0.996, "1.00"), (3.46, "3.5"), (9.96, "10"), (120.4, "120"),
        (999.6, "1.0k"), (4500, "4.5k"), (45_000, "45k"), (1_234_567, "1.2M"), (-12_345, "-12k"), (3e20, "3e20"),
    ],
)  # fmt: skip
def test_a_cell_says_two_figures(value: float, text: str) -> None:
    assert format_short(value) == text


@pytest.mark.parametrize(
    ("number", "unit", "text"),
    [
        ("-5", "$", "-$5"), ("5", "EUR", "EUR 5"), ("5", "$/h", "$5/h"), ("-5", "EUR/h", "-EUR 5/h"), ("5", "%", "5%"),
        ("5", "hours", "5 hours"), ("5", "", "5"),
    ],
)  # fmt: skip
def test_money_stands_before_its_number_and_other_units_behind(number: str, unit: str, text: str) -> None:
    assert add_unit(number, unit) == text


@pytest.mark.parametrize(
    ("text", "unit", "said"),
    [
        ("12.34 (11.00 to 13.00)", "$", "$12.34 (11.00 to 13.00)"), ("$12.34", "$", "$12.34"), ("33%", "%", "33%"),
        ("", "$", "$3.00"), ("unknown", "$", "unknown"), ("2.50", "$/h", "$2.50/h"), ("1e3", "$", "1e3"),
        ("3 of 4", "", "3 of 4"),
    ],
)  # fmt: skip
def test_a_text_that_is_a_bare_number_gets_its_unit(text: str, unit: str, said: str) -> None:
    assert format_given_text(text, 3.0, unit) == said
