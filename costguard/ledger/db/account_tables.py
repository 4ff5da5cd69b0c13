"""The tables of accounts: each one's audit log on PostgreSQL, and who polls which where watchdogs share them.

Their columns are 64-bit numbers, texts and keys, as in `db.columns`.
"""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Table, Text, text

from costguard.ledger.db.columns import BIG_INTEGER, METADATA, STRICT


def _make_key(name: str) -> Column[int]:
    """Return a part of the primary key that the writer numbers."""
    return Column(name, BIG_INTEGER, primary_key=True, autoincrement=False)


def _make_account_key() -> Column[int]:
    return Column("account_id", BIG_INTEGER, ForeignKey("account_state.id"), primary_key=True, autoincrement=False)


def _make_number(name: str) -> Column[int]:
    return Column(name, BIG_INTEGER, nullable=False)


def _make_text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False)


ACCOUNT_AUDIT = Table(
    "account_audit",
    METADATA,
    _make_account_key(),
    _make_key("seq"),
    _make_number("at_us"),
    *map(_make_text, ("kind", "body", "previous", "hash")),
    CheckConstraint("seq >= 1", name="account_audit_counts_from_one"),
    **STRICT,
)
"""What `audit` is, of the polls of one account: a chain for each account, whose heads `audit` takes over."""

ACCOUNT_DIGEST = Table(
    "account_digest",
    METADATA,
    _make_key("account_id"),
    _make_key("seq"),
    Column("table_name", Text, primary_key=True),
    _make_number("lines"),
    _make_text("digests"),
    **STRICT,
)
"""What `row_digest` is to `audit`, to `account_audit`."""

ACCOUNT_HEAD = Table("account_head", METADATA, _make_account_key(), _make_number("seq"), **STRICT)
"""Up to which row of an account's chain `audit` has taken it over."""

DUTY = Table(
    "duty",
    METADATA,
    Column("kind", Text, primary_key=True),
    Column("account", Text, primary_key=True),
    _make_number("due_us"),
    _make_number("epoch"),
    _make_text("holder"),
    _make_number("until_us"),
    Column("clock_us", BIG_INTEGER, nullable=False, server_default=text("0")),
    CheckConstraint("epoch >= 0", name="duty_counts"),
    Index("duty_by_due", "kind", "due_us"),
    **STRICT,
)
"""A standing duty, on PostgreSQL: who polls which account. `epoch`: when the job by which it was polled last was
deferred, in milliseconds; by `holder`, who counts as the one that polls it until `until_us`; '': nobody does. `due_us`: when it
is next to be polled.

`clock_us`: of a watchdog whose clock is wrong, by how much it is ahead of the server's; 0 of all others, and of accounts."""

POLL_VIEW = Table(
    "poll_view",
    METADATA,
    Column("account", Text, primary_key=True),
    _make_number("at_us"),
    _make_number("epoch"),
    _make_text("body"),
    **STRICT,
)
"""What the last poll of an account leaves for the watchdog that plans, where several share them. `body`: JSON."""
