"""When a notice was delivered, and what an escalation was told about and promised. Made 2026-11-23."""

from __future__ import annotations

from alembic import op

from costguard.ledger.migrations.words import WORDS

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
CREATE TABLE notice_delivery (
    message_id TEXT NOT NULL,
    channel TEXT NOT NULL,
    topic TEXT NOT NULL,
    subject TEXT NOT NULL,
    notice_us {BIG} NOT NULL,
    delivered_us {BIG} NOT NULL,
    PRIMARY KEY (message_id, channel, topic, subject)
) {STRICT}
""",
    "CREATE INDEX notice_delivery_by_time ON notice_delivery (delivered_us)",
    "ALTER TABLE climb ADD COLUMN meaning TEXT DEFAULT '' NOT NULL",
    "ALTER TABLE climb ADD COLUMN promised TEXT DEFAULT '[]' NOT NULL",
)


def upgrade() -> None:
    """Make the table, and add the columns."""
    connection = op.get_bind()
    words = WORDS[connection.dialect.name]
    for statement in STATEMENTS:
        connection.exec_driver_sql(statement.format(**words))
