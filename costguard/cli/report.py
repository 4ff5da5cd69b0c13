"""`costguard report`: where a month's money went."""

from __future__ import annotations

from typing import Annotated

import typer

from costguard.cli import options as o
from costguard.cli.answer import write
from costguard.cli.options import Text

EXAMPLES = """Examples:

\b
  costguard report
  costguard report --month 2026-10 --by provider,owner
  costguard report --month 2026-10 --zone Europe/Berlin --csv
"""


def command(
    ctx: typer.Context,
    month: Annotated[Text, typer.Option(metavar="YYYY-MM", help="The month (default: this one).")] = None,
    by: Annotated[
        Text,
        typer.Option(
            metavar="KEYS",
            help="provider,account,owner,gpu; also region, kind, charge, tier, instance_type, project, team.",
        ),
    ] = None,
    zone: o.Zone = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 4 where a scope was not seen all through.")] = False,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
    format: o.Format = None,  # noqa: A002 - the option's name
) -> None:
    """Print the statement of a month."""
    from costguard.app import spending

    write(spending.report(month=month, by=by, zone=zone, strict=strict, config=ctx.obj.config), ctx)
