"""Writing an answer: the document to stdout in the format asked for, and the exit code that goes with it.

When stdout is a pipe, people's words (warnings) are repeated on stderr, so that a script's reader still sees them.
"""

from __future__ import annotations

import json
import sys

import typer

from costguard import plugins
from costguard.app import Answer
from costguard.cli.options import format_from
from costguard.errors import printable


def write(answer: Answer, ctx: typer.Context) -> None:
    """Render and print; then raise what the answer is a refusal of, after its data has been printed."""
    name = format_from(ctx.params)
    sys.stdout.write(plugins.renderer(name)(answer.document))
    sys.stdout.flush()
    if name in ("json", "csv"):
        for warning in answer.warnings:
            _warn(warning, as_json=ctx.obj.json_log)
    if answer.refusal is not None:
        raise answer.refusal


def _warn(warning: str, *, as_json: bool) -> None:
    text = printable(warning)
    sys.stderr.write((json.dumps({"level": "warning", "message": text}) if as_json else f"warning: {text}") + "\n")
