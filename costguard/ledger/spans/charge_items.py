"""Read the charge items of a period, a few hundred resources at a time: the rows of exports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import CompoundSelect, or_, union
from sqlalchemy import select as select_columns
from sqlalchemy.orm import aliased
from sqlmodel import col

from costguard.ledger.db.codecs import Query, SqlRow, decode_labels, decode_optional_instant, decode_span, split_batches
from costguard.ledger.db.rows import IDS
from costguard.ledger.spans.correction_parts import END, RESOURCE, START, Rows, join_parts, select_corrected_span
from costguard.ledger.spans.scope_state import find_last_observation
from costguard.ledger.spans.sums import ReachFunction, select_seen
from costguard.ledger.tables.spans import CorrectionPartRow, CorrectionRow, ObservationRow, ResourceRow, SpanRow
from costguard.metering.charge_item import BilledSpan, ChargeItem, itemize_spans
from costguard.metering.span import Span
from costguard.values.calendar import Period
from costguard.values.instant import from_micros, to_micros
from costguard.values.resource import Attribution, ResourceKey

UnobservedSpans = Mapping[int, Sequence[Span]]
"""By resource, what may have billed since anybody looked."""

_LastSeen = tuple[int, int, int | None, int | None]
"""A resource's scope, and when it was last told of, seen, and found absent."""


def iterate_charge_items(
    ask: Query, period: Period, attributions: Mapping[int, Attribution], reach: ReachFunction, unheard: UnobservedSpans
) -> Iterator[ChargeItem]:
    """Yield every charge item of `period`; open spans count as far as they are known to go."""
    start, end = to_micros(period.start), to_micros(period.end)
    numbers = {number for (number,) in ask(_select_billed_resources(), {"start": start, "end": end})} | unheard.keys()
    for batch in split_batches(sorted(numbers)):
        spans = ask(_select_item_spans(), {"ids": batch, "start": start, "end": end})
        of = defaultdict[int, list[SqlRow]](list, {number: list(rows) for number, rows in groupby(spans, itemgetter(0))})
        for number, *key, scope_id, at_us, seen_us, absent_us, name, detail in ask(_select_resources(), {"ids": batch}):
            resource_key = ResourceKey(*key)
            last_seen = (scope_id, at_us, seen_us, absent_us)
            billed = [_make_billed_resource(resource_key, attributions, row, last_seen, reach) for row in of[number]]
            billed += [BilledSpan(span) for span in unheard.get(number, ())]
            yield from itemize_spans(resource_key, billed, period, name=name or "", tags=decode_labels(detail))


def _make_billed_resource(
    key: ResourceKey, attributions: Mapping[int, Attribution], row: SqlRow, last_seen: _LastSeen, reach: ReachFunction
) -> BilledSpan:
    _, attribution_id, corrected, *columns = row
    span = decode_span(key, attributions[attribution_id], columns)
    if span.end is not None:
        return BilledSpan(span, corrected=bool(corrected))
    scope_id, at_us, seen_us, absent_us = last_seen
    return BilledSpan(
        span,
        reach(scope_id, span.start, from_micros(at_us), decode_optional_instant(seen_us), decode_optional_instant(absent_us)),
    )


@cache
def _select_billed_resources() -> CompoundSelect[Any]:
    resources = select_columns(col(SpanRow.resource_id)).where(col(SpanRow.start_us) < END)
    return union(resources.where(col(SpanRow.end_us) > START).distinct(), resources.where(col(SpanRow.end_us).is_(None)))


@cache
def _select_item_spans() -> Rows:
    resource_id, end_us = col(SpanRow.resource_id), col(SpanRow.end_us)
    columns = (resource_id, col(SpanRow.attribution_id), col(CorrectionRow.id).is_not(None), *select_corrected_span())
    spans = join_parts(select_columns(*columns)).where(resource_id.in_(IDS), or_(end_us.is_(None), end_us > START))
    order = (resource_id, col(SpanRow.start_us), col(SpanRow.id), col(CorrectionPartRow.start_us))
    return spans.where(col(SpanRow.start_us) < END).order_by(*order)


@cache
def _select_resources() -> Rows:
    last, listed = aliased(ObservationRow), aliased(ObservationRow)
    resource = (col(ResourceRow.id), *RESOURCE, col(ResourceRow.scope_id), *select_seen(last))
    resources = select_columns(*resource, col(listed.name), col(listed.detail)).select_from(ResourceRow)
    resources = resources.outerjoin(last, col(last.id) == find_last_observation())
    resources = resources.outerjoin(listed, col(listed.id) == find_last_observation(listed=True))
    return resources.where(col(ResourceRow.id).in_(IDS)).order_by(col(ResourceRow.id))
