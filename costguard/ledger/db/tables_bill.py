"""The tables of the bill: what providers state that they charged, how it came here, and what holding it against spans showed.

Nothing here changes a span. A line that its provider restates is replaced, once, by a new row that the older one names; what
a reconciliation found are rows of its own, each with its reason. What may be changed of them, `guards` says.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Table, Text, text

from costguard.bills.bill_line import CHARGES
from costguard.ledger.db.tables import BIG, STRICT, Row

_CHARGES = ", ".join(f"'{charge}'" for charge in CHARGES)
STILL_STATED = text("replaced_us IS NULL")
NAME = ("provider", "account", "statement", "line_id")
"""What a line is known by: a newer statement of the same name replaces the older one."""


def _numbers(*names: str) -> list[Column[Any]]:
    return [Column(name, BIG, nullable=False) for name in names]


def _texts(*names: str) -> list[Column[Any]]:
    return [Column(name, Text, nullable=False) for name in names]


def _id() -> Column[Any]:
    """A number that the database counts up."""
    return Column("id", BIG, primary_key=True)


def _row_of(table: str, name: str, *, missing: bool = False) -> Column[Any]:
    """The id of a row of `table`."""
    return Column(name, BIG, ForeignKey(f"{table}.id"), nullable=missing)


BILL_IMPORT = Table(
    "bill_import",
    Row.metadata,
    _id(),
    *_numbers("at_us"),
    *_texts("who", "provider", "source"),
    *_numbers("start_us", "end_us", "stated_us", "whole"),
    *_texts("why"),
    *_numbers("lines"),
    CheckConstraint("whole IN (0, 1) AND start_us <= end_us", name="bill_import_in_order"),
    **STRICT,
)
"""One statement that was read: whose, from where, of which period, as it was `stated_us`, with how many lines.

`whole` 0: `why` says what it leaves out. What it changed, the lines that name it say.
"""

BILL_LINE = Table(
    "bill_line",
    Row.metadata,
    _id(),
    _row_of("bill_import", "import_id"),
    *_texts(*NAME),
    *_numbers("start_us", "end_us", "nano"),
    *_texts("currency", "charge", "external_id", "region"),
    *_numbers("estimated", "stated_us"),
    *_texts("source", "description"),
    Column("replaced_us", BIG),
    _row_of("bill_import", "replaced_by", missing=True),
    Column("replaced_why", Text),
    CheckConstraint("start_us < end_us AND estimated IN (0, 1)", name="bill_line_in_order"),
    CheckConstraint(f"charge IN ({_CHARGES})", name="bill_line_charge"),
    CheckConstraint(
        "(replaced_us IS NULL) = (replaced_by IS NULL) AND (replaced_us IS NULL) = (replaced_why IS NULL)",
        name="bill_line_replaced_whole",
    ),
    Index("bill_line_once", *NAME, unique=True, sqlite_where=STILL_STATED, postgresql_where=STILL_STATED),
    Index("bill_line_by_time", "provider", "start_us"),
    **STRICT,
)
"""One line as stated, but for its tags: one that is set later would replace a line whose money is the same.

`replaced_us`, `replaced_by` (an import) and `replaced_why` are set once, when it is stated no more.
"""

RECONCILIATION = Table(
    "reconciliation",
    Row.metadata,
    _id(),
    *_numbers("at_us"),
    *_texts("who", "provider", "account", "currency"),
    *_numbers("start_us", "end_us", "billed", "low", "expected", "high", "unexplained", "allowed"),
    *_texts("outcome", "tolerance"),
    *_numbers("told"),
    CheckConstraint("outcome IN ('within', 'beyond', 'unknown') AND told IN (0, 1)", name="reconciliation_outcome"),
    CheckConstraint("start_us < end_us AND low <= expected AND expected <= high", name="reconciliation_in_order"),
    Index("reconciliation_by_time", "end_us"),
    **STRICT,
)
"""A bill held against the charges of one account and currency in [start, end). `told`: whether a notice was written of it."""

BILL_ADJUSTMENT = Table(
    "bill_adjustment",
    Row.metadata,
    _id(),
    _row_of("reconciliation", "reconciliation_id"),
    *_texts("cause", "charge", "sku", "currency"),
    *_numbers("nano", "explained", "resources", "lines"),
    *_texts("reason"),
    CheckConstraint("explained IN (0, 1)", name="bill_adjustment_explained"),
    Index("bill_adjustment_by_reconciliation", "reconciliation_id"),
    **STRICT,
)
"""What is added to the charges so that they come to the bill, for one cause: bill less expected charges, and the reason."""
