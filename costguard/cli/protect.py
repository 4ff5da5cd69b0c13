"""`costguard protect`: never act on a machine until the protection is lifted."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Context, Option

from costguard.cli import options as o
from costguard.cli.answer import write_answer
from costguard.cli.options import Text

EXAMPLES = """Examples:

\b
  costguard protect prod-api --why "serves customers"
  costguard protect prod-api --lift

A hard cap does not stop a protected machine either: it sends a page instead. A label costguard=never, and the provider's
own protection, do the same, and no command here lifts those.
"""


def command(
    ctx: Context,
    id: Annotated[str, Argument(metavar="ID", help="The machine: an id, a name, or the beginning of either.")],  # noqa: A002 - as it is shown
    why: Annotated[Text, Option("--why", metavar="TEXT", help="The reason; it is shown to others.")] = None,
    lift: Annotated[bool, Option("--lift", help="Lift the protection.")] = False,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Record a protection, or lift it."""
    from costguard.services.guarding import overrides

    write_answer(overrides.protect_resource(id, why=why, lift=lift, config=ctx.obj.config), ctx)
