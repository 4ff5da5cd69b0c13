"""The audit log, a chain of hashes."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Index

from costguard.ledger.types import KeyNumber, LedgerRow, Number, Words, declare_table


class AuditRow(LedgerRow, table=True):
    """What people wished and what was done, chained: see `guard.audit_log`. `previous`: the hash of the row before."""

    __tablename__ = "audit"
    __table_args__ = (
        CheckConstraint("seq >= 1", name="audit_counts_from_one"),
        Index("audit_by_kind", "kind", "seq"),
        declare_table(keeps_rows=True, written_once=True),
    )

    seq: KeyNumber
    at_us: Number
    kind: Words
    body: Words
    previous: Words
    hash: Words
