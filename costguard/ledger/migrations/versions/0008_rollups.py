"""Imports of bills that are written in several transactions. Made 2026-11-25."""

from __future__ import annotations

from alembic import op

from costguard.ledger.migrations.words import WORDS

revision = "0008"
down_revision = "0005"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
CREATE TABLE bill_import_unfinished (
    import_id {BIG} NOT NULL,
    lines_after {BIG} NOT NULL,
    undone {BIG} NOT NULL,
    PRIMARY KEY (import_id),
    FOREIGN KEY(import_id) REFERENCES bill_import (id),
    CONSTRAINT bill_import_unfinished_undone CHECK (undone IN (0, 1))
) {STRICT}
""",
)


def upgrade() -> None:
    """Make the table."""
    connection = op.get_bind()
    words = WORDS[connection.dialect.name]
    for statement in STATEMENTS:
        connection.exec_driver_sql(statement.format(**words))
