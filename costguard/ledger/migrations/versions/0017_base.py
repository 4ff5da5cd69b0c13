"""The base: what the classes of `ledger.tables` declared on 2026-11-29 (decision 0095).

A new ledger is made from the classes and marked with the newest revision (`ledger.db.new_ledger`), so nothing is done here:
migrations begin after it. Ledgers of before come over by `costguard db import`.
"""

from __future__ import annotations

revision = "0017"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Do nothing: see above."""
