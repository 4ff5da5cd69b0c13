"""Who polls which account where watchdogs share them, on PostgreSQL."""

from __future__ import annotations

from typing import Annotated

from sqlalchemy import CheckConstraint, Index

from costguard.ledger.types import BIG_INTEGER, KeyWords, LedgerRow, Number, Words, declare_table, fill_older_rows


class DutyRow(LedgerRow, table=True):
    """A standing duty, on PostgreSQL: who polls which account.

    `epoch`: when the job by which it was polled last was deferred, in milliseconds; by `holder`, who counts as the one that
    polls it until `until_us`; '': nobody does. `due_us`: when it is next to be polled. `clock_us`: of a watchdog whose clock is
    wrong, by how much it is ahead of the server's; 0 of all others, and of accounts.
    """

    __tablename__ = "duty"
    __table_args__ = (
        CheckConstraint("epoch >= 0", name="duty_counts"),
        Index("duty_by_due", "kind", "due_us"),
        declare_table(),
    )

    kind: KeyWords
    account: KeyWords
    due_us: Number
    epoch: Number
    holder: Words
    until_us: Number
    clock_us: Annotated[int, fill_older_rows("0", BIG_INTEGER)] = 0


class PollViewRow(LedgerRow, table=True):
    """What the last poll of an account leaves for the watchdog that plans, where several share them. `body`: JSON."""

    __tablename__ = "poll_view"
    __table_args__ = declare_table()

    account: KeyWords
    at_us: Number
    epoch: Number
    body: Words
