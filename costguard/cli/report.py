"""`costguard report`: where a period's money went."""

from __future__ import annotations

from typing import Annotated

import typer

from costguard.cli import options as o
from costguard.cli.answer import chosen_format, write
from costguard.cli.options import Text

EXAMPLES = """Examples:

\b
  costguard report
  costguard report --month 2026-10 --by provider,owner
  costguard report --week 2026-W40 --by team,label:run
  costguard report --from 2026-10-03 --to 2026-10-03T18:00 --by resource
  costguard report --month 2026-10 --zone Europe/Berlin --csv
  costguard report --month 2026-10 --format focus --output october.csv      # also october.parquet, --format beancount
"""


def command(
    ctx: typer.Context,
    month: Annotated[Text, typer.Option(metavar="YYYY-MM", help="The month (default: this one).")] = None,
    day: Annotated[Text, typer.Option(metavar="YYYY-MM-DD", help="A day instead.")] = None,
    week: Annotated[Text, typer.Option(metavar="YYYY-Www", help="A week instead, Monday to Sunday (ISO 8601).")] = None,
    start: Annotated[Text, typer.Option("--from", metavar="WHEN", help="Any time instead: a day or an instant.")] = None,
    end: Annotated[Text, typer.Option("--to", metavar="WHEN", help="The first instant after it (default: now).")] = None,
    by: Annotated[
        Text,
        typer.Option(
            metavar="KEYS",
            help=(
                "provider,account,owner,gpu; also region, kind, charge, tier, instance_type, project, team; as last seen: "
                "resource, name, job, label:KEY."
            ),
        ),
    ] = None,
    zone: o.Zone = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 4 where a scope was not seen all through.")] = False,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
    format: o.Format = None,  # noqa: A002 - the option's name
    focus_version: o.FocusVersion = None,
    output: o.Output = None,
    force: o.Force = False,
) -> None:
    """Print the statement of a period."""
    from costguard.app import spending

    needs = chosen_format(ctx.params).needs
    stated = {"month": month, "day": day, "week": week, "from": start, "to": end}
    write(spending.report(stated=stated, by=by, zone=zone, strict=strict, needs=needs, config=ctx.obj.config), ctx)
