"""Read the ledger: sums of a period, existing resources, coverage of each scope, and charge items.

Open spans reach as far as their scope's coverage says. All amounts are integers, so the parts of a period add up to it to the
nano-unit. Charge items are read a few hundred resources at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from functools import cache
from operator import attrgetter
from types import TracebackType
from typing import Any, Self

from sqlalchemy import CompoundSelect, ScalarSelect, Text, bindparam, func, union_all
from sqlalchemy import select as select_columns
from sqlmodel import col, select
from sqlmodel.sql.expression import SelectOfScalar

from costguard.bills.drift import ReconciliationRecord
from costguard.budgets.spend_forecast import Part, PastHours
from costguard.ledger.cost_entries import load_entries
from costguard.ledger.db.codecs import NanoAmounts, Query, decode_optional_instant
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.db.rows import IDS, read_batches
from costguard.ledger.spans import sums as paid
from costguard.ledger.spans.correction_parts import (
    END,
    RESOURCE,
    START,
    Rows,
    join_parts,
    select_corrected,
)
from costguard.ledger.spans.hourly import load_past_hours
from costguard.ledger.spans.scope_state import (
    ScopeRecord,
    is_resource,
    load_alike,
    load_attributions,
    load_books,
    load_living,
    load_poll_stretches,
    name_resource,
)
from costguard.ledger.spans.sums import PeriodSums, build_money_interval, compute_open_amounts
from costguard.ledger.tables.samples import SampleHourRow, SampleRow
from costguard.ledger.tables.spans import CoverageRow, ResourceRow, SpanRow
from costguard.metering.accrual import (
    ABSENCE_SETTLES_AFTER,
    POLL_GAP,
    find_dearest_meters,
    find_last_seen,
    find_unobserved_usage,
    needs_price_ceilings,
)
from costguard.metering.billing import BillingRule, get_billing_rule, list_unpriced_parts
from costguard.metering.charge_item import ChargeItem
from costguard.metering.inventory import COMPLETE
from costguard.metering.meter import Line, Meter
from costguard.metering.observation import Observation
from costguard.metering.scope_state import KnownResource
from costguard.metering.span import KnownUntil, Span, compute_amounts, compute_known_until
from costguard.metering.spending import LifetimeCost, LiveResource, PollStretch, ScopeCoverage, Spending, UnobservedUsage
from costguard.system.process import pause_gc
from costguard.values.calendar import Period
from costguard.values.instant import HOUR_US, MICROSECOND, from_micros, to_micros
from costguard.values.money import Money
from costguard.values.resource import ResourceKey, make_storable
from costguard.values.sample import Sample, SampleHour

PriceCeilings = Callable[[], Mapping[str, int]]
"""Asked for the highest nano-units an hour that each GPU is known to cost, where something must be bounded by them."""

DEFAULT_CURRENCY = "USD"
"""The currency of what a resource spent that never billed anything."""
RISE_DOUBTED = 3
"""A price that rises by more than this factor in one listing is doubted until the next one: an assumption, 2026-11."""


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
        self._unobserved: dict[datetime, Sequence[UnobservedUsage]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def load_spending(self, period: Period, as_of: datetime) -> list[Spending]:
        """Return the sums of `period`; open spans count up to `as_of`, as far as they are known to go."""
        with self._reader.snapshot() as ask:
            sums, books = PeriodSums(ask, load_attributions(ask)), load_books(ask)
            sums.add_closed(period)
            sums.add_open(period, lambda scope_id, *times: self._compute_reach(books[scope_id], *times, as_of=as_of))
            sums.add_unobserved(period, self._load_unobserved(ask, books, as_of))
            return [*sums.build_spending(), *(one.to_spending() for one in load_entries(ask, period))]

    def load_past_hours(self, at: datetime, parts: Collection[Part]) -> dict[Part, PastHours]:
        """Return what closed spans cost in the whole hours before `at`, for each filter and currency of `parts`."""
        with self._reader.snapshot() as ask:
            return load_past_hours(ask, to_micros(at) // HOUR_US, parts)

    def items(self, period: Period, as_of: datetime) -> Iterator[ChargeItem]:
        """Yield the charge items that `load_spending` sums, resource by resource.

        Run no other query meanwhile.
        """
        from costguard.ledger.spans.charge_items import iterate_charge_items  # only exports have them

        with self._reader.snapshot() as ask:
            books = load_books(ask)

            def reach(scope_id: int, *times: *tuple[datetime, datetime, datetime | None, datetime | None]) -> KnownUntil:
                return self._compute_reach(books[scope_id], *times, as_of=as_of)

            unheard = _index_spans(self._load_unobserved(ask, books, as_of))
            yield from iterate_charge_items(ask, period, load_attributions(ask), reach, unheard)
            yield from (one.to_item() for one in load_entries(ask, period))

    def load_live(self, as_of: datetime) -> list[LiveResource]:
        """Return every resource that is not known to have ended, in the order in which they were first seen.

        `spent` is in the currency that bills now, or billed last; amounts in an earlier currency are not included.
        """
        with self._reader.snapshot() as ask:
            books, living = load_books(ask), load_living(ask)
            spent = _sum_closed_spans(ask, [record.id for record in living])
            unheard = _index_spans(self._load_unobserved(ask, books, as_of))
            return [
                self._make_live(books[record.scope_id], record.known, spent[record.id], unheard.get(record.id, ()), as_of)
                for record in living
            ]

    def load_keys(self, resource_id: str) -> list[ResourceKey]:
        """Return the key of every resource, ended ones too, that ever had this id."""
        with self._reader.snapshot() as ask:
            return [
                ResourceKey(*key)
                for key in ask(select(*RESOURCE).where(col(ResourceRow.external_id) == make_storable(resource_id)))
            ]

    def spent(self, as_of: datetime) -> list[LifetimeCost]:
        """Return the lifetime cost of each resource, ended or not, in the order in which they were first seen."""
        with self._reader.snapshot() as ask:
            resources = select_columns(col(ResourceRow.id), *RESOURCE).order_by(col(ResourceRow.id))
            books, keys = load_books(ask), {number: ResourceKey(*key) for number, *key in ask(resources)}
            sums, unheard = _sum_closed_spans(ask, list(keys)), _index_spans(self._load_unobserved(ask, books, as_of))
            for record in load_living(ask):
                for currency, more in self._sum_current(
                    books[record.scope_id], record.known, unheard.get(record.id, ()), as_of
                ):
                    low, expected, high = sums[record.id].get(currency, (0, 0, 0))
                    sums[record.id][currency] = (low + more[0], expected + more[1], high + more[2])
            spans = dict(ask(select(SpanRow.resource_id, func.count()).group_by(col(SpanRow.resource_id))))
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
                ask, since, lambda scope_id, *times: self._compute_reach(books[scope_id], *times, as_of=as_of), as_of
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
                for low in ask(_select_price_before(), _name_line(span))
                if 0 < RISE_DOUBTED * low < span.meter.price.expected
            )

    def list_scopes(self) -> list[ScopeCoverage]:
        """Return the coverage of each scope, sorted."""
        with self._reader.snapshot() as ask:
            books = sorted(load_books(ask).items(), key=lambda one: one[1].state.scope)
            begun = select(CoverageRow.scope_id, func.min(CoverageRow.start_us)).where(col(CoverageRow.outcome) == COMPLETE)
            first = dict(ask(begun.group_by(col(CoverageRow.scope_id))))
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
            return load_poll_stretches(ask, period)

    def load_reconciliations(self, period: Period) -> list[ReconciliationRecord]:
        """Return the last reconciliations of `period`."""
        from costguard.ledger.bills.reader import load_reconciliations  # status needs no bill

        with self._reader.snapshot() as ask:
            return load_reconciliations(ask, period)

    def samples(self, key: ResourceKey, signal: str, period: Period) -> list[Sample]:
        """Return the samples of one signal in `period` that are still stored one by one, in order."""
        place = name_resource(key, signal=signal, start=to_micros(period.start), end=to_micros(period.end))
        with self._reader.snapshot() as ask:
            rows = ask(_select_samples(), place)
        return [Sample(key=key, signal=signal, at=from_micros(at_us), value=value) for at_us, value in rows]

    def hours(self, key: ResourceKey, signal: str, period: Period) -> list[SampleHour]:
        """Return the hours that begin in `period` and have samples of one signal, in order, rolled up or not."""
        first, last = -(-to_micros(period.start) // HOUR_US), -(-to_micros(period.end) // HOUR_US)
        with self._reader.snapshot() as ask:
            rows = ask(_select_hours(), name_resource(key, signal=signal, start=first, end=last))
        return [
            SampleHour(start=from_micros(hour * HOUR_US), count=count, sum=total, lowest=lowest, highest=highest)
            for hour, count, total, lowest, highest in sorted(rows)
        ]

    def _make_live(
        self,
        book: ScopeRecord,
        resource: KnownResource,
        closed: dict[str, NanoAmounts],
        unheard: tuple[Span, ...],
        as_of: datetime,
    ) -> LiveResource:
        spans = tuple(resource.open[line] for line in sorted(resource.open))
        billing = [span.meter.price.currency for span in (*spans, *(() if closed else unheard))]
        currency = billing[0] if billing else next(reversed(closed), DEFAULT_CURRENCY)
        low, expected, high = closed.get(currency, (0, 0, 0))
        for other, more in self._sum_current(book, resource, unheard, as_of):
            if other == currency:
                low, expected, high = low + more[0], expected + more[1], high + more[2]
        return LiveResource(
            scope=book.state.scope,
            observation=resource.observation,
            first_seen_at=resource.first_seen_at,
            seen_at=find_last_seen(resource, book.state),
            open=spans,
            spent=build_money_interval((low, expected, high), currency),
            absent_at=resource.absent_at,
            unheard=tuple(replace(span, key=resource.observation.key) for span in unheard),
            not_counted=list_unpriced_parts(resource.observation, self._find_rule(book)),
        )

    def _sum_current(
        self, book: ScopeRecord, resource: KnownResource, unheard: Iterable[Span], as_of: datetime
    ) -> Iterator[tuple[str, NanoAmounts]]:
        """Yield by currency the cost of a resource's open spans, and of usage that may have billed unobserved."""
        for span in resource.open.values():
            reach = self._compute_reach(book, span.start, resource.logged_at, resource.seen_at, resource.absent_at, as_of=as_of)
            yield span.meter.price.currency, compute_open_amounts(span, to_micros(span.start), to_micros(as_of), reach)[0]
        for span in unheard:
            yield span.meter.price.currency, compute_amounts(span, to_micros(span.start), to_micros(as_of))

    def _load_unobserved(self, ask: Query, books: Mapping[int, ScopeRecord], as_of: datetime) -> Sequence[UnobservedUsage]:
        """Return the usage that may have billed since the last look; a snapshot of several answers reads it once.

        No query if all scopes are covered.
        """
        if self._unobserved is None:
            return self._find_unobserved(ask, books, as_of)
        if as_of not in self._unobserved:
            self._unobserved[as_of] = self._find_unobserved(ask, books, as_of)
        return self._unobserved[as_of]

    def _find_unobserved(self, ask: Query, books: Mapping[int, ScopeRecord], as_of: datetime) -> list[UnobservedUsage]:
        silent = [(number, book) for number, book in books.items() if self._is_uncertain(book, as_of)]
        usages, ceilings = list[UnobservedUsage](), dict[str, int]()
        meters_by_shape = dict[tuple[object, ...], dict[Line, Meter]]()
        with pause_gc():  # 18,000 observations without cycles
            alike = list(load_alike(ask, {number: self._find_look(book) for number, book in silent})) if silent else []
        for one, numbers in alike:
            book = books[one.scope_id]
            seen_at = find_last_seen(one.known, book.state)
            if not self._is_stale(book, seen_at, as_of):
                continue
            rule, observation = self._find_rule(book), one.known.observation
            shape = (*observation.key[:3], *_get_shape(observation))
            if shape not in meters_by_shape:
                if not ceilings and needs_price_ceilings(observation, rule):
                    ceilings.update(self._ceilings())
                meters_by_shape[shape] = find_dearest_meters(observation, rule, ceilings)
            dearest = meters_by_shape[shape]
            if spans := find_unobserved_usage(one.known, seen_at, as_of, rule=rule, dearest=dearest, gap=self._gap):
                usages.append(UnobservedUsage(numbers=numbers, spans=spans))
        return usages

    def _find_look(self, book: ScopeRecord) -> int | None:
        """Return up to when the last complete listing of a scope shows what ran, in microseconds; None: there was none."""
        at = book.state.complete_at
        return None if at is None else to_micros(at - self._compute_lag(book))

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


