"""Links in messages that answer a question of the guard. Made 2026-11-27."""

from __future__ import annotations

from alembic import op

from costguard.ledger.migrations.words import WORDS

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
CREATE TABLE ask_link (
    hash TEXT NOT NULL,
    addressee TEXT NOT NULL,
    policy TEXT NOT NULL,
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    region TEXT NOT NULL,
    external_id TEXT NOT NULL,
    act TEXT NOT NULL,
    episode TEXT NOT NULL,
    made_us {BIG} NOT NULL,
    expires_us {BIG} NOT NULL,
    settled_us {BIG},
    answer TEXT,
    PRIMARY KEY (hash),
    CONSTRAINT ask_link_answer CHECK (answer IS NULL OR answer IN ('approved', 'denied')),
    CONSTRAINT ask_link_settled_whole CHECK ((settled_us IS NULL) = (answer IS NULL))
) {STRICT}
""",
)


def upgrade() -> None:
    """Make the table."""
    connection = op.get_bind()
    words = WORDS[connection.dialect.name]
    for statement in STATEMENTS:
        connection.exec_driver_sql(statement.format(**words))
