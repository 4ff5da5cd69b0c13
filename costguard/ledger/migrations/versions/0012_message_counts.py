"""What became of messages, by channel: the messages themselves are deleted 30 days later. Made 2026-11-28."""

from __future__ import annotations

from alembic import op

from costguard.ledger.migrations.words import WORDS

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
CREATE TABLE message_count (
    id {KEY} NOT NULL,
    channel TEXT NOT NULL,
    sent {BIG} NOT NULL,
    gave_up {BIG} NOT NULL,
    tries_failed {BIG} NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT message_count_once UNIQUE (channel)
) {STRICT}
""",
    """
INSERT INTO message_count (channel, sent, gave_up, tries_failed)
SELECT CASE WHEN substr(channel, 1, 5) = 'mail:' THEN 'mail' ELSE channel END AS of_channel,
    count(sent_us), count(gave_up_us), sum(tries) - count(sent_us)
FROM outbox GROUP BY of_channel ORDER BY min(id)
""",
)


def upgrade() -> None:
    """Make the table, and count the messages that are there."""
    connection = op.get_bind()
    words = WORDS[connection.dialect.name]
    for statement in STATEMENTS:
        connection.exec_driver_sql(statement.format(**words))
