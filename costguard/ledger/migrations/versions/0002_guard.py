"""The guard: what people wished, what was going to be done, and the audit, which tells of both and is chained.

A ledger of 0001 may hold tables of the guard already: between 2026-11-22 and this revision new ledgers got them with 0001. What
stands in them then is told of in the audit's first rows. Made 2026-11-22.
"""

from __future__ import annotations

import time

from alembic import op

from costguard.ledger.db.session import open_sql_session
from costguard.ledger.guard import audit_log
from costguard.ledger.migrations.first_guard import GUARD_STATEMENTS
from costguard.ledger.migrations.words import WORDS

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

AUDIT_STATEMENTS = (
    """
CREATE TABLE audit (
    seq {BIG} NOT NULL,
    at_us {BIG} NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (seq),
    CONSTRAINT audit_counts_from_one CHECK (seq >= 1)
) {STRICT}
""",
    "CREATE INDEX audit_by_kind ON audit (kind, seq)",
)


def upgrade() -> None:
    """Make the tables that are not there yet, and the audit's first rows."""
    connection = op.get_bind()
    words = WORDS[connection.dialect.name]
    for statement in (*GUARD_STATEMENTS, *AUDIT_STATEMENTS):
        connection.exec_driver_sql(statement.format(**words))
    audit_log.begin_audit(*open_sql_session(connection), time.time_ns() // 1000)
