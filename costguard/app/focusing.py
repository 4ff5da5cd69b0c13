"""`costguard focus`: FOCUS files, ours and others'."""

from __future__ import annotations

from costguard.app import Answer
from costguard.core.documents.focus import findings_text, focus_document
from costguard.core.focus.check import check as held
from costguard.core.focus.columns import columns
from costguard.errors import NoAnswerError
from costguard.settings import path_of
from costguard.settings.focus_files import opened, read_json


def check(file: str, *, version: str | None = None) -> Answer:
    """`costguard focus check`; findings end it with exit code 3, after they have been printed."""
    if version is not None:
        columns(version)
    path = path_of(file)
    with opened(path) as (header, lines):
        checked = held(header, lines, read_json, version)
    refusal = NoAnswerError(findings_text(checked.count), field=file) if checked.count else None
    return Answer(document=focus_document(file, checked), refusal=refusal)
