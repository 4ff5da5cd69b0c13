"""Sums of a period: whole days from the roll-ups, the rest from spans.

And each resource's cost since an instant. Example: November in Berlin is 2026-10-31T23:00Z to 2026-11-30T23:00Z. One hour of
October 31 comes from the spans that touch it, 29 days from the roll-ups, 23 hours of November 30 from spans again. The database
sums the spans that lie entirely in such an edge; a span that extends beyond it is cut here.

Sums per resource come from the monthly roll-ups (`monthly`), with what lies between the nearest edges of months and the
period's own: July in Berlin is July in UTC, with two hours of June and without the last two of July, which are the whole day
of July 31 subtracted and its first 22 hours added.

`compute_spend_to_date` returns what each living resource surely cost since an instant: of its day, its month or its present
run.

Example: a machine at $32.77 an hour runs since 22:00, and the time is 01:30 in UTC. Since midnight it cost $49.16, in this run
$114.70. For any size of the fleet an instant takes two queries: the database sums the spans after it, and the one span per line
that contains it is cut here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from costguard.ledger.db.codecs import (
    ABSENT_STATE,
    SPAN_COLUMNS,
    NanoAmounts,
    Query,
    SqlRow,
    decode_optional_instant,
    decode_span,
)
from costguard.ledger.spans.scope_state import load_attributions
from costguard.metering.meter import COMPUTE
from costguard.metering.span import KnownUntil, Span, compute_amounts, count_expected_us
from costguard.metering.spending import Spending
from costguard.values.calendar import Period, find_month_of_day, find_month_start
from costguard.values.instant import DAY_US, from_micros, to_micros
from costguard.values.money import NANO, Money, MoneyInterval
from costguard.values.resource import ENDED, INSTANCE, Attribution, ResourceKey

ReachFunction = Callable[[int, datetime, datetime, datetime | None, datetime | None], KnownUntil]
"""The reach of a span: of a scope's row, from its start; when its resource was logged, last seen, and found absent."""

SCAN_FRACTION = 12
"""One part in so many of the ledger's spans, and the table is read faster from end to end than through an index."""

NO_RESOURCE = ResourceKey("", "", "", "")
"""Sums do not ask whose a span is."""


class SumKey(NamedTuple):
    """The key of one sum.

    `resource`: its row, `source`: of the price; 0 and "" where resources are not separated.
    """

    resource: int
    attribution: int
    charge: str
    currency: str
    known: int
    source: str


