"""`--csv`: a stable header, and no cell that a spreadsheet would run."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.renderers.csv_text import render
from costguard.views.document import Document


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def test_one_line_a_record_under_the_names_of_its_fields() -> None:
    document = Document(data={}, records=({"a": 1, "b": None}, {"a": 2.5, "b": "x,y"}))
    assert render(document) == 'a,b\n1,\n2.5,"x,y"\n'


def test_a_field_that_only_a_later_record_has_gets_a_column() -> None:
    assert render(Document(data={}, records=({"a": 1}, {"b": 2}))) == "a,b\n1,\n,2\n"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n=", "\uff1d", "\uff0b", "\uff0d", "\uff20"])
def test_a_text_that_a_spreadsheet_would_run_is_quoted(start: str) -> None:
    cell = read(render(Document(data={}, records=({"a": f"{start}cmd()"},))))[1][0]
    assert cell.startswith("'")


def test_a_formula_after_a_semicolon_is_quoted_for_spreadsheets_that_separate_cells_by_it() -> None:
    assert read(render(Document(data={}, records=({"a": "x;=cmd();-1; +2"},))))[1] == ["x;'=cmd();'-1; +2"]


def test_a_negative_number_stays_a_number() -> None:
    assert render(Document(data={}, records=({"a": -1.5},))) == "a\n-1.5\n"


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_any_text_stays_in_its_cell_and_on_its_line(cells: list[str]) -> None:
    record = {str(n): cell for n, cell in enumerate(cells)}
    text = render(Document(data={}, records=(record,)))
    assert len(read(text)) == 2
    assert len(read(text)[1]) == len(cells)
    assert all(c == "\n" or c.isprintable() for c in text)
