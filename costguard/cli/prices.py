"""`costguard prices`: show the prices in use, and fetch current ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Context, Option

from costguard.cli import options as o
from costguard.cli.answer import add_output_options, write_answer
from costguard.cli.options import Names, Text
from costguard.errors import InputError
from costguard.values.checks import require_one_of

if TYPE_CHECKING:  # a type and no more: services are imported when a command runs
    from costguard.services import CommandAnswer

ACTIONS = ("show", "refresh", "sources", "history")
EXAMPLES = """Examples:

\b
  costguard prices                      # the prices that quotes use, and their age
  costguard prices refresh              # fetch prices from the configured providers, without one from public sources
  costguard prices refresh --public     # from both
  costguard prices refresh --source gpuhunt --provider aws
  costguard prices sources              # the public sources: terms, size, freshness, address
  costguard prices history --gpu H100 --provider runpod
"""


@add_output_options
def command(
    ctx: Context,
    action: Annotated[Text, Argument(metavar="ACTION", help=" | ".join(ACTIONS))] = None,
    provider: o.Provider = None,
    public: Annotated[bool, Option("--public", help="Ask public sources, which need no key, too.")] = False,
    source: Annotated[Names, Option("--source", metavar="NAME", help="Only this public source (repeatable).")] = None,
    strict: Annotated[bool, Option("--strict", help="Exit 4 if a provider or source could not be asked.")] = False,
    gpu: o.GpuName = None,
    count: Annotated[Text, Option(metavar="N", help="history: number of GPUs per instance.")] = None,
    region: o.Region = None,
    tier: o.Tier = None,
    days: Annotated[Text, Option(metavar="N", help="history: so many days back (365).")] = None,
    chart: Annotated[bool, Option("--chart", help="history: draw a chart per row (of one row it is drawn anyway).")] = False,
    market: o.Market = None,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
) -> None:
    """Show the prices in use, refresh them, draw their history, or list the public sources of prices."""
    from costguard.services.quote import offers

    config, chosen = ctx.obj.config, require_one_of(action or "show", ACTIONS, "ACTION")
    _refuse_unused_flags(ctx, chosen)
    if chosen == "history":
        write_answer(_answer_history(ctx), ctx)
    elif chosen == "show":
        write_answer(offers.answer_prices(market=market, config=config), ctx)
    elif chosen == "sources":
        write_answer(offers.answer_price_sources(config=config), ctx)
    else:
        answer = offers.refresh_prices(
            only=tuple(provider) if provider else None,
            public=public,
            sources=tuple(source) if source else None,
            strict=strict,
            offline=ctx.obj.offline,
            config=config,
        )
        write_answer(answer, ctx)


USED_BY: Mapping[str, tuple[str, ...]] = {
    "provider": ("refresh", "history"),
    **dict.fromkeys(("public", "source", "strict"), ("refresh",)),
    **dict.fromkeys(("gpu", "count", "region", "tier", "days", "chart"), ("history",)),
    "market": ("show", "history"),
}
"""Flag -> the actions that use it."""


def _refuse_unused_flags(ctx: Context, chosen: str) -> None:
    """Raise InputError for a flag that `chosen` would ignore: `costguard prices --public` was meant to refresh."""
    for name, actions in USED_BY.items():
        if ctx.params.get(name) and chosen not in actions:
            write = f"costguard prices {actions[0]} --{name}"
            raise InputError(f"is not used by prices {chosen}", field=f"--{name}", hint=f"write {write}")


def _answer_history(ctx: Context) -> CommandAnswer:
    from costguard.services.quote.price_history import answer_price_history

    stated = ctx.params
    return answer_price_history(
        flags=o.build_job_table(stated),
        count=None if stated["count"] is None else o.parse_number(stated["count"], "count"),
        days=None if stated["days"] is None else o.parse_number(stated["days"], "days"),
        chart=stated["chart"],
        market=stated["market"],
        config=ctx.obj.config,
    )
