"""What a bill holds, where there is no ledger to compare it with: `costguard.reconcile/1` with `bills` and no accounts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from costguard.errors import IncompleteError, shorten, to_one_line
from costguard.values.calendar import Period
from costguard.values.instant import from_micros
from costguard.values.money import Money
from costguard.values.text_format import format_exact, format_instant
from costguard.views.bill_files_read import BillFileReading, build_readings_data, build_readings_table
from costguard.views.bills import LONGEST_NAME, RECONCILE_SCHEMA
from costguard.views.document import Column, Document, build_record, build_table


@dataclass(slots=True, kw_only=True)
class BillSummary:
    """The lines of one file for one account, month and currency.

    `month`: "2026-10", in UTC, of the lines' starts. `start_us`, `end_us`: of the first and the last line. `nano`: the total;
    `by_charge`: the same by kind of charge. `estimated`: lines that will still change.
    """

    source: str
    provider: str
    account: str
    month: str
    currency: str
    start_us: int
    end_us: int
    lines: int = 0
    estimated: int = 0
    nano: int = 0
    by_charge: dict[str, int] = field(default_factory=dict)

    def add(self, *, start_us: int, end_us: int, nano: int, charge: str, estimated: bool) -> None:
        """Add a line."""
        self.start_us, self.end_us = min(self.start_us, start_us), max(self.end_us, end_us)
        self.lines += 1
        self.estimated += estimated
        self.nano += nano
        self.by_charge[charge] = self.by_charge.get(charge, 0) + nano


def build_bill_summary_document(
    bills: Sequence[BillSummary],
    readings: Sequence[BillFileReading],
    *,
    ledger: str,
    period: Period,
    at: datetime,
    tolerance: str,
    notes: Sequence[str],
) -> Document:
    """Return the document. `ledger`: where there is none. The keys of a comparison are there, and empty."""
    label = f"{period.start:%Y-%m}"
    data = {
        "schema": RECONCILE_SCHEMA,
        "period": {"start": format_instant(period.start), "end": format_instant(period.end), "label": label},
        "as_of": format_instant(at),
        "tolerance": tolerance,
        "compared": False,
        "bills": [build_record(SUMMARY_COLUMNS, one) for one in bills],
        "imports": [],
        "files": build_readings_data(readings),
        "not_asked": [],
        "accounts": [],
        "notes": [describe_missing_ledger(ledger), *notes],
        "told": 0,
    }
    headings = ("file", "provider", "account", "month", "lines>", "amount>", "of it")
    return Document(
        data=data,
        records=tuple(_build_flat_record(one) for one in bills),
        lead=(f"{describe_missing_ledger(ledger)}.",),
        tables=(build_table(SUMMARY_COLUMNS, bills, headings, title="Content of the bill"), build_readings_table(readings)),
        notes=tuple(f"{note.rstrip('.')}." for note in notes),
    )


def describe_missing_ledger(ledger: str) -> str:
    """Return the sentence that there is nothing to compare a bill with, and how there will be."""
    return (
        f"There is no ledger at {ledger}: the bill was read, not imported, and there is nothing to compare it with; "
        "costguard status or watch creates one"
    )


def build_uncompared_error(ledger: str) -> IncompleteError:
    """Return the error with which `--strict` refuses an answer that compares nothing."""
    return IncompleteError("the bill was read and not compared", hint=f"there is no ledger at {ledger}")


SUMMARY_COLUMNS: tuple[Column[BillSummary], ...] = (
    Column("file", "file", lambda one: one.source, lambda one: shorten(to_one_line(one.source), LONGEST_NAME)),
    Column("provider", "provider", lambda one: one.provider),
    Column("account", "account", lambda one: one.account, lambda one: shorten(to_one_line(one.account), LONGEST_NAME)),
    Column("month", "month", lambda one: one.month),
    Column("currency", "", lambda one: one.currency),
    Column("start", "", lambda one: format_instant(from_micros(one.start_us))),
    Column("end", "", lambda one: format_instant(from_micros(one.end_us))),
    Column("lines", "lines>", lambda one: one.lines, lambda one: f"{one.lines:,}"),
    Column("estimated", "", lambda one: one.estimated),
    Column(
        "amount",
        "amount>",
        lambda one: format_exact(Money(nano=one.nano, currency=one.currency)),
        lambda one: _format_amount(one.nano, one.currency),
    ),
    Column(
        "charges",
        "of it",
        lambda one: {name: format_exact(Money(nano=nano, currency=one.currency)) for name, nano in _sort_charges(one)},
        lambda one: ", ".join(f"{name} {_format_amount(nano, one.currency)}" for name, nano in _sort_charges(one)),
    ),
)


def _sort_charges(one: BillSummary) -> Iterator[tuple[str, int]]:
    """Return the kinds of charge, the largest first."""
    return iter(sorted(one.by_charge.items(), key=lambda part: (-abs(part[1]), part[0])))


def _format_amount(nano: int, currency: str) -> str:
    return str(Money(nano=nano, currency=currency))


def _build_flat_record(one: BillSummary) -> Mapping[str, object]:
    record = dict(build_record(SUMMARY_COLUMNS, one))
    del record["charges"]
    return record | {"amount": Money(nano=one.nano, currency=one.currency).to_decimal()}
