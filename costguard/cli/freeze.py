"""`costguard freeze`: prevent all acts until the freeze is lifted.

Polls, the ledger and messages continue.
"""

from __future__ import annotations

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.cli.answer import write_answer
from costguard.cli.options import Text

EXAMPLES = """Examples:

\b
  costguard freeze --why "the provider's metrics are wrong today"
  costguard freeze --lift

It applies to every watchdog on this ledger from its next run on. Hard caps do not act either.
"""


def command(
    ctx: Context,
    why: Annotated[Text, Option("--why", metavar="TEXT", help="The reason; it is shown to others.")] = None,
    lift: Annotated[bool, Option("--lift", help="Lift the freeze.")] = False,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Record a freeze, or lift it."""
    from costguard.services.guarding import overrides

    write_answer(overrides.freeze_actions(why=why, lift=lift, config=ctx.obj.config), ctx)
