"""`costguard breaker`: show the acts that the breaker holds, or close it."""

from __future__ import annotations

from typing import Annotated

from typer import Context, Option

from costguard.cli.answer import add_format_options, write_answer
from costguard.cli.commands import CostguardCommand, build_group
from costguard.cli.options import Text

EXAMPLES = """Examples:

\b
  costguard breaker show
  costguard breaker close --why "the job array ended, all eight are done"

It opens where a quarter of the fleet, and at least five machines, turn idle or unknown within ten minutes ([rails] breaker).
It holds these machines only, asks about each after an hour, and closes by itself after a day. Once closed, it holds none.
"""
app = build_group()


@app.command(cls=CostguardCommand)
@add_format_options
def show(ctx: Context) -> None:
    """Show the machines that it holds."""
    from costguard.services.guarding import overrides

    write_answer(overrides.show_breaker(config=ctx.obj.config), ctx)


@app.command(cls=CostguardCommand)
@add_format_options
def close(
    ctx: Context,
    why: Annotated[Text, Option("--why", metavar="TEXT", help="The reason; it is shown to others.")] = None,
) -> None:
    """Record that the breaker is closed."""
    from costguard.services.guarding import overrides

    write_answer(overrides.close_breaker(why, config=ctx.obj.config), ctx)
