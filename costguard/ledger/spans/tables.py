"""The ledger's tables.

Money is an integer of nano-units, time is an integer of microseconds since 1970 in UTC, true is 1: no column of either is a
float. SQLite's tables are STRICT, so a text in a column of money is refused. `db.triggers` restricts which columns may change:
a span gets its end, a row of coverage grows, a hold ends, roll-ups are updated. The tables of the guard, the agents and the
bills stand in the rooms of these topics, those of accounts' audits and leases in `db.account_tables`.

The migrations create the schema; `tests/ledger/test_migrations.py` checks that both agree.
"""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Table, Text, UniqueConstraint, text

from costguard.ledger.agents import tables as agent_tables  # noqa: F401 - their tables are part of METADATA
from costguard.ledger.bills import tables as bill_tables  # noqa: F401 - see above
from costguard.ledger.db import account_tables, columns  # noqa: F401 - see above
from costguard.ledger.db.columns import (
    BIG_INTEGER,
    REAL_NUMBER,
    STRICT,
    WITHOUT_ROWID,
    make_id_column,
    make_instant_columns,
    make_key_columns,
    make_number_columns,
    make_reference_column,
    make_text_columns,
)
from costguard.ledger.guard import tables as guard_tables  # noqa: F401 - see above
from costguard.values.instant import DAY_US

METADATA = columns.METADATA
"""Of all tables: those of the guard, the agents and the bills, and these."""
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

LEDGER_STATE = Table(
    "ledger_state",
    METADATA,
    Column("id", BIG_INTEGER, primary_key=True, autoincrement=False),
    *make_text_columns("ledger_id"),
    *make_number_columns("created_us", "revision"),
    CheckConstraint("id = 1", name="ledger_state_one_row"),
    **STRICT,
)
"""A single row.

`revision` counts the transactions that change spans of any account: a writer that remembers another value reads again.
"""

ACCOUNT_STATE = Table(
    "account_state",
    METADATA,
    make_id_column(),
    *make_text_columns("provider", "account"),
    *make_number_columns("revision"),
    UniqueConstraint("provider", "account", name="account_state_named_once"),
    **STRICT,
)
"""An account with scopes. On PostgreSQL its row is locked by each transaction that writes its polls.

`revision` counts those transactions: a writer that remembers another value reads the account again.
"""

SCOPE = Table(
    "scope",
    METADATA,
    make_id_column(),
    *make_text_columns("provider", "account", "name"),
    UniqueConstraint("provider", "account", "name", name="scope_named_once"),
    **STRICT,
)
"""The smallest unit that one listing covers completely."""

COVERAGE = Table(
    "coverage",
    METADATA,
    make_id_column(),
    make_reference_column("scope", "scope_id"),
    *make_text_columns("outcome", "why"),
    *make_number_columns("start_us", "end_us", "polls"),
    CheckConstraint("outcome IN ('complete', 'partial', 'failed')", name="coverage_outcome"),
    CheckConstraint("end_us >= start_us AND polls >= 1", name="coverage_in_order"),
    Index("coverage_by_scope", "scope_id", "start_us"),
    **STRICT,
)
"""Consecutive polls of one scope with the same outcome and reason; each further one updates `end_us` and `polls`."""

RESOURCE = Table(
    "resource",
    METADATA,
    make_id_column(),
    make_reference_column("scope", "scope_id"),
    *make_text_columns("provider", "account", "region", "external_id", "kind"),
    *make_number_columns("first_seen_us"),
    UniqueConstraint("provider", "account", "region", "external_id", name="resource_named_once"),
    **STRICT,
)
"""A resource that bills."""

ATTRIBUTION = Table(
    "attribution",
    METADATA,
    make_id_column(),
    *make_text_columns("provider", "account", "region", "kind", "gpu"),
    *make_number_columns("gpu_count_milli"),
    *make_text_columns("tier", "owner", "instance_type", "labels"),
    UniqueConstraint(*ATTRIBUTION_KEY, name="attribution_once"),
    **STRICT,
)
"""The values by which spending is grouped.

`gpu_count_milli`: thousandths of a GPU. `labels`: JSON of sorted pairs.
"""

