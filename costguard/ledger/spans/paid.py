"""What each living resource surely cost since some instant: of its day, of its month, of its present run.

Example: a machine at $32.77 an hour runs since 22:00 and is asked about at 01:30 in UTC. Since midnight it cost $49.16, in this
run $114.70. However large the fleet is, an instant takes two questions: the database adds up the spans that lie after it, and
of each line the one that reaches over it is cut here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime

from costguard.ledger.db.asking import Query
from costguard.ledger.db.codecs import ABSENT_STATE, SPAN_COLUMNS, SqlRow, decode_optional_instant, decode_span
from costguard.ledger.spans.scope_state import load_attributions
from costguard.ledger.spans.sums import JOIN_CORRECTION, NO_RESOURCE, ReachFunction, format_corrected_column
from costguard.metering.meter import COMPUTE
from costguard.metering.span import compute_amounts
from costguard.values.instant import from_micros, to_micros
from costguard.values.money import Money
from costguard.values.resource import ENDED, Attribution, ResourceKey

SpendByCurrency = dict[str, int]
"""Nano-units by currency, of what billed at a stated price."""


def compute_spend_to_date(
    ask: Query, since: Mapping[str, datetime | None], reach: ReachFunction, as_of: datetime
) -> dict[ResourceKey, dict[str, Money]]:
    """By resource and name of `since`: what it surely cost from that instant (None: its run's start) to `as_of`.

    Missing where nothing of it billed at a stated price then, where it billed in several currencies, or where nobody knows when
    its run began.
    """
    keys = {number: ResourceKey(*key) for number, *key in ask(_KEYS, (ENDED,))}
    attributions = load_attributions(ask)
    still = [row for row in ask(_OPEN_RUNS, ()) if row[0] in keys]
    found: dict[ResourceKey, dict[str, Money]] = {key: {} for key in keys.values()}
    for name, start in since.items():
        sums: dict[int, SpendByCurrency] = defaultdict(dict)
        for number, currency, nano in _sum_closed(ask, start, attributions):
            sums[number][currency] = sums[number].get(currency, 0) + nano
        for number, currency, nano in _sum_open(still, start, reach, attributions, as_of):
            sums[number][currency] = sums[number].get(currency, 0) + nano
        for number, of in sums.items():
            if number in keys and len(of) == 1:
                ((currency, nano),) = of.items()
                found[keys[number]][name] = Money(nano=nano, currency=currency)
    return {key: of for key, of in found.items() if of}


def load_stopped_since(ask: Query) -> dict[ResourceKey, datetime]:
    """Since when each resource that is stopped has been seen so, without a listing between that said otherwise."""
    return {ResourceKey(*key): from_micros(at_us) for at_us, *key in ask(_STOPPED, ())}


def _sum_closed(ask: Query, start: datetime | None, attributions: Mapping[int, Attribution]) -> Iterator[tuple[int, str, int]]:
    """(resource, currency, nano-units) of closed spans."""
    of, values = (_RUN_START, ()) if start is None else ("?", (to_micros(start),))
    for number, currency, nano in ask(_PRICED_AFTER.format(start=of), values * 2):
        yield number, currency, int(nano)
    for number, start_us, attribution_id, *columns in ask(_PRICED_ACROSS.format(start=of), values * 3):
        span = decode_span(NO_RESOURCE, attributions[attribution_id], columns)
        if span.end is not None:
            yield number, span.meter.price.currency, compute_amounts(span, start_us, to_micros(span.end))[0]


def _sum_open(
    rows: list[SqlRow], start: datetime | None, reach: ReachFunction, attributions: Mapping[int, Attribution], as_of: datetime
) -> Iterator[tuple[int, str, int]]:
    """The same of open spans, as far as they surely reach."""
    for number, scope_id, attribution_id, run_us, at_us, seen_us, absent_us, *columns in rows:
        span = decode_span(NO_RESOURCE, attributions[attribution_id], columns)
        start_us = run_us if start is None else to_micros(start)
        if start_us is not None and span.meter.price.known:
            far = reach(
                scope_id, span.start, from_micros(at_us), decode_optional_instant(seen_us), decode_optional_instant(absent_us)
            )
            yield (
                number,
                span.meter.price.currency,
                compute_amounts(span, start_us, min(to_micros(as_of), to_micros(far.low)))[0],
            )


_LAST_LISTED = f"(SELECT max(x.id) FROM observation AS x WHERE x.resource_id = r.id AND x.state <> '{ABSENT_STATE}')"  # noqa: S608 - our own words

_RUN_START = f"""coalesce(o.started_us, (
    SELECT min(a.anchor_us) FROM span AS a WHERE a.resource_id = r.id AND a.charge = '{COMPUTE}' AND a.end_us IS NULL
))"""  # noqa: S608 - our own words
"""When its run began: as its provider says, else as its open span of computing counts."""

_KEYS = f"""
SELECT r.id, r.provider, r.account, r.region, r.external_id FROM resource AS r
JOIN observation AS o ON o.id = {_LAST_LISTED} WHERE o.state <> ?
"""  # noqa: S608 - our own column names

_PRICED = f"""
FROM resource AS r
JOIN observation AS o ON o.id = {_LAST_LISTED}
JOIN span AS s ON s.resource_id = r.id {JOIN_CORRECTION}
WHERE o.state <> '{ENDED}' AND s.end_us IS NOT NULL AND s.price_known = 1
"""

_PRICED_AFTER = f"""
SELECT r.id, s.currency, sum({format_corrected_column("low")}) {_PRICED} AND s.end_us > {{start}} AND s.start_us >= {{start}}
GROUP BY r.id, s.currency
"""

_PRICED_ACROSS = f"""
SELECT r.id, {{start}}, s.attribution_id, {SPAN_COLUMNS.replace("s.presence", format_corrected_column("presence"))}
{_PRICED} AND s.end_us > {{start}} AND s.start_us < {{start}}
"""
"""At most one a line: its spans do not overlap."""

_OPEN_RUNS = f"""
SELECT r.id, r.scope_id, s.attribution_id, {_RUN_START}, l.at_us, l.seen_us, CASE l.state WHEN '{ABSENT_STATE}' THEN l.at_us END, {SPAN_COLUMNS}
FROM span AS s
JOIN resource AS r ON r.id = s.resource_id
JOIN observation AS o ON o.id = {_LAST_LISTED}
JOIN observation AS l ON l.id = (SELECT max(x.id) FROM observation AS x WHERE x.resource_id = r.id)
WHERE s.end_us IS NULL
"""  # noqa: S608 - our own column names

_STOPPED = f"""
SELECT min(n.at_us), r.provider, r.account, r.region, r.external_id
FROM resource AS r
JOIN observation AS o ON o.id = {_LAST_LISTED} AND o.state = 'stopped'
JOIN observation AS n ON n.resource_id = r.id AND n.state = 'stopped' AND n.id > coalesce((
    SELECT max(x.id) FROM observation AS x WHERE x.resource_id = r.id AND x.state NOT IN ('stopped', '{ABSENT_STATE}')
), 0)
GROUP BY r.id, r.provider, r.account, r.region, r.external_id
"""  # noqa: S608 - our own column names
