"""The ledger's tables, as SQLModel classes and as Core tables for bulk writes.

Money is an integer of nano-units, time is an integer of microseconds since 1970 in UTC, true is 1: no column of either is a
float. SQLite's tables are STRICT, so a text in a column of money is refused. `db.triggers` restricts which columns may change:
a span gets its end, a row of coverage grows, a hold ends, roll-ups are updated. The tables of the guard, the agents and the
bills are in `db.tables`, those of accounts' audits and leases in `db.account_tables`.

The migrations create the schema; `tests/ledger/test_migrations.py` checks that both agree.
"""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Index, Table, Text, UniqueConstraint, text
from sqlmodel import Field

from costguard.ledger.db import account_tables, tables  # noqa: F401 - their tables are part of METADATA
from costguard.ledger.db.tables import (
    BIG_INTEGER,
    REAL_NUMBER,
    STRICT,
    WITHOUT_ROWID,
    LedgerTable,
    make_key_field,
    make_number_field,
    make_optional_number_field,
    make_reference_field,
    make_text_field,
)
from costguard.values.instant import DAY_US

ATTRIBUTION_KEY = (
    "provider",
    "account",
    "region",
    "kind",
    "gpu",
    "gpu_count_milli",
    "tier",
    "owner",
    "instance_type",
    "labels",
)
LINE_KEY = ("resource_id", "charge", "part")
NOT_ENDED = text("end_us IS NULL")
IS_LONG = text(f"end_us - start_us > {8 * DAY_US}")  # longer ones are few: see `sums._ACROSS`


class LedgerStateRow(LedgerTable, table=True):
    """A single row.

    `revision` counts the transactions that change spans of any account: a writer that remembers another value reads again.
    """

    __tablename__ = "ledger_state"
    __table_args__ = (CheckConstraint("id = 1", name="ledger_state_one_row"), STRICT)
    id: int = Field(primary_key=True, sa_type=BIG_INTEGER, sa_column_kwargs={"autoincrement": False})
    ledger_id: str = make_text_field()
    created_us: int = make_number_field()
    revision: int = make_number_field()


class AccountStateRow(LedgerTable, table=True):
    """An account with scopes. On PostgreSQL its row is locked by each transaction that writes its polls.

    `revision` counts those transactions: a writer that remembers another value reads the account again.
    """

    __tablename__ = "account_state"
    __table_args__ = (UniqueConstraint("provider", "account", name="account_state_named_once"), STRICT)
    id: int | None = make_key_field()
    provider: str = make_text_field()
    account: str = make_text_field()
    revision: int = make_number_field()


class ScopeRow(LedgerTable, table=True):
    """The smallest unit that one listing covers completely."""

    __tablename__ = "scope"
    __table_args__ = (UniqueConstraint("provider", "account", "name", name="scope_named_once"), STRICT)
    id: int | None = make_key_field()
    provider: str = make_text_field()
    account: str = make_text_field()
    name: str = make_text_field()


class CoverageRow(LedgerTable, table=True):
    """Consecutive polls of one scope with the same outcome and reason; each further one updates `end_us` and `polls`."""

    __tablename__ = "coverage"
    __table_args__ = (
        CheckConstraint("outcome IN ('complete', 'partial', 'failed')", name="coverage_outcome"),
        CheckConstraint("end_us >= start_us AND polls >= 1", name="coverage_in_order"),
        Index("coverage_by_scope", "scope_id", "start_us"),
        STRICT,
    )
    id: int | None = make_key_field()
    scope_id: int = make_reference_field("scope")
    outcome: str = make_text_field()
    why: str = make_text_field()
    start_us: int = make_number_field()
    end_us: int = make_number_field()
    polls: int = make_number_field()


class ResourceRow(LedgerTable, table=True):
    """A resource that bills."""

    __tablename__ = "resource"
    __table_args__ = (UniqueConstraint("provider", "account", "region", "external_id", name="resource_named_once"), STRICT)
    id: int | None = make_key_field()
    scope_id: int = make_reference_field("scope")
    provider: str = make_text_field()
    account: str = make_text_field()
    region: str = make_text_field()
    external_id: str = make_text_field()
    kind: str = make_text_field()
    first_seen_us: int = make_number_field()