OBSERVATION = Table(
    "observation",
    METADATA,
    make_id_column(),
    make_reference_column("resource", "resource_id"),
    *make_number_columns("at_us"),
    *make_instant_columns("seen_us"),
    *make_text_columns("state", "name", "instance_type", "owner"),
    *make_instant_columns("started_us", "stopped_us"),
    *make_text_columns("detail"),
    CheckConstraint("(state = 'absent') = (detail = '')", name="observation_absent"),
    Index("observation_by_resource", "resource_id", "id"),
    **STRICT,
)
"""An observation of a resource that changed.

`detail`: JSON of all of it, '' where state is 'absent'.
"""

SPAN = Table(
    "span",
    METADATA,
    make_id_column(),
    make_reference_column("resource", "resource_id"),
    make_reference_column("attribution", "attribution_id"),
    *make_text_columns("charge", "part", "unit"),
    *make_number_columns("quantity", "quantum_s", "minimum_s", "price_low", "price_expected", "price_high"),
    *make_text_columns("currency"),
    *make_number_columns("price_known"),
    *make_text_columns("price_source", "presence"),
    *make_number_columns("anchor_us", "start_us"),
    *make_text_columns("why"),
    *make_instant_columns("end_us"),
    Column("ended_by", Text),
    *make_instant_columns("low", "expected", "high"),
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
    **STRICT,
)
"""A half-open period in which a resource billed one line.

`end_us`, `ended_by`, `low`, `expected` and `high` are set once, when the span is closed. `low`, `expected`, `high`:
nano-units of the whole span.
"""

DAILY = Table(
    "daily",
    METADATA,
    Column("day", BIG_INTEGER, primary_key=True, autoincrement=False),
    make_reference_column("attribution", "attribution_id", primary_key=True),
    *make_key_columns("charge", "currency"),
    Column("known", BIG_INTEGER, primary_key=True),
    *make_number_columns("low", "expected", "high", "us"),
    CheckConstraint("known IN (0, 1)", name="daily_known"),
    CheckConstraint("0 <= low AND low <= expected AND expected <= high AND us >= 0", name="daily_amounts"),
    **WITHOUT_ROWID,
)
"""Closed spans, with their corrections, by day (since 1970, UTC). `us`: microseconds that probably billed."""

MONTHLY = Table(
    "monthly",
    METADATA,
    Column("month", BIG_INTEGER, primary_key=True, autoincrement=False),
    make_reference_column("resource", "resource_id", primary_key=True),
    make_reference_column("attribution", "attribution_id", primary_key=True),
    *make_key_columns("charge", "currency"),
    Column("known", BIG_INTEGER, primary_key=True),
    *make_key_columns("source"),
    *make_number_columns("low", "expected", "high", "us"),
    CheckConstraint("known IN (0, 1)", name="monthly_known"),
    CheckConstraint("0 <= low AND low <= expected AND expected <= high AND us >= 0", name="monthly_amounts"),
    **WITHOUT_ROWID,
)
"""Closed spans, with their corrections, by resource and month (since 1970, UTC). `us`: microseconds that probably billed.

A price is told apart by its source as well. A row is a sum of the same parts as those of `daily`.
"""

HOURLY = Table(
    "hourly",
    METADATA,
    Column("hour", BIG_INTEGER, primary_key=True, autoincrement=False),
    *make_key_columns("currency"),
    Column("lane", BIG_INTEGER, primary_key=True),
    *make_number_columns("cost", "step"),
    **WITHOUT_ROWID,
)
"""The expected cost of closed spans, with their corrections, by hour (since 1970, UTC), spread evenly over each span.

`cost`: of the spans that fill a part of the hour. `step`: how much more the spans that fill it whole cost than those that
fill the hour before; it may be negative.
"""