_IDENTITY = ("key", "name", "labels", "owner", "created_at", "started_at", "stopped_at")
_get_shape = attrgetter(*(field.name for field in fields(Observation) if field.name not in _IDENTITY))
"""Return what the prices of an observation depend on beside its region: many machines of a fleet share it."""


def _index_spans(unobserved: Iterable[UnobservedUsage]) -> dict[int, tuple[Span, ...]]:
    """Return by resource what may have billed since anybody looked; a span has the key of one of the machines alike."""
    return {number: usage.spans for usage in unobserved for number in usage.numbers}


def _sum_closed_spans(ask: Query, ids: Sequence[int]) -> dict[int, dict[str, NanoAmounts]]:
    """Return the amounts of the closed spans of each resource by currency; the currency that billed last comes last."""
    sums: dict[int, dict[str, NanoAmounts]] = defaultdict(dict)
    for resource_id, currency, low, expected, high in read_batches(ask, _sum_closed(), ids):
        sums[resource_id][currency] = (int(low), int(expected), int(high))
    return sums


@cache
def _sum_closed() -> Rows:
    place = (col(SpanRow.resource_id), col(SpanRow.currency))
    sums = (func.sum(select_corrected(name)) for name in ("low", "expected", "high"))
    spans = join_parts(select_columns(*place, *sums)).where(col(SpanRow.end_us).is_not(None), place[0].in_(IDS))
    return spans.group_by(*place).order_by(place[0], func.max(SpanRow.end_us))


