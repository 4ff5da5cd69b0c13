"""Costs that people entered by hand."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Index

from costguard.ledger.types import LedgerRow, Number, RowNumber, Words, declare_table


class CostEntryRow(LedgerRow, table=True):
    """An entry, or the difference that corrects the entry `corrects` (0: none). `month`: since 1970. See `metering.cost_entry`.

    `who` entered it at `entered_us`. Nothing of it ever changes.
    """

    __tablename__ = "cost_entry"
    __table_args__ = (
        CheckConstraint("nano <> 0 AND (nano > 0 OR corrects > 0)", name="cost_entry_amount"),
        CheckConstraint("corrects >= 0 AND corrects < id", name="cost_entry_corrects_former"),
        Index("cost_entry_by_month", "month"),
        declare_table(keeps_rows=True, written_once=True),
    )

    id: RowNumber
    corrects: Number
    entered_us: Number
    who: Words
    what: Words
    month: Number
    nano: Number
    currency: Words
    provider: Words
    owner: Words
    project: Words
    team: Words