class AttributionRow(LedgerTable, table=True):
    """The values by which spending is grouped.

    `gpu_count_milli`: thousandths of a GPU. `labels`: JSON of sorted pairs.
    """

    __tablename__ = "attribution"
    __table_args__ = (UniqueConstraint(*ATTRIBUTION_KEY, name="attribution_once"), STRICT)
    id: int | None = make_key_field()
    provider: str = make_text_field()
    account: str = make_text_field()
    region: str = make_text_field()
    kind: str = make_text_field()
    gpu: str = make_text_field()
    gpu_count_milli: int = make_number_field()
    tier: str = make_text_field()
    owner: str = make_text_field()
    instance_type: str = make_text_field()
    labels: str = make_text_field()


class ObservationRow(LedgerTable, table=True):
    """An observation of a resource that changed.

    `detail`: JSON of all of it, '' where state is 'absent'.
    """

    __tablename__ = "observation"
    __table_args__ = (
        CheckConstraint("(state = 'absent') = (detail = '')", name="observation_absent"),
        Index("observation_by_resource", "resource_id", "id"),
        STRICT,
    )
    id: int | None = make_key_field()
    resource_id: int = make_reference_field("resource")
    at_us: int = make_number_field()
    seen_us: int | None = make_optional_number_field()
    state: str = make_text_field()
    name: str = make_text_field()
    instance_type: str = make_text_field()
    owner: str = make_text_field()
    started_us: int | None = make_optional_number_field()
    stopped_us: int | None = make_optional_number_field()
    detail: str = make_text_field()


class SpanRow(LedgerTable, table=True):
    """A half-open period in which a resource billed one line.

    `end_us`, `ended_by`, `low`, `expected` and `high` are set once, when the span is closed. `low`, `expected`, `high`:
    nano-units of the whole span.
    """

    __tablename__ = "span"
    __table_args__ = (
        CheckConstraint("0 <= price_low AND price_low <= price_expected AND price_expected <= price_high", name="span_price"),
        CheckConstraint("quantity >= 0 AND quantum_s >= 1 AND minimum_s >= 0", name="span_meter"),
        CheckConstraint("presence IN ('seen', 'gap', 'edge', 'maybe')", name="span_presence"),
        CheckConstraint("price_known IN (0, 1)", name="span_price_known"),
        CheckConstraint("anchor_us <= start_us AND (end_us IS NULL OR start_us <= end_us)", name="span_in_order"),
        CheckConstraint(
            "(end_us IS NULL) = (ended_by IS NULL) AND (end_us IS NULL) = (low IS NULL)"
            " AND (end_us IS NULL) = (expected IS NULL) AND (end_us IS NULL) = (high IS NULL)",
            name="span_closed_whole",
        ),
        CheckConstraint("0 <= low AND low <= expected AND expected <= high", name="span_amounts"),
        Index("span_open_once", *LINE_KEY, unique=True, sqlite_where=NOT_ENDED, postgresql_where=NOT_ENDED),
        Index("span_by_end", "end_us", "start_us"),
        Index("span_long", "end_us", "start_us", sqlite_where=IS_LONG, postgresql_where=IS_LONG),
        Index("span_by_line", *LINE_KEY, "start_us"),
        STRICT,
    )
    id: int | None = make_key_field()
    resource_id: int = make_reference_field("resource")
    attribution_id: int = make_reference_field("attribution")
    charge: str = make_text_field()
    part: str = make_text_field()
    unit: str = make_text_field()
    quantity: int = make_number_field()
    quantum_s: int = make_number_field()
    minimum_s: int = make_number_field()
    price_low: int = make_number_field()
    price_expected: int = make_number_field()
    price_high: int = make_number_field()
    currency: str = make_text_field()
    price_known: int = make_number_field()
    price_source: str = make_text_field()
    presence: str = make_text_field()
    anchor_us: int = make_number_field()
    start_us: int = make_number_field()
    why: str = make_text_field()
    end_us: int | None = make_optional_number_field()
    ended_by: str | None = Field(default=None, sa_type=Text, nullable=True)
    low: int | None = make_optional_number_field()
    expected: int | None = make_optional_number_field()
    high: int | None = make_optional_number_field()


