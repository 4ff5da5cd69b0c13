"""`costguard approve`: approve one act for which a policy asked."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Context, Option

from costguard.cli import options as o
from costguard.cli.answer import write_answer
from costguard.cli.options import Text

EXAMPLES = """Examples:

\b
  costguard approve old-box terminate --why "its checkpoints are in the bucket"
  costguard approve i-0a1b2c3d stop

An approval is valid for one day and only for the machine's current run. Without an approval the machine keeps running.
"""


def command(
    ctx: Context,
    id: Annotated[str, Argument(metavar="ID", help="The machine: an id, a name, or the beginning of either.")],  # noqa: A002 - as it is shown
    act: Annotated[str, Argument(metavar="ACT", help="stop | terminate")],
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask whether a name or an id is the machine you mean.")] = False,
    why: Annotated[Text, Option("--why", metavar="TEXT", help="The reason; it is shown to others.")] = None,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Record an approval."""
    from costguard.cli.confirm import find_asker
    from costguard.services.guarding import overrides

    ask = None if yes else find_asker()
    write_answer(overrides.approve_action(id, act, why=why, ask=ask, config=ctx.obj.config), ctx)
