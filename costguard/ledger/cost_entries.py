"""Store and load the costs that people entered by hand: all of a file in one transaction, or none of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import bindparam
from sqlalchemy import select as select_columns
from sqlmodel import col

from costguard.errors import InputError
from costguard.ledger.db.codecs import Query, SqlRow
from costguard.ledger.db.rows import insert_rows
from costguard.ledger.db.store import LedgerStore
from costguard.ledger.spans.correction_parts import Rows
from costguard.ledger.tables.cost_entries import CostEntryRow
from costguard.metering.cost_entry import CostEntry
from costguard.values.calendar import Period, find_month_of_day
from costguard.values.instant import DAY_US, from_micros, to_micros
from costguard.values.money import Money
from costguard.values.resource import GROUPED_LABELS


class CostEntryStore(LedgerStore):
    """The entries of the ledger at `url`. Close it, or use it in a `with` statement. Each method may raise LedgerError."""

    def add_entries(self, entries: Sequence[CostEntry], fields: Sequence[str]) -> list[CostEntry]:
        """Store `entries`, whose amounts are the right ones, and return them as stored: corrections as differences.

        `fields`: where each was read. Raises InputError, and stores nothing, if one is stored already, or corrects what is not.
        """
        with self._begin_write() as (ask, tell):
            stored = [_decode_row(row) for row in ask(_select_entries())]
            added = list[CostEntry]()
            for one, field in zip(entries, fields, strict=True):
                entry = _place_entry(one, stored[-1].number + 1 if stored else 1, stored, field)
                stored.append(entry)
                added.append(entry)
            insert_rows(tell, [_encode_entry(entry) for entry in added])
        return added

    def restate_entries(self, entries: Sequence[CostEntry]) -> list[CostEntry]:
        """Store by how much `entries` differ from what is stored of them, and return that.

        What somebody else than their `who` has corrected stays.
        """
        with self._begin_write() as (ask, tell):
            stored, added = [_decode_row(row) for row in ask(_select_entries())], list[CostEntry]()
            for one in entries:
                root = next((other.number for other in stored if not other.corrects and _is_same_cost(one, other)), 0)
                chain = [other for other in stored if root and root in (other.number, other.corrects)]
                due = one.money.nano - sum(other.money.nano for other in chain)
                if due and all(other.who == one.who for other in chain):
                    money = replace(one.money, nano=due)
                    added.append(replace(one, number=stored[-1].number + 1 if stored else 1, corrects=root, money=money))
                    stored.append(added[-1])
            insert_rows(tell, [_encode_entry(entry) for entry in added])
        return added


def _place_entry(one: CostEntry, number: int, stored: Sequence[CostEntry], field: str) -> CostEntry:
    """Return `one` as it is stored after `stored`."""
    if not one.corrects:
        same = next((other for other in stored if not other.corrects and _is_same(one, other)), None)
        if same is not None:
            what = f"is in the books already: E{same.number}, entered by {same.who} on {same.entered_at:%Y-%m-%d}"
            raise InputError(
                what, field=field, hint=f"if it is another cost, call it otherwise; --corrects E{same.number} changes it"
            )
        return replace(one, number=number)
    chain = [other for other in stored if one.corrects in (other.number, other.corrects)]
    root = next((other for other in chain if other.number == one.corrects and not other.corrects), None)
    if root is None:
        raise InputError(
            f"there is no entry E{one.corrects} to correct", field=field, hint="costguard report --by resource,name lists them"
        )
    if root.money.currency != one.money.currency:
        raise InputError(
            f"is in {root.money.currency}, not {one.money.currency}", field=field, hint="write the amount in its currency"
        )
    difference = one.money.nano - sum(other.money.nano for other in chain)
    if not difference:
        raise InputError(
            f"is what E{one.corrects} says already", field=field, hint="write the right amount, 0 if nothing is due"
        )
    return replace(
        root,
        number=number,
        corrects=root.number,
        money=replace(one.money, nano=difference),
        who=one.who,
        entered_at=one.entered_at,
    )


def _is_same(one: CostEntry, other: CostEntry) -> bool:
    return one.money == other.money and _is_same_cost(one, other)


def _is_same_cost(one: CostEntry, other: CostEntry) -> bool:
    """Return whether both are the same cost, in one currency, of any amount."""
    names = ("what", "month", "attribution")
    return one.money.currency == other.money.currency and all(getattr(one, name) == getattr(other, name) for name in names)


def load_entries(ask: Query, period: Period) -> list[CostEntry]:
    """Return the entries that are billed in `period`, in the order of their numbers."""
    first, last = (find_month_of_day(to_micros(at) // DAY_US) for at in (period.start, period.end))
    rows = ask(_select_entries().where(bindparam("first") <= MONTH, bindparam("last") >= MONTH), {"first": first, "last": last})
    return [one for one in map(_decode_row, rows) if period.holds(one.start)]


def load_entries_by_number(ask: Query, numbers: Collection[int]) -> list[CostEntry]:
    """Return the entries of these numbers."""
    return [_decode_row(row) for row in ask(_select_entries().where(COLUMNS[0].in_(numbers)))] if numbers else []


MONTH = col(CostEntryRow.month)
COLUMNS: tuple[Any, ...] = tuple(
    getattr(CostEntryRow, name)
    for name in (
        "id",
        "corrects",
        "entered_us",
        "who",
        "what",
        "month",
        "nano",
        "currency",
        "provider",
        "owner",
        *GROUPED_LABELS,
    )
)


def _select_entries() -> Rows:
    return select_columns(*COLUMNS).order_by(COLUMNS[0])


def _decode_row(row: SqlRow) -> CostEntry:
    number, corrects, entered_us, who, what, month, nano, currency, provider, owner, *labels = row
    return CostEntry(
        number=number,
        corrects=corrects,
        what=what,
        month=month,
        money=Money(nano=nano, currency=currency),
        who=who,
        entered_at=from_micros(entered_us),
        provider=provider,
        owner=owner,
        labels=tuple((key, value) for key, value in zip(GROUPED_LABELS, labels, strict=True) if value),
    )


def _encode_entry(one: CostEntry) -> CostEntryRow:
    labels = dict(one.labels)
    return CostEntryRow(
        id=one.number,
        corrects=one.corrects,
        entered_us=to_micros(one.entered_at),
        who=one.who,
        what=one.what,
        month=one.month,
        nano=one.money.nano,
        currency=one.money.currency,
        provider=one.provider,
        owner=one.owner,
        **{key: labels.get(key, "") for key in GROUPED_LABELS},
    )
