"""`costguard offers`: list the offers of the market, with filters."""

from __future__ import annotations

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.cli.answer import add_output_options, write_answer
from costguard.cli.options import Text

EXAMPLES = """Examples:

\b
  costguard offers --gpu H100 --count 8
  costguard offers --provider vast --provider runpod --sort usd_per_gpu_hour
  costguard offers --live --gpu H100
"""


@add_output_options
def command(
    ctx: Context,
    gpu: o.GpuName = None,
    count: Annotated[Text, Option(metavar="N", help="Number of GPUs per instance.")] = None,
    provider: o.Provider = None,
    region: o.Region = None,
    tier: o.Tier = None,
    sort: Annotated[Text, Option(metavar="NAME", help="usd_per_hour | usd_per_gpu_hour | age | provider")] = None,
    top: Annotated[Text, Option(metavar="N", help="Rows to show (50; 0 for all).")] = None,
    every: Annotated[bool, Option("--all", help="One row for each region of a machine, not one with their range.")] = False,
    market: o.Market = None,
    live: Annotated[
        bool, Option("--live", help="Ask the configured providers, and show their prices with the market's.")
    ] = False,
    strict: Annotated[bool, Option("--strict", help="With --live: exit 4 if a provider could not be asked.")] = False,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Read the options and print the offers."""
    from costguard.services.quote import quote_commands

    answer = quote_commands.answer_offers(
        flags=o.build_job_table(ctx.params),
        count=None if count is None else o.parse_number(count, "count"),
        sort=sort or "usd_per_hour",
        top=50 if top is None else o.parse_number(top, "top"),
        market=market,
        live=live,
        every=every,
        strict=strict,
        offline=ctx.obj.offline,
        config=ctx.obj.config,
    )
    write_answer(answer, ctx)
