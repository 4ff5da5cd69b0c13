"""The parts of a corrected span: what settled bill lines say of some of its time, and the rest as it was.

Example: a Vast machine was found on November 22 at 18:00, and states that it exists since November 21, 12:00. So 30 hours are
a GAP, from $0 to $600. Its bill of November 21 is settled, at $240. The correction of that span has two parts: the twelve hours
of November 21, billed at $240, and the eighteen of November 22, a GAP as before, from $0 to $360.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from sqlalchemy import BindParameter, ColumnElement, ScalarSelect, Select, bindparam, case, func
from sqlalchemy import select as select_columns
from sqlalchemy.orm import aliased
from sqlmodel import col, select

from costguard.bills.evidence import BilledPart
from costguard.ledger.db.codecs import Query, SqlRow
from costguard.ledger.tables.spans import CorrectionPartRow, CorrectionRow, ResourceRow, SpanRow
from costguard.ledger.types import BIG_INTEGER, RESOURCE_KEY
from costguard.metering.span import SEEN, NanoAmounts, Span, apply_bill, compute_amounts, count_expected_us
from costguard.values.instant import from_micros, to_micros

PART_COLUMNS = "correction_id, start_us, end_us, presence, price_known, bill_line_id, low, expected, high, us"
RESOURCE = tuple(getattr(ResourceRow, name) for name in RESOURCE_KEY)
SPAN = tuple(getattr(SpanRow, name) for name in list(SpanRow.model_fields)[3:21])  # as decode_span reads them
Rows = Select[*tuple[Any, ...]]
START: BindParameter[int] = bindparam("start", type_=BIG_INTEGER)
END: BindParameter[int] = bindparam("end", type_=BIG_INTEGER)
"""The period of which a statement is."""
_FIRST_US, _LAST_US = 0, 2**62


@dataclass(frozen=True, slots=True)
class CorrectionPart:
    """One part: a span of its own. `bill_line_id`: the line that bounds it; None: it counts by its presence and price."""

    span: Span
    bill_line_id: int | None = None


def join_last_correction(statement: Rows) -> Rows:
    """Return `statement`, which is about spans, with the last correction of each, if there is one."""
    return statement.select_from(SpanRow).outerjoin(CorrectionRow, col(CorrectionRow.id) == find_last_correction())


def find_last_correction() -> ScalarSelect[int]:
    """Return the id of the last correction of the `SpanRow` in the statement around it."""
    one = aliased(CorrectionRow)
    return select(func.max(one.id)).where(one.span_id == SpanRow.id).correlate(SpanRow).scalar_subquery()


def join_parts(statement: Rows) -> Rows:
    """Return `statement` with the last correction of each span and its parts: a row for each part, together the span."""
    is_part = col(CorrectionPartRow.correction_id) == CorrectionRow.id
    return join_last_correction(statement).outerjoin(CorrectionPartRow, is_part)


def select_corrected(name: str) -> ColumnElement[Any]:
    """Return a column of a span, or of its last correction or the part of that, if there is one."""
    rows = (row for row in (CorrectionPartRow, CorrectionRow, SpanRow) if name in row.model_fields)
    return func.coalesce(*(getattr(row, name) for row in rows))


def select_corrected_span() -> tuple[ColumnElement[Any], ...]:
    """Return the columns that `decode_span` reads, of a span or a part of it.

    The last four are NULL without a bill: the amounts that it gives, and the presence as observed.
    """
    billed = col(CorrectionPartRow.bill_line_id).is_not(None)
    amounts = (case((billed, getattr(CorrectionPartRow, name))) for name in ("low", "expected", "high"))
    corrected = (select_corrected(one.key) if one.key in CorrectionPartRow.model_fields else one for one in SPAN)
    return (*corrected, *amounts, case((billed, func.coalesce(CorrectionRow.presence, SpanRow.presence))))


def load_parts(ask: Query, span: Span, span_id: int) -> list[CorrectionPart]:
    """Return the parts of the last correction of a closed span; none if that has no parts, or if there is no correction.

    `span_id`: the row of the span.
    """
    return decode_parts(span, ask(_select_parts_of(), {"span_id": span_id}))


def decode_parts(span: Span, rows: Sequence[SqlRow]) -> list[CorrectionPart]:
    """Return the parts in rows of `PART_COLUMNS`, which are those of one correction of `span`."""
    return [
        CorrectionPart(
            cut_span(
                span,
                start_us,
                end_us,
                presence=presence,
                price_known=bool(price_known),
                billed=None if line_id is None else tuple(amounts),
            ),
            line_id,
        )
        for _, start_us, end_us, presence, price_known, line_id, *amounts, _ in rows
    ]


def encode_parts(correction_id: int, parts: Sequence[CorrectionPart]) -> Iterator[SqlRow]:
    """Yield the rows of the parts of a correction, as `PART_COLUMNS`."""
    for part in parts:
        span = part.span
        yield (
            correction_id,
            to_micros(span.start),
            to_micros(span.end or span.start),
            span.presence,
            int(span.meter.price.known),
            part.bill_line_id,
            *compute_amounts(span, _FIRST_US, _LAST_US),
            count_expected_us(span, _FIRST_US, _LAST_US),
        )


def cut_span(span: Span, start_us: int, end_us: int, *, presence: str, price_known: bool, billed: NanoAmounts | None) -> Span:
    """Return the part of `span` in [start_us, end_us), which counts its steps from the same anchor."""
    meter = span.meter
    if meter.price.known != price_known:
        meter = replace(meter, price=replace(meter.price, known=price_known))
    part = replace(span, start=from_micros(start_us), end=from_micros(end_us), presence=presence, meter=meter)
    return part if billed is None else apply_bill(part, billed, span.presence)


def cover_span(span: Span, billed: Sequence[BilledPart]) -> list[CorrectionPart]:
    """Return the parts of `span`: those that bill lines bound, and the time between them as it was; none without lines."""
    parts, at_us, price_known = list[CorrectionPart](), to_micros(span.start), span.meter.price.known
    end_us = to_micros(span.end or span.start)
    for one in sorted(billed, key=lambda part: part.start_us):
        if at_us < one.start_us:
            parts.append(
                CorrectionPart(
                    cut_span(span, at_us, one.start_us, presence=span.presence, price_known=price_known, billed=None)
                )
            )
        paid = cut_span(span, one.start_us, one.end_us, presence=SEEN, price_known=True, billed=one.amounts)
        parts.append(CorrectionPart(paid, one.line_id))
        at_us = one.end_us
    if parts and at_us < end_us:
        parts.append(
            CorrectionPart(cut_span(span, at_us, end_us, presence=span.presence, price_known=price_known, billed=None))
        )
    return parts


@cache
def _select_parts_of() -> Rows:
    last = select(func.max(CorrectionRow.id)).where(col(CorrectionRow.span_id) == bindparam("span_id")).scalar_subquery()
    columns = (getattr(CorrectionPartRow, name) for name in PART_COLUMNS.split(", "))
    of_last = select_columns(*columns).where(col(CorrectionPartRow.correction_id) == last)
    return of_last.order_by(col(CorrectionPartRow.start_us))
