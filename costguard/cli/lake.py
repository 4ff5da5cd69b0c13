"""`costguard lake`: write closed months as FOCUS Parquet, and report over years of them."""

from __future__ import annotations

from typing import Annotated

from click import Context

from costguard.cli import options as o
from costguard.cli.answer import add_output_options, write_answer
from costguard.cli.commands import Argument, Option, Text
from costguard.errors import InputError
from costguard.values.checks import require_one_of

ACTIONS = ("write", "report")
EXAMPLES = """Examples:

\b
  costguard lake write --url /srv/costguard-lake       # or [lake] url = "s3://bucket/costguard"
  costguard lake report --from 2025-01 --to 2026-10 --by month,team
  duckdb -c "SELECT sum(EffectiveCost) FROM read_parquet('/srv/costguard-lake/*/*/*.parquet', hive_partitioning = true)"

A month is written five days after its end (UTC), and again where the ledger's items have changed since.
"""


@add_output_options
def command(
    ctx: Context,
    action: Annotated[str, Argument(metavar="ACTION", help=" | ".join(ACTIONS))],
    url: Annotated[Text, Option("--url", metavar="URL", help="Folder or object store (default: [lake] url).")] = None,
    first: Annotated[Text, Option("--from", metavar="YYYY-MM", help="The first month (default: all).")] = None,
    last: Annotated[Text, Option("--to", metavar="YYYY-MM", help="The last month (default: all).")] = None,
    by: Annotated[Text, Option("--by", metavar="KEYS", help="Keys of a report (default: month,provider).")] = None,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
    format: o.Format = None,  # noqa: A002 - the option's name
) -> None:
    """Write closed months, or report from them."""
    require_one_of(action, ACTIONS, "ACTION")
    if by is not None and action != "report":
        raise InputError("belongs to report", field="--by", hint="costguard lake report --by month,team")
    from costguard.services import lake

    config = ctx.obj.config
    if action == "write":
        write_answer(lake.answer_lake_write(url=url, first=first, last=last, config=config), ctx)
    else:
        write_answer(lake.answer_lake_report(url=url, first=first, last=last, by=by, config=config), ctx)
