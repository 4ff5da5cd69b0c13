"""`costguard prices`: show the prices in use, and fetch current ones."""

from __future__ import annotations

from typing import Annotated

import typer

from costguard.cli import options as o
from costguard.cli.answer import add_output_options, write_answer
from costguard.cli.options import Text
from costguard.values.checks import require_one_of

ACTIONS = ("show", "refresh")
EXAMPLES = """Examples:

\b
  costguard prices                      # the prices that quotes use, and their age
  costguard prices refresh              # fetch prices from the configured providers and use them
  costguard prices refresh --provider vast
"""


@add_output_options
def command(
    ctx: typer.Context,
    action: Annotated[Text, typer.Argument(metavar="[ACTION]", help=" | ".join(ACTIONS))] = None,
    provider: o.Provider = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 4 if a provider could not be asked.")] = False,
    market: o.Market = None,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Show the prices in use, or refresh and show them."""
    from costguard.services import offers

    config = ctx.obj.config
    if require_one_of(action or "show", ACTIONS, "ACTION") == "show":
        write_answer(offers.answer_prices(market=market, config=config), ctx)
        return
    only = tuple(provider) if provider else None
    write_answer(offers.refresh_prices(only=only, strict=strict, offline=ctx.obj.offline, config=config), ctx)
