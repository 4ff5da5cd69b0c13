"""Bills compared with charges as a document: `costguard.reconcile/1`, one record per resource and kind of charge.

Also the comparison as shown in a report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from costguard.bills.bill_line import CREDIT, TAX, BillImport
from costguard.bills.drift import (
    BEYOND,
    UNSURE,
    WITHIN,
    CellAmounts,
    DriftGroup,
    DriftPart,
    DriftResult,
    NanoAmounts,
    ReconciliationRecord,
    Tolerance,
)
from costguard.bills.evidence import REASON_SENTENCES, EvidenceFinding, EvidenceSummary
from costguard.errors import IncompleteError, NoAnswerError, shorten, to_one_line
from costguard.values.calendar import Period
from costguard.values.instant import DAY_US, from_micros
from costguard.values.money import Money, MoneyInterval
from costguard.values.text_format import (
    format_amount,
    format_exact,
    format_instant,
    format_interval_exact,
    format_local_time,
    get_currency_sign,
    limit_lines,
)
from costguard.views.bill_files_read import BillFileReading, build_readings_data, build_readings_table
from costguard.views.document import Column, Document, TableView, build_record, build_table

RECONCILE_SCHEMA = "costguard.reconcile/1"
MOST_SENTENCES = 5
LONGEST_NAME = 40
OUTSIDE_STATEMENT = "outside of the statement"
"""What a row is of that has charges from before the bill begins or after its newest line, all together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """The result of one run of `costguard reconcile`.

    - `imports`: the bills that were imported. `readings`: the files that were read. `not_asked`: (provider, reason) of bills
      that were not requested.
    - `notes`: a sentence for each other omission. `told`: number of notices written.
    - `evidence`: the doubt about charges that settled lines removed. `unused`: lines that removed none, though they might have.
    """

    period: Period
    label: str
    at: datetime
    tolerance: Tolerance
    results: tuple[DriftResult, ...]
    imports: tuple[BillImport, ...] = ()
    readings: tuple[BillFileReading, ...] = ()
    not_asked: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    told: int = 0
    evidence: tuple[EvidenceSummary, ...] = ()
    unused: tuple[EvidenceFinding, ...] = ()


def build_reconciliation_document(reconciliation: Reconciliation) -> Document:
    """Return the document of the whole reconciliation."""
    data = {
        "schema": RECONCILE_SCHEMA,
        "period": {
            "start": format_instant(reconciliation.period.start),
            "end": format_instant(reconciliation.period.end),
            "label": reconciliation.label,
        },
        "as_of": format_instant(reconciliation.at),
        "tolerance": reconciliation.tolerance.format(),
        "imports": [_build_import_data(one) for one in reconciliation.imports],
        "files": build_readings_data(reconciliation.readings),
        "not_asked": [{"provider": name, "why": why} for name, why in reconciliation.not_asked],
        "accounts": [build_record(RESULT_COLUMNS, one) for one in reconciliation.results],
        "notes": list(reconciliation.notes),
        "told": reconciliation.told,
        "evidence": [_build_evidence_data(one) for one in reconciliation.evidence],
        "not_evidence": [_build_unused_data(one) for one in reconciliation.unused],
    }
    return Document(
        data=data,
        records=tuple(record for result in reconciliation.results for record in _list_account_records(reconciliation, result)),
        lead=tuple(_list_lead_lines(reconciliation)),
        tables=tuple(_list_tables(reconciliation)),
        notes=(*limit_lines(_list_notes(reconciliation), "lines"),),
    )


def build_reconciliation_error(reconciliation: Reconciliation, *, strict: bool) -> NoAnswerError | IncompleteError | None:
    """Return the error for exit code 3 if a drift is beyond tolerance; else None.

    With `strict`, also the error for exit code 4 if a bill could not be requested or compared.
    """
    beyond = [one for one in reconciliation.results if one.outcome == BEYOND]
    if beyond:
        hint = "\n".join(_format_result(one) for one in beyond[:3])
        return NoAnswerError(f"{len(beyond)} of {len(reconciliation.results)} bills differ from the charges", hint=hint)
    unsure = [one for one in reconciliation.results if one.outcome == UNSURE]
    if strict and (reconciliation.not_asked or unsure):
        names = [name for name, _ in reconciliation.not_asked] + [
            f"{one.provider}/{to_one_line(one.account)}" for one in unsure
        ]
        reasons = "\n".join(f"{name}: {to_one_line(why)}" for name, why in reconciliation.not_asked[:3])
        what = f"not every bill could be fetched and compared: {', '.join(names[:MOST_SENTENCES])}"
        return IncompleteError(what, hint=reasons or None)
    return None


