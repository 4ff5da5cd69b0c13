"""Writing an answer: the document to stdout or a file in the format asked for, and the exit code that goes with it.

When stdout is a pipe, people's words (warnings) are repeated on stderr, so that a script's reader still sees them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping

import typer

from costguard import plugins
from costguard.app import Answer
from costguard.cli.options import format_from
from costguard.errors import InputError, printable

TOLD = ("table", "html", "markdown")
"""Formats that people read: they hold the warnings themselves."""

Pieces = Iterable[str] | Iterable[bytes]


def write(answer: Answer, ctx: typer.Context) -> None:
    """Render and print, or put into the file of `--output`; then raise what the answer is a refusal of, after its data."""
    chosen = chosen_format(ctx.params)
    pieces = _rendered(answer, chosen, ctx.params)
    file = ctx.params.get("output")
    if isinstance(file, str):
        from costguard.cli import output

        force = bool(ctx.params.get("force"))
        output.put(pieces, output.free(file, force=force), force=force)
    else:
        _print(pieces)
    if chosen.name not in TOLD:
        for warning in answer.warnings:
            _warn(warning, as_json=ctx.obj.json_log)
    if answer.refusal is not None:
        raise answer.refusal


def chosen_format(params: Mapping[str, object]) -> plugins.ReportFormat:
    """The format asked for, by its flag, its name and the ending of `--output`; InputError where flags do not fit it.

    A command that works long asks before it begins.
    """
    file = params.get("output")
    named = file if isinstance(file, str) else ""
    chosen = plugins.report_format(format_from(params, plugins.format_of(named)), file=named)
    if params.get("focus_version") is not None and "focus_version" not in chosen.options:
        raise InputError("says the version of a FOCUS export", field="--focus-version", hint="add --format focus")
    if isinstance(file, str):
        from costguard.cli import output

        output.free(file, force=bool(params.get("force")))
    elif "output" in params and params.get("force"):
        raise InputError("replaces the file of --output", field="--force", hint="name one: --output FILE")
    return chosen


def _rendered(answer: Answer, chosen: plugins.ReportFormat, params: Mapping[str, object]) -> Pieces:
    document = answer.document
    if chosen.needs and getattr(document, chosen.needs, None) is None:
        raise InputError(
            f"{chosen.name} is made of charges, and there are none in this answer", field="--format", hint="costguard report"
        )
    options = {name: str(params[name]) for name in chosen.options if params.get(name) is not None}
    rendered = chosen.render(document, **options)
    return [rendered] if isinstance(rendered, str) else rendered


def _print(pieces: Pieces) -> None:
    """Text as it comes. Bytes are for files, and would act on a terminal."""
    for piece in pieces:
        if isinstance(piece, bytes):
            raise InputError("holds bytes and no text", field="--format", hint="name a file for it: --output FILE")
        sys.stdout.write(piece)
    sys.stdout.flush()


def _warn(warning: str, *, as_json: bool) -> None:
    text = printable(warning)
    sys.stderr.write((json.dumps({"level": "warning", "message": text}) if as_json else f"warning: {text}") + "\n")
