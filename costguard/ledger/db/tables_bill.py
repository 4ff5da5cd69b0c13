"""The tables of the bill: what providers state that they charged, how it came here, and what holding it against spans showed.

Nothing here changes a span. A line that its provider restates is replaced, once, by a new row that the older one names; what
a reconciliation found are rows of its own, each with its reason. What may be changed of them, `guards` says.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Table, Text, text

from costguard.bills.bill_line import CHARGES
from costguard.ledger.db.tables import BIG_INTEGER, STRICT, LedgerTable

_CHARGES = ", ".join(f"'{charge}'" for charge in CHARGES)
STILL_STATED = text("replaced_us IS NULL")
LINE_KEY_NAMES = ("provider", "account", "statement", "line_id")
"""What a line is known by: a newer statement of the same name replaces the older one."""


def _make_number_columns(*names: str) -> list[Column[Any]]:
    return [Column(name, BIG_INTEGER, nullable=False) for name in names]


def _make_text_columns(*names: str) -> list[Column[Any]]:
    return [Column(name, Text, nullable=False) for name in names]


def _make_id_column() -> Column[Any]:
    """A number that the database counts up."""
    return Column("id", BIG_INTEGER, primary_key=True)


def _make_reference_column(table: str, name: str, *, missing: bool = False) -> Column[Any]:
    """The id of a row of `table`."""
    return Column(name, BIG_INTEGER, ForeignKey(f"{table}.id"), nullable=missing)


BILL_IMPORT = Table(
    "bill_import",
    LedgerTable.metadata,
    _make_id_column(),
    *_make_number_columns("at_us"),
    *_make_text_columns("who", "provider", "source"),
    *_make_number_columns("start_us", "end_us", "stated_us", "whole"),
    *_make_text_columns("why"),
    *_make_number_columns("lines"),
    CheckConstraint("whole IN (0, 1) AND start_us <= end_us", name="bill_import_in_order"),
    **STRICT,
)
"""One statement that was read: whose, from where, of which period, as it was `stated_us`, with how many lines.

`whole` 0: `why` says what it leaves out. What it changed, the lines that name it say.
"""

BILL_LINE = Table(
    "bill_line",
    LedgerTable.metadata,
    _make_id_column(),
    _make_reference_column("bill_import", "import_id"),
    *_make_text_columns(*LINE_KEY_NAMES),
    *_make_number_columns("start_us", "end_us", "nano"),
    *_make_text_columns("currency", "charge", "external_id", "region"),
    *_make_number_columns("estimated", "stated_us"),
    *_make_text_columns("source", "description"),
    Column("replaced_us", BIG_INTEGER),
    _make_reference_column("bill_import", "replaced_by", missing=True),
    Column("replaced_why", Text),
    CheckConstraint("start_us < end_us AND estimated IN (0, 1)", name="bill_line_in_order"),
    CheckConstraint(f"charge IN ({_CHARGES})", name="bill_line_charge"),
    CheckConstraint(
        "(replaced_us IS NULL) = (replaced_by IS NULL) AND (replaced_us IS NULL) = (replaced_why IS NULL)",
        name="bill_line_replaced_whole",
    ),
    Index("bill_line_once", *LINE_KEY_NAMES, unique=True, sqlite_where=STILL_STATED, postgresql_where=STILL_STATED),
    Index("bill_line_by_time", "provider", "start_us"),
    **STRICT,
)
"""One line as stated, but for its tags: one that is set later would replace a line whose money is the same.

`replaced_us`, `replaced_by` (an import) and `replaced_why` are set once, when it is stated no more.
"""

RECONCILIATION = Table(
    "reconciliation",
    LedgerTable.metadata,
    _make_id_column(),
    *_make_number_columns("at_us"),
    *_make_text_columns("who", "provider", "account", "currency"),
    *_make_number_columns("start_us", "end_us", "billed", "low", "expected", "high", "unexplained", "allowed"),
    *_make_text_columns("outcome", "tolerance"),
    *_make_number_columns("told"),
    CheckConstraint("outcome IN ('within', 'beyond', 'unknown') AND told IN (0, 1)", name="reconciliation_outcome"),
    CheckConstraint("start_us < end_us AND low <= expected AND expected <= high", name="reconciliation_in_order"),
    Index("reconciliation_by_time", "end_us"),
    **STRICT,
)
"""A bill held against the charges of one account and currency in [start, end). `told`: whether a notice was written of it."""

BILL_ADJUSTMENT = Table(
    "bill_adjustment",
    LedgerTable.metadata,
    _make_id_column(),
    _make_reference_column("reconciliation", "reconciliation_id"),
    *_make_text_columns("cause", "charge", "sku", "currency"),
    *_make_number_columns("nano", "explained", "resources", "lines"),
    *_make_text_columns("reason"),
    CheckConstraint("explained IN (0, 1)", name="bill_adjustment_explained"),
    Index("bill_adjustment_by_reconciliation", "reconciliation_id"),
    **STRICT,
)
"""What is added to the charges so that they come to the bill, for one cause: bill less expected charges, and the reason."""
