"""The state that one run of the guard leaves to the next.

Resources are identified by their full key and incarnations by their times: no row refers to one that polls write.
"""

from __future__ import annotations

from typing import Annotated

from sqlalchemy import CheckConstraint, UniqueConstraint

from costguard.ledger.types import (
    KeyNumber,
    KeyWords,
    LedgerRow,
    Number,
    OptionalNumber,
    RowNumber,
    Words,
    declare_table,
    fill_older_rows,
)


class ClimbRow(LedgerRow, table=True):
    """How far a life has come in a policy's steps. `done`: JSON of the numbers of its steps.

    `meaning`: the digest of the policy; "" in rows of older versions. `promised`: JSON of [act, earliest time in microseconds].
    `announced_us`: notices from before it announce nothing; NULL: all since the first step do.
    """

    __tablename__ = "climb"
    __table_args__ = declare_table(without_rowid=True)

    policy: KeyWords
    provider: KeyWords
    account: KeyWords
    region: KeyWords
    external_id: KeyWords
    life: KeyWords
    since_us: Number
    started_us: Number
    done: Words
    left_polls: Number
    meaning: Annotated[str, fill_older_rows("''")] = ""
    promised: Annotated[str, fill_older_rows("'[]'")] = "[]"
    announced_us: OptionalNumber = None


class ProtectionSeenRow(LedgerRow, table=True):
    """When a resource was last seen protected on the cloud's side."""

    __tablename__ = "protection_seen"
    __table_args__ = declare_table(without_rowid=True)

    provider: KeyWords
    account: KeyWords
    region: KeyWords
    external_id: KeyWords
    at_us: Number
    how: Words


class GuardRunRow(LedgerRow, table=True):
    """The last runs of the guard. `notes`: JSON of texts. `facts`: JSON of pairs that the next run reads."""

    __tablename__ = "guard_run"
    __table_args__ = (
        UniqueConstraint("run_id", name="guard_run_once"),
        declare_table(written_once=True),
    )

    id: RowNumber
    run_id: Words
    at_us: Number
    epoch: Number
    interval_us: Number
    skew_us: Number
    outcome: Words
    notes: Words
    facts: Words


class TurnRow(LedgerRow, table=True):
    """One row: who acts. `rounds`: how often it was taken or renewed."""

    __tablename__ = "turn"
    __table_args__ = (
        CheckConstraint("id = 1", name="turn_one_row"),
        declare_table(keeps_rows=True),
    )

    id: KeyNumber
    epoch: Number
    rounds: Number
    holder: Words
    until_us: Number
