"""The charge items of a period, one resource after the other: of a year of 100,000 machines no more than a few hundred at once.

First the numbers of the resources that billed in the period, then their spans in lots, in the order of the resources.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from costguard.ledger.db.asking import Query, format_placeholders, split_batches
from costguard.ledger.db.codecs import ABSENT_STATE, SqlRow, decode_optional_instant, decode_span
from costguard.ledger.spans.sums import CORRECTED_SPAN_COLUMNS, JOIN_CORRECTION, ReachFunction
from costguard.metering.charge_item import ChargeItem
from costguard.metering.itemized import BilledSpan, itemize_spans
from costguard.metering.span import Span
from costguard.values.instant import from_micros, to_micros
from costguard.values.period import Period
from costguard.values.resource import Attribution, ResourceKey

UnobservedSpans = Mapping[int, Sequence[Span]]
"""By resource, what may have billed since anybody looked."""

_LastSeen = tuple[int, int, int | None, int | None]
"""A resource's scope, and when it was last told of, seen, and found absent."""


def iterate_charge_items(
    ask: Query, period: Period, attributions: Mapping[int, Attribution], reach: ReachFunction, unheard: UnobservedSpans
) -> Iterator[ChargeItem]:
    """Every item of `period`, with what is still open as far as it reaches."""
    start, end = to_micros(period.start), to_micros(period.end)
    numbers = {number for (number,) in ask(_BILLED_RESOURCES, (start, end, end))} | unheard.keys()
    for lot in split_batches(sorted(numbers)):
        spans = ask(_ITEM_SPANS.format(ids=format_placeholders(lot)), (*lot, start, end))
        of = defaultdict[int, list[SqlRow]](list, {number: list(rows) for number, rows in groupby(spans, itemgetter(0))})
        for number, *key, scope_id, at_us, seen_us, absent_us, name, detail in ask(
            _RESOURCES_SQL.format(ids=format_placeholders(lot)), lot
        ):
            named = ResourceKey(*key)
            told = (scope_id, at_us, seen_us, absent_us)
            billed = [_make_billed_resource(named, attributions, row, told, reach) for row in of[number]]
            billed += [BilledSpan(span) for span in unheard.get(number, ())]
            yield from itemize_spans(named, billed, period, name=name or "", tags=_parse_labels(detail))


def _make_billed_resource(
    key: ResourceKey, attributions: Mapping[int, Attribution], row: SqlRow, told: _LastSeen, reach: ReachFunction
) -> BilledSpan:
    _, attribution_id, corrected, *columns = row
    span = decode_span(key, attributions[attribution_id], columns)
    if span.end is not None:
        return BilledSpan(span, corrected=bool(corrected))
    scope_id, at_us, seen_us, absent_us = told
    return BilledSpan(
        span,
        reach(scope_id, span.start, from_micros(at_us), decode_optional_instant(seen_us), decode_optional_instant(absent_us)),
    )


def _parse_labels(detail: str | None) -> tuple[tuple[str, str], ...]:
    """The labels in what `rows.observation_text` wrote."""
    said: dict[str, Any] = json.loads(detail) if detail else {}
    return tuple((name, value) for name, value in said.get("labels", ()))


_BILLED_RESOURCES = """
SELECT DISTINCT resource_id FROM span WHERE end_us > ? AND start_us < ?
UNION
SELECT resource_id FROM span WHERE end_us IS NULL AND start_us < ?
"""

_ITEM_SPANS = f"""
SELECT s.resource_id, s.attribution_id, CASE WHEN c.id IS NULL THEN 0 ELSE 1 END, {CORRECTED_SPAN_COLUMNS} FROM span AS s {JOIN_CORRECTION}
WHERE s.resource_id IN ({{ids}}) AND (s.end_us IS NULL OR s.end_us > ?) AND s.start_us < ?
ORDER BY s.resource_id, s.start_us, s.id
"""  # noqa: S608 - our own column names

_RESOURCES_SQL = f"""
SELECT r.id, r.provider, r.account, r.region, r.external_id, r.scope_id, l.at_us, l.seen_us,
    CASE l.state WHEN '{ABSENT_STATE}' THEN l.at_us END, d.name, d.detail
FROM resource AS r
LEFT JOIN observation AS l ON l.id = (SELECT max(x.id) FROM observation AS x WHERE x.resource_id = r.id)
LEFT JOIN observation AS d ON d.id = (
    SELECT max(x.id) FROM observation AS x WHERE x.resource_id = r.id AND x.state <> '{ABSENT_STATE}'
)
WHERE r.id IN ({{ids}}) ORDER BY r.id
"""  # noqa: S608 - our own column names
