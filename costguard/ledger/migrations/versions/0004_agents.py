"""Agents on machines, the codes that let them join, and tokens of those who read over HTTP. Made 2026-11-22."""

from __future__ import annotations

from alembic import op

from costguard.ledger.migrations.words import WORDS

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
CREATE TABLE agent (
    id TEXT NOT NULL,
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    region TEXT NOT NULL,
    external_id TEXT NOT NULL,
    life TEXT NOT NULL,
    public_key TEXT NOT NULL,
    joined_us {BIG} NOT NULL,
    seq {BIG} NOT NULL,
    record_ms {BIG} NOT NULL,
    beat_us {BIG},
    version TEXT NOT NULL,
    troubles TEXT NOT NULL,
    revoked_us {BIG},
    revoked_by TEXT,
    PRIMARY KEY (id),
    CONSTRAINT agent_revoked_whole CHECK ((revoked_us IS NULL) = (revoked_by IS NULL)),
    CONSTRAINT agent_counts CHECK (seq >= 0)
) {STRICT}
""",
    """
CREATE UNIQUE INDEX agent_once ON agent (provider, account, region, external_id) WHERE revoked_us IS NULL
""",
    """
CREATE TABLE agent_code (
    hash TEXT NOT NULL,
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    region TEXT NOT NULL,
    external_id TEXT NOT NULL,
    life TEXT NOT NULL,
    who TEXT NOT NULL,
    at_us {BIG} NOT NULL,
    expires_us {BIG} NOT NULL,
    used_us {BIG},
    used_by TEXT,
    PRIMARY KEY (hash),
    CONSTRAINT agent_code_used_whole CHECK ((used_us IS NULL) = (used_by IS NULL))
) {STRICT}
""",
    """
CREATE TABLE web_token (
    hash TEXT NOT NULL,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    who TEXT NOT NULL,
    made_us {BIG} NOT NULL,
    expires_us {BIG} NOT NULL,
    revoked_us {BIG},
    revoked_by TEXT,
    PRIMARY KEY (hash),
    CONSTRAINT web_token_role CHECK (role IN ('viewer', 'operator')),
    CONSTRAINT web_token_revoked_whole CHECK ((revoked_us IS NULL) = (revoked_by IS NULL))
) {STRICT}
""",
    "CREATE UNIQUE INDEX web_token_once ON web_token (name) WHERE revoked_us IS NULL",
)


def upgrade() -> None:
    """Make the tables."""
    connection = op.get_bind()
    words = WORDS[connection.dialect.name]
    for statement in STATEMENTS:
        connection.exec_driver_sql(statement.format(**words))
