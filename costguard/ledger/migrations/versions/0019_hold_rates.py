"""What the machines of a hold cost an hour, which a rate cap counts (decision 0149)."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column

from costguard.ledger.types import BIG_INTEGER

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column `hourly_nano`; of holds that are open it is not known."""
    op.add_column("hold", Column("hourly_nano", BIG_INTEGER))
