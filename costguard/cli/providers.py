"""`costguard providers`: what can be asked of whom."""

from __future__ import annotations

import typer

from costguard.cli import options as o
from costguard.cli.answer import answering, write

EXAMPLES = """Examples:

\b
  costguard providers
  costguard providers --json | jq '.providers[] | {name, credentials}'
"""


@answering
def command(ctx: typer.Context, json: o.Json = False, csv: o.Csv = False, markdown: o.Markdown = False) -> None:
    """Print the matrix of abilities."""
    from costguard.services import setup

    write(setup.providers(config=ctx.obj.config), ctx)
