"""Read for a report: cost of each resource, daily costs, hourly burn, actions and samples, all as of one instant.

Resources are identified by row number, so a report of 100,000 resources loads the names of a few. Hourly burn example: a span
of $2 from 23:30 to 00:30 burns $2 an hour: it begins in hour 23, half an hour in, and ends in hour 0.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import Any, Self, cast

from sqlalchemy import and_, func, select
from sqlalchemy.orm import aliased
from sqlmodel import col

from costguard.budgets.hold import Hold
from costguard.guard.action_intents import DONE
from costguard.guard.policy import PERSON_RULE, START, TIMED_RULE
from costguard.ledger.db.codecs import (
    ABSENT_STATE,
    SPAN_COLUMNS,
    Query,
    SqlRow,
    decode_life,
    decode_optional_instant,
    decode_span,
    format_placeholders,
    split_batches,
)
from costguard.ledger.db.reader import OpenSnapshot
from costguard.ledger.guard.intents import LIFE_COLUMNS, is_send
from costguard.ledger.holds import load_committed_holds
from costguard.ledger.spans.books import DEFAULT_CURRENCY, SpendingReader
from costguard.ledger.spans.hourly import load_hours
from costguard.ledger.spans.scope_state import load_attributions, load_books
from costguard.ledger.spans.sums import (
    CORRECTED_SPAN_COLUMNS,
    JOIN_CORRECTION,
    NO_RESOURCE,
    PeriodSums,
    ReachFunction,
    compute_open_amounts,
    format_corrected_column,
    iterate_open_spans,
)
from costguard.ledger.tables.intents import IntentEventRow, IntentRow
from costguard.metering.span import KnownUntil, Span
from costguard.metering.spending import BilledResource
from costguard.reporting.statement.groups import LEDGER_KEYS
from costguard.reporting.statement.history import DailyCost, HourlyRateChanges
from costguard.reporting.statement.idle_stretches import SamplePair, TimeRange
from costguard.reporting.statement.savings import ConfirmedAction, order_actions
from costguard.reporting.statement.sections import ResourceCost
from costguard.reporting.statement.waste import SampledHour
from costguard.system.process import pause_gc
from costguard.values.calendar import Period
from costguard.values.instant import DAY_US, HOUR_US, MICROSECOND, from_micros, to_micros
from costguard.values.money import NANO
from costguard.values.resource import ResourceKey


class ReportReader(SpendingReader):
    """A `SpendingReader` with the queries of reports.

    Within `read_one_snapshot` all answers are of one instant.
    """

    @contextmanager
    def read_one_snapshot(self) -> Iterator[Self]:
        """Answer all queries in the block as of now, whatever is written meanwhile."""
        reader = self._reader
        with reader.snapshot() as ask:
            self._reader = OpenSnapshot(ask)  # type: ignore[assignment]  # it has what is asked of a reader
            try:
                yield self
            finally:
                self._reader = reader

    def load_costs(self, period: Period, as_of: datetime) -> list[ResourceCost]:
        """Return the cost of each line of each resource in `period`."""
        with self._reader.snapshot() as ask:
            books = load_books(ask)
            sums = PeriodSums(ask, load_attributions(ask), each=True)
            sums.add_closed(period)
            sums.add_open(period, self._make_reach(ask, as_of))
            for number, spans in self._load_unobserved(ask, books, as_of).items():
                sums.add_unobserved(period, spans, number)
            named = sums.attributions
            with pause_gc():
                return [
                    ResourceCost(place.resource, named[place.attribution], place.charge, place.currency, bool(place.known),
                           place.source, *nanos)
                    for place, nanos in sums.raw.items() if nanos[2] or nanos[3]
                ]  # fmt: skip

    def load_burning(self, as_of: datetime) -> list[tuple[tuple[Span, ...], tuple[Span, ...], bool]]:
        """Return for each billing resource its open spans, its possible unobserved usage, and whether listings lack it."""
        lines: dict[int, list[Span]] = defaultdict(list)
        lacking = set[int]()
        with self._reader.snapshot() as ask:
            unheard = self._load_unobserved(ask, load_books(ask), as_of)
            attributions = load_attributions(ask)
            for resource, absent_us, attribution, *columns in ask(_OPEN, ()):
                lines[resource].append(decode_span(NO_RESOURCE, attributions[attribution], columns))
                if absent_us is not None:
                    lacking.add(resource)
        return [
            (tuple(lines.get(number, ())), tuple(unheard.get(number, ())), number in lacking)
            for number in sorted({*lines, *unheard})
        ]

    def load_billed_resources(self, numbers: Collection[int], *, labels: Collection[str] = ()) -> dict[int, BilledResource]:
        """Return the resources of these row numbers, as last seen.

        `labels`: resources that carry any of these labels are returned with all of theirs; the others without labels.
        """
        found = dict[int, BilledResource]()
        wanted, told = ("o.detail", _make_label_filter(labels)) if labels else ("''", None)
        with self._reader.snapshot() as ask:
            for lot in split_batches(sorted(numbers)):
                for number, *key, name, detail in ask(_RESOURCES_SQL.format(detail=wanted, ids=format_placeholders(lot)), lot):
                    carried = _parse_labels(detail) if told and detail and told(detail) else ()
                    found[number] = BilledResource(key=ResourceKey(*key), name=name or "", labels=carried)
        return found

    def load_lines(
        self, numbers: Collection[int], period: Period, as_of: datetime
    ) -> Iterator[tuple[int, list[tuple[Span, KnownUntil | None]]]]:
        """Yield the spans of each of those resources in `period`.

        An open span comes with how far it is known to go, a closed one with None.
        """
        with self._reader.snapshot() as ask:
            attributions, reach = load_attributions(ask), self._make_reach(ask, as_of)
            for lot in split_batches(sorted(numbers)):
                found: dict[int, list[tuple[Span, KnownUntil | None]]] = defaultdict(list)
                values = (*lot, to_micros(period.start), to_micros(period.end))
                for number, *row in ask(_LINES.format(ids=format_placeholders(lot)), values):
                    key, (scope_id, attribution, at_us, seen_us, absent_us), columns = row[:4], row[4:9], row[9:]
                    span = decode_span(ResourceKey(*key), attributions[attribution], columns)
                    if span.end is not None:
                        found[number].append((span, None))
                        continue
                    seen = from_micros(at_us), decode_optional_instant(seen_us), decode_optional_instant(absent_us)
                    found[number].append((span, reach(scope_id, span.start, *seen)))
                yield from found.items()

    def load_sampled_hours(self, numbers: Collection[int], period: Period) -> dict[int, dict[str, list[SampledHour]]]:
        """Return for each of those resources, by signal, the hours that begin in `period` and have samples.

        Resources without samples are left out.
        """
        first, last = -(-to_micros(period.start) // HOUR_US), -(-to_micros(period.end) // HOUR_US)
        found: dict[int, dict[str, list[SampledHour]]] = {}
        with self._reader.snapshot() as ask:
            asked = [sql for sql in (_HOURS, _SAMPLES) if ask(sql.any, ())]
            for lot in split_batches(sorted(numbers) if asked else []):
                for sql in asked:
                    unit = sql.unit_us
                    rows = ask(sql.of.format(ids=format_placeholders(lot)), (*lot, first * unit, last * unit))
                    for (number, signal), own in groupby(rows, itemgetter(0, 1)):
                        found.setdefault(number, {}).setdefault(signal, []).extend(map(_take_hour, own))
        return found

    def has_single_samples(self, period: Period) -> bool:
        """Return whether any sample of `period` is stored one by one."""
        with self._reader.snapshot() as ask:
            return bool(ask(_SAMPLES.any, ())) and bool(ask(_SAMPLED_IN, (to_micros(period.start), to_micros(period.end))))

    def load_samples_within(self, ranges: Mapping[int, Sequence[TimeRange]]) -> dict[int, dict[str, list[SamplePair]]]:
        """Return for each of those resources, by signal, the samples within its ranges that are stored one by one."""
        found: dict[int, dict[str, list[SamplePair]]] = {}
        with self._reader.snapshot() as ask:
            for number, parts in sorted(ranges.items()):
                for start, end in parts:
                    for signal, at_us, value in ask(_SINGLE_SAMPLES, (number, start, end)):
                        found.setdefault(number, {}).setdefault(signal, []).append((at_us, value))
        return found

    def load_daily_costs(self, period: Period, as_of: datetime, by: str) -> list[DailyCost]:
        """Return the expected cost of `period` in dollars, by day (UTC) and the key `by`; the days add up to it.

        Each sum carries one of the attributions that share its value of the key.
        """
        start, end = to_micros(period.start), to_micros(period.end)
        first, last = -(-start // DAY_US), end // DAY_US
        with self._reader.snapshot() as ask:
            attributions = load_attributions(ask)
            if first > last:
                edges, first, last = [(start, end)], 0, 0
            else:
                edges = [(start, first * DAY_US), (last * DAY_US, end)]
            found = [
                DailyCost(day, attributions[number], charge, int(whole) * NANO + int(rest))
                for day, number, charge, whole, rest in ask(
                    _DAYS.format(by=_GROUP_COLUMNS.get(by, "a.labels")), (first, last, DEFAULT_CURRENCY)
                )
            ]
            for begin, finish in edges:
                sums = PeriodSums(ask, attributions)
                sums.add_edge(begin, finish)
                found += [
                    DailyCost(begin // DAY_US, attributions[place.attribution], place.charge, nanos[1])
                    for place, nanos in sums.raw.items()
                    if place.currency == DEFAULT_CURRENCY
                ]
            for _, _, span, far in iterate_open_spans(ask, attributions, end, self._make_reach(ask, as_of)):
                if span.meter.price.currency == DEFAULT_CURRENCY:
                    found += _split_days(span, far, max(start, to_micros(span.start)), min(end, to_micros(far.expected)))
        return found

    def load_rate_changes(self, period: Period, as_of: datetime) -> dict[int, HourlyRateChanges]:
        """Return the rates and costs of each hour of `period`, with each span's dollars spread evenly over it."""
        with self._reader.snapshot() as ask:
            return load_hourly_rates(ask, period, self._make_reach(ask, as_of))

    def load_actions(self, since: datetime, until: datetime) -> list[ConfirmedAction]:
        """Return the actions on machines confirmed within [since, until), with the spans of each machine around them."""
        with self._reader.snapshot() as ask:
            return load_confirmed_acts(ask, since, until)

    def load_committed_holds(self, period: Period) -> list[Hold]:
        """Return the holds of admitted runs that ended in `period`."""
        with self._reader.snapshot() as ask:
            return load_committed_holds(ask, period.start, period.end)

    def _make_reach(self, ask: Query, as_of: datetime) -> ReachFunction:
        books = load_books(ask)
        return lambda scope_id, *seen: self._compute_reach(books[scope_id], *seen, as_of=as_of)


