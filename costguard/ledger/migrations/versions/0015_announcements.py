"""Since when an escalation's notices announce its act, and to whom one was delivered. Made 2026-11-28."""

from __future__ import annotations

from alembic import op

from costguard.ledger.migrations.words import WORDS

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    connection = op.get_bind()
    connection.exec_driver_sql("ALTER TABLE climb ADD COLUMN announced_us {BIG}".format(**WORDS[connection.dialect.name]))
    connection.exec_driver_sql("ALTER TABLE notice_delivery ADD COLUMN owner TEXT")
