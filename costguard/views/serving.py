"""A quote of a server: load, latency and the price of a million tokens, per option.

The money of an option is that of a month of 730 hours, because a server that waits for requests is never switched off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from costguard.quoting.quote import QuoteOption
from costguard.sizing.serving_load import ServingLoad, format_requests
from costguard.sizing.speed.serving import ServingPlan
from costguard.values.money import MoneyInterval
from costguard.values.text_format import format_amount_ends
from costguard.views.columns import WORDS, ColumnFit
from costguard.views.document import DOUBTFUL, PLAIN, Column, TableView, build_table
from costguard.views.job import build_interval_data, format_gpus, format_split, round_digits

SECONDS_PER_HOUR, HOURS_PER_MONTH = 3600, 730
MILLION = 1e6
SERVING_FITS: Mapping[str, ColumnFit] = {
    "#": ColumnFit(rank=9),
    "split": ColumnFit(rank=7),
    "busy": ColumnFit(rank=6),
    "first token s": ColumnFit(rank=5),
    "ms a token": ColumnFit(rank=4),
    "$/h": ColumnFit(rank=3),
    "note": ColumnFit(rank=1, least=9, how=WORDS),
    "provider": ColumnFit(),
    "GPU": ColumnFit(least=14),
    "$/M output": ColumnFit(),
    "tier": ColumnFit(rank=2),
}


def format_load(load: ServingLoad) -> str:
    """Return the load as text: `5 requests/s of 1,000 + 300 tokens`."""
    return f"{load.requests_per_second:,.10g} requests/s of {load.prompt_len:,} + {load.output_len:,} tokens"


def build_serving_data(o: QuoteOption) -> dict[str, object] | None:
    """Return the plan of a server for JSON; None for other jobs."""
    plan = o.serving
    if plan is None:
        return None
    return {
        "copies": plan.copies,
        "gpus_per_copy": plan.gpus_per_copy,
        "gpus": o.gpu_count * o.nodes,
        "sequences_per_copy": plan.batch,
        "requests_per_s_capacity": build_interval_data(plan.capacity),
        "utilisation": round_digits(plan.utilisation, 3),
        "output_tokens_per_s": round_digits(plan.output_tokens_per_s, 4),
        "tokens_per_s": round_digits(plan.tokens_per_s, 4),
        "first_token_s": build_interval_data(plan.first_token_s),
        "token_s": build_interval_data(plan.token_s),
        "request_s": build_interval_data(plan.request_s),
        "machines": build_interval_data(plan.machines),
        "usd_per_million_output_tokens": _format_per_million(o.usd, plan.output_tokens_per_s),
        "usd_per_million_tokens": _format_per_million(o.usd, plan.tokens_per_s),
        "usd_per_month": o.usd.format_ends() if o.usd else None,
    }


def list_serving_tables(plan: ServingPlan) -> tuple[TableView, ...]:
    """Return the table of the figures behind the plan of one option."""
    return (TableView(title="Serving, one copy", columns=("figure", "value>", "how"), rows=plan.explain),)


def build_serving_table(options: tuple[QuoteOption, ...], rank: Column[QuoteOption], note: Column[QuoteOption]) -> TableView:
    """Return the table of a serving quote. `rank`, `note`: its first and its last column."""
    served = [(o, o.serving) for o in options if o.serving]
    plans = {id(o): plan for o, plan in served}
    columns: tuple[Column[QuoteOption], ...] = (
        rank,
        Column("", "provider", lambda o: o.offer.provider if o.offer else None),
        Column("", "GPU", format_gpus),
        Column("", "tier", lambda o: o.offer.tier if o.offer else None),
        Column("", "$/h>", lambda o: o.rate.format(2) if o.rate else "unknown"),
        Column("", "copies>", lambda o: plans[id(o)].copies),
        Column("", "split", lambda o: format_split(o.placement.parallel) if o.placement else None),
        Column("", "busy>", lambda o: f"{plans[id(o)].utilisation:.0%}"),
        Column("", "first token s>", lambda o: f"{plans[id(o)].first_token_s.expected:.2f}"),
        Column("", "ms a token>", lambda o: f"{plans[id(o)].token_s.expected * 1000:.0f}"),
        Column("", "$ a month (low - high)>", lambda o: _format_month(o.usd)),
        Column("", "$/M output>", lambda o: _format_per_million(o.usd, plans[id(o)].output_tokens_per_s) or "unknown"),
        note,
    )
    tones = tuple(DOUBTFUL if o.price and not o.price.fresh else PLAIN for o in options)
    return replace(build_table(columns, [o for o, _ in served]), fits=SERVING_FITS, tones=tones)


def list_serving_notes(first: QuoteOption | None) -> list[str]:
    """Return what the figures of the first option mean; nothing without one."""
    plan = first.serving if first else None
    if first is None or plan is None:
        return []
    gpus = f"{first.gpu_count * first.nodes} x {first.gpu.name}"
    total = _format_per_million(first.usd, plan.tokens_per_s)
    each = f", ${total} a million tokens with the prompts" if total else ""
    copies = "1 copy" if plan.copies == 1 else f"{plan.copies} copies"
    capacity, answer = plan.capacity, plan.request_s
    carried = (
        f"{format_requests(capacity.expected)} requests/s ({format_requests(capacity.low)} to {format_requests(capacity.high)})"
    )
    took = f"{answer.expected:.1f} s ({answer.low:.1f} to {answer.high:.1f})"
    unit = "GPU" if plan.gpus_per_copy == 1 else "GPUs"
    return [
        f"First option: {gpus} hold {copies} of {plan.gpus_per_copy} {unit}, carry {carried} and answer in {took}{each}.",
        "The number of machines is for the low end of their speed's 80 % interval; a month has 730 hours.",
        *_list_fewer(plan),
    ]


def _list_fewer(plan: ServingPlan) -> list[str]:
    """Return what the low end of the money stands for, if fewer machines may do."""
    low, count = round(plan.machines.low), round(plan.machines.expected)
    return (
        [f"At the high end of the speed {low} instead of {count} are enough: this is the low end of the cost."]
        if low < count
        else []
    )


def _format_month(usd: MoneyInterval | None) -> str:
    """Return the money of a month with its interval; one amount where neither price nor number of machines is in doubt."""
    if usd is None:
        return "unknown"
    low, expected, high = format_amount_ends(usd)
    return expected if usd.low == usd.high else f"{expected} ({low} - {high})"


def _format_per_million(usd: MoneyInterval | None, tokens_per_s: float) -> str | None:
    """Return the dollars of a million tokens at this load, from those of a month; None if they are unknown."""
    if usd is None:
        return None
    return f"{float(usd.expected.format(4)) * MILLION / (tokens_per_s * SECONDS_PER_HOUR * HOURS_PER_MONTH):.3f}"
