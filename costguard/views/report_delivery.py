"""The text of a report in a mail or chat message, above the report itself, and the result of sending it.

    2026-10 (Europe/Berlin): $1234.56 (1200.00 to 1300.00).
    2026-09, the previous period: $1000.00. This is $234.56 more (23%).
    Idle: $99.00, and $12.00 partly idle, of the 90% of the compute cost with known activity.
    Saved by the guard: $40.00 (0.00 to 80.00), by 3 acts.

    Most expensive: runpod train-7 (alice): $400.00.

The result of a report sent by hand is `costguard.report_sent/1`, one record per channel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from costguard.errors import shorten
from costguard.guard.alerts.alert import DeliveryResult
from costguard.reporting.statement.groups import CostGroup
from costguard.reporting.statement.sections import TopResource
from costguard.reporting.statement.statement import Statement
from costguard.values.money import sum_intervals
from costguard.values.text_format import format_interval, get_currency_sign
from costguard.views.budget_status import describe_budget_spend, format_budget_share
from costguard.views.document import Document, TableView
from costguard.views.report import list_not_counted_lines
from costguard.views.report_sections import format_selection
from costguard.views.waste import list_waste_notes

MOST_SPENDERS, MOST_GROUPS = 5, 10
LONGEST_NAME = 60


def format_report_title(statement: Statement) -> str:
    """Return one line with the period and its cost."""
    name = f"GPU spending in {statement.label}{format_selection(statement)}"
    if statement.ahead or statement.blank:
        return f"{name}: unknown" if statement.blank else f"{name}: not started yet"
    return f"{name}: {get_currency_sign('USD')}{format_interval(statement.usd.total)}"


def build_report_paragraphs(statement: Statement, document: Document, again: str) -> tuple[tuple[str, ...], ...]:
    """Return paragraphs of lines.

    `document`: the statement's document, whose lead comes first. `again`: the command that prints the whole report.
    """
    parts = (
        (*document.lead, *_list_missing_sections(statement)),
        tuple(_list_budget_lines(statement)),
        tuple(_list_top_spenders(statement)),
        tuple(_list_group_lines(statement)),
        list_not_counted_lines(statement),
        (f"Full report: {again}",),
    )
    return tuple(part for part in parts if part)


def _list_missing_sections(statement: Statement) -> Iterator[str]:
    """Yield a sentence for each section that the lead leaves out because it is empty."""
    if statement.ahead or statement.blank or not statement.beside:
        return
    if statement.before is None:
        yield "Previous period: none."
    if statement.usd.waste is None:
        yield from list_waste_notes(statement.usd)
    if not statement.saved.savings:
        yield "Saved by the guard: $0.00."


def _list_budget_lines(statement: Statement) -> Iterator[str]:
    for one in statement.budgets[:MOST_GROUPS]:
        ahead = f"; forecast {get_currency_sign(one.forecast.low.currency)}{format_interval(one.forecast)}"
        yield (
            f"Budget {shorten(one.budget.name, LONGEST_NAME)}: {describe_budget_spend(one)}: {format_budget_share(one)}"
            f"{ahead if statement.running else ''}."
        )


def _list_top_spenders(statement: Statement) -> Iterator[str]:
    for number, one in enumerate(statement.spenders[:MOST_SPENDERS], 1):
        yield f"Most expensive, {number}: {_format_spender(one)}"


def _format_spender(one: TopResource) -> str:
    key, of = one.bearer.key, one.attribution
    name = shorten(one.bearer.name or key.id, LONGEST_NAME)
    what = f"{shorten(of.gpu, LONGEST_NAME)} x{of.gpu_count:g}" if of.gpu else of.kind
    owner = shorten(of.owner, LONGEST_NAME) if of.owner else "nobody known"
    return f"{key.provider} {name}, {what}, of {owner}: {get_currency_sign(one.money.low.currency)}{format_interval(one.money)}"


def _list_group_lines(statement: Statement) -> Iterator[str]:
    for sums in (statement.usd, *statement.others):
        groups = sorted(sums.groups, key=lambda group: -group.money.expected.nano)
        for group in groups[:MOST_GROUPS]:
            yield f"{_format_group_name(group)}: {get_currency_sign(sums.currency)}{format_interval(group.money)}"
        more = groups[MOST_GROUPS:]
        if more:
            rest = sum_intervals((group.money for group in more), sums.currency)
            yield f"{len(more)} more: {get_currency_sign(sums.currency)}{format_interval(rest)}"


def _format_group_name(group: CostGroup) -> str:
    return ", ".join(f"{key} {shorten(value or '-', LONGEST_NAME)}" for key, value in group.by.items()) or "everything"


SCHEMA = "costguard.report_sent/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDelivery:
    """One delivery.

    `to`: the channel's name, safe to show. `enclosed`: the names of the attached files.
    """

    to: str
    delivery: DeliveryResult
    enclosed: tuple[str, ...] = ()


def build_delivery_document(label: str, title: str, sent: Sequence[ReportDelivery]) -> Document:
    """Return the document of all deliveries.

    `label`: of the period. `title`: of the message.
    """
    records = tuple(
        {
            "to": one.to,
            "sent": one.delivery.sent,
            "why": one.delivery.why or None,
            "enclosed": list(one.enclosed),
        }
        for one in sent
    )
    rows = tuple((one.to, _format_outcome(one.delivery), ", ".join(one.enclosed) or "-") for one in sent)
    return Document(
        data={"schema": SCHEMA, "period": label, "title": title, "sent": list(records)},
        records=tuple({**record, "enclosed": " ".join(one.enclosed)} for record, one in zip(records, sent, strict=True)),
        lead=(title,),
        tables=(TableView(title="", columns=("to", "sent", "enclosed"), rows=rows),),
    )


def _format_outcome(delivery: DeliveryResult) -> str:
    return "yes" if delivery.sent else f"no: {delivery.why}"
