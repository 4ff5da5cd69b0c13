"""`costguard focus`: FOCUS files, ours and others'."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from costguard.errors import InputError, NoAnswerError
from costguard.files.cells import read_json, text_of
from costguard.files.table import Table, table
from costguard.reporting.focus.check import check_focus_file as held
from costguard.reporting.focus.columns import get_columns
from costguard.services import Answer
from costguard.settings import path_of
from costguard.views.focus import findings_text, focus_document


def check(file: str, *, version: str | None = None) -> Answer:
    """`costguard focus check`; findings end it with exit code 3, after they have been printed."""
    if version is not None:
        get_columns(version)
    with table(path_of(file), delimiters=",") as found:
        if len(found.header) == 1 and not found.header[0].isidentifier():
            hint = "FOCUS is CSV with commas, CSV packed by gzip, or Parquet"
            raise InputError("has one column only in its first line", field=found.name, hint=hint)
        checked = held(found.header, _texts(found), read_json, version)
    refusal = NoAnswerError(findings_text(checked.count), field=file) if checked.count else None
    return Answer(document=focus_document(file, checked), refusal=refusal)


def _texts(found: Table) -> Iterator[tuple[int, Sequence[str]]]:
    return ((number, [text_of(cell) for cell in cells]) for number, cells in found.rows)
