"""The first schema.

Written out, not derived from `ledger.tables`, which moves on. Revision 0001, made 2026-11-21.
"""

from __future__ import annotations

import time
import uuid

from alembic import op
from sqlalchemy import text

from costguard.ledger.migrations.words import WORDS

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

STATEMENTS = (
    """
CREATE TABLE ledger_state (
    id {BIG} NOT NULL,
    ledger_id TEXT NOT NULL,
    created_us {BIG} NOT NULL,
    revision {BIG} NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT ledger_state_one_row CHECK (id = 1)
) {STRICT}
""",
    """
CREATE TABLE scope (
    id {KEY} NOT NULL,
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT scope_named_once UNIQUE (provider, account, name)
) {STRICT}
""",
    """
CREATE TABLE coverage (
    id {KEY} NOT NULL,
    scope_id {BIG} NOT NULL REFERENCES scope (id),
    outcome TEXT NOT NULL,
    why TEXT NOT NULL,
    start_us {BIG} NOT NULL,
    end_us {BIG} NOT NULL,
    polls {BIG} NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT coverage_outcome CHECK (outcome IN ('complete', 'partial', 'failed')),
    CONSTRAINT coverage_in_order CHECK (end_us >= start_us AND polls >= 1)
) {STRICT}
""",
    "CREATE INDEX coverage_by_scope ON coverage (scope_id, start_us)",
    """
CREATE TABLE resource (
    id {KEY} NOT NULL,
    scope_id {BIG} NOT NULL REFERENCES scope (id),
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    region TEXT NOT NULL,
    external_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    first_seen_us {BIG} NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT resource_named_once UNIQUE (provider, account, region, external_id)
) {STRICT}
""",
    """
CREATE TABLE attribution (
    id {KEY} NOT NULL,
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    region TEXT NOT NULL,
    kind TEXT NOT NULL,
    gpu TEXT NOT NULL,
    gpu_count_milli {BIG} NOT NULL,
    tier TEXT NOT NULL,
    owner TEXT NOT NULL,
    instance_type TEXT NOT NULL,
    labels TEXT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT attribution_once UNIQUE
        (provider, account, region, kind, gpu, gpu_count_milli, tier, owner, instance_type, labels)
) {STRICT}
""",
    """
CREATE TABLE observation (
    id {KEY} NOT NULL,
    resource_id {BIG} NOT NULL REFERENCES resource (id),
    at_us {BIG} NOT NULL,
    seen_us {BIG},
    state TEXT NOT NULL,
    name TEXT NOT NULL,
    instance_type TEXT NOT NULL,
    owner TEXT NOT NULL,
    started_us {BIG},
    stopped_us {BIG},
    detail TEXT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT observation_absent CHECK ((state = 'absent') = (detail = ''))
) {STRICT}
""",
    "CREATE INDEX observation_by_resource ON observation (resource_id, id)",
    """
CREATE TABLE span (
    id {KEY} NOT NULL,
    resource_id {BIG} NOT NULL REFERENCES resource (id),
    attribution_id {BIG} NOT NULL REFERENCES attribution (id),
    charge TEXT NOT NULL,
    part TEXT NOT NULL,
    unit TEXT NOT NULL,
    quantity {BIG} NOT NULL,
    quantum_s {BIG} NOT NULL,
    minimum_s {BIG} NOT NULL,
    price_low {BIG} NOT NULL,
    price_expected {BIG} NOT NULL,
    price_high {BIG} NOT NULL,
    currency TEXT NOT NULL,
    price_known {BIG} NOT NULL,
    price_source TEXT NOT NULL,
    presence TEXT NOT NULL,
    anchor_us {BIG} NOT NULL,
    start_us {BIG} NOT NULL,
    why TEXT NOT NULL,
    end_us {BIG},
    ended_by TEXT,
    low {BIG},
    expected {BIG},
    high {BIG},
    PRIMARY KEY (id),
    CONSTRAINT span_price CHECK (0 <= price_low AND price_low <= price_expected AND price_expected <= price_high),
    CONSTRAINT span_meter CHECK (quantity >= 0 AND quantum_s >= 1 AND minimum_s >= 0),
    CONSTRAINT span_presence CHECK (presence IN ('seen', 'gap', 'edge', 'maybe')),
    CONSTRAINT span_price_known CHECK (price_known IN (0, 1)),
    CONSTRAINT span_in_order CHECK (anchor_us <= start_us AND (end_us IS NULL OR start_us <= end_us)),
    CONSTRAINT span_closed_whole CHECK (
        (end_us IS NULL) = (ended_by IS NULL) AND (end_us IS NULL) = (low IS NULL)
        AND (end_us IS NULL) = (expected IS NULL) AND (end_us IS NULL) = (high IS NULL)
    ),
    CONSTRAINT span_amounts CHECK (0 <= low AND low <= expected AND expected <= high)
) {STRICT}
""",
    "CREATE UNIQUE INDEX span_open_once ON span (resource_id, charge, part) WHERE end_us IS NULL",
    "CREATE INDEX span_by_end ON span (end_us, start_us)",
    "CREATE INDEX span_long ON span (end_us, start_us) WHERE end_us - start_us > 691200000000",
    "CREATE INDEX span_by_line ON span (resource_id, charge, part, start_us)",
    """
CREATE TABLE daily (
    day {BIG} NOT NULL,
    attribution_id {BIG} NOT NULL REFERENCES attribution (id),
    charge TEXT NOT NULL,
    currency TEXT NOT NULL,
    known {BIG} NOT NULL,
    low {BIG} NOT NULL,
    expected {BIG} NOT NULL,
    high {BIG} NOT NULL,
    us {BIG} NOT NULL,
    PRIMARY KEY (day, attribution_id, charge, currency, known),
    CONSTRAINT daily_known CHECK (known IN (0, 1)),
    CONSTRAINT daily_amounts CHECK (0 <= low AND low <= expected AND expected <= high AND us >= 0)
) {PACKED}
""",
    """
CREATE TABLE correction (
    id {KEY} NOT NULL,
    span_id {BIG} NOT NULL REFERENCES span (id),
    at_us {BIG} NOT NULL,
    presence TEXT NOT NULL,
    reason TEXT NOT NULL,
    low {BIG} NOT NULL,
    expected {BIG} NOT NULL,
    high {BIG} NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT correction_presence CHECK (presence IN ('seen', 'gap', 'edge', 'maybe')),
    CONSTRAINT correction_amounts CHECK (0 <= low AND low <= expected AND expected <= high)
) {STRICT}
""",
    "CREATE INDEX correction_by_span ON correction (span_id, id)",
    """
CREATE TABLE hold (
    id TEXT NOT NULL,
    nano {BIG} NOT NULL,
    currency TEXT NOT NULL,
    who TEXT NOT NULL,
    why TEXT NOT NULL,
    provider TEXT NOT NULL,
    account TEXT NOT NULL,
    owner TEXT NOT NULL,
    gpu TEXT NOT NULL,
    labels TEXT NOT NULL,
    taken_us {BIG} NOT NULL,
    expires_us {BIG} NOT NULL,
    ended_us {BIG},
    ended_by TEXT,
    spent_nano {BIG},
    PRIMARY KEY (id),
    CONSTRAINT hold_in_order CHECK (nano >= 0 AND taken_us <= expires_us),
    CONSTRAINT hold_ended_by CHECK (ended_by IN ('released', 'committed', 'expired')),
    CONSTRAINT hold_ended_whole CHECK ((ended_us IS NULL) = (ended_by IS NULL))
) {STRICT}
""",
    """
CREATE TABLE hold_budget (
    hold_id TEXT NOT NULL REFERENCES hold (id),
    budget TEXT NOT NULL,
    PRIMARY KEY (hold_id, budget)
) {PACKED}
""",
    """
CREATE TABLE sample (
    resource_id {BIG} NOT NULL REFERENCES resource (id),
    signal TEXT NOT NULL,
    at_us {BIG} NOT NULL,
    value {REAL} NOT NULL,
    PRIMARY KEY (resource_id, signal, at_us)
) {PACKED}
""",
    """
CREATE TABLE sample_hour (
    resource_id {BIG} NOT NULL REFERENCES resource (id),
    signal TEXT NOT NULL,
    hour {BIG} NOT NULL,
    count {BIG} NOT NULL,
    sum {REAL} NOT NULL,
    lowest {REAL} NOT NULL,
    highest {REAL} NOT NULL,
    PRIMARY KEY (resource_id, signal, hour),
    CONSTRAINT sample_hour_in_order CHECK (count >= 1 AND lowest <= highest)
) {PACKED}
""",
)


def upgrade() -> None:
    """Make the tables, and the one row that names this ledger."""
    connection = op.get_bind()
    words = WORDS[connection.dialect.name]
    for statement in STATEMENTS:
        connection.exec_driver_sql(statement.format(**words))
    named = text("INSERT INTO ledger_state (id, ledger_id, created_us, revision) VALUES (1, :ledger_id, :created_us, 0)")
    connection.execute(named, {"ledger_id": str(uuid.uuid4()), "created_us": time.time_ns() // 1000})
