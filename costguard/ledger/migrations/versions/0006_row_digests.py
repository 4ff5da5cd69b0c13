"""Digests of the rows that decide who pays, and seals of those that change often. Made 2026-11-25; dropped by 0017."""

from __future__ import annotations

from alembic import op

from costguard.ledger.migrations.words import WORDS

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
CREATE TABLE row_digest (
    seq {BIG} NOT NULL,
    table_name TEXT NOT NULL,
    lines {BIG} NOT NULL,
    digests TEXT NOT NULL,
    PRIMARY KEY (seq, table_name)
) {STRICT}
""",
    """
CREATE TABLE row_seal (
    table_name TEXT NOT NULL,
    row_key TEXT NOT NULL,
    seal TEXT NOT NULL,
    PRIMARY KEY (table_name, row_key)
) {PACKED}
""",
)


def upgrade() -> None:
    """Make the tables."""
    connection = op.get_bind()
    words = WORDS[connection.dialect.name]
    for statement in STATEMENTS:
        connection.exec_driver_sql(statement.format(**words))
