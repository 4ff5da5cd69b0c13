"""What people tell the guard."""

from __future__ import annotations

from sqlalchemy import CheckConstraint

from costguard.ledger.types import (
    KeyWords,
    LaterOptionalNumber,
    LaterOptionalWords,
    LedgerRow,
    Number,
    OptionalNumber,
    Words,
    declare_table,
)


class OverrideRow(LedgerRow, table=True):
    """What somebody told the guard. `life`: see `lives`; all of KEY and it are '' where it is of no resource in particular."""

    __tablename__ = "wish"
    __table_args__ = (
        CheckConstraint("(lifted_us IS NULL) = (lifted_by IS NULL)", name="wish_lifted_whole"),
        declare_table(keeps_rows=True, written_once=True),
    )

    id: KeyWords
    what: Words
    who: Words
    why: Words
    at_us: Number
    until_us: OptionalNumber = None
    provider: Words
    account: Words
    region: Words
    external_id: Words
    life: Words
    subject: Words
    value: Words
    lifted_us: LaterOptionalNumber = None
    lifted_by: LaterOptionalWords = None
