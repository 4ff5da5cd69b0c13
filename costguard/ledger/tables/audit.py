"""The audit log, a chain of hashes, that of each account on PostgreSQL, and the digests of rows that they cover."""

from __future__ import annotations

from typing import Annotated

from sqlalchemy import CheckConstraint, Index

from costguard.ledger.types import KeyNumber, KeyWords, LedgerRow, Number, Words, declare_table, refer_to


class AuditRow(LedgerRow, table=True):
    """What people wished and what was done, chained: see `chain`. `previous`: the hash of the row before."""

    __tablename__ = "audit"
    __table_args__ = (
        CheckConstraint("seq >= 1", name="audit_counts_from_one"),
        Index("audit_by_kind", "kind", "seq"),
        declare_table(kept=True, written_once=True),
    )

    seq: KeyNumber
    at_us: Number
    kind: Words
    body: Words
    previous: Words
    hash: Words


class RowDigestRow(LedgerRow, table=True):
    """The digests of the rows of one table that one transaction wrote, a line each: see `row_digests`. `seq`: its audit row."""

    __tablename__ = "row_digest"
    __table_args__ = declare_table(kept=True, written_once=True)

    seq: KeyNumber
    table_name: KeyWords
    lines: Number
    digests: Words


class RowSealRow(LedgerRow, table=True):
    """The digest of a row that changes too often for the audit log: see `deciding_tables`."""

    __tablename__ = "row_seal"
    __table_args__ = declare_table(without_rowid=True)

    table_name: KeyWords
    row_key: KeyWords
    seal: Words


class AccountAuditRow(LedgerRow, table=True):
    """What `audit` is, of the polls of one account: a chain for each account, whose heads `audit` takes over."""

    __tablename__ = "account_audit"
    __table_args__ = (
        CheckConstraint("seq >= 1", name="account_audit_counts_from_one"),
        declare_table(kept=True, written_once=True),
    )

    account_id: Annotated[int, refer_to("account_state.id", primary_key=True)]
    seq: KeyNumber
    at_us: Number
    kind: Words
    body: Words
    previous: Words
    hash: Words


class AccountDigestRow(LedgerRow, table=True):
    """What `row_digest` is to `audit`, to `account_audit`."""

    __tablename__ = "account_digest"
    __table_args__ = declare_table(kept=True, written_once=True)

    account_id: KeyNumber
    seq: KeyNumber
    table_name: KeyWords
    lines: Number
    digests: Words


class AccountHeadRow(LedgerRow, table=True):
    """Up to which row of an account's chain `audit` has taken it over."""

    __tablename__ = "account_head"
    __table_args__ = declare_table()

    account_id: Annotated[int, refer_to("account_state.id", primary_key=True)]
    seq: Number
