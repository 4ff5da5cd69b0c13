"""The ledger's tables, as SQLModel classes and as Core tables for bulk writes.

Money is integers of nano-units, time is integers of microseconds since 1970 in UTC, true is 1: no column of either is a float.
SQLite's tables are STRICT, so that a text in a column of money is refused. What may be changed is small, and `guards` holds it:
a span gets its end, a row of coverage grows, a hold ends, roll-ups move on. The guard's own tables are in `tables_guard`,
those of the bill in `tables_bill`.

The migrations make the schema; `tests/ledger/test_migrations.py` holds the two together.
"""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Index, Table, Text, UniqueConstraint, text
from sqlmodel import Field

from costguard.ledger.db import tables_agent, tables_bill, tables_guard  # noqa: F401 - their tables are part of METADATA
from costguard.ledger.db.tables import BIG, PACKED, REAL_NUMBER, STRICT, Row, key, number, number_or_none, row_of, text_column
from costguard.values.instant import DAY_US

ATTRIBUTES = ("provider", "account", "region", "kind", "gpu", "gpu_count_milli", "tier", "owner", "instance_type", "labels")
LINE = ("resource_id", "charge", "part")
NOT_ENDED = text("end_us IS NULL")
LONG = text(f"end_us - start_us > {8 * DAY_US}")  # longer ones are few: see `sums._ACROSS`


class LedgerStateRow(Row, table=True):
    """One row. `revision` counts the transactions that wrote: a writer that remembers another one reads anew."""

    __tablename__ = "ledger_state"
    __table_args__ = (CheckConstraint("id = 1", name="ledger_state_one_row"), STRICT)
    id: int = Field(primary_key=True, sa_type=BIG, sa_column_kwargs={"autoincrement": False})
    ledger_id: str = text_column()
    created_us: int = number()
    revision: int = number()


class ScopeRow(Row, table=True):
    """The smallest thing one listing covers completely."""

    __tablename__ = "scope"
    __table_args__ = (UniqueConstraint("provider", "account", "name", name="scope_named_once"), STRICT)
    id: int | None = key()
    provider: str = text_column()
    account: str = text_column()
    name: str = text_column()


class CoverageRow(Row, table=True):
    """Polls in a row of one scope that said the same: `end_us` and `polls` move on while they do."""

    __tablename__ = "coverage"
    __table_args__ = (
        CheckConstraint("outcome IN ('complete', 'partial', 'failed')", name="coverage_outcome"),
        CheckConstraint("end_us >= start_us AND polls >= 1", name="coverage_in_order"),
        Index("coverage_by_scope", "scope_id", "start_us"),
        STRICT,
    )
    id: int | None = key()
    scope_id: int = row_of("scope")
    outcome: str = text_column()
    why: str = text_column()
    start_us: int = number()
    end_us: int = number()
    polls: int = number()


class ResourceRow(Row, table=True):
    """Anything that bills."""

    __tablename__ = "resource"
    __table_args__ = (UniqueConstraint("provider", "account", "region", "external_id", name="resource_named_once"), STRICT)
    id: int | None = key()
    scope_id: int = row_of("scope")
    provider: str = text_column()
    account: str = text_column()
    region: str = text_column()
    external_id: str = text_column()
    kind: str = text_column()
    first_seen_us: int = number()


class AttributionRow(Row, table=True):
    """What spending is grouped by. `gpu_count_milli`: thousandths of a GPU. `labels`: JSON of sorted pairs."""

    __tablename__ = "attribution"
    __table_args__ = (UniqueConstraint(*ATTRIBUTES, name="attribution_once"), STRICT)
    id: int | None = key()
    provider: str = text_column()
    account: str = text_column()
    region: str = text_column()
    kind: str = text_column()
    gpu: str = text_column()
    gpu_count_milli: int = number()
    tier: str = text_column()
    owner: str = text_column()
    instance_type: str = text_column()
    labels: str = text_column()


class ObservationRow(Row, table=True):
    """What was said of a resource when it changed. `detail`: JSON of all of it, '' where state is 'absent'."""

    __tablename__ = "observation"
    __table_args__ = (
        CheckConstraint("(state = 'absent') = (detail = '')", name="observation_absent"),
        Index("observation_by_resource", "resource_id", "id"),
        STRICT,
    )
    id: int | None = key()
    resource_id: int = row_of("resource")
    at_us: int = number()
    seen_us: int | None = number_or_none()
    state: str = text_column()
    name: str = text_column()
    instance_type: str = text_column()
    owner: str = text_column()
    started_us: int | None = number_or_none()
    stopped_us: int | None = number_or_none()
    detail: str = text_column()