def _list_lead_lines(reconciliation: Reconciliation) -> Iterator[str]:
    if not reconciliation.results:
        yield f"{reconciliation.label}: no bill was compared with the charges."
        return
    counts = {outcome: sum(one.outcome == outcome for one in reconciliation.results) for outcome in (WITHIN, BEYOND, UNSURE)}
    summary = ", ".join(f"{count} {OUTCOMES[outcome]}" for outcome, count in counts.items() if count)
    bills = "1 bill" if len(reconciliation.results) == 1 else f"{len(reconciliation.results)} bills"
    tolerance = reconciliation.tolerance.format()
    yield f"{reconciliation.label}: {bills} compared with the charges, tolerance {tolerance}: {summary}."


def _list_notes(reconciliation: Reconciliation) -> Iterator[str]:
    for one in reconciliation.imports:
        yield _format_import(one)
    yield from (f"Not queried: {name}: {to_one_line(why)}." for name, why in reconciliation.not_asked)
    yield from (f"{note.rstrip('.')}." for note in reconciliation.notes)
    yield from (_format_evidence(one) for one in reconciliation.evidence if one.lines)
    yield from (_format_repriced(one) for one in reconciliation.evidence if one.repriced)
    yield from (_format_unused(one) for one in reconciliation.unused)
    yield from (f"{one.provider}/{to_one_line(one.account)}: {one.why}." for one in reconciliation.results if one.why)
    if reconciliation.told:
        yield f"{reconciliation.told} notices were queued for the routes of the settings."


def _format_import(one: BillImport) -> str:
    parts = [f"{one.lines} lines", f"{one.added} new"]
    parts += [f"{one.replaced} replaced"] if one.replaced else []
    parts += [f"{one.withdrawn} withdrawn"] if one.withdrawn else []
    parts += [f"{one.outdated} older than recorded"] if one.outdated else []
    parts += [f"{one.estimated} estimated"] if one.estimated else []
    left_out = f" Incomplete: {shorten(to_one_line(one.why), 200)}." if one.why else ""
    return f"Bill of {one.provider} from {shorten(to_one_line(one.source), 60)}: {', '.join(parts)}.{left_out}"


def _format_evidence(one: EvidenceSummary) -> str:
    sign, whose = get_currency_sign(one.currency), f"{one.provider}/{shorten(to_one_line(one.account), LONGEST_NAME)}"
    doubt, doubt_left = (f"{sign}{format_amount(_to_money(nano, one.currency))}" for nano in (one.doubt, one.left))
    lines, limit = ("1 bill line", "limits") if one.lines == 1 else (f"{one.lines} bill lines", "limit")
    of = "one resource" if one.resources == 1 else f"{one.resources} resources"
    lines += f" ({one.estimated} estimated, with a tolerance of {one.percent} %)" if one.estimated else ""
    return f"{whose}: {lines} {limit} the charges of {of}: the uncertainty decreases from {doubt} to {doubt_left}."


def _format_repriced(one: EvidenceSummary) -> str:
    sign, whose = get_currency_sign(one.currency), f"{one.provider}/{shorten(to_one_line(one.account), LONGEST_NAME)}"
    billed, counted = (f"{sign}{format_amount(_to_money(nano, one.currency))}" for nano in (one.billed, one.counted))
    lines = "1 settled bill line states" if one.repriced == 1 else f"{one.repriced} settled bill lines state"
    ratio = f" ({one.billed / one.counted:.4f} times)" if one.counted else ""
    return f"{whose}: {lines} another price: {billed} instead of {counted}{ratio}. Reports, budgets and hard caps use the bill."


