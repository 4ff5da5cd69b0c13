"""What the watchdog that polled an account judged of its machines, for the one that plans. Made 2026-11-28."""

from __future__ import annotations

from alembic import op

from costguard.ledger.migrations.words import WORDS

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

STATEMENT = """
CREATE TABLE poll_judgement (
    account TEXT NOT NULL,
    read_us {BIG} NOT NULL,
    epoch {BIG} NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (account)
) {STRICT}
"""


def upgrade() -> None:
    """Make the table: it is filled by the next polls."""
    connection = op.get_bind()
    connection.exec_driver_sql(STATEMENT.format(**WORDS[connection.dialect.name]))
