"""`costguard offers`: list the offers of the market, with filters.

Examples:
  costguard offers --gpu H100 --count 8
  costguard offers --provider vast --provider runpod --sort usd_per_gpu_hour
  costguard offers --live --gpu H100
"""

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.cli.commands import FileCommand, add_options
from costguard.services import CommandAnswer
from costguard.sizing.job_flags import build_job_table, parse_number

COMMAND = add_options(FileCommand, o.list_job_options("gpu", "provider", "region", "tier"))


def command(
    ctx: Context,
    count: o.Count = None,
    sort: Annotated[
        o.Text, Option(metavar="NAME", help="Order: usd_per_hour (default) | usd_per_gpu_hour | age | provider")
    ] = None,
    top: Annotated[o.Text, Option(metavar="N", help="Number of rows to show (50; 0: all).")] = None,
    every: Annotated[bool, Option("--all", help="Show one row per region, instead of one row with a price range.")] = False,
    market: o.Market = None,
    live: Annotated[bool, Option("--live", help="Also show current prices, fetched from the configured providers.")] = False,
    min_reliability: Annotated[
        o.Text, Option(metavar="N", help="With --live: only marketplace hosts that are reachable so much of the time: 0.98.")
    ] = None,
    strict: Annotated[bool, Option("--strict", help="With --live: exit 4 if a provider could not be queried.")] = False,
) -> CommandAnswer:
    """Read the options and return the offers."""
    from costguard.services.quote import quote_commands

    return quote_commands.answer_offers(
        flags=build_job_table(ctx.params),
        count=None if count is None else parse_number(count, "count"),
        sort=sort or "usd_per_hour",
        top=50 if top is None else parse_number(top, "top"),
        market=market,
        live=live,
        every=every,
        min_reliability=None if min_reliability is None else parse_number(min_reliability, "min-reliability"),
        strict=strict,
        offline=ctx.obj.offline,
        config=ctx.obj.config,
    )
