"""`costguard focus`: FOCUS files, ours and others'."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from costguard.errors import InputError, NoAnswerError
from costguard.files.cells import format_cell, parse_json
from costguard.files.table import FileTable, open_table
from costguard.reporting.focus.check import check_focus_file as held
from costguard.reporting.focus.columns import get_columns
from costguard.services import CommandAnswer
from costguard.settings import expand_path
from costguard.views.focus import build_focus_check_document, format_finding_count


def answer_focus_check(file: str, *, version: str | None = None) -> CommandAnswer:
    """`costguard focus check`; findings end it with exit code 3, after they have been printed."""
    if version is not None:
        get_columns(version)
    with open_table(expand_path(file), delimiters=",") as found:
        if len(found.header) == 1 and not found.header[0].isidentifier():
            hint = "FOCUS is CSV with commas, CSV packed by gzip, or Parquet"
            raise InputError("has one column only in its first line", field=found.name, hint=hint)
        checked = held(found.header, _read_row_texts(found), parse_json, version)
    refusal = NoAnswerError(format_finding_count(checked.count), field=file) if checked.count else None
    return CommandAnswer(document=build_focus_check_document(file, checked), refusal=refusal)


def _read_row_texts(found: FileTable) -> Iterator[tuple[int, Sequence[str]]]:
    return ((number, [format_cell(cell) for cell in cells]) for number, cells in found.rows)
