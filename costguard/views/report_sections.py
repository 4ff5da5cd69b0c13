"""The sections of a report besides its groups, as data, tables and sentences: see `reporting/statement/`.

The tables are the most expensive resources, acts of the guard, what was unusual, and quotes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from costguard.budgets.budget import MATCH_ALL, list_filter_words
from costguard.errors import shorten
from costguard.guard.alerts.alert import Alert
from costguard.metering.observation import AGREED, LEARNED, find_price_basis
from costguard.reporting.statement.groups import CostGroup, CurrencySums
from costguard.reporting.statement.savings import EXPECTED_FOR, HIGH_FOR, Saving, Savings
from costguard.reporting.statement.sections import (
    PreviousPeriod,
    PriceSourceCost,
    QuotedJob,
    QuotedRun,
    TopResource,
    group_runs_by_job,
)
from costguard.reporting.statement.statement import Statement
from costguard.values.instant import HOUR_US, to_hours
from costguard.values.money import Money, MoneyInterval, make_zero_interval
from costguard.values.text_format import (
    LARGEST_SHARE,
    format_amount,
    format_amount_ends,
    format_exact,
    format_instant,
    format_interval,
    format_interval_exact,
    format_length,
    format_local_time,
    get_currency_sign,
)
from costguard.views.budget_status import describe_budget_spend, format_budget_share, format_forecast
from costguard.views.document import Column, HeadlineFigure, TableView, build_record, build_table
from costguard.views.utilization import build_use_data, build_use_record, list_use_notes, list_use_sentences
from costguard.views.waste import (
    build_waste_data,
    build_waste_figure,
    build_waste_record,
    list_waste_notes,
    list_waste_sentences,
)

LONGEST_NAME, LONGEST_FIGURE_NAME = 60, 40
MOST_BUDGET_FIGURES = 3
USD = "USD"
SAVED_MEANS = (
    f"cost avoided by confirmed acts until the machine ran again, for at most {EXPECTED_FOR.days} days ({HIGH_FOR.days} at the "
    "high end; zero at the low end: the owner could have stopped it at once), less costs at rest; zero for machines that "
    "ran again within the hour, and for what a hard cap stopped that was not idle"
)
NO_QUOTES = "no run of this period has a quote: only committed holds have a quote and an actual cost"


def build_section_data(statement: Statement) -> dict[str, object]:
    """Return the fields of the JSON contract besides totals and groups."""
    return {
        "forecast": format_interval_exact(statement.forecast[0].total) if statement.forecast else None,
        "forecast_if_unchanged": format_interval_exact(statement.forecast[0].if_unchanged) if statement.forecast else None,
        "forecast_basis": statement.forecast[0].basis if statement.forecast else None,
        "before": _build_comparison_data(statement.before, statement.usd) if statement.before else None,
        "idle": build_waste_data(statement.usd),
        "use": build_use_data(statement.usd),
        "stopped_disks": {
            "usd": format_interval_exact(
                next((m for m in statement.rest.money if m.low.currency == USD), make_zero_interval())
            ),
            "machines": statement.rest.machines,
        },
        "top": [build_record(SPENDER_COLUMNS, one) for one in statement.spenders],
        "quotes": [build_record(QUOTED_RUN_COLUMNS, one) for one in statement.quotes],
        "jobs": [_build_job_data(one) for one in group_runs_by_job(statement.quotes)],
        "prices": [_build_price_data(one, statement) for one in statement.prices],
        "unusual": [build_record(UNUSUAL_COLUMNS, one) for one in statement.unusual],
    }


UNUSUAL_COLUMNS: tuple[Column[Alert], ...] = (
    Column("at", "told at", lambda one: format_instant(one.at), lambda one: format_local_time(one.at)),
    Column("kind", "", lambda one: one.topic.partition(":")[2]),
    Column("subject", "", lambda one: one.subject),
    Column("what", "what", lambda one: one.what),
    Column("more_than_usual", "more>", lambda one: dict(one.facts).get("more than usual")),
    Column("since", "since", lambda one: dict(one.facts).get("since")),
    Column("machines", "machines", lambda one: dict(one.facts).get("machines")),
)


def build_group_data(group: CostGroup) -> dict[str, object]:
    """Return the fields of a group besides its cost.

    None: no activity of the group is known, or the period before was not polled.
    """
    return {
        **build_waste_record(group.waste),
        **build_use_record(group.waste),
        "judged_share": _round_share(group.judged_share),
        "before_usd": format_exact(group.before) if group.before else None,
    }


def build_savings_data(statement: Statement) -> dict[str, object]:
    """Return the contract's `saved`.

    `usd`: None if savings were not requested.
    """
    saved = statement.saved
    return {
        "usd": format_interval_exact(saved.get_net(USD)) if statement.beside or statement.ahead else None,
        "acts": len({one.act.intent_id for one in saved.counted}),
        "suspected_false_stops": len({one.act.intent_id for one in saved.false}),
        "cap_stops_at_work": len({one.act.intent_id for one in saved.cut}),
        "note": SAVED_MEANS,
        "by_act": [build_record(SAVING_COLUMNS, one) for one in saved.savings],
    }


def list_lead_sentences(statement: Statement) -> Iterator[str]:
    """Yield the most important sentences, shown after the total."""
    for forecast in statement.forecast:
        yield f"Forecast for the end of the period: {format_forecast(forecast)}."
    if statement.before is not None and not statement.blank:
        yield _format_comparison(statement.before, statement.usd)
    yield from list_waste_sentences(statement.usd)
    yield from list_use_sentences(statement.usd)
    for money in statement.rest.money:
        machines = format_count(statement.rest.machines, "machine")
        yield (
            f"Disks of machines that did not run: {get_currency_sign(money.low.currency)}{format_interval(money)} ({machines})."
        )
    if statement.saved.savings:
        yield _format_savings(statement.saved)
    yield from _list_unallocated(statement)


def format_selection(statement: Statement) -> str:
    """Return `, only owner vision`; "" if the report is about everything."""
    words = (shorten(word.replace("=", " ", 1), LONGEST_NAME) for word in list_filter_words(statement.match))
    return f", only {', '.join(words)}" if statement.match != MATCH_ALL else ""


def _list_unallocated(statement: Statement) -> Iterator[str]:
    """Yield what has no owner (or label), and whether it is in the sums."""
    for key, money in statement.unallocated:
        amount = f"{get_currency_sign(money.low.currency)}{format_interval(money)}"
        total = next(one.total for one in (statement.usd, *statement.others) if one.currency == money.low.currency)
        share = f" ({100 * money.expected.nano // total.expected.nano} % of all)" if total.expected.nano else ""
        yield (
            f"Unallocated: {amount} has no {key}{share}."
            if statement.match == MATCH_ALL
            else f"Unallocated, and not in this report: {amount} has no {key}."
        )


def list_section_notes(statement: Statement) -> Iterator[str]:
    """Yield definitions of the figures, and sentences about figures that are not known."""
    if statement.ahead or statement.blank or not statement.beside:
        return
    yield from list_waste_notes(statement.usd)
    yield from list_use_notes(statement.usd)
    if statement.saved.savings:
        yield f"Saved means: {SAVED_MEANS}."
    else:
        yield "Saved: $0.00 (no confirmed stops)"
    if not statement.quotes and statement.usd.groups:
        yield f"Quoted and actual: {NO_QUOTES}."
    for one in statement.prices:
        if find_price_basis(one.source) in (AGREED, LEARNED):
            money = f"{get_currency_sign(one.money.low.currency)}{format_interval(one.money)}"
            yield f"{money} is computed at a price that is yours: {shorten(one.source, 160)}."
    old = [one for one in statement.prices if one.is_old(statement.period.end)]
    for one in old:
        money = f"{get_currency_sign(one.money.low.currency)}{format_interval(one.money)}"
        yield f"{money} is computed at prices of {one.as_of}, more than three months old: {shorten(one.source, 120)}."


def _build_comparison_data(previous: PreviousPeriod, usd: CurrencySums) -> dict[str, object]:
    change = previous.compute_change(usd)
    return {
        "period": {
            "start": format_instant(previous.period.start),
            "end": format_instant(previous.period.end),
            "label": previous.label,
        },
        "usd": format_interval_exact(previous.usd.total) if previous.seen else None,
        "same_part_usd": format_interval_exact(previous.part.total) if previous.part_seen else None,
        "change_usd": format_exact(change) if change else None,
        "change_share": _round_share(previous.compute_share(usd)),
        "complete": previous.complete,
    }


def _format_comparison(previous: PreviousPeriod, usd: CurrencySums) -> str:
    change, share = previous.compute_change(usd), previous.compute_share(usd)
    total = f"${format_interval(previous.usd.total)}"
    if change is None:
        coverage = (
            f"{total} in total, but the same part of it was not polled"
            if previous.seen
            else "unknown, because it was not polled"
        )
        return f"{previous.label}, the previous period: {coverage}."
    part = (
        f"${format_interval(previous.part.total)} in the same part of it, {total} in total"
        if previous.part != previous.usd
        else total
    )
    by = f" ({abs(float(share)):.0%})" if share is not None and abs(share) < LARGEST_SHARE else ""
    comparison = (
        "the same"
        if not change.nano
        else f"${format_amount(Money(nano=abs(change.nano)))} {'more' if change.nano > 0 else 'less'}{by}"
    )
    gaps = "" if previous.complete else "; incomplete"
    return f"{previous.label}, the previous period: {part}. This is {comparison}{gaps}."


def _format_savings(saved: Savings) -> str:
    acts = format_count(len({one.act.intent_id for one in saved.counted}), "act")
    money = " and ".join(f"{get_currency_sign(one.low.currency)}{format_interval(one)}" for one in saved.net)
    false, cut = (len({one.act.intent_id for one in of}) for of in (saved.false, saved.cut))
    left_out = f"; {format_count(false, 'suspected false stop')} not counted" if false else ""
    left_out += f"; {format_count(cut, 'stop')} of work by a hard cap not counted" if cut else ""
    return f"Saved by the guard: {money}, by {acts}{left_out}."


def _build_job_data(one: QuotedJob) -> dict[str, object]:
    return {
        "job": one.job,
        "attempts": one.attempts,
        "currency": one.quoted.currency,
        "quoted": format_exact(one.quoted),
        "actual": format_exact(one.actual),
        "over": format_exact(one.actual - one.quoted),
    }


def _build_price_data(one: PriceSourceCost, statement: Statement) -> dict[str, object]:
    return {
        "source": one.source,
        "basis": find_price_basis(one.source),
        "currency": one.money.low.currency,
        "amount": format_interval_exact(one.money),
        "known": one.known,
        "unpriced": one.unpriced,
        "resources": one.resources,
        "as_of": one.as_of.isoformat() if one.as_of else None,
        "old": one.is_old(statement.period.end),
    }


def format_count(number: int, what: str) -> str:
    """Return `1 act` or `3 acts`; of several words the first gets the ending."""
    noun, _, rest = what.partition(" ")
    return f"1 {what}" if number == 1 else f"{number:,} {noun}s{f' {rest}' if rest else ''}"


def _round_share(value: Fraction | None) -> float | None:
    return None if value is None else round(float(value), 4)


def list_section_tables(statement: Statement) -> Iterator[TableView]:
    """Yield the tables of the most expensive resources, of savings and of quotes."""
    if len(statement.spenders) > 1:
        spender_headings = ("provider", "resource", "GPU", "tier", "owner", "hours>", "cost>")
        yield build_table(SPENDER_COLUMNS, statement.spenders, spender_headings, title="Most expensive resources")
    if statement.saved.savings:
        saving_headings = ("machine", "owner", "policy", "act", "stopped", "ran again", "avoided>", "disks>", "saved>")
        yield build_table(SAVING_COLUMNS, statement.saved.savings, saving_headings, title="Acts of the guard")
    if statement.unusual:
        yield build_table(UNUSUAL_COLUMNS, statement.unusual, title="Unusual")
    if statement.quotes:
        yield _build_quoted_table(statement.quotes)


def _build_quoted_table(quotes: Sequence[QuotedRun]) -> TableView:
    table = build_table(QUOTED_RUN_COLUMNS, quotes, title="Quoted and actual")
    return replace(table, rows=tuple(_add_job_rows(table.rows, quotes)))


def _add_job_rows(rows: Sequence[tuple[str, ...]], quotes: Sequence[QuotedRun]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of runs; after the last attempt of a job with several attempts, add a row with their sum."""
    several = {(one.job, one.quoted.currency): one for one in group_runs_by_job(quotes) if one.attempts > 1}
    left = {key: one.attempts for key, one in several.items()}
    for row, quote in zip(rows, quotes, strict=True):
        yield row
        key = (quote.job, quote.hold.money.currency)
        if key in left:
            left[key] -= 1
            if not left[key]:
                one, code = several[key], get_currency_sign(quote.hold.money.currency)
                cells = (f"{shorten(one.job, LONGEST_NAME)}: {one.attempts} attempts", "", "first quote, total cost")
                amounts = (one.quoted, one.actual, one.actual - one.quoted)
                yield (*cells, *(f"{code}{format_amount(money)}" for money in amounts))


