"""Digests of the rows that decide who pays, chained in the audit log, and seals of those that change often. Made 2026-11-25.

The rows that are there are taken into the audit log as they are, a page at a time, in the transaction of the migration.
"""

from __future__ import annotations

import time

from alembic import op
from sqlalchemy import inspect

from costguard.ledger.db.row_digests import adopt_rows
from costguard.ledger.db.session import open_sql_session
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
    """Make the tables, and record the rows that are there."""
    connection = op.get_bind()
    words = WORDS[connection.dialect.name]
    for statement in STATEMENTS:
        connection.exec_driver_sql(statement.format(**words))
    inspected = inspect(connection)
    columns = {name: {column["name"] for column in inspected.get_columns(name)} for name in inspected.get_table_names()}
    adopt_rows(*open_sql_session(connection), time.time_ns() // 1000, columns)
