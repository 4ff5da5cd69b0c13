"""Read the ledger: sums of a period, existing resources, coverage of each scope, and charge items.

Open spans reach as far as their scope's coverage says. All amounts are integers, so the parts of a period add up to it to the
nano-unit. Charge items are read a few hundred resources at a time.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from types import TracebackType
from typing import Any, Self

from costguard.bills.drift import ReconciliationRecord
from costguard.ledger.db.codecs import (
    ABSENT_STATE,
    NanoAmounts,
    Query,
    SqlRow,
    decode_optional_instant,
    decode_span,
    format_placeholders,
    split_batches,
)
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.spans import sums as paid
from costguard.ledger.spans.scope_state import ScopeRecord, load_attributions, load_books, load_living, load_living_of
from costguard.ledger.spans.sums import (
    CORRECTED_SPAN_COLUMNS,
    JOIN_CORRECTION,
    PeriodSums,
    ReachFunction,
    build_money_interval,
    compute_open_amounts,
    format_corrected_column,
)
from costguard.metering.accrual import (
    ABSENCE_SETTLES_AFTER,
    POLL_GAP,
    find_last_seen,
    find_unobserved_usage,
    needs_price_ceilings,
)
from costguard.metering.billing import BillingRule, get_billing_rule, list_unpriced_parts
from costguard.metering.charge_item import BilledSpan, ChargeItem, itemize_spans
from costguard.metering.inventory import COMPLETE
from costguard.metering.scope_state import KnownResource
from costguard.metering.span import KnownUntil, Span, compute_amounts, compute_known_until
from costguard.metering.spending import LifetimeCost, LiveResource, PollStretch, ScopeCoverage, Spending
from costguard.values.calendar import Period
from costguard.values.instant import HOUR_US, MICROSECOND, from_micros, to_micros
from costguard.values.money import Money
from costguard.values.resource import Attribution, ResourceKey, ScopeKey, make_storable
from costguard.values.sample import Sample, SampleHour

PriceCeilings = Callable[[], Mapping[str, int]]
"""Asked for the highest nano-units an hour that each GPU is known to cost, where something must be bounded by them."""

DEFAULT_CURRENCY = "USD"
"""The currency of what a resource spent that never billed anything."""


RISE_DOUBTED = 3
"""A price that rises by more than this factor in one listing is doubted until the next one: an assumption, 2026-11."""
_PRICE_BEFORE = """
SELECT s.price_low FROM span AS s JOIN resource AS r ON r.id = s.resource_id
WHERE r.provider = ? AND r.account = ? AND r.region = ? AND r.external_id = ? AND s.charge = ? AND s.part = ? AND s.end_us = ?
"""


class SpendingReader:
    """The ledger at `url`, for reading only.

    Use it in a `with` statement, or call `close`. `rules`: how each provider bills; the lag of its listings limits how far an
    open span surely goes. `ceilings`: returns the highest known nano-units an hour of each GPU; called only where a resource
    was not looked at for longer than `gap`.
    """

    def __init__(
        self,
        url: str,
        *,
        rules: Mapping[str, BillingRule],
        ceilings: PriceCeilings = dict,
        gap: timedelta = POLL_GAP,
    ) -> None:
        self._reader, self._rules, self._ceilings, self._gap = LedgerReader(url), rules, ceilings, gap
        self.close = self._reader.close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def load_spending(self, period: Period, as_of: datetime) -> list[Spending]:
        """Return the sums of `period`; open spans count up to `as_of`, as far as they are known to go."""
        with self._reader.snapshot() as ask:
            sums, books = PeriodSums(ask, load_attributions(ask)), load_books(ask)
            sums.add_closed(period)
            sums.add_open(period, lambda scope_id, *seen: self._compute_reach(books[scope_id], *seen, as_of=as_of))
            for spans in self._load_unobserved(ask, books, as_of).values():
                sums.add_unobserved(period, spans)
            return sums.build_spending()

    def items(self, period: Period, as_of: datetime) -> Iterator[ChargeItem]:
        """Yield the charge items that `load_spending` sums, resource by resource.

        Run no other query meanwhile.
        """
        with self._reader.snapshot() as ask:
            books = load_books(ask)

            def reach(scope_id: int, *seen: *tuple[datetime, datetime, datetime | None, datetime | None]) -> KnownUntil:
                return self._compute_reach(books[scope_id], *seen, as_of=as_of)

            yield from iterate_charge_items(
                ask, period, load_attributions(ask), reach, self._load_unobserved(ask, books, as_of)
            )

    def load_live(self, as_of: datetime) -> list[LiveResource]:
        """Return every resource that is not known to have ended, in the order in which they were first seen.

        `spent` is in the currency that bills now, or billed last; amounts in an earlier currency are not included.
        """
        with self._reader.snapshot() as ask:
            books, living = load_books(ask), load_living(ask)
            spent, unheard = _sum_closed_spans(ask, [found.id for found in living]), self._load_unobserved(ask, books, as_of)
            return [
                self._make_live(books[found.scope_id], found.known, spent[found.id], unheard.get(found.id, ()), as_of)
                for found in living
            ]

    def load_keys(self, resource_id: str) -> list[ResourceKey]:
        """Return the key of every resource, ended ones too, that ever had this id."""
        with self._reader.snapshot() as ask:
            return [ResourceKey(*key) for key in ask(_KEYS_OF_ID, (make_storable(resource_id),))]

    def spent(self, as_of: datetime) -> list[LifetimeCost]:
        """Return the lifetime cost of each resource, ended or not, in the order in which they were first seen."""
        with self._reader.snapshot() as ask:
            books, keys = load_books(ask), {number: ResourceKey(*key) for number, *key in ask(_RESOURCE_KEYS, ())}
            sums, unheard = _sum_closed_spans(ask, list(keys)), self._load_unobserved(ask, books, as_of)
            for found in load_living(ask):
                for currency, more in self._sum_current(books[found.scope_id], found.known, unheard.get(found.id, ()), as_of):
                    low, expected, high = sums[found.id].get(currency, (0, 0, 0))
                    sums[found.id][currency] = (low + more[0], expected + more[1], high + more[2])
            spans = dict(ask(_SPAN_COUNTS, ()))
        return [
            LifetimeCost(key=key, money=build_money_interval(money, currency), spans=spans.get(number, 0))
            for number, key in keys.items()
            for currency, money in sums[number].items()
        ]

    def load_paid_since(self, since: Mapping[str, datetime | None], as_of: datetime) -> dict[ResourceKey, dict[str, Money]]:
        """Return what each living resource surely cost from each instant of `since` on (None: from its run's start on).

        See `sums.compute_spend_to_date`.
        """
        with self._reader.snapshot() as ask:
            books = load_books(ask)
            return paid.compute_spend_to_date(
                ask, since, lambda scope_id, *seen: self._compute_reach(books[scope_id], *seen, as_of=as_of), as_of
            )

    def load_stopped_since(self) -> dict[ResourceKey, datetime]:
        """Return since when each stopped resource has been seen stopped."""
        with self._reader.snapshot() as ask:
            return paid.load_stopped_since(ask)

    def list_raised_prices(self, live: Iterable[LiveResource]) -> frozenset[ResourceKey]:
        """Return those of `live` with a line whose price rose by more than RISE_DOUBTED when they were listed last."""
        changed = ((one, span) for one in live for span in one.open if span.start >= one.seen_at)
        fresh = [(one, span) for one, span in changed if span.start > one.first_seen_at]
        if not fresh:
            return frozenset()
        with self._reader.snapshot() as ask:
            return frozenset(
                one.observation.key
                for one, span in fresh
                for (low,) in ask(_PRICE_BEFORE, (*span.key, *span.meter.line, to_micros(span.start)))
                if 0 < RISE_DOUBTED * low < span.meter.price.expected
            )

    def list_scopes(self) -> list[ScopeCoverage]:
        """Return the coverage of each scope, sorted."""
        with self._reader.snapshot() as ask:
            books = sorted(load_books(ask).items(), key=lambda one: one[1].state.scope)
            first = dict(ask("SELECT scope_id, min(start_us) FROM coverage WHERE outcome = ? GROUP BY scope_id", (COMPLETE,)))
        return [
            ScopeCoverage(
                scope=book.state.scope,
                outcome=last.outcome,
                at=from_micros(last.end_us),
                since=from_micros(last.start_us),
                last_complete_at=book.state.complete_at,
                why=last.why,
                first_at=decode_optional_instant(first.get(scope_id)),
            )
            for scope_id, book in books
            if (last := book.coverage)
        ]

    def load_stretches(self, period: Period) -> list[PollStretch]:
        """Return consecutive polls with one outcome that touch `period`, uncut, by scope and in order of time."""
        with self._reader.snapshot() as ask:
            rows = ask(_COVERAGE_RUNS, (to_micros(period.start), to_micros(period.end)))
        return [
            PollStretch(
                scope=ScopeKey(*names),
                outcome=outcome,
                start=from_micros(start_us),
                end=from_micros(end_us),
                polls=polls,
                why=why,
            )
            for *names, outcome, start_us, end_us, polls, why in rows
        ]

    def load_reconciliations(self, period: Period) -> list[ReconciliationRecord]:
        """Return the last reconciliations of `period`."""
        from costguard.ledger.bills.reader import (
            load_reconciliations,
        )  # status needs no bill

        with self._reader.snapshot() as ask:
            return load_reconciliations(ask, period)

    def samples(self, key: ResourceKey, signal: str, period: Period) -> list[Sample]:
        """Return the samples of one signal in `period` that are still stored one by one, in order."""
        with self._reader.snapshot() as ask:
            rows = ask(_SAMPLES, (*key, signal, to_micros(period.start), to_micros(period.end)))
        return [Sample(key=key, signal=signal, at=from_micros(at_us), value=value) for at_us, value in rows]

    def hours(self, key: ResourceKey, signal: str, period: Period) -> list[SampleHour]:
        """Return the hours that begin in `period` and have samples of one signal, in order, rolled up or not."""
        first, last = -(-to_micros(period.start) // HOUR_US), -(-to_micros(period.end) // HOUR_US)
        with self._reader.snapshot() as ask:
            rows = ask(_HOURS, (*key, signal, first, last, *key, signal, first * HOUR_US, last * HOUR_US))
        return [
            SampleHour(start=from_micros(hour * HOUR_US), count=count, sum=total, lowest=lowest, highest=highest)
            for hour, count, total, lowest, highest in rows
        ]

    def _make_live(
        self,
        book: ScopeRecord,
        known: KnownResource,
        closed: dict[str, NanoAmounts],
        unheard: tuple[Span, ...],
        as_of: datetime,
    ) -> LiveResource:
        spans = tuple(known.open[line] for line in sorted(known.open))
        billing = [span.meter.price.currency for span in (*spans, *(() if closed else unheard))]
        currency = billing[0] if billing else next(reversed(closed), DEFAULT_CURRENCY)
        low, expected, high = closed.get(currency, (0, 0, 0))
        for other, more in self._sum_current(book, known, unheard, as_of):
            if other == currency:
                low, expected, high = low + more[0], expected + more[1], high + more[2]
        return LiveResource(
            scope=book.state.scope,
            observation=known.observation,
            first_seen_at=known.first_seen_at,
            seen_at=find_last_seen(known, book.state),
            open=spans,
            spent=build_money_interval((low, expected, high), currency),
            absent_at=known.absent_at,
            unheard=unheard,
            not_counted=list_unpriced_parts(known.observation, self._find_rule(book)),
        )

    def _sum_current(
        self, book: ScopeRecord, known: KnownResource, unheard: Iterable[Span], as_of: datetime
    ) -> Iterator[tuple[str, NanoAmounts]]:
        """Yield by currency the cost of a resource's open spans, and of usage that may have billed unobserved."""
        for span in known.open.values():
            reach = self._compute_reach(book, span.start, known.logged_at, known.seen_at, known.absent_at, as_of=as_of)
            yield span.meter.price.currency, compute_open_amounts(span, to_micros(span.start), to_micros(as_of), reach)[0]
        for span in unheard:
            yield span.meter.price.currency, compute_amounts(span, to_micros(span.start), to_micros(as_of))

    def _load_unobserved(self, ask: Query, books: Mapping[int, ScopeRecord], as_of: datetime) -> dict[int, tuple[Span, ...]]:
        """Return by resource the usage that may have billed since the last look.

        No query if all scopes are covered.
        """
        silent = [number for number, book in books.items() if self._is_uncertain(book, as_of)]
        found, ceilings = dict[int, tuple[Span, ...]](), dict[str, int]()
        for one in load_living_of(ask, silent) if silent else ():
            book = books[one.scope_id]
            seen_at = find_last_seen(one.known, book.state)
            if not self._is_stale(book, seen_at, as_of):
                continue
            rule = self._find_rule(book)
            if not ceilings and needs_price_ceilings(one.known.observation, rule):
                ceilings.update(self._ceilings())
            if spans := find_unobserved_usage(one.known, seen_at, as_of, rule=rule, ceilings=ceilings, gap=self._gap):
                found[one.id] = spans
        return found

    def _is_uncertain(self, book: ScopeRecord, as_of: datetime) -> bool:
        """Return whether the scope may hold resources that were not looked at for too long.

        True if the scope is not covered completely, or only for less than `ABSENCE_SETTLES_AFTER`.
        """
        last, seen_at = book.coverage, book.state.complete_at
        if last is None or seen_at is None or last.outcome != COMPLETE:
            return True
        return last.end_us - last.start_us < ABSENCE_SETTLES_AFTER // MICROSECOND or self._is_stale(book, seen_at, as_of)

    def _is_stale(self, book: ScopeRecord, seen_at: datetime, as_of: datetime) -> bool:
        """Return whether a look at `seen_at` is too old at `as_of`: older than `gap`, including the lag."""
        return as_of - seen_at + self._compute_lag(book) > self._gap

    def _find_rule(self, book: ScopeRecord) -> BillingRule:
        return get_billing_rule(self._rules, book.state.scope.provider)

    def _compute_lag(self, book: ScopeRecord) -> timedelta:
        return timedelta(seconds=self._find_rule(book).lag_s)

    def _compute_reach(
        self,
        book: ScopeRecord,
        start: datetime,
        logged_at: datetime,
        seen_at: datetime | None,
        absent_at: datetime | None,
        *,
        as_of: datetime,
    ) -> KnownUntil:
        """Return how far an open span of the scope `book` is known to go."""
        return compute_known_until(
            start=start,
            complete_at=book.state.complete_at,
            logged_at=logged_at,
            seen_at=seen_at,
            absent_at=absent_at,
            lag=self._compute_lag(book),
            as_of=as_of,
        )


def _sum_closed_spans(ask: Query, ids: Sequence[int]) -> dict[int, dict[str, NanoAmounts]]:
    """Return the amounts of the closed spans of each resource by currency; the currency that billed last comes last."""
    found: dict[int, dict[str, NanoAmounts]] = defaultdict(dict)
    for lot in split_batches(ids):
        for resource_id, currency, low, expected, high in ask(_CLOSED.format(ids=format_placeholders(lot)), lot):
            found[resource_id][currency] = (int(low), int(expected), int(high))
    return found


_CLOSED = f"""
SELECT s.resource_id, s.currency, sum({format_corrected_column("low")}), sum({format_corrected_column("expected")}),
sum({format_corrected_column("high")})
FROM span AS s {JOIN_CORRECTION}
WHERE s.end_us IS NOT NULL AND s.resource_id IN ({{ids}})
GROUP BY s.resource_id, s.currency ORDER BY s.resource_id, max(s.end_us)
"""  # noqa: S608 - our own column names

_RESOURCE_KEYS = "SELECT id, provider, account, region, external_id FROM resource ORDER BY id"

_KEYS_OF_ID = "SELECT provider, account, region, external_id FROM resource WHERE external_id = ?"

_SPAN_COUNTS = "SELECT resource_id, count(*) FROM span GROUP BY resource_id"

_COVERAGE_RUNS = """
SELECT s.provider, s.account, s.name, c.outcome, c.start_us, c.end_us, c.polls, c.why
FROM coverage AS c JOIN scope AS s ON s.id = c.scope_id
WHERE c.end_us >= ? AND c.start_us < ?
ORDER BY s.provider, s.account, s.name, c.start_us
"""

_RESOURCE_ID = "(SELECT id FROM resource WHERE provider = ? AND account = ? AND region = ? AND external_id = ?)"

_SAMPLES = f"""
SELECT at_us, value FROM sample WHERE resource_id = {_RESOURCE_ID} AND signal = ? AND at_us >= ? AND at_us < ? ORDER BY at_us
"""  # noqa: S608 - our own column names

_HOURS = f"""
SELECT hour, count, sum, lowest, highest FROM sample_hour
WHERE resource_id = {_RESOURCE_ID} AND signal = ? AND hour >= ? AND hour < ?
UNION ALL
SELECT at_us / {HOUR_US}, count(*), sum(value), min(value), max(value) FROM sample
WHERE resource_id = {_RESOURCE_ID} AND signal = ? AND at_us >= ? AND at_us < ?
GROUP BY at_us / {HOUR_US}
ORDER BY 1
"""  # noqa: S608 - our own column names


UnobservedSpans = Mapping[int, Sequence[Span]]
"""By resource, what may have billed since anybody looked."""

_LastSeen = tuple[int, int, int | None, int | None]
"""A resource's scope, and when it was last told of, seen, and found absent."""


def iterate_charge_items(
    ask: Query, period: Period, attributions: Mapping[int, Attribution], reach: ReachFunction, unheard: UnobservedSpans
) -> Iterator[ChargeItem]:
    """Yield every charge item of `period`; open spans count as far as they are known to go."""
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
    """Return the labels in a text written by `codecs.encode_observation`."""
    said: dict[str, Any] = json.loads(detail) if detail else {}
    return tuple((name, value) for name, value in said.get("labels", ()))


_BILLED_RESOURCES = """
SELECT DISTINCT resource_id FROM span WHERE end_us > ? AND start_us < ?
UNION
SELECT resource_id FROM span WHERE end_us IS NULL AND start_us < ?
"""

_ITEM_SPANS = f"""
SELECT s.resource_id, s.attribution_id, CASE WHEN c.id IS NULL THEN 0 ELSE 1 END, {CORRECTED_SPAN_COLUMNS} FROM span AS s
{JOIN_CORRECTION}
WHERE s.resource_id IN ({{ids}}) AND (s.end_us IS NULL OR s.end_us > ?) AND s.start_us < ?
ORDER BY s.resource_id, s.start_us, s.id, p.start_us
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
