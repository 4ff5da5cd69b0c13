"""`--csv`: one line per record, with a header; nested values are left to `--json`."""

from __future__ import annotations

import csv
import io

from costguard.errors import to_one_line
from costguard.views.document import Document

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""A cell that starts so is run by spreadsheets (OWASP, "CSV Injection": some take the full-width signs too); text cells get a
quote in front."""


def render(document: Document) -> str:
    """RFC 4180 with line feeds. None is an empty cell."""
    out = io.StringIO()
    header = list(dict.fromkeys(key for record in document.records for key in record))
    writer = csv.DictWriter(out, header, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows({k: escape_cell(v) for k, v in record.items()} for record in document.records)
    return out.getvalue()


def escape_cell(value: object) -> object:
    """`value` as a cell: of text, one line that no terminal acts on and no spreadsheet runs."""
    if not isinstance(value, str):
        return value
    text = to_one_line(value)
    return f"'{text}" if value.startswith(FORMULA_STARTS) else text
