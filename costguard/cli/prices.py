"""`costguard prices`: show the prices in use, and fetch current ones.

Examples:
  costguard prices                      # the prices that quotes use, and their age
  costguard prices refresh              # fetch prices from the configured providers, or if none from public sources
  costguard prices refresh --public     # fetch prices from both
  costguard prices refresh --source gpuhunt --provider aws
  costguard prices sources              # the public sources: terms, size, freshness, address
  costguard prices history --gpu H100 --provider runpod
"""

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.cli.commands import FileCommand, add_options, build_group
from costguard.services import CommandAnswer
from costguard.sizing.job_flags import build_job_table, parse_number

app = build_group(default="show")


@app.command(cls=FileCommand)
def show(ctx: Context, market: o.Market = None) -> CommandAnswer:
    """Show the prices that quotes use, and their age."""
    from costguard.services.quote import offers

    return offers.answer_prices(market=market, config=ctx.obj.config)


@app.command(cls=FileCommand)
def refresh(
    ctx: Context,
    provider: o.Provider = None,
    public: Annotated[bool, Option("--public", help="Also fetch from public sources, which need no key.")] = False,
    source: Annotated[o.Names, Option("--source", metavar="NAME", help="Only this public source (repeatable).")] = None,
    strict: Annotated[bool, Option("--strict", help="Exit 4 if a provider or source could not be queried.")] = False,
) -> CommandAnswer:
    """Fetch current prices from the providers, or from public sources."""
    from costguard.services.quote import offers

    return offers.refresh_prices(
        only=tuple(provider) if provider else None,
        public=public,
        sources=tuple(source) if source else None,
        strict=strict,
        offline=ctx.obj.offline,
        config=ctx.obj.config,
    )


@app.command("sources", cls=FileCommand)
def list_sources(ctx: Context) -> CommandAnswer:
    """List the public sources of prices, with their terms."""
    from costguard.services.quote import offers

    return offers.answer_price_sources(config=ctx.obj.config)


@app.command("history", cls=add_options(FileCommand, o.list_job_options("gpu", "provider", "region", "tier")))
def show_history(
    ctx: Context,
    count: o.Count = None,
    days: Annotated[o.Text, Option(metavar="N", help="Number of days to look back (365).")] = None,
    chart: Annotated[bool, Option("--chart", help="Draw a chart for each row (always drawn for a single row).")] = False,
    market: o.Market = None,
) -> CommandAnswer:
    """Show the history of prices."""
    from costguard.services.quote.price_history import answer_price_history

    return answer_price_history(
        flags=build_job_table(ctx.params),
        count=None if count is None else parse_number(count, "count"),
        days=None if days is None else parse_number(days, "days"),
        chart=chart,
        market=market,
        config=ctx.obj.config,
    )
