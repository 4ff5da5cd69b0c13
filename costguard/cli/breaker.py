"""`costguard breaker`: show the acts that the breaker holds, or close it."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Context, Option

from costguard.cli import options as o
from costguard.cli.answer import write_answer
from costguard.cli.options import Text
from costguard.errors import InputError
from costguard.values.checks import require_one_of

EXAMPLES = """Examples:

\b
  costguard breaker show
  costguard breaker close --why "the job array ended, all eight are done"

It opens where a quarter of the fleet, and at least five machines, turn idle or unknown within ten minutes ([rails] breaker).
It holds these machines only, asks about each after an hour, and closes by itself after a day. Once closed, it holds none.
"""
ACTIONS = ("show", "close")


def command(
    ctx: Context,
    action: Annotated[str, Argument(metavar="ACTION", help=" | ".join(ACTIONS))],
    why: Annotated[Text, Option("--why", metavar="TEXT", help="The reason; it is shown to others.")] = None,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Show the held machines, or record that the breaker is closed."""
    require_one_of(action, ACTIONS, "ACTION")
    if action == "show" and why is not None:
        raise InputError("belongs to close", field="--why", hint='costguard breaker close --why "..."')
    from costguard.services import overrides

    config = ctx.obj.config
    write_answer(
        overrides.show_breaker(config=config) if action == "show" else overrides.close_breaker(why, config=config), ctx
    )