class DailyRow(LedgerTable, table=True):
    """Closed spans, with their corrections, by day (since 1970, UTC). `us`: microseconds that probably billed."""

    __tablename__ = "daily"
    __table_args__ = (
        CheckConstraint("known IN (0, 1)", name="daily_known"),
        CheckConstraint("0 <= low AND low <= expected AND expected <= high AND us >= 0", name="daily_amounts"),
        WITHOUT_ROWID,
    )
    day: int = Field(primary_key=True, sa_type=BIG_INTEGER, sa_column_kwargs={"autoincrement": False})
    attribution_id: int = make_reference_field("attribution", primary_key=True)
    charge: str = Field(primary_key=True, sa_type=Text)
    currency: str = Field(primary_key=True, sa_type=Text)
    known: int = Field(primary_key=True, sa_type=BIG_INTEGER)
    low: int = make_number_field()
    expected: int = make_number_field()
    high: int = make_number_field()
    us: int = make_number_field()


class MonthlyRow(LedgerTable, table=True):
    """Closed spans, with their corrections, by resource and month (since 1970, UTC). `us`: microseconds that probably billed.

    A price is told apart by its source as well. A row is a sum of the same parts as those of `daily`.
    """

    __tablename__ = "monthly"
    __table_args__ = (
        CheckConstraint("known IN (0, 1)", name="monthly_known"),
        CheckConstraint("0 <= low AND low <= expected AND expected <= high AND us >= 0", name="monthly_amounts"),
        WITHOUT_ROWID,
    )
    month: int = Field(primary_key=True, sa_type=BIG_INTEGER, sa_column_kwargs={"autoincrement": False})
    resource_id: int = make_reference_field("resource", primary_key=True)
    attribution_id: int = make_reference_field("attribution", primary_key=True)
    charge: str = Field(primary_key=True, sa_type=Text)
    currency: str = Field(primary_key=True, sa_type=Text)
    known: int = Field(primary_key=True, sa_type=BIG_INTEGER)
    source: str = Field(primary_key=True, sa_type=Text)
    low: int = make_number_field()
    expected: int = make_number_field()
    high: int = make_number_field()
    us: int = make_number_field()


class HourlyRow(LedgerTable, table=True):
    """The expected cost of closed spans, with their corrections, by hour (since 1970, UTC), spread evenly over each span.

    `cost`: of the spans that fill a part of the hour. `step`: how much more the spans that fill it whole cost than those that
    fill the hour before; it may be negative.
    """

    __tablename__ = "hourly"
    __table_args__ = (WITHOUT_ROWID,)
    hour: int = Field(primary_key=True, sa_type=BIG_INTEGER, sa_column_kwargs={"autoincrement": False})
    currency: str = Field(primary_key=True, sa_type=Text)
    lane: int = Field(primary_key=True, sa_type=BIG_INTEGER)
    cost: int = make_number_field()
    step: int = make_number_field()


class CorrectionRow(LedgerTable, table=True):
    """A correction of a closed span, which from then on counts with this `presence` and these amounts."""

    __tablename__ = "correction"
    __table_args__ = (
        CheckConstraint("presence IN ('seen', 'gap', 'edge', 'maybe')", name="correction_presence"),
        CheckConstraint("0 <= low AND low <= expected AND expected <= high", name="correction_amounts"),
        Index("correction_by_span", "span_id", "id"),
        STRICT,
    )
    id: int | None = make_key_field()
    span_id: int = make_reference_field("span")
    at_us: int = make_number_field()
    presence: str = make_text_field()
    reason: str = make_text_field()
    low: int = make_number_field()
    expected: int = make_number_field()
    high: int = make_number_field()


class CorrectionPartRow(LedgerTable, table=True):
    """A part of a corrected span; the parts of a correction cover its span. A correction without parts is one of all of it.

    `bill_line_id`: the settled line of a bill that bounds the part's amounts; None: they follow from `presence` and price.
    `us`: microseconds that probably billed.
    """

    __tablename__ = "correction_part"
    __table_args__ = (
        CheckConstraint("presence IN ('seen', 'gap', 'edge', 'maybe')", name="correction_part_presence"),
        CheckConstraint("price_known IN (0, 1)", name="correction_part_price_known"),
        CheckConstraint("start_us < end_us AND us >= 0", name="correction_part_in_order"),
        CheckConstraint("0 <= low AND low <= expected AND expected <= high", name="correction_part_amounts"),
        Index("correction_part_by_line", "bill_line_id"),
        WITHOUT_ROWID,
    )
    correction_id: int = make_reference_field("correction", primary_key=True)
    start_us: int = Field(primary_key=True, sa_type=BIG_INTEGER, sa_column_kwargs={"autoincrement": False})
    end_us: int = make_number_field()
    presence: str = make_text_field()
    price_known: int = make_number_field()
    bill_line_id: int | None = Field(default=None, foreign_key="bill_line.id", sa_type=BIG_INTEGER, nullable=True)
    low: int = make_number_field()
    expected: int = make_number_field()
    high: int = make_number_field()
    us: int = make_number_field()


