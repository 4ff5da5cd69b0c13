"""Logins to the pages: one-time links and sessions. Made 2026-11-25."""

from __future__ import annotations

from alembic import op

from costguard.ledger.migrations.words import WORDS

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
CREATE TABLE web_invite (
    hash TEXT NOT NULL,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    who TEXT NOT NULL,
    made_us {BIG} NOT NULL,
    expires_us {BIG} NOT NULL,
    used_us {BIG},
    PRIMARY KEY (hash),
    CONSTRAINT web_invite_role CHECK (role IN ('viewer', 'operator', 'admin'))
) {STRICT}
""",
    """
CREATE TABLE web_session (
    hash TEXT NOT NULL,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    invite TEXT NOT NULL,
    made_us {BIG} NOT NULL,
    expires_us {BIG} NOT NULL,
    revoked_us {BIG},
    revoked_by TEXT,
    PRIMARY KEY (hash),
    CONSTRAINT web_session_role CHECK (role IN ('viewer', 'operator', 'admin')),
    CONSTRAINT web_session_revoked_whole CHECK ((revoked_us IS NULL) = (revoked_by IS NULL))
) {STRICT}
""",
)


def upgrade() -> None:
    """Make the tables."""
    connection = op.get_bind()
    words = WORDS[connection.dialect.name]
    for statement in STATEMENTS:
        connection.exec_driver_sql(statement.format(**words))
