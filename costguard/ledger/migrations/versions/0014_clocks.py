"""Watchdogs that share accounts say by how much their clock is off, if it is: those record nothing. Made 2026-11-28."""

from __future__ import annotations

from alembic import op

from costguard.ledger.migrations.words import WORDS

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    connection = op.get_bind()
    words = WORDS[connection.dialect.name]
    connection.exec_driver_sql("ALTER TABLE duty ADD COLUMN clock_us {BIG} DEFAULT 0 NOT NULL".format(**words))