def _format_unused(one: EvidenceFinding) -> str:
    ids = ", ".join(shorten(to_one_line(id_), LONGEST_NAME) for id_ in one.resources if id_)
    lines, were = (f"1 {one.charge} line", "was") if one.lines == 1 else (f"{one.lines} {one.charge} lines", "were")
    amount = str(_to_money(one.nano, one.currency))
    lead = "CONTRADICTION: " if one.contradicts else ""
    of, whose = f" of {ids}" if ids else "", f"{one.provider}/{shorten(to_one_line(one.account), LONGEST_NAME)}"
    return f"{lead}{whose}: {lines}{of} ({amount}) {were} not used as evidence: {REASON_SENTENCES[one.reason]}."


def _build_evidence_data(one: EvidenceSummary) -> dict[str, object]:
    return {
        "provider": one.provider,
        "account": one.account,
        "currency": one.currency,
        "lines": one.lines,
        "estimated": one.estimated,
        "tolerance_percent": one.percent if one.estimated else 0,
        "resources": one.resources,
        "doubt": format_exact(_to_money(one.doubt, one.currency)),
        "left": format_exact(_to_money(one.left, one.currency)),
        "repriced_lines": one.repriced,
        "counted": format_exact(_to_money(one.counted, one.currency)),
        "billed": format_exact(_to_money(one.billed, one.currency)),
    }


def _build_unused_data(one: EvidenceFinding) -> dict[str, object]:
    return {
        "provider": one.provider,
        "account": one.account,
        "currency": one.currency,
        "charge": one.charge,
        "reason": one.reason,
        "why": REASON_SENTENCES[one.reason],
        "contradicts": one.contradicts,
        "lines": one.lines,
        "amount": format_exact(_to_money(one.nano, one.currency)),
        "some": list(one.resources),
    }


def _list_tables(reconciliation: Reconciliation) -> Iterator[TableView]:
    if reconciliation.results:
        headings = ("provider", "account", "billed>", "charged>", "low>", "high>", "drift>", "unexplained>", "outcome")
        table = build_table(RESULT_COLUMNS, reconciliation.results, headings, title="Bills and charges")
        totals = tuple(_list_total_rows(reconciliation.results))
        yield TableView(title=table.title, columns=table.columns, rows=(*table.rows, *totals), sums=len(totals))
    if reconciliation.readings:
        yield build_readings_table(reconciliation.readings)
    causes = tuple(_build_cause_row(one, part) for one in reconciliation.results for part in one.parts)
    if causes:
        yield TableView(
            title="Causes",
            columns=("provider", "account", "cause", "charge", "what", "amount>", "why"),
            rows=causes,
        )


def _list_total_rows(results: Sequence[DriftResult]) -> Iterator[tuple[str, ...]]:
    """Yield the sums of several results, one a currency, in the order of the table's columns."""
    for currency in dict.fromkeys(one.currency for one in results) if len(results) > 1 else ():
        its = [one for one in results if one.currency == currency]
        billed, unexplained = sum(one.billed for one in its), sum(one.unexplained for one in its)
        low, expected, high = (sum(one.charged[end] for one in its) for end in range(3))
        plain = [format_amount(_to_money(nano, currency)) for nano in (abs(billed), expected, low, high, unexplained)]
        sign = get_currency_sign(currency)
        amounts = (f"{'-' * (billed < 0)}{sign}{plain[0]}", f"{sign}{plain[1]}", plain[2], plain[3])
        yield "total", "", *amounts, _format_signed_amount(billed - expected, currency), plain[4], ""


def _build_cause_row(one: DriftResult, part: DriftPart) -> tuple[str, ...]:
    names = (one.provider, shorten(to_one_line(one.account), LONGEST_NAME))
    sku = shorten(to_one_line(part.sku), LONGEST_NAME) or "-"
    apart = f"{part.cause} (apart)" if part.explained else part.cause
    return (*names, apart, part.charge or "-", sku, _format_signed_amount(part.nano, one.currency), to_one_line(part.reason))


def _format_result(one: DriftResult) -> str:
    part = next((part for part in one.parts if not part.explained), None)
    why = f": {to_one_line(part.reason)}" if part else ""
    return (
        f"{one.provider}/{shorten(to_one_line(one.account), LONGEST_NAME)} "
        f"{_format_signed_amount(one.drift, one.currency)}{why}"
    )


