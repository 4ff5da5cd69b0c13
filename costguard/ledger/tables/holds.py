"""Money set aside for admitted runs."""

from __future__ import annotations

from typing import Annotated

from sqlalchemy import CheckConstraint

from costguard.ledger.types import (
    KeyWords,
    LedgerRow,
    Number,
    OptionalNumber,
    OptionalWords,
    Words,
    declare_table,
    refer_to_words,
)


class HoldRow(LedgerRow, table=True):
    """Money set aside for an admitted run.

    `spent_nano`: the cost of a committed one. `hourly_nano`: what its machines cost an hour, NULL: not known.
    """

    __tablename__ = "hold"
    __table_args__ = (
        CheckConstraint("nano >= 0 AND taken_us <= expires_us", name="hold_in_order"),
        CheckConstraint("ended_by IN ('released', 'committed', 'expired')", name="hold_ended_by"),
        CheckConstraint("(ended_us IS NULL) = (ended_by IS NULL)", name="hold_ended_whole"),
        declare_table(),
    )

    id: KeyWords
    nano: Number
    currency: Words
    who: Words
    why: Words
    provider: Words
    account: Words
    owner: Words
    gpu: Words
    labels: Words
    taken_us: Number
    expires_us: Number
    ended_us: OptionalNumber = None
    ended_by: OptionalWords = None
    spent_nano: OptionalNumber = None
    hourly_nano: OptionalNumber = None


class HoldBudgetRow(LedgerRow, table=True):
    """A budget that a hold counts against."""

    __tablename__ = "hold_budget"
    __table_args__ = declare_table(without_rowid=True)

    hold_id: Annotated[str, refer_to_words("hold.id", primary_key=True)]
    budget: KeyWords
