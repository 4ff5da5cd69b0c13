"""Tables give way to the terminal: columns go by rank, cells are cut with an ellipsis, and nothing is broken within a word."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.renderers.table import render
from costguard.views.columns import ELLIPSIS, MIDDLE, WORDS, ColumnFit
from costguard.views.document import Document, TableView
from costguard.views.table_layout import GAP, cut_text, fit_table

FITS = {
    "id": ColumnFit(rank=2, least=6, how=MIDDLE),
    "state": ColumnFit(),
    "why": ColumnFit(rank=1, least=8, how=WORDS),
    "region": ColumnFit(rank=3),
}
ROWS = (
    ("i-0123456789abcdef", "running", "no signal has arrived for an hour", "us-east-1"),
    ("i-fedcba9876543210", "stopped", "somebody stopped it by hand", "eu-west-1"),
)
TABLE = TableView(title="", columns=("id", "state", "why", "region"), rows=ROWS, fits=FITS)
WORD = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=14)
CELL = st.lists(WORD, max_size=5).map(" ".join)


def measured(table: TableView, width: int) -> int:
    laid = fit_table(table, width)
    return sum(column.width for column in laid.columns) + GAP * (len(laid.columns) - 1)


def test_what_fits_is_shown_as_it_is() -> None:
    laid = fit_table(TABLE, 200)
    assert [column.cells for column in laid.columns] == list(zip(*ROWS, strict=True))
    assert (laid.dropped, laid.shortened) == ((), ())


def test_the_highest_rank_goes_first_and_the_name_of_the_row_never() -> None:
    gone = [fit_table(TABLE, width).dropped for width in (34, 24, 12)]
    assert gone == [("region",), ("why", "region"), ("state", "why", "region")]


def test_a_name_that_is_cut_ends_in_the_short_id_of_its_row() -> None:
    table = TableView(title="", columns=("machine",), rows=(("train-llama-70b-a",), ("short",)), ids=("4f2c9a", "00aa11"))
    (column,) = fit_table(table, 14).columns
    assert column.cells == (f"tra{ELLIPSIS}b-a 4f2c9a", "short")


def test_an_id_is_cut_in_its_middle() -> None:
    assert cut_text("i-0123456789abcdef", 9, middle=True) == f"i-01{ELLIPSIS}cdef"
    assert cut_text("running", 4, middle=False) == f"run{ELLIPSIS}"
    assert [cut_text("running", width, middle=True) for width in (0, 1, 2)] == ["", ELLIPSIS, f"r{ELLIPSIS}"]


@given(st.lists(st.tuples(CELL, CELL, CELL, CELL), min_size=1, max_size=5), st.integers(20, 120))
def test_no_line_is_wider_than_the_terminal_and_no_word_is_broken(rows: list[tuple[str, ...]], width: int) -> None:
    table = TableView(title="", columns=("id", "state", "why", "region"), rows=tuple(rows), fits=FITS)
    assert measured(table, width) <= width
    words = {word for row in rows for cell in row for word in cell.split()}
    for column in fit_table(table, width).columns:
        for cell in column.cells:
            assert all(word in words or ELLIPSIS in word for word in cell.split())


def test_a_wide_name_is_whole_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("costguard.renderers.table.is_terminal", lambda: True)
    names = ("\u8a13\u7df4\u7528\u30b5\u30fc\u30d0\u30fc\u6771\u4eac", "\u8a13\u7df4\u7528\u30b5\u30fc\u30d0\u30fc\u5927\u962a")
    table = TableView(title="", columns=("name",), rows=tuple((name,) for name in names), fits={"name": ColumnFit()})
    for columns in ("100", "9" * 5000, "\u00b2"):
        monkeypatch.setenv("COLUMNS", columns)
        monkeypatch.setattr("os.get_terminal_size", lambda _: os.terminal_size((100, 24)))
        drawn = render(Document(data={}, tables=(table,)))
        assert all(name in drawn for name in names)


def test_a_row_takes_the_lines_of_its_longest_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("costguard.renderers.table.is_terminal", lambda: True)
    rows = (("1.00", "one two-three-four-five-six"), ("2", "https://guard.example/login/0123456789"))
    drawn = render(Document(data={}, tables=(TableView(title="", columns=("$>", "why"), rows=rows, fits=FITS),)))
    lines = ["   $  why", "1.00  one", "      two-three-fou\u2026", "   2  https://guard.example/login/0123456789"]
    assert [line for line in drawn.splitlines() if line and "--wide" not in line] == lines
