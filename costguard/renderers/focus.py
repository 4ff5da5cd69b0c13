"""`--format focus`: a FOCUS export as CSV, one row per charge item.

`--focus-version` selects the version (default: the newest). Text that a spreadsheet would run as a formula gets a quote in
front, as in every CSV. Names are exported as they are.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import islice

from costguard.renderers.csv_text import FORMULA_START, escape_cell
from costguard.reporting.focus.columns import NEWEST_VERSION
from costguard.reporting.focus.rows import RowValue, build_rows, list_header
from costguard.views.document import Document

NEEDS = "items"
OPTIONS = ("focus_version",)

_ROWS_AT_ONCE = 1000
"""Rows that are written at once."""


def render(document: Document, *, focus_version: str | None = None) -> Iterator[str]:
    """Yield the header, then the rows in the ledger's order, as RFC 4180 CSV with line feeds; null is an empty cell."""
    return _render_pieces(build_rows(document.items), list_header(focus_version or NEWEST_VERSION))


def _render_pieces(rows: Iterator[Mapping[str, RowValue]], names: Sequence[str]) -> Iterator[str]:
    yield _format_csv_lines([names])
    while batch := list(islice(rows, _ROWS_AT_ONCE)):
        yield _format_csv_lines([[_format_cell(each[name]) for name in names] for each in batch])


def _format_csv_lines(lines: Sequence[Sequence[object]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue()


def _format_cell(value: RowValue) -> object:
    """Return a cell as text.

    Decimals have no exponent and no trailing zeros, instants are whole seconds of UTC, objects are JSON in ASCII.
    """
    if value is None or isinstance(value, str):
        return escape_cell(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%SZ}"
    return format_json_object(value)


def format_json_object(value: Mapping[str, object]) -> str | None:
    """Return an object as JSON text; None if it is empty. `;` before a sign is escaped: see `FORMULA_START`."""
    return FORMULA_START.sub(lambda match: match[0].replace(";", "\\u003b"), json.dumps(value)) if value else None