class PeriodSums:
    """Sums of a period by attribution, charge, currency, and whether the price is known.

    `each`: also by resource and by the source of the price.
    """

    def __init__(self, ask: Query, attributions: dict[int, Attribution], *, each: bool = False) -> None:
        self._ask, self._attributions, self._each = ask, attributions, each
        self._found: dict[SumKey, list[int]] = {}

    def add_closed(self, period: Period) -> None:
        """Add the cost of closed spans in `period`."""
        start, end = to_micros(period.start), to_micros(period.end)
        if self._each:
            self._add_months(start, end)
            return
        first, last = -(-start // DAY_US), end // DAY_US
        if first >= last:
            self.add_edge(start, end)
            return
        self.add_edge(start, first * DAY_US)
        self._add(self._ask(_DAYS, (first, last)))
        self.add_edge(last * DAY_US, end)

    def add_open(self, period: Period, reach: ReachFunction) -> None:
        """Add the cost of open spans in `period`, as far as they are known to go."""
        start, end = to_micros(period.start), to_micros(period.end)
        for resource, attribution_id, span, far in iterate_open_spans(self._ask, self._attributions, end, reach):
            self._add_span(resource, attribution_id, span, *compute_open_amounts(span, start, end, far))

    def add_unobserved(self, period: Period, spans: Iterable[Span], resource: int = 0) -> None:
        """Add the possible cost in `period` of `spans` of `resource`, which are not in the ledger."""
        start, end = to_micros(period.start), to_micros(period.end)
        numbers = {attribution: number for number, attribution in self._attributions.items()}
        for span in spans:
            number = numbers.setdefault(span.attribution, -1 - len(numbers))  # what never billed has no row of its own
            self._attributions.setdefault(number, span.attribution)
            self._add_span(resource, number, span, compute_amounts(span, start, end), count_expected_us(span, start, end))

    def _add_months(self, start: int, end: int) -> None:
        """Add the cost of closed spans in [start, end): the months with the nearest edges, and the time between these.

        What lies outside is subtracted by whole days: a bill's line does not say how it is spread over its day, so that low and
        high of the day's two parts do not add up to the day's.
        """
        first, last = _find_nearest_month(start), _find_nearest_month(end)
        if first >= last:
            self.add_edge(start, end)
            return
        self._add(self._ask(_ONE_MONTH if last == first + 1 else _MONTHS, (first, last)))
        begun, reached = to_micros(find_month_start(first)), to_micros(find_month_start(last))
        self.add_edge(start, begun)
        self.add_edge(reached, end)
        first_day, last_day = -(-start // DAY_US) * DAY_US, end // DAY_US * DAY_US
        if begun < start:
            self.add_edge(begun, first_day, sign=-1)
            self.add_edge(start, first_day)
        if end < reached:
            self.add_edge(last_day, reached, sign=-1)
            self.add_edge(last_day, end)

    def add_edge(self, start: int, end: int, *, sign: int = 1) -> None:
        """Add the cost of closed spans in [start, end), in microseconds, without the roll-ups; subtract it if `sign` is -1."""
        if start >= end:
            return
        scan = choose_scan(self._ask, start, end) if self._each else ""
        within = (_WITHIN_EACH if self._each else _WITHIN).format(scan=scan)
        self._add(self._ask(drop_unused_corrections(self._ask, within), (start, end, start)), sign)
        across = drop_unused_corrections(self._ask, _ACROSS)
        for resource, attribution_id, *columns in self._ask(across, (start, end, end, start, end, end, end)):
            span = decode_span(NO_RESOURCE, self._attributions[attribution_id], columns)
            low, expected, high = compute_amounts(span, start, end)
            us = count_expected_us(span, start, end)
            self._add_span(resource, attribution_id, span, (sign * low, sign * expected, sign * high), sign * us)

    def build_spending(self) -> list[Spending]:
        """Return the sums, except those with neither cost nor machine time."""
        found = []
        for place, (low, expected, high, us) in sorted(self._found.items()):
            attribution = self._attributions[place.attribution]
            billed_us = us if place.charge == COMPUTE and attribution.kind == INSTANCE else 0
            if high or billed_us:
                money = build_money_interval((low, expected, high), place.currency)
                one = Spending(attribution=attribution, charge=place.charge, money=money, us=billed_us, known=bool(place.known))
                found.append(one)
        return found

    @property
    def attributions(self) -> Mapping[int, Attribution]:
        """The attributions by row, including those of resources that never billed."""
        return self._attributions

    @property
    def raw(self) -> Mapping[SumKey, list[int]]:
        """Low, expected and high nano-units, and microseconds that the line probably billed, for each key."""
        return self._found

    def _add(self, rows: Iterable[SqlRow], sign: int = 1) -> None:
        """Add sums of the database, given as whole units and remaining nano-units, because a sum may exceed 64 bits."""
        for row in rows:
            low, expected, more, high, most, us = map(int, row[6:])
            money = (sign * low, sign * (expected * NANO + more), sign * (high * NANO + most))
            self._add_amounts(SumKey._make(row[:6]), money, sign * us)

    def _add_span(self, resource: int, attribution_id: int, span: Span, money: NanoAmounts, us: int) -> None:
        price, of, source = span.meter.price, 0, ""
        if self._each:
            of, source = resource, span.meter.source
        self._add_amounts(SumKey(of, attribution_id, span.meter.charge, price.currency, int(price.known), source), money, us)

    def _add_amounts(self, place: SumKey, money: NanoAmounts, us: int) -> None:
        sums = self._found.get(place)
        if sums is None:
            self._found[place] = [*money, us]
            return
        for index, added in enumerate((*money, us)):
            sums[index] += added


def _find_nearest_month(at_us: int) -> int:
    """Return the month (since 1970, UTC) whose beginning is nearest to an instant."""
    month = find_month_of_day(at_us // DAY_US)
    begun, over = (to_micros(find_month_start(number)) for number in (month, month + 1))
    return month if at_us - begun <= over - at_us else month + 1


def iterate_open_spans(
    ask: Query, attributions: Mapping[int, Attribution], end_us: int, reach: ReachFunction
) -> Iterator[tuple[int, int, Span, KnownUntil]]:
    """Yield (resource, attribution, span, how far it is known to go) for every open span that began before `end_us`."""
    for resource, scope_id, attribution_id, at_us, seen_us, absent_us, *columns in ask(_OPEN_SPANS, (end_us,)):
        span = decode_span(NO_RESOURCE, attributions[attribution_id], columns)
        yield resource, attribution_id, span, reach(
            scope_id, span.start, from_micros(at_us), decode_optional_instant(seen_us), decode_optional_instant(absent_us)
        )  # fmt: skip


def compute_open_amounts(span: Span, start_us: int, end_us: int, reach: KnownUntil) -> tuple[NanoAmounts, int]:
    """Return the cost of an open span in [start_us, end_us), and the microseconds that it probably billed.

    `reach`: how far it is known to go.
    """
    probably, most = min(end_us, to_micros(reach.expected)), min(end_us, to_micros(reach.high))
    low, _, _ = compute_amounts(span, start_us, min(end_us, to_micros(reach.low)))
    high = compute_amounts(span, start_us, most)
    expected = high if probably == most else compute_amounts(span, start_us, probably)
    return (low, expected[1], high[2]), count_expected_us(span, start_us, probably)


def choose_scan(ask: Query, start: int, end: int) -> str:
    """Return "+", which disables an index on a column, if much of the ledger ended in [start, end); else ""."""
    ((spans,),) = ask("SELECT coalesce(max(id), 0) FROM span", ())
    ((inside,),) = ask("SELECT count(*) FROM span WHERE end_us > ? AND end_us <= ?", (start, end))
    return "+" if SCAN_FRACTION * inside > spans else ""


def drop_unused_corrections(ask: Query, sql: str) -> str:
    """Return `sql` without its join of corrections if the ledger has none: that is twice as fast.

    Else `sql`.
    """
    if ask("SELECT 1 FROM correction LIMIT 1", ()):
        return sql
    sql = sql.replace(_PART_US, "(").replace(f", {BILLED_AMOUNTS}", "")
    for column in ("presence", "price_known", "low", "expected", "high", "start_us", "end_us"):
        sql = sql.replace(format_corrected_column(column), f"s.{column}")
    return sql.replace(JOIN_CORRECTION, "")


def build_money_interval(money: NanoAmounts, currency: str) -> MoneyInterval:
    """Return the interval of three amounts: low, expected, high."""
    low, expected, high = (Money(nano=nano, currency=currency) for nano in money)
    return MoneyInterval(low=low, expected=expected, high=high)


def _format_split_sum(amount: str) -> str:
    """Return SQL for the sum of `amount` as whole units and nano-units, because bounds of unpriced fleets exceed 64 bits."""
    return f"sum({amount} / {NANO}), sum({amount} - {amount} / {NANO} * {NANO})"


def format_corrected_column(column: str) -> str:
    """Return SQL for a column of span `s`, or of its last correction `c` or of the part `p` of that if there is one."""
    if column in ("start_us", "end_us", "price_known"):
        return f"coalesce(p.{column}, s.{column})"
    return f"coalesce(p.{column}, c.{column}, s.{column})"


JOIN_CORRECTION = """LEFT JOIN correction AS c ON c.id = (SELECT max(x.id) FROM correction AS x WHERE x.span_id = s.id)
LEFT JOIN correction_part AS p ON p.correction_id = c.id"""
"""The last correction `c` of each span `s`, and its parts `p`: one row for each part, which together are the span."""

BILLED_AMOUNTS = ", ".join(f"CASE WHEN p.bill_line_id IS NOT NULL THEN p.{name} END" for name in ("low", "expected", "high"))
"""The amounts that a bill line gives a part; NULL: none does."""

_PART_US = "coalesce(p.us, "

_DAYS = f"""
SELECT 0, attribution_id, charge, currency, known, '', sum(low), {_format_split_sum("expected")},
{_format_split_sum("high")}, sum(us)
FROM daily WHERE day >= ? AND day < ? GROUP BY attribution_id, charge, currency, known
"""  # noqa: S608 - our own column names

_MONTH_PLACE = "resource_id, attribution_id, charge, currency, known, source"
_MONTHS = f"""
SELECT {_MONTH_PLACE}, sum(low), {_format_split_sum("expected")}, {_format_split_sum("high")}, sum(us)
FROM monthly WHERE month >= ? AND month < ? GROUP BY {_MONTH_PLACE}
"""  # noqa: S608 - our own column names
_ONE_MONTH = f"SELECT {_MONTH_PLACE}, low, 0, expected, 0, high, us FROM monthly WHERE month >= ? AND month < ?"  # noqa: S608 - our own column names

_PRESENCE = format_corrected_column("presence")
EXPECTED_US_SQL = f"""{_PART_US}(s.end_us - s.start_us) / CASE {_PRESENCE} WHEN 'edge' THEN 2 ELSE 1 END
        * CASE {_PRESENCE} WHEN 'maybe' THEN 0 ELSE 1 END)"""
"""The microseconds that a closed span `s`, or a part of it, probably billed, as `count_expected_us` has them."""

_SUMMED = f"""
    sum({format_corrected_column("low")}), {_format_split_sum(format_corrected_column("expected"))},
    {_format_split_sum(format_corrected_column("high"))},
    sum({EXPECTED_US_SQL})
FROM span AS s {JOIN_CORRECTION}
WHERE {{scan}}s.end_us > ? AND {{scan}}s.end_us <= ? AND {{scan}}s.start_us >= ?
"""

_WITHIN = f"""
SELECT 0, s.attribution_id, s.charge, s.currency, {format_corrected_column("price_known")}, '', {_SUMMED}
GROUP BY 2, 3, 4, 5
"""

_WITHIN_EACH = f"""
SELECT {{scan}}s.resource_id, s.attribution_id, s.charge, s.currency, {format_corrected_column("price_known")}, s.price_source,
{_SUMMED}
GROUP BY 1, 2, 3, 4, 5, 6
"""

_CORRECTED = {f"s.{name}": format_corrected_column(name) for name in ("presence", "price_known", "start_us", "end_us")}
CORRECTED_SPAN_COLUMNS = ", ".join([*(_CORRECTED.get(name, name) for name in SPAN_COLUMNS.split(", ")), BILLED_AMOUNTS])
"""The columns of a span `s`, or of a part of it, as its last correction has them, and the amounts that a bill gives it."""

_LONG_US = 8 * DAY_US
"""The index `span_long` holds the spans that are longer (`tables.LONG`; a test holds the two together)."""

_ACROSS = f"""
SELECT s.resource_id, s.attribution_id, {CORRECTED_SPAN_COLUMNS} FROM span AS s {JOIN_CORRECTION}
WHERE s.end_us > ? AND s.end_us <= ? + {_LONG_US} AND s.start_us < ? AND NOT (s.start_us >= ? AND s.end_us <= ?)
UNION ALL
SELECT s.resource_id, s.attribution_id, {CORRECTED_SPAN_COLUMNS} FROM span AS s {JOIN_CORRECTION}
WHERE s.end_us - s.start_us > {_LONG_US} AND s.end_us > ? + {_LONG_US} AND s.start_us < ?
"""  # noqa: S608 - our own column names
"""Spans that reach out of [start, end): those that end soon after it, and the long ones that end later."""

_OPEN_SPANS = f"""
SELECT s.resource_id, r.scope_id, s.attribution_id, o.at_us, o.seen_us, CASE o.state WHEN 'absent' THEN o.at_us END,
{SPAN_COLUMNS}
FROM span AS s
JOIN resource AS r ON r.id = s.resource_id
JOIN observation AS o ON o.id = (SELECT max(x.id) FROM observation AS x WHERE x.resource_id = s.resource_id)
WHERE s.end_us IS NULL AND s.start_us < ?
"""  # noqa: S608 - our own column names


SpendByCurrency = dict[str, int]
"""Nano-units by currency, of what billed at a stated price."""


def compute_spend_to_date(
    ask: Query, since: Mapping[str, datetime | None], reach: ReachFunction, as_of: datetime
) -> dict[ResourceKey, dict[str, Money]]:
    """Return by resource and name in `since` the sure cost from that instant (None: its run's start) to `as_of`.

    A resource is missing if nothing of it billed at a stated price in that time, if it billed in several currencies, or if the
    start of its run is unknown.
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
    """Return for each stopped resource since when every listing has shown it as stopped."""
    return {ResourceKey(*key): from_micros(at_us) for at_us, *key in ask(_STOPPED, ())}


def _sum_closed(ask: Query, start: datetime | None, attributions: Mapping[int, Attribution]) -> Iterator[tuple[int, str, int]]:
    """Yield (resource, currency, nano-units) of closed spans."""
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
    """Yield (resource, currency, nano-units) of open spans, up to the instant to which they surely go."""
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
WHERE o.state <> '{ENDED}' AND s.end_us IS NOT NULL AND {format_corrected_column("price_known")} = 1
"""

_PRICED_AFTER = f"""
SELECT r.id, s.currency, sum({format_corrected_column("low")}) {_PRICED} AND s.end_us > {{start}} AND s.start_us >= {{start}}
GROUP BY r.id, s.currency
"""

_PRICED_ACROSS = f"""
SELECT r.id, {{start}}, s.attribution_id, {CORRECTED_SPAN_COLUMNS}
{_PRICED} AND s.end_us > {{start}} AND s.start_us < {{start}}
"""
"""At most one a line, with its parts: spans of a line do not overlap."""

_OPEN_RUNS = f"""
SELECT r.id, r.scope_id, s.attribution_id, {_RUN_START}, l.at_us, l.seen_us, CASE l.state WHEN '{ABSENT_STATE}' THEN
l.at_us END, {SPAN_COLUMNS}
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
