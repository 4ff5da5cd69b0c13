"""The tables of bills: what providers state that they charged, each import, and the results of reconciliations.

Nothing in them changes a span. A line that its provider restates is replaced, once, by a new row, and the older row names the
import that replaced it. Results of a reconciliation are rows of their own, each with its reason.
"""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Table, Text, text

from costguard.bills.bill_line import CHARGES
from costguard.ledger.db.columns import (
    BIG_INTEGER,
    METADATA,
    STRICT,
    make_id_column,
    make_number_columns,
    make_reference_column,
    make_text_columns,
)

_CHARGES = ", ".join(f"'{charge}'" for charge in CHARGES)
STILL_STATED = text("replaced_us IS NULL")
LINE_KEY_NAMES = ("provider", "account", "statement", "line_id")
"""What a line is known by: a newer statement of the same name replaces the older one."""

BILL_IMPORT = Table(
    "bill_import",
    METADATA,
    make_id_column(),
    *make_number_columns("at_us"),
    *make_text_columns("who", "provider", "source"),
    *make_number_columns("start_us", "end_us", "stated_us", "whole"),
    *make_text_columns("why"),
    *make_number_columns("lines"),
    CheckConstraint("whole IN (0, 1) AND start_us <= end_us", name="bill_import_in_order"),
    **STRICT,
)
"""One statement that was read: whose, from where, of which period, as it was `stated_us`, with how many lines.

`whole` 0: `why` says what it leaves out. What it changed, the lines that name it say.
"""

BILL_IMPORT_UNFINISHED = Table(
    "bill_import_unfinished",
    METADATA,
    Column("import_id", BIG_INTEGER, ForeignKey("bill_import.id"), primary_key=True, autoincrement=False),
    *make_number_columns("lines_after", "undone"),
    CheckConstraint("undone IN (0, 1)", name="bill_import_unfinished_undone"),
    **STRICT,
)
"""An import that is being written, or whose process died: readers ignore what it did. Its lines have ids above `lines_after`.

`undone` 1: nothing of it is left.
"""

BILL_LINE = Table(
    "bill_line",
    METADATA,
    make_id_column(),
    make_reference_column("bill_import", "import_id"),
    *make_text_columns(*LINE_KEY_NAMES),
    *make_number_columns("start_us", "end_us", "nano"),
    *make_text_columns("currency", "charge", "external_id", "region"),
    *make_number_columns("estimated", "stated_us"),
    *make_text_columns("source", "description"),
    Column("replaced_us", BIG_INTEGER),
    make_reference_column("bill_import", "replaced_by", missing=True),
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
    METADATA,
    make_id_column(),
    *make_number_columns("at_us"),
    *make_text_columns("who", "provider", "account", "currency"),
    *make_number_columns("start_us", "end_us", "billed", "low", "expected", "high", "unexplained", "allowed"),
    *make_text_columns("outcome", "tolerance"),
    *make_number_columns("told"),
    CheckConstraint("outcome IN ('within', 'beyond', 'unknown') AND told IN (0, 1)", name="reconciliation_outcome"),
    CheckConstraint("start_us < end_us AND low <= expected AND expected <= high", name="reconciliation_in_order"),
    Index("reconciliation_by_time", "end_us"),
    **STRICT,
)
"""A bill compared with the charges of one account and currency in [start, end). `told`: whether a notice was written of it."""

BILL_ADJUSTMENT = Table(
    "bill_adjustment",
    METADATA,
    make_id_column(),
    make_reference_column("reconciliation", "reconciliation_id"),
    *make_text_columns("cause", "charge", "sku", "currency"),
    *make_number_columns("nano", "explained", "resources", "lines"),
    *make_text_columns("reason"),
    CheckConstraint("explained IN (0, 1)", name="bill_adjustment_explained"),
    Index("bill_adjustment_by_reconciliation", "reconciliation_id"),
    **STRICT,
)
"""What is added to the charges so that they come to the bill, for one cause: bill less expected charges, and the reason."""