def _format_machine_name(name: str, id_: str) -> str:
    return (
        f"{shorten(name, LONGEST_NAME)} ({shorten(id_, LONGEST_NAME)})" if name and name != id_ else shorten(id_, LONGEST_NAME)
    )


def list_headline_figures(statement: Statement) -> Iterator[HeadlineFigure]:
    """Yield the headline figures; none for a future period or a period without data."""
    if statement.ahead or statement.blank:
        return
    for sums in (statement.usd, *statement.others):
        yield _build_money_figure("Spent so far" if statement.running else "Spent", sums.total)
    for forecast in statement.forecast:
        yield _build_money_figure("Forecast", forecast.total)
    if statement.before is not None:
        yield _build_change_figure(statement)
    if statement.usd.computing:
        yield build_waste_figure(statement.usd)
    for money in statement.rest.money:
        many = statement.rest.machines
        yield _build_money_figure("Disks of stopped machines", money, f"{many} machine{'s' * (many != 1)}")
    for net in statement.saved.net:
        yield _build_money_figure("Saved by the guard", net)
    for one in statement.budgets if len(statement.budgets) <= MOST_BUDGET_FIGURES else ():
        yield HeadlineFigure(name=f"Budget {one.budget.name}", text=format_budget_share(one), note=describe_budget_spend(one))


