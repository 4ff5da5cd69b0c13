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
    sort: Annotated[o.Text, Option(metavar="NAME", help="usd_per_hour | usd_per_gpu_hour | age | provider")] = None,
    top: Annotated[o.Text, Option(metavar="N", help="Rows to show (50; 0 for all).")] = None,
    every: Annotated[bool, Option("--all", help="One row for each region of a machine, not one with their range.")] = False,
    market: o.Market = None,
    live: Annotated[
        bool, Option("--live", help="Ask the configured providers, and show their prices with the market's.")
    ] = False,
    strict: Annotated[bool, Option("--strict", help="With --live: exit 4 if a provider could not be asked.")] = False,
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
        strict=strict,
        offline=ctx.obj.offline,
        config=ctx.obj.config,
    )
