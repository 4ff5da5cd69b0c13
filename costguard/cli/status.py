"""`costguard status`: what is running, what it costs, and what the month comes to."""

from __future__ import annotations

import typer

from costguard.cli import options as o
from costguard.cli.answer import write

EXAMPLES = """Examples:

\b
  costguard status
  costguard status --zone Europe/Berlin
  costguard status --json | jq .burn_usd_per_hour

It reads the ledger and asks no provider: how old each figure is stands in the answer.
"""


def command(
    ctx: typer.Context,
    zone: o.Zone = None,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
    format: o.Format = None,  # noqa: A002 - the option's name
) -> None:
    """Print what burns now."""
    from costguard.app import spending

    write(spending.status(zone=zone, config=ctx.obj.config), ctx)