def _build_money_figure(name: str, money: MoneyInterval, note: str = "") -> HeadlineFigure:
    """Return an amount, with its bounds if they differ by a cent or more."""
    low, expected, high = format_amount_ends(money)
    code = get_currency_sign(money.expected.currency)
    bounds = "" if low == high else f"between {_move_minus_sign(low, code)} and {_move_minus_sign(high, code)}"
    return HeadlineFigure(name=name, text=_move_minus_sign(expected, code), note="; ".join(filter(None, (bounds, note))))


def _build_change_figure(statement: Statement) -> HeadlineFigure:
    previous = statement.before
    assert previous is not None  # noqa: S101 - asked by its caller
    name = f"Against {shorten(previous.label, LONGEST_FIGURE_NAME)}"
    change, share = previous.compute_change(statement.usd), previous.compute_share(statement.usd)
    if change is None:
        return HeadlineFigure(name=name, text="not known", note="not polled in that period")
    was = (
        f"${format_amount(previous.part.total.expected)} in the same part of it"
        if statement.running
        else f"from ${format_amount(previous.usd.total.expected)}"
    )
    by = f"; {float(share):+.0%}" if share is not None and abs(share) < LARGEST_SHARE else ""
    gaps = "" if previous.complete else "; incomplete"
    text = _move_minus_sign(format_amount(change), "$")
    return HeadlineFigure(name=name, text=text if change.nano <= 0 else f"+{text}", note=f"{was}{by}{gaps}")