def _build_import_data(one: BillImport) -> dict[str, object]:
    return {
        "provider": one.provider,
        "source": one.source,
        "start": format_instant(one.start),
        "end": format_instant(one.end),
        "lines": one.lines,
        "added": one.added,
        "replaced": one.replaced,
        "withdrawn": one.withdrawn,
        "outdated": one.outdated,
        "estimated": one.estimated,
        "whole": not one.why,
        "why": one.why or None,
    }


def _build_part_data(part: DriftPart, currency: str) -> dict[str, object]:
    return {
        "cause": part.cause,
        "charge": part.charge or None,
        "sku": part.sku or None,
        "amount": format_exact(_to_money(part.nano, currency)),
        "outside": format_exact(_to_money(part.off, currency)),
        "explained": part.explained,
        "resources": part.resources,
        "lines": part.lines,
        "why": part.reason,
        "some": list(part.named),
    }


RESULT_COLUMNS: tuple[Column[DriftResult], ...] = (
    Column("provider", "provider", lambda one: one.provider),
    Column("account", "account", lambda one: one.account, lambda one: shorten(to_one_line(one.account), LONGEST_NAME)),
    Column("currency", "", lambda one: one.currency),
    Column("outcome", "outcome", lambda one: one.outcome, lambda one: OUTCOMES[one.outcome]),
    Column("why", "", lambda one: one.why or None),
    Column(
        "billed",
        "billed>",
        lambda one: format_exact(_to_money(one.billed, one.currency)),
        lambda one: f"{'-' * (one.billed < 0)}{get_currency_sign(one.currency)}{_format_nano(abs(one.billed), one)}",
    ),
    Column(
        "charged",
        "charged>",
        lambda one: _format_amounts(one.charged, one.currency),
        lambda one: f"{get_currency_sign(one.currency)}{_format_nano(one.charged[1], one)}",
    ),
    Column("", "low>", lambda one: one.charged[0], lambda one: _format_nano(one.charged[0], one)),
    Column("", "high>", lambda one: one.charged[2], lambda one: _format_nano(one.charged[2], one)),
    Column(
        "drift",
        "drift>",
        lambda one: format_exact(_to_money(one.drift, one.currency)),
        lambda one: _format_signed_amount(one.drift, one.currency),
    ),
    Column(
        "unexplained",
        "unexplained>",
        lambda one: format_exact(_to_money(one.unexplained, one.currency)),
        lambda one: _format_nano(one.unexplained, one),
    ),
    Column("allowed", "", lambda one: format_exact(_to_money(one.allowed, one.currency))),
    Column("causes", "", lambda one: [_build_part_data(part, one.currency) for part in one.parts]),
    Column("days", "", lambda one: [_build_day_data(day, one.currency) for day in one.cells]),
    Column("resources", "", lambda one: [_build_group_data(group, one.currency) for group in one.groups]),
)


def _format_nano(nano: int, one: DriftResult) -> str:
    return format_amount(_to_money(nano, one.currency))


def _build_day_data(day: CellAmounts, currency: str) -> dict[str, object]:
    """Return the amounts of one UTC day."""
    return {
        "day": f"{from_micros(day.cell * DAY_US):%Y-%m-%d}",
        "billed": format_exact(_to_money(day.billed, currency)),
        "charged": _format_amounts(day.charged, currency),
    }


def _build_group_data(group: DriftGroup, currency: str) -> dict[str, object]:
    return {
        "id": group.resource or None,
        "region": group.region or None,
        "charge": group.charge,
        "sku": group.sku or None,
        "billed": format_exact(_to_money(group.billed, currency)),
        "charged": _format_amounts(group.charged, currency),
        "cause": group.cause,
    }