class SpanRow(Row, table=True):
    """A half-open period in which a resource billed one line. The last five are set once, when it is closed.

    `low`, `expected`, `high`: nano-units of the whole span.
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
        Index("span_open_once", *LINE, unique=True, sqlite_where=NOT_ENDED, postgresql_where=NOT_ENDED),
        Index("span_by_end", "end_us", "start_us"),
        Index("span_long", "end_us", "start_us", sqlite_where=LONG, postgresql_where=LONG),
        Index("span_by_line", *LINE, "start_us"),
        STRICT,
    )
    id: int | None = key()
    resource_id: int = row_of("resource")
    attribution_id: int = row_of("attribution")
    charge: str = text_column()
    part: str = text_column()
    unit: str = text_column()
    quantity: int = number()
    quantum_s: int = number()
    minimum_s: int = number()
    price_low: int = number()
    price_expected: int = number()
    price_high: int = number()
    currency: str = text_column()
    price_known: int = number()
    price_source: str = text_column()
    presence: str = text_column()
    anchor_us: int = number()
    start_us: int = number()
    why: str = text_column()
    end_us: int | None = number_or_none()
    ended_by: str | None = Field(default=None, sa_type=Text, nullable=True)
    low: int | None = number_or_none()
    expected: int | None = number_or_none()
    high: int | None = number_or_none()


class DailyRow(Row, table=True):
    """Closed spans, with their corrections, by day (since 1970, UTC). `us`: microseconds that probably billed."""

    __tablename__ = "daily"
    __table_args__ = (
        CheckConstraint("known IN (0, 1)", name="daily_known"),
        CheckConstraint("0 <= low AND low <= expected AND expected <= high AND us >= 0", name="daily_amounts"),
        PACKED,
    )
    day: int = Field(primary_key=True, sa_type=BIG, sa_column_kwargs={"autoincrement": False})
    attribution_id: int = row_of("attribution", primary_key=True)
    charge: str = Field(primary_key=True, sa_type=Text)
    currency: str = Field(primary_key=True, sa_type=Text)
    known: int = Field(primary_key=True, sa_type=BIG)
    low: int = number()
    expected: int = number()
    high: int = number()
    us: int = number()


class CorrectionRow(Row, table=True):
    """A closed span counts with this `presence`, and comes to these amounts, from now on."""

    __tablename__ = "correction"
    __table_args__ = (
        CheckConstraint("presence IN ('seen', 'gap', 'edge', 'maybe')", name="correction_presence"),
        CheckConstraint("0 <= low AND low <= expected AND expected <= high", name="correction_amounts"),
        Index("correction_by_span", "span_id", "id"),
        STRICT,
    )
    id: int | None = key()
    span_id: int = row_of("span")
    at_us: int = number()
    presence: str = text_column()
    reason: str = text_column()
    low: int = number()
    expected: int = number()
    high: int = number()


class HoldRow(Row, table=True):
    """Money set aside for a run that was admitted. `spent_nano`: what a committed one came to."""

    __tablename__ = "hold"
    __table_args__ = (
        CheckConstraint("nano >= 0 AND taken_us <= expires_us", name="hold_in_order"),
        CheckConstraint("ended_by IN ('released', 'committed', 'expired')", name="hold_ended_by"),
        CheckConstraint("(ended_us IS NULL) = (ended_by IS NULL)", name="hold_ended_whole"),
        STRICT,
    )
    id: str = Field(primary_key=True, sa_type=Text)
    nano: int = number()
    currency: str = text_column()
    who: str = text_column()
    why: str = text_column()
    provider: str = text_column()
    account: str = text_column()
    owner: str = text_column()
    gpu: str = text_column()
    labels: str = text_column()
    taken_us: int = number()
    expires_us: int = number()
    ended_us: int | None = number_or_none()
    ended_by: str | None = Field(default=None, sa_type=Text, nullable=True)
    spent_nano: int | None = number_or_none()


class HoldBudgetRow(Row, table=True):
    """A budget that a hold counts against."""

    __tablename__ = "hold_budget"
    __table_args__ = (PACKED,)
    hold_id: str = Field(primary_key=True, foreign_key="hold.id", sa_type=Text)
    budget: str = Field(primary_key=True, sa_type=Text)


class SampleRow(Row, table=True):
    """A signal's value at an instant; missing is no row."""

    __tablename__ = "sample"
    __table_args__ = (PACKED,)
    resource_id: int = row_of("resource", primary_key=True)
    signal: str = Field(primary_key=True, sa_type=Text)
    at_us: int = Field(primary_key=True, sa_type=BIG)
    value: float = Field(sa_type=REAL_NUMBER)


class SampleHourRow(Row, table=True):
    """The samples of an hour (since 1970, UTC), once they are too old to be kept one by one."""

    __tablename__ = "sample_hour"
    __table_args__ = (CheckConstraint("count >= 1 AND lowest <= highest", name="sample_hour_in_order"), PACKED)
    resource_id: int = row_of("resource", primary_key=True)
    signal: str = Field(primary_key=True, sa_type=Text)
    hour: int = Field(primary_key=True, sa_type=BIG)
    count: int = number()
    sum: float = Field(sa_type=REAL_NUMBER)
    lowest: float = Field(sa_type=REAL_NUMBER)
    highest: float = Field(sa_type=REAL_NUMBER)


METADATA = Row.metadata


def _core(name: str) -> Table:
    return METADATA.tables[name]


LEDGER_STATE, SCOPE, COVERAGE, RESOURCE = _core("ledger_state"), _core("scope"), _core("coverage"), _core("resource")
ATTRIBUTION, OBSERVATION, SPAN, DAILY = _core("attribution"), _core("observation"), _core("span"), _core("daily")
CORRECTION, HOLD, HOLD_BUDGET = _core("correction"), _core("hold"), _core("hold_budget")
SAMPLE, SAMPLE_HOUR = _core("sample"), _core("sample_hour")