def _split_days(span: Span, far: KnownUntil, begin: int, finish: int) -> Iterable[DailyCost]:
    """Yield the cost of an open span by day within [begin, finish)."""
    while begin < finish:
        until = min(finish, (begin // DAY_US + 1) * DAY_US)
        nano = compute_open_amounts(span, begin, until, far)[0][1]
        yield DailyCost(begin // DAY_US, span.attribution, span.meter.charge, nano)
        begin = until


def _make_label_filter(labels: Collection[str]) -> Callable[[str], bool]:
    """Return a test whether an observation's text may contain any of `labels`, ignoring case, before it is parsed."""
    if not all(map(str.isascii, labels)):
        return lambda _: True
    names = [json.dumps(label).strip('"').lower() for label in labels]

    def told(detail: str) -> bool:
        text = detail.lower()
        return any(name in text for name in names)

    return told


def _parse_labels(detail: str | None) -> tuple[tuple[str, str], ...]:
    said: dict[str, Any] = json.loads(detail) if detail else {}
    return tuple((name, value) for name, value in said.get("labels", ()))


class _SampleQuery:
    """A query in batches, a query whether its table has rows, and the unit of its times in microseconds."""

    def __init__(self, of: str, table: str, unit_us: int) -> None:
        self.of, self.any, self.unit_us = of, f"SELECT 1 FROM {table} LIMIT 1", unit_us  # noqa: S608 - our own names


_LAST_LISTED = f"(SELECT max(x.id) FROM observation AS x WHERE x.resource_id = r.id AND x.state <> '{ABSENT_STATE}')"  # noqa: S608 - our own words

_RESOURCES_SQL = f"""
SELECT r.id, r.provider, r.account, r.region, r.external_id, o.name, {{detail}}
FROM resource AS r LEFT JOIN observation AS o ON o.id = {_LAST_LISTED} WHERE r.id IN ({{ids}})
"""  # noqa: S608 - our own column names

_LINES = f"""
SELECT r.id, r.provider, r.account, r.region, r.external_id, r.scope_id, s.attribution_id, o.at_us, o.seen_us,
    CASE o.state WHEN '{ABSENT_STATE}' THEN o.at_us END, {CORRECTED_SPAN_COLUMNS}
FROM span AS s {JOIN_CORRECTION}
JOIN resource AS r ON r.id = s.resource_id
JOIN observation AS o ON o.id = (SELECT max(x.id) FROM observation AS x WHERE x.resource_id = r.id)
WHERE s.resource_id IN ({{ids}}) AND (s.end_us IS NULL OR s.end_us > ?) AND s.start_us < ?
ORDER BY r.id, s.start_us, s.id
"""  # noqa: S608 - our own column names

_HOURS = _SampleQuery(
    """
SELECT resource_id, signal, hour, count, sum, lowest, highest FROM sample_hour
WHERE resource_id IN ({ids}) AND hour >= ? AND hour < ? ORDER BY resource_id, signal, hour
""",
    "sample_hour",
    1,
)

_SAMPLES = _SampleQuery(
    f"""
SELECT resource_id, signal, at_us / {HOUR_US}, count(*), sum(value), min(value), max(value) FROM sample
WHERE resource_id IN ({{ids}}) AND at_us >= ? AND at_us < ? GROUP BY resource_id, signal, at_us / {HOUR_US}
ORDER BY resource_id, signal, at_us / {HOUR_US}
""",  # noqa: S608 - our own number
    "sample",
    HOUR_US,
)

_take_hour = cast("Callable[[SqlRow], SampledHour]", itemgetter(2, 3, 4, 5, 6))
"""Return the `SampledHour` in a row of these queries; a large fleet has many, so that they stay plain tuples."""

_SAMPLED_IN = "SELECT 1 FROM sample WHERE at_us >= ? AND at_us < ? LIMIT 1"

_SINGLE_SAMPLES = """
SELECT signal, at_us, value FROM sample WHERE resource_id = ? AND at_us >= ? AND at_us < ? ORDER BY signal, at_us
"""

_GROUP_COLUMNS = {key: "d.charge" if key == "charge" else f"a.{key}" for key in LEDGER_KEYS}

_DAYS = f"""
SELECT d.day, min(d.attribution_id), min(d.charge), sum(d.expected / {NANO}), sum(d.expected - d.expected / {NANO} * {NANO})
FROM daily AS d JOIN attribution AS a ON a.id = d.attribution_id
WHERE d.day >= ? AND d.day < ? AND d.currency = ? GROUP BY d.day, {{by}}
"""  # noqa: S608 - our own numbers

_OPEN = f"""
SELECT s.resource_id, CASE o.state WHEN '{ABSENT_STATE}' THEN o.at_us END, s.attribution_id, {SPAN_COLUMNS} FROM span AS s
JOIN observation AS o ON o.id = (SELECT max(x.id) FROM observation AS x WHERE x.resource_id = s.resource_id)
WHERE s.end_us IS NULL
"""  # noqa: S608 - our own column names


def load_hourly_rates(ask: Query, period: Period, reach: ReachFunction) -> dict[int, HourlyRateChanges]:
    """Return the rates that began and ended in each hour of `period` (hours since 1970), and costs of closed spans by hour.

    Each span's dollars are spread evenly over it. Whole hours (UTC) come from the roll-up; of a part of an hour the database
    adds up the rates of closed spans.
    """
    start, end = to_micros(period.start), to_micros(period.end)
    found = defaultdict[int, list[float]](lambda: [0.0] * 5)
    first, last = -(-start // HOUR_US), end // HOUR_US
    if first < last:
        _add_closed_hours(ask, first, last, found)
        edges = [(start, first * HOUR_US), (last * HOUR_US, end)]
    else:
        edges = [(start, end)]
    for begin, finish in edges:
        _add_closed_rates(ask, begin, finish, found)
    for _, _, span, far in iterate_open_spans(ask, load_attributions(ask), end, reach):
        begun, until = to_micros(span.start), to_micros(far.expected)
        begin, finish = max(begun, start), min(until, end)
        if finish > begin and span.meter.price.currency == DEFAULT_CURRENCY:
            rate = compute_open_amounts(span, begun, until, far)[0][1] / (until - begun)
            for place, at_us in ((0, begin), (2, finish)):
                sums = found[at_us // HOUR_US]
                sums[place] += rate
                sums[place + 1] += rate * (at_us % HOUR_US)
    return {hour: HourlyRateChanges(*sums) for hour, sums in sorted(found.items()) if any(sums)}


def _add_closed_hours(ask: Query, first: int, last: int, found: dict[int, list[float]]) -> None:
    """Add the cost of closed spans in the hours [first, last), from the roll-up."""
    whole, rows = load_hours(ask, first, last, DEFAULT_CURRENCY)
    if whole:
        found[first][0] += whole / HOUR_US
    for hour, cost, step in rows:
        sums = found[hour]
        sums[0] += step / HOUR_US
        sums[4] += cost
        whole += step
    if whole:
        found[last][2] += whole / HOUR_US


def _add_closed_rates(ask: Query, start: int, end: int, found: dict[int, list[float]]) -> None:
    """Add the rates of closed spans in [start, end), in microseconds, by the hour in which they begin and end in it."""
    if start >= end:
        return
    for place, moment in ((0, _BEGUN), (2, _ENDED)):
        edge = start if moment is _BEGUN else end
        sql = _RATES.format(moment=moment)
        soon_over = (edge, edge, start, end, end, DEFAULT_CURRENCY, start, end)
        for hour, rate, at in ask(sql, (*soon_over, edge, edge, end, end, DEFAULT_CURRENCY, start, end)):
            sums = found[hour]
            sums[place] += rate
            sums[place + 1] += at


_LONG_US = 8 * DAY_US
"""As in `sums._ACROSS`: the index `span_long` holds the spans that are longer."""

_FROM, _UNTIL = format_corrected_column("start_us"), format_corrected_column("end_us")
"""When a span, or a part of a corrected one, begins and ends."""

_BEGUN = f"CASE WHEN {_FROM} > ? THEN {_FROM} ELSE ? END"
_ENDED = f"CASE WHEN {_UNTIL} < ? THEN {_UNTIL} ELSE ? END"

_RATE_OF = f"CAST({format_corrected_column('expected')} AS DOUBLE PRECISION) / ({_UNTIL} - {_FROM})"

_RATES = f"""
SELECT at_us / {HOUR_US}, sum(rate), sum(rate * (at_us - at_us / {HOUR_US} * {HOUR_US}))
FROM (
    SELECT {{moment}} AS at_us, {_RATE_OF} AS rate FROM span AS s {JOIN_CORRECTION}
    WHERE s.end_us > ? AND s.end_us <= ? + {_LONG_US} AND s.start_us < ?
        AND s.currency = ? AND s.end_us > s.start_us AND {_UNTIL} > ? AND {_FROM} < ?
    UNION ALL
    SELECT {{moment}}, {_RATE_OF} FROM span AS s {JOIN_CORRECTION}
    WHERE s.end_us - s.start_us > {_LONG_US} AND s.end_us > ? + {_LONG_US} AND s.start_us < ? AND s.currency = ?
        AND {_UNTIL} > ? AND {_FROM} < ?
) AS changes
GROUP BY at_us / {HOUR_US}
"""  # noqa: S608 - our own column names


LOOKBACK = timedelta(minutes=11)
"""Of what billed before an act, so much is looked at: where nobody states when a machine stopped, its span ended at a poll."""


def load_confirmed_acts(ask: Query, since: datetime, until: datetime) -> list[ConfirmedAction]:
    """Return the actions that were confirmed within [since, until), in order of time."""
    attributions, found = load_attributions(ask), list[ConfirmedAction]()
    for name, *life, act, policy, sent_us, done_us in ask(
        _ACTS.where(col(IntentRow.moved_us) >= to_micros(since), col(IntentRow.moved_us) < to_micros(until))
    ):
        key = life[:4]
        spans = tuple(
            decode_span(ResourceKey(*key), attributions[attribution], columns)
            for attribution, *columns in ask(_SPANS_AROUND, (*key, sent_us - LOOKBACK // MICROSECOND))
        )
        ((called, owner, ended_us),) = ask(_RESOURCE_NAME, key) or [("", "", None)]
        made = ConfirmedAction(
            intent_id=name,
            life=decode_life(life),
            act=act,
            policy=policy,
            sent_at=from_micros(sent_us),
            confirmed_at=from_micros(done_us),
            spans=spans,
            ended_at=decode_optional_instant(ended_us),
            name=called or "",
            owner=owner or "",
        )
        found.append(made)
    return order_actions(found)


_DONE = aliased(IntentEventRow)
_ACT = tuple(getattr(IntentRow, name) for name in ("id", *LIFE_COLUMNS, "act", "policy"))
_ACTS = (
    select(*_ACT, func.min(IntentEventRow.at_us), func.max(_DONE.at_us))
    .join(_DONE, and_(col(_DONE.intent_id) == IntentRow.id, col(_DONE.moved_to) == DONE))
    .join(IntentEventRow, and_(col(IntentEventRow.intent_id) == IntentRow.id, is_send(IntentEventRow)))
    .where(col(IntentRow.state) == DONE, col(IntentRow.rule).not_in((PERSON_RULE, TIMED_RULE)), col(IntentRow.act) != START)
    .group_by(*_ACT)
)

_RESOURCE_ID = "(SELECT id FROM resource WHERE provider = ? AND account = ? AND region = ? AND external_id = ?)"

_SPANS_AROUND = f"""
SELECT s.attribution_id, {CORRECTED_SPAN_COLUMNS} FROM span AS s {JOIN_CORRECTION}
WHERE s.resource_id = {_RESOURCE_ID} AND (s.end_us IS NULL OR s.end_us > ?) ORDER BY s.start_us, s.id
"""  # noqa: S608 - our own column names

_RESOURCE_NAME = f"""
SELECT d.name, d.owner, CASE WHEN l.state IN ('{ABSENT_STATE}', 'ended') THEN l.at_us END
FROM resource AS r
LEFT JOIN observation AS d ON d.id = {_LAST_LISTED}
LEFT JOIN observation AS l ON l.id = (SELECT max(x.id) FROM observation AS x WHERE x.resource_id = r.id)
WHERE r.provider = ? AND r.account = ? AND r.region = ? AND r.external_id = ?
"""  # noqa: S608 - our own column names
