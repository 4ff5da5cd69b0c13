"""`costguard snooze`: send no messages about a machine or a policy for a limited time.

Acts are not affected.
"""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Context, Option

from costguard.cli import options as o
from costguard.cli.answer import write_answer
from costguard.cli.options import Text

EXAMPLES = """Examples:

\b
  costguard snooze train-1 --for 2h
  costguard snooze train-1 --lift
  costguard snooze idle-gpu --for 7d --why "moving to the new cluster"

The policy still acts: use costguard keep or costguard freeze to prevent acts.
"""


def command(
    ctx: Context,
    target: Annotated[str, Argument(metavar="TARGET", help="A policy's name, or a machine's id or name.")],
    length: Annotated[Text, Option("--for", metavar="TIME", help="Duration: 45m, 4h, 7d.")] = None,
    why: Annotated[Text, Option("--why", metavar="TEXT", help="The reason; it is shown to others.")] = None,
    lift: Annotated[bool, Option("--lift", help="Lift the snooze.")] = False,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Record a snooze."""
    from costguard.services.guarding import overrides

    write_answer(overrides.snooze_alerts(target, length=length, why=why, lift=lift, config=ctx.obj.config), ctx)
