"""Bills: their lines, how they came here, and what holding them against the spans showed. Made 2026-11-22."""

from __future__ import annotations

from alembic import op

from costguard.ledger.migrations.words import WORDS

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
CREATE TABLE bill_import (
    id {KEY} NOT NULL,
    at_us {BIG} NOT NULL,
    who TEXT NOT NULL,
    provider TEXT NOT NULL,
    source TEXT NOT NULL,
    start_us {BIG} NOT NULL,
    end_us {BIG} NOT NULL,
    stated_us {BIG} NOT NULL,
    whole {BIG} NOT NULL,
    why TEXT NOT NULL,
    lines {BIG} NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT bill_import_in_order CHECK (whole IN (0, 1) AND start_us <= end_us)
) {STRICT}
""",
    """
CREATE TABLE bill_line (
    id {KEY} NOT NULL,
    import_id {BIG} NOT NULL REFERENCES bill_import (id),
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    statement TEXT NOT NULL,
    line_id TEXT NOT NULL,
    start_us {BIG} NOT NULL,
    end_us {BIG} NOT NULL,
    nano {BIG} NOT NULL,
    currency TEXT NOT NULL,
    charge TEXT NOT NULL,
    external_id TEXT NOT NULL,
    region TEXT NOT NULL,
    estimated {BIG} NOT NULL,
    stated_us {BIG} NOT NULL,
    source TEXT NOT NULL,
    description TEXT NOT NULL,
    replaced_us {BIG},
    replaced_by {BIG} REFERENCES bill_import (id),
    replaced_why TEXT,
    PRIMARY KEY (id),
    CONSTRAINT bill_line_in_order CHECK (start_us < end_us AND estimated IN (0, 1)),
    CONSTRAINT bill_line_charge
        CHECK (charge IN ('compute', 'storage', 'address', 'traffic', 'other', 'credit', 'tax')),
    CONSTRAINT bill_line_replaced_whole
        CHECK ((replaced_us IS NULL) = (replaced_by IS NULL) AND (replaced_us IS NULL) = (replaced_why IS NULL))
) {STRICT}
""",
    "CREATE UNIQUE INDEX bill_line_once ON bill_line (provider, account, statement, line_id) WHERE replaced_us IS NULL",
    "CREATE INDEX bill_line_by_time ON bill_line (provider, start_us)",
    """
CREATE TABLE reconciliation (
    id {KEY} NOT NULL,
    at_us {BIG} NOT NULL,
    who TEXT NOT NULL,
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    currency TEXT NOT NULL,
    start_us {BIG} NOT NULL,
    end_us {BIG} NOT NULL,
    billed {BIG} NOT NULL,
    low {BIG} NOT NULL,
    expected {BIG} NOT NULL,
    high {BIG} NOT NULL,
    unexplained {BIG} NOT NULL,
    allowed {BIG} NOT NULL,
    outcome TEXT NOT NULL,
    tolerance TEXT NOT NULL,
    told {BIG} NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT reconciliation_outcome CHECK (outcome IN ('within', 'beyond', 'unknown') AND told IN (0, 1)),
    CONSTRAINT reconciliation_in_order CHECK (start_us < end_us AND low <= expected AND expected <= high)
) {STRICT}
""",
    "CREATE INDEX reconciliation_by_time ON reconciliation (end_us)",
    """
CREATE TABLE bill_adjustment (
    id {KEY} NOT NULL,
    reconciliation_id {BIG} NOT NULL REFERENCES reconciliation (id),
    cause TEXT NOT NULL,
    charge TEXT NOT NULL,
    sku TEXT NOT NULL,
    currency TEXT NOT NULL,
    nano {BIG} NOT NULL,
    explained {BIG} NOT NULL,
    resources {BIG} NOT NULL,
    lines {BIG} NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT bill_adjustment_explained CHECK (explained IN (0, 1))
) {STRICT}
""",
    "CREATE INDEX bill_adjustment_by_reconciliation ON bill_adjustment (reconciliation_id)",
)


def upgrade() -> None:
    """Make the tables."""
    connection = op.get_bind()
    words = WORDS[connection.dialect.name]
    for statement in STATEMENTS:
        connection.exec_driver_sql(statement.format(**words))
