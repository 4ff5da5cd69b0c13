"""What was read of bill files: records, amounts as lines and as invoiced, and the totals that the files state themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from costguard.bills.bill_files import BillTally
from costguard.errors import shorten, to_one_line
from costguard.values.money import Money
from costguard.values.text_format import format_exact, get_currency_sign
from costguard.views.document import Column, TableView, build_record, build_table

LONGEST_NAME = 40
CENT = Decimal("0.01")
Amounts = Mapping[str, Decimal]
"""By currency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BillFileReading:
    """One file or folder. `lines`: the amounts of its bill lines by currency, amortised; the rest is in its `tally`."""

    source: str
    lines: Amounts
    tally: BillTally

    @property
    def missing(self) -> Amounts:
        """Its own totals less its lines, where they differ by a cent or more."""
        totals = self.tally.own_totals
        return {
            name: total - self.lines.get(name, Decimal(0))
            for name, total in totals.items()
            if abs(total - self.lines.get(name, Decimal(0))) >= CENT
        }


def build_readings_data(readings: Sequence[BillFileReading]) -> list[dict[str, object]]:
    """Return the files as JSON has them."""
    return [dict(build_record(READING_COLUMNS, one)) for one in readings]


def build_readings_table(readings: Sequence[BillFileReading]) -> TableView:
    """Return the files as a table, with the total of several."""
    table = build_table(READING_COLUMNS, readings, title="Files read")
    if len(readings) < 2:  # noqa: PLR2004 - one file is its own total
        return table
    records = sum(one.tally.records for one in readings)
    columns: tuple[list[Amounts], ...] = (
        [one.lines for one in readings],
        [one.tally.invoiced for one in readings],
        [one.tally.own_totals for one in readings],
    )
    left_out = sum(sum(one.tally.left_out.values()) for one in readings)
    sums = (_format_amounts(_sum_amounts(one)) for one in columns)
    total = ("total", f"{records:,}", f"{left_out:,}" if left_out else "-", *sums)
    return TableView(title=table.title, columns=table.columns, rows=(*table.rows, total), sums=1)


def list_reading_notes(readings: Sequence[BillFileReading]) -> list[str]:
    """Return a sentence for each file of which something became no line, or whose own total is another, without full stop."""
    notes = list[str]()
    for one in readings:
        name = to_one_line(one.source)
        notes += [f"{name}: left out {count:,} {to_one_line(why)}" for why, count in one.tally.left_out.most_common()]
        notes += [
            f"{name} states a total of {_format_amounts({currency: one.tally.own_totals[currency]})}: "
            f"{_format_amounts({currency: abs(amount)})} {'more' if amount > 0 else 'less'} than its lines"
            for currency, amount in one.missing.items()
        ]
        notes += [
            f"{name}: its total is negative, {_format_amounts({currency: amount})}: it credits more than it charges"
            for currency, amount in one.lines.items()
            if amount < 0
        ]
    return notes


def _sum_amounts(every: Sequence[Amounts]) -> Amounts:
    totals = dict[str, Decimal]()
    for currency, amount in (one for amounts in every for one in amounts.items()):
        totals[currency] = totals.get(currency, Decimal(0)) + amount
    return totals


def _format_amounts(amounts: Amounts) -> str:
    texts = (
        f"{'-' * (amount < 0)}{get_currency_sign(currency)}{_to_money(currency, abs(amount)).format()}"
        for currency, amount in sorted(amounts.items())
    )
    return ", ".join(texts) or "-"


def _to_money(currency: str, amount: Decimal) -> Money:
    return Money(nano=int(amount.scaleb(9).to_integral_value()), currency=currency)


def _build_amounts_data(amounts: Amounts) -> dict[str, str]:
    return {currency: format_exact(_to_money(currency, amount)) for currency, amount in sorted(amounts.items())}


READING_COLUMNS: tuple[Column[BillFileReading], ...] = (
    Column("file", "file", lambda one: one.source, lambda one: shorten(to_one_line(one.source), LONGEST_NAME)),
    Column("records", "records>", lambda one: one.tally.records, lambda one: f"{one.tally.records:,}"),
    Column(
        "left_out",
        "left out>",
        lambda one: dict(one.tally.left_out),
        lambda one: f"{sum(one.tally.left_out.values()):,}" if one.tally.left_out else "-",
    ),
    Column("amount", "amortised>", lambda one: _build_amounts_data(one.lines), lambda one: _format_amounts(one.lines)),
    Column(
        "invoiced",
        "invoiced>",
        lambda one: _build_amounts_data(one.tally.invoiced),
        lambda one: _format_amounts(one.tally.invoiced),
    ),
    Column(
        "own_total",
        "its own total>",
        lambda one: _build_amounts_data(one.tally.own_totals),
        lambda one: _format_amounts(one.tally.own_totals),
    ),
)
