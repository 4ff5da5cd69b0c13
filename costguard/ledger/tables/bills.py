"""What providers state that they charged, each import, and the results of reconciliations.

Nothing in them changes a span. A line that its provider restates is replaced, once, by a new row, and the older row names the
import that replaced it. Results of a reconciliation are rows of their own, each with its reason.
"""

from __future__ import annotations

from typing import Annotated

from sqlalchemy import CheckConstraint, Index, text

from costguard.bills.bill_line import CHARGES
from costguard.ledger.types import (
    LaterOptionalNumber,
    LaterOptionalWords,
    LedgerRow,
    Number,
    RowNumber,
    Words,
    declare_table,
    index_where,
    refer_to,
)

_CHARGES = ", ".join(f"'{charge}'" for charge in CHARGES)
STILL_STATED = text("replaced_us IS NULL")
LINE_KEY_NAMES = ("provider", "account", "statement", "line_id")
"""What a line is known by: a newer statement of the same name replaces the older one."""


class BillImportRow(LedgerRow, table=True):
    """One statement that was read: whose, from where, of which period, as it was `stated_us`, with how many lines.

    `whole` 0: `why` says what it leaves out. What it changed, the lines that name it say.
    """

    __tablename__ = "bill_import"
    __table_args__ = (
        CheckConstraint("whole IN (0, 1) AND start_us <= end_us", name="bill_import_in_order"),
        declare_table(keeps_rows=True, written_once=True),
    )

    id: RowNumber
    at_us: Number
    who: Words
    provider: Words
    source: Words
    start_us: Number
    end_us: Number
    stated_us: Number
    whole: Number
    why: Words
    lines: Number


class BillImportUnfinishedRow(LedgerRow, table=True):
    """An import that is being written, or whose process died: readers ignore what it did.

    Its lines have ids above `lines_after`. `undone` 1: nothing of it is left.
    """

    __tablename__ = "bill_import_unfinished"
    __table_args__ = (
        CheckConstraint("undone IN (0, 1)", name="bill_import_unfinished_undone"),
        declare_table(),
    )

    import_id: Annotated[int, refer_to("bill_import.id", primary_key=True)]
    lines_after: Number
    undone: Number


class BillLineRow(LedgerRow, table=True):
    """One line as stated, but for its tags: one that is set later would replace a line whose money is the same.

    `replaced_us`, `replaced_by` (an import) and `replaced_why` are set once, when it is stated no more.
    """

    __tablename__ = "bill_line"
    __table_args__ = (
        CheckConstraint("start_us < end_us AND estimated IN (0, 1)", name="bill_line_in_order"),
        CheckConstraint(f"charge IN ({_CHARGES})", name="bill_line_charge"),
        CheckConstraint(
            "(replaced_us IS NULL) = (replaced_by IS NULL) AND (replaced_us IS NULL) = (replaced_why IS NULL)",
            name="bill_line_replaced_whole",
        ),
        index_where("bill_line_once", *LINE_KEY_NAMES, unique=True, where=STILL_STATED),
        Index("bill_line_by_time", "provider", "start_us"),
        declare_table(keeps_rows=True, written_once=True),
    )

    id: RowNumber
    import_id: Annotated[int, refer_to("bill_import.id")]
    provider: Words
    account: Words
    statement: Words
    line_id: Words
    start_us: Number
    end_us: Number
    nano: Number
    currency: Words
    charge: Words
    external_id: Words
    region: Words
    estimated: Number
    stated_us: Number
    source: Words
    description: Words
    replaced_us: LaterOptionalNumber = None
    replaced_by: Annotated[int | None, refer_to("bill_import.id", later=True)] = None
    replaced_why: LaterOptionalWords = None


class ReconciliationRow(LedgerRow, table=True):
    """A bill compared with the charges of one account and currency in [start, end). `told`: whether a notice was written."""

    __tablename__ = "reconciliation"
    __table_args__ = (
        CheckConstraint("outcome IN ('within', 'beyond', 'unknown') AND told IN (0, 1)", name="reconciliation_outcome"),
        CheckConstraint("start_us < end_us AND low <= expected AND expected <= high", name="reconciliation_in_order"),
        Index("reconciliation_by_time", "end_us"),
        declare_table(keeps_rows=True, written_once=True),
    )

    id: RowNumber
    at_us: Number
    who: Words
    provider: Words
    account: Words
    currency: Words
    start_us: Number
    end_us: Number
    billed: Number
    low: Number
    expected: Number
    high: Number
    unexplained: Number
    allowed: Number
    outcome: Words
    tolerance: Words
    told: Number


class BillAdjustmentRow(LedgerRow, table=True):
    """What is added to the charges so that they come to the bill, for one cause: bill less expected charges, and the reason."""

    __tablename__ = "bill_adjustment"
    __table_args__ = (
        CheckConstraint("explained IN (0, 1)", name="bill_adjustment_explained"),
        Index("bill_adjustment_by_reconciliation", "reconciliation_id"),
        declare_table(keeps_rows=True, written_once=True),
    )

    id: RowNumber
    reconciliation_id: Annotated[int, refer_to("reconciliation.id")]
    cause: Words
    charge: Words
    sku: Words
    currency: Words
    nano: Number
    explained: Number
    resources: Number
    lines: Number
    reason: Words
