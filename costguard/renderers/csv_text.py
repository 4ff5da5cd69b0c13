"""`--csv`: one line per record, with a header; nested values are only in `--json`."""

from __future__ import annotations

import csv
import io
import re

from costguard.errors import to_one_line
from costguard.views.document import Document

FORMULA_START = re.compile(r"(^|;)(?=[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20])")
"""A cell that starts so is run by spreadsheets (OWASP, "CSV Injection": some take the full-width signs too), and where `;`
separates cells also what follows one. Text gets a quote in front."""


def render(document: Document) -> str:
    """Return RFC 4180 CSV with line feeds; None is an empty cell."""
    out = io.StringIO()
    header = list(dict.fromkeys(key for record in document.records for key in record))
    writer = csv.DictWriter(out, header, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows({k: escape_cell(v) for k, v in record.items()} for record in document.records)
    return out.getvalue()


def escape_cell(value: object) -> object:
    """Return `value` as a cell; text becomes one line that no terminal interprets and no spreadsheet runs as a formula."""
    if not isinstance(value, str):
        return value
    return to_one_line(FORMULA_START.sub(r"\1'", value))
