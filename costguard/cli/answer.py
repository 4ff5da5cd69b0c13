"""Write an answer: the document to stdout or a file in the requested format, and the exit code that belongs to it.

In a format for programs the warnings are written to stderr, so that they are still seen.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence

from typer import Context

from costguard.cli.options import choose_format
from costguard.errors import InputError, replace_unprintable
from costguard.providers import plugins
from costguard.services import CommandAnswer
from costguard.system.progress import clear_progress
from costguard.views.document import Document

TEXT_FORMATS = ("table", "html", "markdown", "github")
"""Formats that people read: they hold the warnings themselves."""

Pieces = Iterable[str] | Iterable[bytes]
FORMAT_KEY = "costguard.format"
"""Where a command's context keeps the format that was found for it."""


def write_answer(answer: CommandAnswer, ctx: Context) -> None:
    """Render the answer and print it, or write it to the file of `--output`; then raise its refusal, if it has one."""
    chosen = find_format(ctx)
    pieces = _render_answer(answer, chosen, {**ctx.params, "wide": "yes" if ctx.obj.wide else None})
    file = ctx.params.get("output")
    if isinstance(file, str):
        from costguard.cli import output

        force = bool(ctx.params.get("force"))
        output.write_target(pieces, output.resolve_target(file, force=force), force=force)
    else:
        _print_pieces(pieces)
    if chosen.name not in TEXT_FORMATS:
        for warning in answer.warnings:
            _print_warning(warning, as_json=ctx.obj.json_log)
    if answer.refusal is not None:
        raise answer.refusal


def check_format(ctx: Context, makes: Sequence[str]) -> None:
    """Raise InputError for a format that the command's options do not fit, or that needs a field which no answer of it has.

    `makes`: the fields of documents that only some commands make.
    """
    chosen = find_format(ctx)
    if chosen.needs not in makes:
        _check_needs(Document(data={}), chosen)


def find_format(ctx: Context) -> plugins.ReportFormat:
    """Return the format chosen by its flag, its name or the extension of `--output`.

    Raises InputError if other flags do not fit it. The result is cached, because listing the installed formats takes 5 ms.
    """
    report_format: plugins.ReportFormat | None = ctx.meta.get(FORMAT_KEY)
    if report_format is None:
        report_format = ctx.meta[FORMAT_KEY] = _resolve_format(ctx.params)
    return report_format


def _resolve_format(params: Mapping[str, object]) -> plugins.ReportFormat:
    file = params.get("output")
    file_name = file if isinstance(file, str) else ""
    chosen = plugins.load_report_format(choose_format(params, "") or plugins.find_format_by_ending(file_name), file=file_name)
    if params.get("focus_version") is not None and "focus_version" not in chosen.options:
        raise InputError("sets the version of a FOCUS export", field="--focus-version", hint="add --format focus")
    if isinstance(file, str):
        from costguard.cli import output

        output.resolve_target(file, force=bool(params.get("force")))
    elif "output" in params and params.get("force"):
        raise InputError("replaces the file named by --output", field="--force", hint="name a file: --output FILE")
    return chosen


def _render_answer(answer: CommandAnswer, chosen: plugins.ReportFormat, params: Mapping[str, object]) -> Pieces:
    document = answer.document
    _check_needs(document, chosen)
    options = {name: str(params[name]) for name in chosen.options if params.get(name) is not None}
    rendered = chosen.render(document, **options)
    return [rendered] if isinstance(rendered, str) else rendered


def _check_needs(document: Document, chosen: plugins.ReportFormat) -> None:
    """Raise InputError if `document` lacks the field that the format needs."""
    if chosen.needs and getattr(document, chosen.needs, None) is None:
        what = f"{chosen.name} needs charges, and this answer has none"
        raise InputError(what, field="--format", hint="costguard report")


def _print_pieces(pieces: Pieces) -> None:
    """Print text as it arrives.

    Bytes are refused: they are meant for files, and a terminal would interpret them.
    """
    clear_progress()
    for piece in pieces:
        if isinstance(piece, bytes):
            raise InputError(
                "is a binary format and cannot be printed", field="--format", hint="name a file for it: --output FILE"
            )
        sys.stdout.write(piece)
    sys.stdout.flush()


def _print_warning(warning: str, *, as_json: bool) -> None:
    text = replace_unprintable(warning)
    sys.stderr.write((json.dumps({"level": "warning", "message": text}) if as_json else f"warning: {text}") + "\n")
