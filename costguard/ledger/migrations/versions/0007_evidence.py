"""Parts of a correction: what settled bill lines say of parts of a span. Made 2026-11-25."""

from __future__ import annotations

from alembic import op

from costguard.ledger.migrations.words import WORDS

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
CREATE TABLE correction_part (
    correction_id {BIG} NOT NULL REFERENCES correction (id),
    start_us {BIG} NOT NULL,
    end_us {BIG} NOT NULL,
    presence TEXT NOT NULL,
    price_known {BIG} NOT NULL,
    bill_line_id {BIG} REFERENCES bill_line (id),
    low {BIG} NOT NULL,
    expected {BIG} NOT NULL,
    high {BIG} NOT NULL,
    us {BIG} NOT NULL,
    PRIMARY KEY (correction_id, start_us),
    CONSTRAINT correction_part_presence CHECK (presence IN ('seen', 'gap', 'edge', 'maybe')),
    CONSTRAINT correction_part_price_known CHECK (price_known IN (0, 1)),
    CONSTRAINT correction_part_in_order CHECK (start_us < end_us AND us >= 0),
    CONSTRAINT correction_part_amounts CHECK (0 <= low AND low <= expected AND expected <= high)
) {PACKED}
""",
)


def upgrade() -> None:
    """Make the table."""
    connection = op.get_bind()
    words = WORDS[connection.dialect.name]
    for statement in STATEMENTS:
        connection.exec_driver_sql(statement.format(**words))
