"""Accounts, each with its revision and, on PostgreSQL, an audit log; ids from sequences; lanes of `hourly`. Made 2026-11-28."""

from __future__ import annotations

from alembic import op

from costguard.ledger.migrations.words import WORDS

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
CREATE TABLE account_state (
    id {KEY} NOT NULL,
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    revision {BIG} NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT account_state_named_once UNIQUE (provider, account)
) {STRICT}
""",
    """
INSERT INTO account_state (provider, account, revision)
SELECT provider, account, 0 FROM scope GROUP BY provider, account ORDER BY min(id)
""",
    """
CREATE TABLE account_audit (
    account_id {BIG} NOT NULL REFERENCES account_state (id),
    seq {BIG} NOT NULL,
    at_us {BIG} NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (account_id, seq),
    CONSTRAINT account_audit_counts_from_one CHECK (seq >= 1)
) {STRICT}
""",
    """
CREATE TABLE account_digest (
    account_id {BIG} NOT NULL,
    seq {BIG} NOT NULL,
    table_name TEXT NOT NULL,
    lines {BIG} NOT NULL,
    digests TEXT NOT NULL,
    PRIMARY KEY (account_id, seq, table_name)
) {STRICT}
""",
    """
CREATE TABLE account_head (
    account_id {BIG} NOT NULL REFERENCES account_state (id),
    seq {BIG} NOT NULL,
    PRIMARY KEY (account_id)
) {STRICT}
""",
    """
CREATE TABLE duty (
    kind TEXT NOT NULL,
    account TEXT NOT NULL,
    due_us {BIG} NOT NULL,
    epoch {BIG} NOT NULL,
    holder TEXT NOT NULL,
    until_us {BIG} NOT NULL,
    PRIMARY KEY (kind, account),
    CONSTRAINT duty_counts CHECK (epoch >= 0)
) {STRICT}
""",
    "CREATE INDEX duty_by_due ON duty (kind, due_us)",
    """
CREATE TABLE poll_view (
    account TEXT NOT NULL,
    at_us {BIG} NOT NULL,
    epoch {BIG} NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (account)
) {STRICT}
""",
    "ALTER TABLE hourly RENAME TO hourly_before",
    """
CREATE TABLE hourly (
    hour {BIG} NOT NULL,
    currency TEXT NOT NULL,
    lane {BIG} NOT NULL,
    cost {BIG} NOT NULL,
    step {BIG} NOT NULL,
    PRIMARY KEY (hour, currency, lane)
) {PACKED}
""",
    "INSERT INTO hourly (hour, currency, lane, cost, step) SELECT hour, currency, 0, cost, step FROM hourly_before",
    "DROP TABLE hourly_before",
)

NUMBERED_TABLES = ("scope", "coverage", "resource", "attribution", "observation", "span", "correction")
"""Tables whose ids were counted up by the writer, and come from their sequences from now on (PostgreSQL)."""


def upgrade() -> None:
    """Make the tables, and set the sequences behind the highest ids."""
    connection = op.get_bind()
    dialect = connection.dialect.name
    for statement in STATEMENTS:
        connection.exec_driver_sql(statement.format(**WORDS[dialect]))
    if dialect == "postgresql":
        for table in NUMBERED_TABLES:
            connection.exec_driver_sql(
                f"SELECT setval('{table}_id_seq', coalesce(max(id), 1), max(id) IS NOT NULL) FROM {table}"  # noqa: S608 - our own names
            )
