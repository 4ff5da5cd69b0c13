"""Text in cells of a terminal, held against rich, which has the tables of the newest Unicode."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from costguard.system.terminal import Column, Styled, format_row, format_styled
from costguard.values.cell_width import cut_to_width, measure_width, wrap_text

FAMILY, FLAG = "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea"
THUMB, HEART = "\U0001f44d\U0001f3fd", "\u2764\ufe0f"
SAMPLES = (
    "train-1",
    "na\u00efve",
    "e\u0301",
    "\u65e5\u672c\u8a9e",
    "\ud55c\uad6d\uc5b4",
    "\U0001f600 gpu",
    HEART,
    FAMILY,
    "\u2500\u2026",
)
LETTERS = st.sampled_from("ab \u65e5\u672c\u00fc\U0001f600\u0301\ud55c")


@pytest.mark.parametrize("text", SAMPLES, ids=ascii)
def test_a_text_takes_as_many_cells_as_rich_says(text: str) -> None:
    assert measure_width(text) == cell_len(text)


@pytest.mark.parametrize("text", [FAMILY, FLAG, THUMB, HEART], ids=ascii)
def test_what_is_drawn_as_one_picture_takes_two_cells_and_is_not_torn(text: str) -> None:
    assert measure_width(text) == 2
    assert cut_to_width(f"{text}{text}", 3) == f"{text}\u2026"


@given(st.text(LETTERS, max_size=30), st.integers(2, 12))
@example("\u65e5\u672c\u8a9e", 2)
def test_nothing_is_wider_than_its_place_and_nothing_is_lost(text: str, width: int) -> None:
    assert measure_width(cut_to_width(text, width)) <= width
    lines = wrap_text(text, width, fold=True)
    assert all(measure_width(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_a_row_takes_the_lines_of_its_longest_cell() -> None:
    columns = [Column(width=4, right=True), Column(width=6, wraps=True)]
    lines = ["".join(one.text for one in line) for line in format_row([Styled("1.00"), Styled("one two three")], columns)]
    assert [line.rstrip() for line in lines] == ["1.00  one", "      two", "      three"]


def test_without_colours_bold_is_left() -> None:
    assert format_styled("x", "bold red") == "\x1b[1;31mx\x1b[0m"
    assert format_styled("x", "bold red", colours=False) == "\x1b[1mx\x1b[0m"
    assert format_styled("x", "red", colours=False) == format_styled("x", "") == "x"