class HoldRow(LedgerTable, table=True):
    """Money set aside for an admitted run.

    `spent_nano`: the cost of a committed one.
    """

    __tablename__ = "hold"
    __table_args__ = (
        CheckConstraint("nano >= 0 AND taken_us <= expires_us", name="hold_in_order"),
        CheckConstraint("ended_by IN ('released', 'committed', 'expired')", name="hold_ended_by"),
        CheckConstraint("(ended_us IS NULL) = (ended_by IS NULL)", name="hold_ended_whole"),
        STRICT,
    )
    id: str = Field(primary_key=True, sa_type=Text)
    nano: int = make_number_field()
    currency: str = make_text_field()
    who: str = make_text_field()
    why: str = make_text_field()
    provider: str = make_text_field()
    account: str = make_text_field()
    owner: str = make_text_field()
    gpu: str = make_text_field()
    labels: str = make_text_field()
    taken_us: int = make_number_field()
    expires_us: int = make_number_field()
    ended_us: int | None = make_optional_number_field()
    ended_by: str | None = Field(default=None, sa_type=Text, nullable=True)
    spent_nano: int | None = make_optional_number_field()


class HoldBudgetRow(LedgerTable, table=True):
    """A budget that a hold counts against."""

    __tablename__ = "hold_budget"
    __table_args__ = (WITHOUT_ROWID,)
    hold_id: str = Field(primary_key=True, foreign_key="hold.id", sa_type=Text)
    budget: str = Field(primary_key=True, sa_type=Text)


class SampleRow(LedgerTable, table=True):
    """A signal's value at an instant.

    A missing value has no row.
    """

    __tablename__ = "sample"
    __table_args__ = (WITHOUT_ROWID,)
    resource_id: int = make_reference_field("resource", primary_key=True)
    signal: str = Field(primary_key=True, sa_type=Text)
    at_us: int = Field(primary_key=True, sa_type=BIG_INTEGER)
    value: float = Field(sa_type=REAL_NUMBER)


class SampleHourRow(LedgerTable, table=True):
    """Count, sum and extremes of the samples of an hour (since 1970, UTC), once these are too old to be stored singly."""

    __tablename__ = "sample_hour"
    __table_args__ = (CheckConstraint("count >= 1 AND lowest <= highest", name="sample_hour_in_order"), WITHOUT_ROWID)
    resource_id: int = make_reference_field("resource", primary_key=True)
    signal: str = Field(primary_key=True, sa_type=Text)
    hour: int = Field(primary_key=True, sa_type=BIG_INTEGER)
    count: int = make_number_field()
    sum: float = Field(sa_type=REAL_NUMBER)
    lowest: float = Field(sa_type=REAL_NUMBER)
    highest: float = Field(sa_type=REAL_NUMBER)


METADATA = LedgerTable.metadata


def _get_core_table(name: str) -> Table:
    return METADATA.tables[name]


ACCOUNT_STATE = _get_core_table("account_state")
LEDGER_STATE, SCOPE, COVERAGE, RESOURCE = (
    _get_core_table("ledger_state"),
    _get_core_table("scope"),
    _get_core_table("coverage"),
    _get_core_table("resource"),
)
ATTRIBUTION, OBSERVATION, SPAN, DAILY = (
    _get_core_table("attribution"),
    _get_core_table("observation"),
    _get_core_table("span"),
    _get_core_table("daily"),
)
CORRECTION, HOLD, HOLD_BUDGET = _get_core_table("correction"), _get_core_table("hold"), _get_core_table("hold_budget")
SAMPLE, SAMPLE_HOUR = _get_core_table("sample"), _get_core_table("sample_hour")
