"""The one that plans judges all machines itself, so nobody leaves judgements. Made 2026-11-29 (decision 0094)."""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Drop the table: what it had was true for a minute."""
    op.drop_table("poll_judgement")