def _list_account_records(reconciliation: Reconciliation, result: DriftResult) -> Iterator[Mapping[str, object]]:
    """Yield rows that add up to the account.

    They are its resources, items billed separately (taxes and credits), and charges outside the statement.
    """
    for one in result.groups:
        whose = {"region": one.region, "resource": one.resource, "charge": one.charge, "sku": one.sku, "cause": one.cause}
        yield _build_amount_record(reconciliation, result, whose, (one.billed, one.charged))
    for part in result.parts:
        if part.charge in (TAX, CREDIT):
            yield _build_amount_record(
                reconciliation, result, {"charge": part.charge, "cause": part.cause}, (part.nano, (0, 0, 0))
            )
    low, expected, high = (total - sum(one.charged[end] for one in result.groups) for end, total in enumerate(result.charged))
    if high:
        yield _build_amount_record(reconciliation, result, {"cause": OUTSIDE_STATEMENT}, (0, (low, expected, high)))


def _build_amount_record(
    reconciliation: Reconciliation, result: DriftResult, whose: Mapping[str, str], amounts: tuple[int, NanoAmounts]
) -> Mapping[str, object]:
    """Return a row with amounts as numbers, because spreadsheets treat a text that begins with a minus sign as text."""
    billed, charged = amounts
    return {
        "period": reconciliation.label,
        "provider": result.provider,
        "account": result.account,
        **{name: whose.get(name, "") for name in ("region", "resource", "charge", "sku")},
        "currency": result.currency,
        "billed": _to_money(billed, result.currency).to_decimal(),
        **_format_amounts(charged, result.currency),
        "drift": _to_money(billed - charged[1], result.currency).to_decimal(),
        "cause": whose["cause"],
    }


OUTCOMES: Mapping[str, str] = {WITHIN: "within tolerance", BEYOND: "beyond tolerance", UNSURE: "undecided"}


def build_bill_comparison_data(records: Sequence[ReconciliationRecord], spent: Sequence[str]) -> list[dict[str, object]]:
    """Return the report's `reconciliation`: each account whose bill was compared, and providers without a compared bill."""
    rows: list[dict[str, object]] = [
        {
            "provider": one.provider,
            "account": one.account,
            "currency": one.currency,
            "state": one.outcome,
            "at": format_instant(one.at),
            "period": {"start": format_instant(one.period.start), "end": format_instant(one.period.end)},
            "billed": format_exact(_to_money(one.billed, one.currency)),
            "charged": _format_amounts(one.charged, one.currency),
            "drift": format_exact(_to_money(one.billed - one.charged[1], one.currency)),
            "unexplained": format_exact(_to_money(one.unexplained, one.currency)),
            "tolerance": one.tolerance,
        }
        for one in records
    ]
    compared = {one.provider for one in records}
    return rows + [{"provider": name, "state": "not reconciled"} for name in spent if name not in compared]


def list_bill_comparison_lines(records: Sequence[ReconciliationRecord], spent: Sequence[str]) -> Iterator[str]:
    """Yield the comparison as sentences for people, without their full stop."""
    for one in records:
        mark = get_currency_sign(one.currency)
        drift = _format_signed_amount(one.billed - one.charged[1], one.currency)
        billed = f"{mark}{format_amount(_to_money(one.billed, one.currency))} billed"
        summary = f"compared with the bill on {format_local_time(one.at)}: {billed}"
        off = f"{mark}{format_amount(_to_money(one.unexplained, one.currency))} of it unexplained"
        account = f"{one.provider}/{to_one_line(one.account)}"
        yield f"{account} {summary}, {drift} against the charges, {off}, {OUTCOMES[one.outcome]}"
    compared = {one.provider for one in records}
    missing = [name for name in spent if name not in compared]
    if missing:
        yield f"Not reconciled with a bill: {', '.join(missing)}"


def _to_money(nano: int, currency: str) -> Money:
    """Return an amount of the ledger as Money."""
    return Money(nano=nano, currency=currency)


def _format_amounts(amounts: NanoAmounts, currency: str) -> dict[str, str]:
    """Return {"low", "expected", "high"} to the nano-unit."""
    low, expected, high = (_to_money(nano, currency) for nano in amounts)
    return format_interval_exact(MoneyInterval(low=low, expected=expected, high=high))


def _format_signed_amount(nano: int, currency: str) -> str:
    """Return `+$1.68`, `-$0.40` or `$0.00`."""
    return f"{'+' * (nano > 0)}{_to_money(nano, currency)}"
