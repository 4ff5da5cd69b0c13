"""The ledger's tables, as SQLModel classes and as Core tables for bulk writes.

Money is integers of nano-units, time is integers of microseconds since 1970 in UTC, true is 1: no column of either is a float.
SQLite's tables are STRICT, so that a text in a column of money is refused. What may be changed is small, and `guards` holds it:
a span gets its end, a row of coverage grows, a hold ends, roll-ups move on.

The migrations make the schema; `tests/ledger/test_migrations.py` holds the two together.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import BigInteger, CheckConstraint, Double, Index, Integer, MetaData, Table, Text, UniqueConstraint, text
from sqlalchemy.types import REAL
from sqlmodel import Field, SQLModel

from costguard.core.instant import DAY_US

BIG: Any = BigInteger().with_variant(Integer(), "sqlite")
"""64 bits. In SQLite every INTEGER has them, and only INTEGER makes a primary key the row's own number."""
REAL_NUMBER: Any = Double().with_variant(REAL(), "sqlite")
"""Of samples only."""

STRICT = {"sqlite_strict": True}
PACKED = {"sqlite_strict": True, "sqlite_with_rowid": False}  # rows lie in the order of their primary key, with no copy of it
ATTRIBUTES = ("provider", "account", "region", "kind", "gpu", "gpu_count_milli", "tier", "owner", "instance_type", "labels")
LINE = ("resource_id", "charge", "part")
NOT_ENDED = text("end_us IS NULL")
LONG = text(f"end_us - start_us > {8 * DAY_US}")  # longer ones are few: see `sums._ACROSS`


class Row(SQLModel):
    """What every table has: this ledger's own metadata, apart from any other program's."""

    metadata: ClassVar[MetaData] = MetaData()


def _number() -> Any:  # noqa: ANN401 - what SQLModel's Field is typed as
    """A number of 64 bits."""
    return Field(sa_type=BIG)


def _number_or_none() -> Any:  # noqa: ANN401 - see above
    return Field(default=None, sa_type=BIG, nullable=True)


def _key() -> Any:  # noqa: ANN401 - see above
    """A primary key that the database counts up where none is given."""
    return Field(default=None, primary_key=True, sa_type=BIG)


def _of(table: str, *, primary_key: bool = False) -> Any:  # noqa: ANN401 - see above
    """The id of a row of `table`."""
    return Field(foreign_key=f"{table}.id", sa_type=BIG, primary_key=primary_key)


def _text() -> Any:  # noqa: ANN401 - see above
    return Field(sa_type=Text)


class LedgerStateRow(Row, table=True):
    """One row. `revision` counts the transactions that wrote: a writer that remembers another one reads anew."""

    __tablename__ = "ledger_state"
    __table_args__ = (CheckConstraint("id = 1", name="ledger_state_one_row"), STRICT)
    id: int = Field(primary_key=True, sa_type=BIG, sa_column_kwargs={"autoincrement": False})
    ledger_id: str = _text()
    created_us: int = _number()
    revision: int = _number()


class ScopeRow(Row, table=True):
    """The smallest thing one listing covers completely."""

    __tablename__ = "scope"
    __table_args__ = (UniqueConstraint("provider", "account", "name", name="scope_named_once"), STRICT)
    id: int | None = _key()
    provider: str = _text()
    account: str = _text()
    name: str = _text()


class CoverageRow(Row, table=True):
    """Polls in a row of one scope that said the same: `end_us` and `polls` move on while they do."""

    __tablename__ = "coverage"
    __table_args__ = (
        CheckConstraint("outcome IN ('complete', 'partial', 'failed')", name="coverage_outcome"),
        CheckConstraint("end_us >= start_us AND polls >= 1", name="coverage_in_order"),
        Index("coverage_by_scope", "scope_id", "start_us"),
        STRICT,
    )
    id: int | None = _key()
    scope_id: int = _of("scope")
    outcome: str = _text()
    why: str = _text()
    start_us: int = _number()
    end_us: int = _number()
    polls: int = _number()


class ResourceRow(Row, table=True):
    """Anything that bills."""

    __tablename__ = "resource"
    __table_args__ = (UniqueConstraint("provider", "account", "region", "external_id", name="resource_named_once"), STRICT)
    id: int | None = _key()
    scope_id: int = _of("scope")
    provider: str = _text()
    account: str = _text()
    region: str = _text()
    external_id: str = _text()
    kind: str = _text()
    first_seen_us: int = _number()