def _move_minus_sign(amount: str, code: str) -> str:
    """Return `-$5.00` instead of `$-5.00`."""
    return f"-{code}{amount[1:]}" if amount.startswith("-") else f"{code}{amount}"


def _format_saved_cell(one: Saving) -> str:
    saved = f"{get_currency_sign(one.rest.currency)}{format_interval(one.usd)}"
    return "false stop?" if one.false else "at work" if one.act.cut else saved


SPENDER_COLUMNS: tuple[Column[TopResource], ...] = (
    Column(
        "provider", "provider", lambda one: one.bearer.key.provider, lambda one: shorten(one.bearer.key.provider, LONGEST_NAME)
    ),
    Column("account", "", lambda one: one.bearer.key.account),
    Column("region", "", lambda one: one.bearer.key.region),
    Column(
        "id", "resource", lambda one: one.bearer.key.id, lambda one: _format_machine_name(one.bearer.name, one.bearer.key.id)
    ),
    Column("name", "", lambda one: one.bearer.name),
    Column("kind", "", lambda one: one.attribution.kind),
    Column(
        "gpu",
        "GPU",
        lambda one: one.attribution.gpu or None,
        lambda one: (
            f"{shorten(one.attribution.gpu, LONGEST_NAME)} x{one.attribution.gpu_count:g}"
            if one.attribution.gpu
            else one.attribution.kind
        ),
    ),
    Column("gpu_count", "", lambda one: one.attribution.gpu_count),
    Column("tier", "tier", lambda one: one.attribution.tier or None),
    Column(
        "owner",
        "owner",
        lambda one: one.attribution.owner or None,
        lambda one: shorten(one.attribution.owner or "-", LONGEST_NAME),
    ),
    Column("hours", "hours>", lambda one: to_hours(one.us), lambda one: f"{one.us / HOUR_US:.1f}"),
    Column("currency", "", lambda one: one.money.low.currency),
    Column(
        "cost",
        "cost>",
        lambda one: format_interval_exact(one.money),
        lambda one: f"{get_currency_sign(one.money.low.currency)}{format_interval(one.money)}",
    ),
)
SAVING_COLUMNS: tuple[Column[Saving], ...] = (
    Column("intent", "", lambda one: one.act.intent_id),
    Column("provider", "", lambda one: one.act.life.key.provider),
    Column("account", "", lambda one: one.act.life.key.account),
    Column("region", "", lambda one: one.act.life.key.region),
    Column(
        "id",
        "machine",
        lambda one: one.act.life.key.id,
        lambda one: f"{one.act.life.key.provider} {_format_machine_name(one.act.name, one.act.life.key.id)}",
    ),
    Column("name", "", lambda one: one.act.name),
    Column("owner", "owner", lambda one: one.act.owner or None, lambda one: shorten(one.act.owner or "-", LONGEST_NAME)),
    Column("policy", "policy", lambda one: one.act.policy),
    Column("act", "act", lambda one: one.act.act),
    Column("at", "stopped", lambda one: format_instant(one.at), lambda one: format_local_time(one.at)),
    Column("confirmed_at", "", lambda one: format_instant(one.act.confirmed_at)),
    Column("until", "", lambda one: format_instant(one.until)),
    Column(
        "ran_again_at",
        "ran again",
        lambda one: format_instant(one.again_at) if one.again_at else None,
        lambda one: "-" if one.again_at is None else f"after {format_length(one.again_at - one.at)}",
    ),
    Column("suspected_false_stop", "", lambda one: one.false),
    Column("cap_stop_at_work", "", lambda one: one.act.cut),
    Column("currency", "", lambda one: one.rest.currency),
    Column(
        "avoided",
        "avoided>",
        lambda one: format_interval_exact(one.avoided),
        lambda one: str(one.avoided.expected),
    ),
    Column("at_rest", "disks>", lambda one: format_exact(one.rest), lambda one: str(one.rest)),
    Column(
        "saved",
        "saved>",
        lambda one: format_interval_exact(one.usd),
        _format_saved_cell,
    ),
)
QUOTED_RUN_COLUMNS: tuple[Column[QuotedRun], ...] = (
    Column("hold", "run", lambda one: one.hold.id, lambda one: shorten(one.hold.id or "-", LONGEST_NAME)),
    Column("job", "", lambda one: one.job or None),
    Column("who", "who", lambda one: one.hold.who, lambda one: shorten(one.hold.who or "-", LONGEST_NAME)),
    Column("why", "why", lambda one: one.hold.why, lambda one: shorten(one.hold.why or "-", LONGEST_NAME)),
    Column("currency", "", lambda one: one.hold.money.currency),
    Column("quoted", "quoted>", lambda one: format_exact(one.hold.money), lambda one: str(one.hold.money)),
    Column(
        "actual",
        "actual>",
        lambda one: format_exact(one.actual),
        lambda one: str(one.actual),
    ),
    Column(
        "over",
        "difference>",
        lambda one: format_exact(one.over),
        lambda one: str(one.over),
    ),
    Column("ended_at", "", lambda one: format_instant(one.hold.ended_at) if one.hold.ended_at else None),
)