def _name_line(span: Span) -> dict[str, object]:
    charge, part = span.meter.line
    return name_resource(span.key, charge=charge, part=part, end=to_micros(span.start))


@cache
def _select_price_before() -> SelectOfScalar[int]:
    """Select what a line cost in the span that ended at `end`."""
    line = (col(SpanRow.charge) == bindparam("charge"), col(SpanRow.part) == bindparam("part"))
    return select(SpanRow.price_low).where(col(SpanRow.resource_id) == _find_resource(), *line, col(SpanRow.end_us) == END)


def _find_resource() -> ScalarSelect[int]:
    return select(ResourceRow.id).where(is_resource()).scalar_subquery()


@cache
def _select_samples() -> Rows:
    at_us = col(SampleRow.at_us)
    of_signal = (col(SampleRow.resource_id) == _find_resource(), col(SampleRow.signal) == bindparam("signal"))
    return select_columns(at_us, col(SampleRow.value)).where(*of_signal, at_us >= START, at_us < END).order_by(at_us)


@cache
def _select_hours() -> CompoundSelect[Any]:
    """Select the hours of a signal from `start` until before `end` (since 1970), rolled up or not."""
    number, signal, hour = _find_resource(), bindparam("signal", type_=Text()), col(SampleHourRow.hour)
    sums = select_columns(*(getattr(SampleHourRow, name) for name in ("hour", "count", "sum", "lowest", "highest"))).where(
        col(SampleHourRow.resource_id) == number, col(SampleHourRow.signal) == signal, hour >= START, hour < END
    )
    at_us, value = col(SampleRow.at_us), col(SampleRow.value)
    single_hour, within = at_us // HOUR_US, (at_us >= START * HOUR_US, at_us < END * HOUR_US)
    single = select_columns(single_hour, func.count(), func.sum(value), func.min(value), func.max(value))
    of_signal = (col(SampleRow.resource_id) == number, col(SampleRow.signal) == signal)
    return union_all(sums, single.where(*of_signal, *within).group_by(single_hour))