class AttributionRow(Row, table=True):
    """What spending is grouped by. `gpu_count_milli`: thousandths of a GPU. `labels`: JSON of sorted pairs."""

    __tablename__ = "attribution"
    __table_args__ = (UniqueConstraint(*ATTRIBUTES, name="attribution_once"), STRICT)
    id: int | None = _key()
    provider: str = _text()
    account: str = _text()
    region: str = _text()
    kind: str = _text()
    gpu: str = _text()
    gpu_count_milli: int = _number()
    tier: str = _text()
    owner: str = _text()
    instance_type: str = _text()
    labels: str = _text()


class ObservationRow(Row, table=True):
    """What was said of a resource when it changed. `detail`: JSON of all of it, '' where state is 'absent'."""

    __tablename__ = "observation"
    __table_args__ = (
        CheckConstraint("(state = 'absent') = (detail = '')", name="observation_absent"),
        Index("observation_by_resource", "resource_id", "id"),
        STRICT,
    )
    id: int | None = _key()
    resource_id: int = _of("resource")
    at_us: int = _number()
    seen_us: int | None = _number_or_none()
    state: str = _text()
    name: str = _text()
    instance_type: str = _text()
    owner: str = _text()
    started_us: int | None = _number_or_none()
    stopped_us: int | None = _number_or_none()
    detail: str = _text()


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
    id: int | None = _key()
    resource_id: int = _of("resource")
    attribution_id: int = _of("attribution")
    charge: str = _text()
    part: str = _text()
    unit: str = _text()
    quantity: int = _number()
    quantum_s: int = _number()
    minimum_s: int = _number()
    price_low: int = _number()
    price_expected: int = _number()
    price_high: int = _number()
    currency: str = _text()
    price_known: int = _number()
    price_source: str = _text()
    presence: str = _text()
    anchor_us: int = _number()
    start_us: int = _number()
    why: str = _text()
    end_us: int | None = _number_or_none()
    ended_by: str | None = Field(default=None, sa_type=Text, nullable=True)
    low: int | None = _number_or_none()
    expected: int | None = _number_or_none()
    high: int | None = _number_or_none()


class DailyRow(Row, table=True):
    """Closed spans, with their corrections, by day (since 1970, UTC). `us`: microseconds that probably billed."""

    __tablename__ = "daily"
    __table_args__ = (
        CheckConstraint("known IN (0, 1)", name="daily_known"),
        CheckConstraint("0 <= low AND low <= expected AND expected <= high AND us >= 0", name="daily_amounts"),
        PACKED,
    )
    day: int = Field(primary_key=True, sa_type=BIG, sa_column_kwargs={"autoincrement": False})
    attribution_id: int = _of("attribution", primary_key=True)
    charge: str = Field(primary_key=True, sa_type=Text)
    currency: str = Field(primary_key=True, sa_type=Text)
    known: int = Field(primary_key=True, sa_type=BIG)
    low: int = _number()
    expected: int = _number()
    high: int = _number()
    us: int = _number()


class CorrectionRow(Row, table=True):
    """A closed span counts with this `presence`, and comes to these amounts, from now on."""

    __tablename__ = "correction"
    __table_args__ = (
        CheckConstraint("presence IN ('seen', 'gap', 'edge', 'maybe')", name="correction_presence"),
        CheckConstraint("0 <= low AND low <= expected AND expected <= high", name="correction_amounts"),
        Index("correction_by_span", "span_id", "id"),
        STRICT,
    )
    id: int | None = _key()
    span_id: int = _of("span")
    at_us: int = _number()
    presence: str = _text()
    reason: str = _text()
    low: int = _number()
    expected: int = _number()
    high: int = _number()


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
    nano: int = _number()
    currency: str = _text()
    who: str = _text()
    why: str = _text()
    provider: str = _text()
    account: str = _text()
    owner: str = _text()
    gpu: str = _text()
    labels: str = _text()
    taken_us: int = _number()
    expires_us: int = _number()
    ended_us: int | None = _number_or_none()
    ended_by: str | None = Field(default=None, sa_type=Text, nullable=True)
    spent_nano: int | None = _number_or_none()


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
    resource_id: int = _of("resource", primary_key=True)
    signal: str = Field(primary_key=True, sa_type=Text)
    at_us: int = Field(primary_key=True, sa_type=BIG)
    value: float = Field(sa_type=REAL_NUMBER)


class SampleHourRow(Row, table=True):
    """The samples of an hour (since 1970, UTC), once they are too old to be kept one by one."""

    __tablename__ = "sample_hour"
    __table_args__ = (CheckConstraint("count >= 1 AND lowest <= highest", name="sample_hour_in_order"), PACKED)
    resource_id: int = _of("resource", primary_key=True)
    signal: str = Field(primary_key=True, sa_type=Text)
    hour: int = Field(primary_key=True, sa_type=BIG)
    count: int = _number()
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
