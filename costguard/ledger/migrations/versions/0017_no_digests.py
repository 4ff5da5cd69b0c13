"""No digests of rows, and one audit log instead of a chain for each account. Made 2026-11-29 (decision 0025)."""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Drop the tables; the audit log keeps its rows that have hashes of what they held."""
    for table in ("row_digest", "row_seal", "account_digest", "account_head", "account_audit"):
        op.drop_table(table)
