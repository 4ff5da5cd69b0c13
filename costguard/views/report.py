"""A statement as a document: `costguard.report/1`, one record per group.

JSON and CSV contain sums to the nano-unit, so that the groups add up to the total exactly; tables show cents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from costguard.budgets.budget import MATCH_ALL, list_filter_words
from costguard.errors import IncompleteError
from costguard.metering.inventory import CoverageGap, UncoveredScope
from costguard.reporting.statement.groups import CostGroup, CurrencySums
from costguard.reporting.statement.sections import PriceSourceCost
from costguard.reporting.statement.statement import Statement
from costguard.values.instant import HOUR_US, to_hours
from costguard.values.money import ExchangeRate, MoneyInterval, sum_intervals
from costguard.values.text_format import (
    describe_misdated_scope,
    format_amount,
    format_amount_ends,
    format_exact,
    format_instant,
    format_interval,
    format_interval_exact,
    format_length,
    format_local_time,
    format_scope,
    format_scope_reason,
    get_currency_sign,
    limit_lines,
)
from costguard.views.bills import build_bill_comparison_data, list_bill_comparison_lines
from costguard.views.budget_status import build_budget_data, build_budget_table
from costguard.views.document import Document, TableView
from costguard.views.report_charts import list_report_charts
from costguard.views.report_sections import (
    build_group_data,
    build_savings_data,
    build_section_data,
    format_count,
    format_selection,
    list_headline_figures,
    list_lead_sentences,
    list_section_notes,
    list_section_tables,
)
from costguard.views.utilization import format_use_cell
from costguard.views.waste import format_waste_cell, list_waste_charts

SCHEMA = "costguard.report/1"
MOST_HINTS = 3
SHORT_LIVED_NOTE = "machines that started and ended between two polls of their account"


def build_report_document(statement: Statement, exchange: ExchangeRate | None = None, *, in_full: bool = False) -> Document:
    """Return the document of the whole statement.

    `exchange`: a rate at which dollars are also shown to people; the data is not converted. `in_full`: people see each line of
    what is not counted, and not their number alone.
    """
    sums = (statement.usd, *statement.others)
    group_fields = [[_build_group_fields(group) for group in one.groups] for one in sums]
    left_out = tuple(list_not_counted(statement))
    data = {
        "schema": SCHEMA,
        "period": _build_period_data(statement),
        "as_of": format_instant(statement.as_of),
        "totals": format_interval_exact(statement.usd.total),
        "groups": [_build_group_json(group, one) for group, one in zip(statement.usd.groups, group_fields[0], strict=True)],
        "other_currencies": [
            _build_currency_json(other, of) for other, of in zip(statement.others, group_fields[1:], strict=True)
        ],
        **build_section_data(statement),
        "not_counted": list(left_out),
        "unpriced": [
            {
                "resources": one.resources,
                "currency": one.money.high.currency,
                "at_most": format_exact(one.money.high),
                "why": one.source,
            }
            for one in statement.prices
            if one.unpriced
        ],
        "only": list(list_filter_words(statement.match)),
        "unallocated": [
            {"by": key, "currency": money.low.currency, "amount": format_interval_exact(money)}
            for key, money in statement.unallocated
        ],
        "budgets": [build_budget_data(one) for one in statement.budgets],
        "saved": build_savings_data(statement),
        "reconciliation": build_bill_comparison_data(statement.held, statement.spent_at),
    }
    return Document(
        data=data,
        records=tuple(
            _build_record(statement, one.currency, each) for one, of in zip(sums, group_fields, strict=True) for each in of
        ),
        lead=tuple(_list_lead_lines(statement, exchange)),
        tables=(
            *(_build_group_table(statement, one, exchange) for one in sums if one.groups),
            *list_section_tables(statement),
            *_list_budget_tables(statement),
        ),
        notes=(
            *_list_footnotes(sums),
            *list_section_notes(statement),
            *(_end_sentence(line) for line in list_bill_comparison_lines(statement.held, statement.spent_at)),
            *((f"Not counted: {_end_sentence(line)}" for line in left_out) if in_full else list_not_counted_lines(statement)),
        ),
        charts=(*list_report_charts(statement), *list_waste_charts(statement)),
        figures=tuple(list_headline_figures(statement)),
    )


def _list_budget_tables(statement: Statement) -> list[TableView]:
    """Return the budgets as they stood at the end of the period, or stand now: spent, forecast, and what is left."""
    at = min(statement.as_of, statement.period.end)
    return [build_budget_table(statement.budgets, None, at)] if statement.budgets else []


def list_not_counted_lines(statement: Statement) -> tuple[str, ...]:
    """Return what the sums leave out as one sentence, () for nothing: `report --all` has its lines."""
    groups = [group for sums in (statement.usd, *statement.others) for group in sums.groups if group.unknown is not None]
    unpriced = sum(one.resources for one in statement.prices if one.unpriced)
    providers = ", ".join(dict.fromkeys(provider for provider, _ in statement.not_modelled))
    parts = (
        (unpriced, "resource without a price"),
        (len(groups), "group at an estimated price"),
        (len(statement.misdated), "account dated by a wrong clock"),
        (len(statement.unseen), "scope not read throughout"),
        (len(statement.not_modelled), f"kind of cost of {providers}"),
    )
    counts = [format_count(number, what) for number, what in parts if number]
    return (f"Not counted in full: {'; '.join(counts)}. costguard report --all lists them.",) if counts else ()


def list_not_counted(statement: Statement) -> Iterator[str]:
    """Yield a sentence for each cost that the sums leave out, or for which they have only bounds."""
    yield from (_format_unpriced(one) for one in statement.prices if one.unpriced)
    for sums in (statement.usd, *statement.others):
        for group in sums.groups:
            if group.unknown is not None:
                yield _format_unknown_price(group, group.unknown)
    holes = [_format_unseen_scope(one, statement) for one in statement.unseen]
    yield from _list_misdated_scopes(statement)
    yield from holes
    if holes:
        yield SHORT_LIVED_NOTE
    for provider, sentence in statement.not_modelled:
        names_provider = sentence.casefold().startswith(f"{provider.casefold()}:")
        yield sentence if names_provider else f"{provider}: {sentence}"


def list_report_warnings(statement: Statement) -> tuple[str, ...]:
    """Return a sentence for each scope that makes the sums uncertain.

    These are scopes dated by a wrong clock, and scopes not read completely for the whole period.
    """
    return limit_lines(
        (*_list_misdated_scopes(statement), *(_format_unseen_scope(one, statement) for one in statement.unseen)), "scopes"
    )


def _list_misdated_scopes(statement: Statement) -> tuple[str, ...]:
    return tuple(describe_misdated_scope(scope.scope, scope.at) for scope in statement.misdated)


def build_incomplete_report_error(statement: Statement) -> IncompleteError | None:
    """Return the error with which `--strict` refuses the report; None if every scope was read for the whole period."""
    if not statement.incomplete:
        return None
    if not statement.scopes:
        hint = "poll the accounts first: costguard status"
        return IncompleteError(f"no data for {statement.label}: the ledger has no account", hint=hint)
    count = f"{len(statement.unseen)} of {statement.scopes} scopes"
    hint = "\n".join(_format_unseen_scope(one, statement) for one in statement.unseen[:MOST_HINTS])
    return IncompleteError(f"{count} were not read completely for all of {statement.label}", hint=hint)


def _format_unseen_scope(unseen: UncoveredScope, statement: Statement) -> str:
    """Return a sentence: `aws/123/us-east-1 was not read completely for 3 h from 2026-10-03 12:00 UTC: timeout`."""
    name, (first, *later) = format_scope(unseen.scope), unseen.holes
    if unseen.never:
        return f"{name} was never read completely in {statement.label}{_format_hole_reason(first)}"
    if first.why or first.period.start != statement.period.start:
        return f"{name} {_format_holes(unseen.holes)}"
    begun = f"was not polled before {format_local_time(first.period.end)}, {format_length(first.period.length)} into the period"
    return f"{name} {begun}, and {_format_holes(later)}" if later else f"{name} {begun}"


def _format_holes(holes: Sequence[CoverageGap]) -> str:
    longest = max(holes, key=lambda hole: hole.period.length)
    spell = (
        f"for {format_length(longest.period.length)} from "
        f"{format_local_time(longest.period.start)}{_format_hole_reason(longest)}"
    )
    if len(holes) == 1:
        return f"was not read completely {spell}"
    together = sum((hole.period.length for hole in holes), timedelta())
    return f"was not read completely for {format_length(together)}: {len(holes)} times, the longest {spell}"


def _format_hole_reason(hole: CoverageGap) -> str:
    return format_scope_reason(hole.why or "not polled")


def _format_unpriced(one: PriceSourceCost) -> str:
    sign = get_currency_sign(one.money.high.currency)
    most = f"{sign}{one.money.high.format()}"
    return f"{one.resources} unpriced, at most {most}: no price known, so the expected cost excludes them"


def _format_unknown_price(group: CostGroup, money: MoneyInterval) -> str:
    name = ", ".join(f"{key} {value}" for key, value in group.by.items() if value) or "everything"
    currency = get_currency_sign(money.low.currency)
    low, expected, high = money.format_ends().values()
    price = "unknown" if group.unpriced == group.unknown else "estimated"
    return f"{name}: price {price}; counted as {currency}{expected}, between {low} and {high}"


def _end_sentence(line: str) -> str:
    """Return `line` with a full stop."""
    return f"{line.rstrip('.')}."


def _build_period_data(statement: Statement) -> dict[str, object]:
    return {
        "start": format_instant(statement.period.start),
        "end": format_instant(statement.period.end),
        "zone": statement.zone,
        "label": statement.label,
    }


class _GroupFields(NamedTuple):
    """A group as data for JSON and CSV."""

    by: dict[str, str | None]
    hours: float
    gpu_hours: float
    money: dict[str, str]
    more: dict[str, object]


def _build_group_fields(group: CostGroup) -> _GroupFields:
    return _GroupFields(
        by={key: value or None for key, value in group.by.items()},
        hours=to_hours(group.us),
        gpu_hours=to_hours(group.gpu_milli_us / 1000),
        money=format_interval_exact(group.money),
        more=build_group_data(group),
    )


def _build_group_json(group: CostGroup, fields: _GroupFields) -> dict[str, object]:
    """Return a group for JSON.

    `unknown_usd`: the part of `usd` whose price is not known.
    """
    return {
        "by": fields.by,
        "hours": fields.hours,
        "gpu_hours": fields.gpu_hours,
        "usd": fields.money,
        "unknown_usd": format_interval_exact(group.unknown) if group.unknown else None,
        **fields.more,
    }


def _build_currency_json(sums: CurrencySums, group_fields: Sequence[_GroupFields]) -> dict[str, object]:
    groups = [{"by": one.by, "hours": one.hours, "gpu_hours": one.gpu_hours, "amount": one.money} for one in group_fields]
    return {"currency": sums.currency, "totals": format_interval_exact(sums.total), "groups": groups}


def _build_record(statement: Statement, currency: str, fields: _GroupFields) -> Mapping[str, object]:
    return {
        "period": statement.label,
        "zone": statement.zone,
        **fields.by,
        "hours": fields.hours,
        "gpu_hours": fields.gpu_hours,
        "currency": currency,
        **fields.money,
        **(fields.more if currency == "USD" else dict.fromkeys(fields.more)),
    }


def _list_lead_lines(statement: Statement, exchange: ExchangeRate | None) -> Iterator[str]:
    name = f"{statement.label} ({statement.zone}){format_selection(statement)}"
    if statement.ahead:
        yield f"{name} is in the future: there is no cost yet."
        return
    if statement.blank:
        yield f"{name}: the ledger has no data. No account was polled in this period, so the cost is unknown."
        return
    until = f", until {format_local_time(statement.as_of)}" if statement.running else ""
    yield f"{name}{until}: {get_currency_sign('USD')}{format_interval(statement.usd.total)}."
    if exchange is not None:
        own = [one.total for one in statement.others if one.currency == exchange.currency]
        total = sum_intervals((exchange.convert_interval(statement.usd.total), *own), exchange.currency)
        also = ", with what is charged in it" if own else ""
        yield f"In {exchange.currency}{also}: {format_interval(total)}, {exchange.label}."
    if statement.match != MATCH_ALL and not any(one.groups for one in (statement.usd, *statement.others)):
        yield "It selects no charge of this period: costguard report --by owner,team,project lists the names."
    yield from list_lead_sentences(statement)
    for other in statement.others:
        yield f"In another currency: {get_currency_sign(other.currency)}{format_interval(other.total)}."


def _build_group_table(statement: Statement, sums: CurrencySums, exchange: ExchangeRate | None) -> TableView:
    """Return the groups and their total; columns without a known value in any group are left out."""
    dearest = get_currency_sign(sums.currency).strip()
    judged = sums.waste is not None
    compared = any(group.before is not None for group in sums.groups)
    low, expected, high = format_amount_ends(sums.total)
    blank = ("",) * (len(statement.by) - 1)
    hours, gpu_hours = sum(g.us for g in sums.groups), sum(g.gpu_milli_us for g in sums.groups) / 1000
    total = ["total", *blank, f"{hours / HOUR_US:.1f}", f"{gpu_hours / HOUR_US:.1f}", expected, low, high]
    cells = [format_waste_cell(sums.waste, computing=True), format_use_cell(sums.waste, gpu_hours)]
    total += cells if judged else []
    total += [format_amount(statement.before.part.total.expected) if statement.before else ""] if compared else []
    shown = exchange if sums.currency == "USD" else None
    total += [format_amount(shown.convert(sums.total.expected))] if shown else []
    return TableView(
        title="",
        columns=(
            *statement.by,
            *("hours>", "GPU-hours>", f"{dearest}>", "low>", "high>"),
            *(("idle>", "used>") if judged else ()),
            *(("before>",) if compared else ()),
            *((f"{shown.currency}>",) if shown else ()),
        ),
        rows=(*(_build_group_row(group, shown, judged=judged, compared=compared) for group in sums.groups), tuple(total)),
        sums=1,
    )


def _build_group_row(group: CostGroup, exchange: ExchangeRate | None, *, judged: bool, compared: bool) -> tuple[str, ...]:
    low, expected, high = format_amount_ends(group.money)
    shown = expected if group.unknown is None else "unknown" if group.unpriced == group.money else f"{expected}*"
    times = (f"{group.us / HOUR_US:.1f}", f"{group.gpu_milli_us / 1000 / HOUR_US:.1f}")
    idle = format_waste_cell(group.waste, computing=bool(group.computing))
    use = format_use_cell(group.waste, group.gpu_milli_us / 1000)
    previous = "-" if group.before is None else format_amount(group.before)
    other = "" if exchange is None else format_amount(exchange.convert(group.money.expected))
    more = (*((idle, use) if judged else ()), *((previous,) if compared else ()), *((other,) if other else ()))
    return (*(value or "-" for value in group.by.values()), *times, shown, low, high, *more)


def _list_footnotes(sums: tuple[CurrencySums, ...]) -> tuple[str, ...]:
    groups = [group for one in sums for group in one.groups if group.unknown is not None]
    partly = any(group.unpriced != group.money for group in groups)
    return ("* Part of it is billed at an estimated price: see below.",) if partly else ()
