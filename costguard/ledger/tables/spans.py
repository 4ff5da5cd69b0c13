"""What was polled and what it costs: scopes and their coverage, resources, observations, spans and their corrections.

An open span gets its end once; a row of coverage grows. A new ledger is made from the classes.
"""

from __future__ import annotations

from typing import Annotated

from sqlalchemy import CheckConstraint, Index, UniqueConstraint, text

from costguard.ledger.types import (
    KeyNumber,
    LaterNumber,
    LaterOptionalNumber,
    LaterOptionalWords,
    LedgerRow,
    Number,
    OptionalNumber,
    RowNumber,
    Words,
    declare_table,
    index_where,
    refer_to,
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


class LedgerStateRow(LedgerRow, table=True):
    """A single row.

    `revision` counts the transactions that change spans of any account: a writer that remembers another value reads again.
    """

    __tablename__ = "ledger_state"
    __table_args__ = (
        CheckConstraint("id = 1", name="ledger_state_one_row"),
        declare_table(keeps_rows=True),
    )

    id: KeyNumber
    ledger_id: Words
    created_us: Number
    revision: Number


class AccountStateRow(LedgerRow, table=True):
    """An account with scopes. On PostgreSQL its row is locked by each transaction that writes its polls.

    `revision` counts those transactions: a writer that remembers another value reads the account again.
    """

    __tablename__ = "account_state"
    __table_args__ = (
        UniqueConstraint("provider", "account", name="account_state_named_once"),
        declare_table(keeps_rows=True, written_once=True),
    )

    id: RowNumber
    provider: Words
    account: Words
    revision: LaterNumber


class ScopeRow(LedgerRow, table=True):
    """The smallest unit that one listing covers completely."""

    __tablename__ = "scope"
    __table_args__ = (
        UniqueConstraint("provider", "account", "name", name="scope_named_once"),
        declare_table(keeps_rows=True, written_once=True),
    )

    id: RowNumber
    provider: Words
    account: Words
    name: Words


class CoverageRow(LedgerRow, table=True):
    """Consecutive polls of one scope with the same outcome and reason; each further one updates `end_us` and `polls`."""

    __tablename__ = "coverage"
    __table_args__ = (
        CheckConstraint("outcome IN ('complete', 'partial', 'failed')", name="coverage_outcome"),
        CheckConstraint("end_us >= start_us AND polls >= 1", name="coverage_in_order"),
        Index("coverage_by_scope", "scope_id", "start_us"),
        declare_table(keeps_rows=True, written_once=True),
    )

    id: RowNumber
    scope_id: Annotated[int, refer_to("scope.id")]
    outcome: Words
    why: Words
    start_us: Number
    end_us: LaterNumber
    polls: LaterNumber


class ResourceRow(LedgerRow, table=True):
    """A resource that bills."""

    __tablename__ = "resource"
    __table_args__ = (
        UniqueConstraint("provider", "account", "region", "external_id", name="resource_named_once"),
        declare_table(keeps_rows=True, written_once=True),
    )

    id: RowNumber
    scope_id: Annotated[int, refer_to("scope.id")]
    provider: Words
    account: Words
    region: Words
    external_id: Words
    kind: Words
    first_seen_us: Number


class AttributionRow(LedgerRow, table=True):
    """The values by which spending is grouped.

    `gpu_count_milli`: thousandths of a GPU. `labels`: JSON of sorted pairs.
    """

    __tablename__ = "attribution"
    __table_args__ = (
        UniqueConstraint(*ATTRIBUTION_KEY, name="attribution_once"),
        declare_table(keeps_rows=True, written_once=True),
    )

    id: RowNumber
    provider: Words
    account: Words
    region: Words
    kind: Words
    gpu: Words
    gpu_count_milli: Number
    tier: Words
    owner: Words
    instance_type: Words
    labels: Words


class ObservationRow(LedgerRow, table=True):
    """An observation of a resource that changed.

    `detail`: JSON of all of it, '' where state is 'absent'.
    """

    __tablename__ = "observation"
    __table_args__ = (
        CheckConstraint("(state = 'absent') = (detail = '')", name="observation_absent"),
        Index("observation_by_resource", "resource_id", "id"),
        declare_table(keeps_rows=True, written_once=True),
    )

    id: RowNumber
    resource_id: Annotated[int, refer_to("resource.id")]
    at_us: Number
    seen_us: OptionalNumber = None
    state: Words
    name: Words
    instance_type: Words
    owner: Words
    started_us: OptionalNumber = None
    stopped_us: OptionalNumber = None
    detail: Words


class SpanRow(LedgerRow, table=True):
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
        index_where("span_open_once", *LINE_KEY, unique=True, where=NOT_ENDED),
        Index("span_by_end", "end_us", "start_us"),
        index_where("span_long", "end_us", "start_us", where=IS_LONG),
        Index("span_by_line", *LINE_KEY, "start_us"),
        declare_table(keeps_rows=True, written_once=True),
    )

    id: RowNumber
    resource_id: Annotated[int, refer_to("resource.id")]
    attribution_id: Annotated[int, refer_to("attribution.id")]
    charge: Words
    part: Words
    unit: Words
    quantity: Number
    quantum_s: Number
    minimum_s: Number
    price_low: Number
    price_expected: Number
    price_high: Number
    currency: Words
    price_known: Number
    price_source: Words
    presence: Words
    anchor_us: Number
    start_us: Number
    why: Words
    end_us: LaterOptionalNumber = None
    ended_by: LaterOptionalWords = None
    low: LaterOptionalNumber = None
    expected: LaterOptionalNumber = None
    high: LaterOptionalNumber = None


class CorrectionRow(LedgerRow, table=True):
    """A correction of a closed span, which from then on counts with this `presence` and these amounts."""

    __tablename__ = "correction"
    __table_args__ = (
        CheckConstraint("presence IN ('seen', 'gap', 'edge', 'maybe')", name="correction_presence"),
        CheckConstraint("0 <= low AND low <= expected AND expected <= high", name="correction_amounts"),
        Index("correction_by_span", "span_id", "id"),
        declare_table(keeps_rows=True, written_once=True),
    )

    id: RowNumber
    span_id: Annotated[int, refer_to("span.id")]
    at_us: Number
    presence: Words
    reason: Words
    low: Number
    expected: Number
    high: Number


class CorrectionPartRow(LedgerRow, table=True):
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
        declare_table(keeps_rows=True, written_once=True, without_rowid=True),
    )

    correction_id: Annotated[int, refer_to("correction.id", primary_key=True)]
    start_us: KeyNumber
    end_us: Number
    presence: Words
    price_known: Number
    bill_line_id: Annotated[int | None, refer_to("bill_line.id")] = None
    low: Number
    expected: Number
    high: Number
    us: Number