CORRECTION = Table(
    "correction",
    METADATA,
    make_id_column(),
    make_reference_column("span", "span_id"),
    *make_number_columns("at_us"),
    *make_text_columns("presence", "reason"),
    *make_number_columns("low", "expected", "high"),
    CheckConstraint("presence IN ('seen', 'gap', 'edge', 'maybe')", name="correction_presence"),
    CheckConstraint("0 <= low AND low <= expected AND expected <= high", name="correction_amounts"),
    Index("correction_by_span", "span_id", "id"),
    **STRICT,
)
"""A correction of a closed span, which from then on counts with this `presence` and these amounts."""

CORRECTION_PART = Table(
    "correction_part",
    METADATA,
    make_reference_column("correction", "correction_id", primary_key=True),
    Column("start_us", BIG_INTEGER, primary_key=True, autoincrement=False),
    *make_number_columns("end_us"),
    *make_text_columns("presence"),
    *make_number_columns("price_known"),
    make_reference_column("bill_line", "bill_line_id", missing=True),
    *make_number_columns("low", "expected", "high", "us"),
    CheckConstraint("presence IN ('seen', 'gap', 'edge', 'maybe')", name="correction_part_presence"),
    CheckConstraint("price_known IN (0, 1)", name="correction_part_price_known"),
    CheckConstraint("start_us < end_us AND us >= 0", name="correction_part_in_order"),
    CheckConstraint("0 <= low AND low <= expected AND expected <= high", name="correction_part_amounts"),
    Index("correction_part_by_line", "bill_line_id"),
    **WITHOUT_ROWID,
)
"""A part of a corrected span; the parts of a correction cover its span. A correction without parts is one of all of it.

`bill_line_id`: the settled line of a bill that bounds the part's amounts; None: they follow from `presence` and price.
`us`: microseconds that probably billed.
"""

HOLD = Table(
    "hold",
    METADATA,
    *make_key_columns("id"),
    *make_number_columns("nano"),
    *make_text_columns("currency", "who", "why", "provider", "account", "owner", "gpu", "labels"),
    *make_number_columns("taken_us", "expires_us"),
    *make_instant_columns("ended_us"),
    Column("ended_by", Text),
    *make_instant_columns("spent_nano"),
    CheckConstraint("nano >= 0 AND taken_us <= expires_us", name="hold_in_order"),
    CheckConstraint("ended_by IN ('released', 'committed', 'expired')", name="hold_ended_by"),
    CheckConstraint("(ended_us IS NULL) = (ended_by IS NULL)", name="hold_ended_whole"),
    **STRICT,
)
"""Money set aside for an admitted run.

`spent_nano`: the cost of a committed one.
"""

HOLD_BUDGET = Table(
    "hold_budget",
    METADATA,
    Column("hold_id", Text, ForeignKey("hold.id"), primary_key=True),
    *make_key_columns("budget"),
    **WITHOUT_ROWID,
)
"""A budget that a hold counts against."""

SAMPLE = Table(
    "sample",
    METADATA,
    make_reference_column("resource", "resource_id", primary_key=True),
    *make_key_columns("signal"),
    Column("at_us", BIG_INTEGER, primary_key=True),
    Column("value", REAL_NUMBER, nullable=False),
    **WITHOUT_ROWID,
)
"""A signal's value at an instant.

A missing value has no row.
"""

SAMPLE_HOUR = Table(
    "sample_hour",
    METADATA,
    make_reference_column("resource", "resource_id", primary_key=True),
    *make_key_columns("signal"),
    Column("hour", BIG_INTEGER, primary_key=True),
    *make_number_columns("count"),
    Column("sum", REAL_NUMBER, nullable=False),
    Column("lowest", REAL_NUMBER, nullable=False),
    Column("highest", REAL_NUMBER, nullable=False),
    CheckConstraint("count >= 1 AND lowest <= highest", name="sample_hour_in_order"),
    **WITHOUT_ROWID,
)
"""Count, sum and extremes of the samples of an hour (since 1970, UTC), once these are too old to be stored singly."""
