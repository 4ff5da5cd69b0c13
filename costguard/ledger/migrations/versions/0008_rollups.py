"""Sums by month and resource and by hour, and imports of bills that are written in several transactions. Made 2026-11-25.

`schema.migrate_schema` fills the sums from the spans, in the same transaction.
"""

from __future__ import annotations

from alembic import op

from costguard.ledger.migrations.words import WORDS

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
CREATE TABLE monthly (
    month {BIG} NOT NULL,
    resource_id {BIG} NOT NULL REFERENCES resource (id),
    attribution_id {BIG} NOT NULL REFERENCES attribution (id),
    charge TEXT NOT NULL,
    currency TEXT NOT NULL,
    known {BIG} NOT NULL,
    source TEXT NOT NULL,
    low {BIG} NOT NULL,
    expected {BIG} NOT NULL,
    high {BIG} NOT NULL,
    us {BIG} NOT NULL,
    PRIMARY KEY (month, resource_id, attribution_id, charge, currency, known, source),
    CONSTRAINT monthly_known CHECK (known IN (0, 1)),
    CONSTRAINT monthly_amounts CHECK (0 <= low AND low <= expected AND expected <= high AND us >= 0)
) {PACKED}
""",
    """
CREATE TABLE hourly (
    hour {BIG} NOT NULL,
    currency TEXT NOT NULL,
    cost {BIG} NOT NULL,
    step {BIG} NOT NULL,
    PRIMARY KEY (hour, currency)
) {PACKED}
""",
    """
CREATE TABLE bill_import_unfinished (
    import_id {BIG} NOT NULL,
    lines_after {BIG} NOT NULL,
    undone {BIG} NOT NULL,
    PRIMARY KEY (import_id),
    FOREIGN KEY(import_id) REFERENCES bill_import (id),
    CONSTRAINT bill_import_unfinished_undone CHECK (undone IN (0, 1))
) {STRICT}
""",
    # The database looks through it for each line that is removed.
    "CREATE INDEX correction_part_by_line ON correction_part (bill_line_id)",
)


def upgrade() -> None:
    """Make the tables."""
    connection = op.get_bind()
    words = WORDS[connection.dialect.name]
    for statement in STATEMENTS:
        connection.exec_driver_sql(statement.format(**words))
