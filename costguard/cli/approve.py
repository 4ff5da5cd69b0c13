"""`costguard approve`: yes to one act that the guard asked about."""

from __future__ import annotations

from typing import Annotated

import typer

from costguard.cli import options as o
from costguard.cli.answer import write_answer
from costguard.cli.options import Text

EXAMPLES = """Examples:

\b
  costguard approve old-box terminate --why "its checkpoints are in the bucket"
  costguard approve i-0a1b2c3d stop

It counts for a day and for this run of the machine alone; no answer to what was asked keeps it running.
"""


def command(
    ctx: typer.Context,
    id: Annotated[str, typer.Argument(metavar="ID", help="Which machine: an id, a name, or its beginning.")],  # noqa: A002 - as it is shown
    act: Annotated[str, typer.Argument(metavar="ACT", help="stop | terminate")],
    why: Annotated[Text, typer.Option("--why", metavar="TEXT", help="What for; others read it.")] = None,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Record an approval."""
    from costguard.services import overrides

    write_answer(overrides.approve_action(id, act, why=why, config=ctx.obj.config), ctx)
