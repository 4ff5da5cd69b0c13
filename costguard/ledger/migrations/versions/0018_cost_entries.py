"""Costs that people enter by hand (decision 0144)."""

from __future__ import annotations

from alembic import op
from sqlalchemy import CheckConstraint, Column, Index, Text

from costguard.ledger.types import BIG_INTEGER

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

NUMBERS = ("corrects", "entered_us", "month", "nano")
ORDER = ("corrects", "entered_us", "who", "what", "month", "nano", "currency", "provider", "owner", "project", "team")


def upgrade() -> None:
    """Create the table `cost_entry`."""
    op.create_table(
        "cost_entry",
        Column("id", BIG_INTEGER, primary_key=True),
        *(Column(name, BIG_INTEGER if name in NUMBERS else Text(), nullable=False) for name in ORDER),
        CheckConstraint("nano <> 0 AND (nano > 0 OR corrects > 0)", name="cost_entry_amount"),
        CheckConstraint("corrects >= 0 AND corrects < id", name="cost_entry_corrects_former"),
        Index("cost_entry_by_month", "month"),
        sqlite_strict=True,
    )
