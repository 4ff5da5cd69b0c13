"""Read for a report: cost of each resource, daily costs, hourly burn, actions and samples, all as of one instant.

Resources are identified by row number, so a report of 100,000 resources loads the names of a few. Hourly burn example: a span
of $2 from 23:30 to 00:30 burns $2 an hour: it begins in hour 23, half an hour in, and ends in hour 0.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any, Self, cast

from sqlalchemy import ColumnElement, Double, bindparam, case, func, literal_column, or_, union_all
from sqlalchemy import cast as cast_column
from sqlalchemy import select as select_columns
from sqlmodel import col, select

from costguard.budgets.budget import MATCH_ALL, ResourceFilter, matches_filter
from costguard.budgets.hold import Hold
from costguard.guard.alerts.alert import Alert
from costguard.ledger.cost_entries import load_entries, load_entries_by_number
from costguard.ledger.db.codecs import (
    Query,
    SqlRow,
    decode_labels,
    decode_optional_instant,
    decode_span,
    split_batches,
)
from costguard.ledger.db.reader import OpenSnapshot
from costguard.ledger.db.rows import IDS, read_batches
from costguard.ledger.holds import load_committed_holds
from costguard.ledger.reports.acts import load_confirmed_acts
from costguard.ledger.spans.books import DEFAULT_CURRENCY, SpendingReader
from costguard.ledger.spans.correction_parts import (
    END,
    RESOURCE,
    SPAN,
    START,
    Rows,
    join_parts,
    select_corrected,
    select_corrected_span,
)
from costguard.ledger.spans.hourly import load_hours
from costguard.ledger.spans.scope_state import find_last_observation, load_attributions, load_books
from costguard.ledger.spans.sums import (
    LONG_US,
    NO_RESOURCE,
    PeriodSums,
    ReachFunction,
    compute_open_amounts,
    is_long,
    iterate_open_spans,
    select_seen,
    sum_split,
)
from costguard.ledger.tables.rollups import DailyRow
from costguard.ledger.tables.samples import SampleHourRow, SampleRow
from costguard.ledger.tables.spans import AttributionRow, ObservationRow, ResourceRow, SpanRow
from costguard.ledger.types import BIG_INTEGER
from costguard.metering.span import KnownUntil, Span
from costguard.metering.spending import BilledResource, UnobservedUsage
from costguard.reporting.statement.groups import LEDGER_KEYS
from costguard.reporting.statement.history import DailyCost, HourlyRateChanges
from costguard.reporting.statement.idle_stretches import SamplePair, TimeRange
from costguard.reporting.statement.savings import ConfirmedAction
from costguard.reporting.statement.sections import ResourceCost
from costguard.reporting.statement.waste import SampledHour
from costguard.system.process import pause_gc
from costguard.values.calendar import Period
from costguard.values.instant import DAY_US, HOUR_US, from_micros, to_micros
from costguard.values.money import NANO
from costguard.values.resource import ENTERED, ResourceKey

HOUR: ColumnElement[int] = literal_column(str(HOUR_US), BIG_INTEGER)
"""A part of the statement: PostgreSQL takes parameters of two places for two values, and would group by neither."""


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
            self._unobserved = {}
            try:
                yield self
            finally:
                self._reader, self._unobserved = reader, None

    def load_costs(self, period: Period, as_of: datetime) -> list[ResourceCost]:
        """Return the cost of each line of each resource in `period`."""
        with self._reader.snapshot() as ask:
            books = load_books(ask)
            sums = PeriodSums(ask, load_attributions(ask), each=True)
            sums.add_closed(period)
            sums.add_open(period, self._make_reach(ask, as_of))
            sums.add_unobserved(period, self._load_unobserved(ask, books, as_of))
            attributions = sums.attributions
            entered = []
            for one in load_entries(ask, period):
                number, nano = one.corrects or one.number, one.money.nano
                source, currency = f"entered by {one.who}", one.money.currency
                cost = ResourceCost(-number, one.attribution, ENTERED, currency, True, source, nano, nano, nano, 0)  # noqa: FBT003 - a named tuple
                entered.append(cost)
            with pause_gc():
                return entered + [
                    ResourceCost(
                        place.resource,
                        attributions[place.attribution],
                        place.charge,
                        place.currency,
                        bool(place.known),
                        place.source,
                        *nanos,
                    )
                    for place, nanos in sums.raw.items()
                    if nanos[2] or nanos[3]
                ]

    def load_burning(self, as_of: datetime) -> tuple[list[tuple[Span, bool]], Sequence[UnobservedUsage]]:
        """Return each open span, with whether listings lack its resource, and the usage that may bill unobserved."""
        with self._reader.snapshot() as ask:
            unobserved, attributions = self._load_unobserved(ask, load_books(ask), as_of), load_attributions(ask)
            lines = [
                (decode_span(NO_RESOURCE, attributions[attribution], columns), absent_us is not None)
                for absent_us, attribution, *columns in ask(_select_burning())
            ]
        return lines, unobserved

    def load_billed_resources(self, numbers: Collection[int], *, labels: Collection[str] = ()) -> dict[int, BilledResource]:
        """Return the resources of these row numbers, as last seen.

        `labels`: resources that carry any of these labels are returned with all of theirs; the others without labels.
        """
        resources = dict[int, BilledResource]()
        matches = _make_label_filter(labels) if labels else None
        with self._reader.snapshot() as ask:
            for number, *key, name, detail in read_batches(ask, _select_resources(details=bool(labels)), sorted(numbers)):
                carried = decode_labels(detail) if matches and detail and matches(detail) else ()
                resources[number] = BilledResource(key=ResourceKey(*key), name=name or "", labels=carried)
            entered = load_entries_by_number(ask, [-number for number in numbers if number < 0])
        return resources | {-one.number: one.bearer for one in entered}

    def load_lines(
        self, numbers: Collection[int], period: Period, as_of: datetime
    ) -> Iterator[tuple[int, list[tuple[Span, KnownUntil | None]]]]:
        """Yield the spans of each of those resources in `period`.

        An open span comes with how far it is known to go, a closed one with None.
        """
        with self._reader.snapshot() as ask:
            attributions, reach = load_attributions(ask), self._make_reach(ask, as_of)
            within = {"start": to_micros(period.start), "end": to_micros(period.end)}
            for batch in split_batches(sorted(numbers)):
                lines: dict[int, list[tuple[Span, KnownUntil | None]]] = defaultdict(list)
                for number, *row in ask(_select_lines(), {"ids": batch, **within}):
                    key, (scope_id, attribution, at_us, seen_us, absent_us), columns = row[:4], row[4:9], row[9:]
                    span = decode_span(ResourceKey(*key), attributions[attribution], columns)
                    if span.end is not None:
                        lines[number].append((span, None))
                        continue
                    times = from_micros(at_us), decode_optional_instant(seen_us), decode_optional_instant(absent_us)
                    lines[number].append((span, reach(scope_id, span.start, *times)))
                yield from lines.items()

    def load_sampled_hours(self, numbers: Collection[int], period: Period) -> dict[int, dict[str, list[SampledHour]]]:
        """Return for each of those resources, by signal, the hours that begin in `period` and have samples.

        Resources without samples are left out.
        """
        first, last = -(-to_micros(period.start) // HOUR_US), -(-to_micros(period.end) // HOUR_US)
        sampled: dict[int, dict[str, list[SampledHour]]] = {}
        with self._reader.snapshot() as ask:
            for row, unit, select_sampled in ((SampleHourRow, 1, _select_hours), (SampleRow, HOUR_US, _sum_samples)):
                if not ask(select(row.resource_id).limit(1)):
                    continue
                hours = read_batches(ask, select_sampled(), sorted(numbers), start=first * unit, end=last * unit)
                for (number, signal), own in groupby(hours, itemgetter(0, 1)):
                    sampled.setdefault(number, {}).setdefault(signal, []).extend(map(_take_hour, own))
        return sampled

    def has_single_samples(self, period: Period) -> bool:
        """Return whether any sample of `period` is stored one by one."""
        with self._reader.snapshot() as ask:
            one = select(SampleRow.resource_id).limit(1)
            at_us, start_us, end_us = col(SampleRow.at_us), to_micros(period.start), to_micros(period.end)
            return bool(ask(one)) and bool(ask(one.where(at_us >= start_us, at_us < end_us)))

    def load_samples_within(self, ranges: Mapping[int, Sequence[TimeRange]]) -> dict[int, dict[str, list[SamplePair]]]:
        """Return for each of those resources, by signal, the samples within its ranges that are stored one by one."""
        samples: dict[int, dict[str, list[SamplePair]]] = {}
        with self._reader.snapshot() as ask:
            for number, parts in sorted(ranges.items()):
                for start, end in parts:
                    for signal, at_us, value in ask(_select_samples(), {"number": number, "start": start, "end": end}):
                        samples.setdefault(number, {}).setdefault(signal, []).append((at_us, value))
        return samples

    def load_daily_costs(self, period: Period, as_of: datetime, by: str, match: ResourceFilter = MATCH_ALL) -> list[DailyCost]:
        """Return the expected cost of `period` that `match` selects, in dollars, by day (UTC) and the key `by`.

        The days add up to it. Each sum carries one of the attributions that share its value of the key.
        """
        start, end = to_micros(period.start), to_micros(period.end)
        first, last = -(-start // DAY_US), end // DAY_US
        with self._reader.snapshot() as ask:
            key = "id" if match != MATCH_ALL else by if by in LEDGER_KEYS else "labels"
            attributions, days = load_attributions(ask), _sum_days(key)
            entered = [one for one in load_entries(ask, period) if one.money.currency == DEFAULT_CURRENCY]
            if first > last:
                edges, first, last = [(start, end)], 0, 0
            else:
                edges = [(start, first * DAY_US), (last * DAY_US, end)]
            costs = [
                DailyCost(day, attributions[number], charge, int(whole_part) * NANO + int(rest))
                for day, number, charge, whole_part, rest in ask(days, {"first": first, "last": last})
            ]
            for begin, finish in edges:
                sums = PeriodSums(ask, attributions)
                sums.add_edge(begin, finish)
                costs += [
                    DailyCost(begin // DAY_US, attributions[place.attribution], place.charge, nanos[1])
                    for place, nanos in sums.raw.items()
                    if place.currency == DEFAULT_CURRENCY
                ]
            for _, _, span, far in iterate_open_spans(ask, attributions, end, self._make_reach(ask, as_of)):
                if span.meter.price.currency == DEFAULT_CURRENCY:
                    costs += _split_days(span, far, max(start, to_micros(span.start)), min(end, to_micros(far.expected)))
        costs += [DailyCost(to_micros(one.start) // DAY_US, one.attribution, ENTERED, one.money.nano) for one in entered]
        return [one for one in costs if matches_filter(match, one.attribution)]

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

    def load_unusual_alerts(self, period: Period) -> list[Alert]:
        """Return what was told as unusual in `period`."""
        from costguard.ledger.guard.outbox import load_unusual_alerts  # only a full report has them

        with self._reader.snapshot() as ask:
            return load_unusual_alerts(ask, period.start, period.end)

    def _make_reach(self, ask: Query, as_of: datetime) -> ReachFunction:
        books = load_books(ask)
        return lambda scope_id, *times: self._compute_reach(books[scope_id], *times, as_of=as_of)


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

    def may_contain(detail: str) -> bool:
        text = detail.lower()
        return any(name in text for name in names)

    return may_contain


@cache
def _select_resources(*, details: bool) -> Rows:
    detail = col(ObservationRow.detail) if details else literal_column("''")
    resources = select_columns(col(ResourceRow.id), *RESOURCE, col(ObservationRow.name), detail)
    last = col(ObservationRow.id) == find_last_observation(listed=True)
    return resources.join_from(ResourceRow, ObservationRow, last, isouter=True).where(col(ResourceRow.id).in_(IDS))


@cache
def _select_lines() -> Rows:
    columns = (col(ResourceRow.id), *RESOURCE, col(ResourceRow.scope_id), col(SpanRow.attribution_id), *select_seen())
    end_us, start_us = col(SpanRow.end_us), col(SpanRow.start_us)
    spans = _join_last_observation(join_parts(select_columns(*columns, *select_corrected_span())))
    within = spans.where(col(SpanRow.resource_id).in_(IDS), or_(end_us.is_(None), end_us > START), start_us < END)
    return within.order_by(col(ResourceRow.id), start_us, col(SpanRow.id))


@cache
def _select_burning() -> Rows:
    _, _, absent_us = select_seen()
    spans = select_columns(absent_us, col(SpanRow.attribution_id), *SPAN).select_from(SpanRow)
    return _join_last_observation(spans).where(col(SpanRow.end_us).is_(None)).order_by(col(SpanRow.resource_id))


def _join_last_observation(spans: Rows) -> Rows:
    with_resource = spans.join(ResourceRow, col(ResourceRow.id) == SpanRow.resource_id)
    return with_resource.join(ObservationRow, col(ObservationRow.id) == find_last_observation())


@cache
def _select_hours() -> Rows:
    place = (col(SampleHourRow.resource_id), col(SampleHourRow.signal), col(SampleHourRow.hour))
    hours = select_columns(*place, *(getattr(SampleHourRow, name) for name in ("count", "sum", "lowest", "highest")))
    return hours.where(place[0].in_(IDS), place[2] >= START, place[2] < END).order_by(*place)


@cache
def _sum_samples() -> Rows:
    """Select of the samples that are stored one by one what `_select_hours` selects of the others."""
    at_us, value = col(SampleRow.at_us), col(SampleRow.value)
    place = (col(SampleRow.resource_id), col(SampleRow.signal), at_us // HOUR)
    hours = select_columns(*place, func.count(), func.sum(value), func.min(value), func.max(value))
    return hours.where(place[0].in_(IDS), at_us >= START, at_us < END).group_by(*place).order_by(*place)


_take_hour = cast("Callable[[SqlRow], SampledHour]", itemgetter(2, 3, 4, 5, 6))
"""Return the `SampledHour` in a row of these queries; a large fleet has many, so that they stay plain tuples."""


@cache
def _select_samples() -> Rows:
    signal, at_us = col(SampleRow.signal), col(SampleRow.at_us)
    samples = select_columns(signal, at_us, col(SampleRow.value)).where(col(SampleRow.resource_id) == bindparam("number"))
    return samples.where(at_us >= START, at_us < END).order_by(signal, at_us)


@cache
def _sum_days(by: str) -> Rows:
    """Select the expected cost by day and the attribution's column `by`, or the charge."""
    day, expected = col(DailyRow.day), sum_split(col(DailyRow.expected))
    names: list[ColumnElement[Any]] = [] if by == "charge" else [getattr(AttributionRow, by)]
    groups = [*names, *([col(DailyRow.charge)] if by in ("charge", "id") else [])]
    sums = select_columns(day, func.min(DailyRow.attribution_id), func.min(DailyRow.charge), *expected)
    days = sums.join_from(DailyRow, AttributionRow, col(AttributionRow.id) == DailyRow.attribution_id)
    within = days.where(day >= bindparam("first"), day < bindparam("last"), col(DailyRow.currency) == DEFAULT_CURRENCY)
    return within.group_by(day, *groups)


def load_hourly_rates(ask: Query, period: Period, reach: ReachFunction) -> dict[int, HourlyRateChanges]:
    """Return the rates that began and ended in each hour of `period` (hours since 1970), and costs of closed spans by hour.

    Each span's dollars are spread evenly over it. Whole hours (UTC) come from the roll-up; of a part of an hour the database
    adds up the rates of closed spans.
    """
    start, end = to_micros(period.start), to_micros(period.end)
    rates = defaultdict[int, list[float]](lambda: [0.0] * 5)
    first, last = -(-start // HOUR_US), end // HOUR_US
    if first < last:
        _add_closed_hours(ask, first, last, rates)
        edges = [(start, first * HOUR_US), (last * HOUR_US, end)]
    else:
        edges = [(start, end)]
    for begin, finish in edges:
        _add_closed_rates(ask, begin, finish, rates)
    for _, _, span, far in iterate_open_spans(ask, load_attributions(ask), end, reach):
        begun, until = to_micros(span.start), to_micros(far.expected)
        begin, finish = max(begun, start), min(until, end)
        if finish > begin and span.meter.price.currency == DEFAULT_CURRENCY:
            rate = compute_open_amounts(span, begun, until, far)[0][1] / (until - begun)
            for place, at_us in ((0, begin), (2, finish)):
                sums = rates[at_us // HOUR_US]
                sums[place] += rate
                sums[place + 1] += rate * (at_us % HOUR_US)
    return {hour: HourlyRateChanges(*sums) for hour, sums in sorted(rates.items()) if any(sums)}


def _add_closed_hours(ask: Query, first: int, last: int, totals: dict[int, list[float]]) -> None:
    """Add the cost of closed spans in the hours [first, last), from the roll-up."""
    whole_hours, rows = load_hours(ask, first, last, DEFAULT_CURRENCY)
    if whole_hours:
        totals[first][0] += whole_hours / HOUR_US
    for hour, cost, step in rows:
        sums = totals[hour]
        sums[0] += step / HOUR_US
        sums[4] += cost
        whole_hours += step
    if whole_hours:
        totals[last][2] += whole_hours / HOUR_US


def _add_closed_rates(ask: Query, start: int, end: int, totals: dict[int, list[float]]) -> None:
    """Add the rates of closed spans in [start, end), in microseconds, by the hour in which they begin and end in it."""
    if start >= end:
        return
    for place, begun in ((0, True), (2, False)):
        for hour, rate, at in ask(_sum_rates(begun=begun), {"start": start, "end": end}):
            sums = totals[hour]
            sums[place] += rate
            sums[place + 1] += at


@cache
def _sum_rates(*, begun: bool) -> Rows:
    """Select by hour the rates of the spans, and parts of corrected ones, in [start, end), and the rates by when in it.

    `begun`: by the hour in which they begin in it; else by that in which they end.
    """
    from_us, until_us = select_corrected("start_us"), select_corrected("end_us")
    moment = case((from_us > START, from_us), else_=START) if begun else case((until_us < END, until_us), else_=END)
    rate = cast_column(select_corrected("expected"), Double) / (until_us - from_us)
    spans = join_parts(select_columns(moment.label("at_us"), rate.label("rate")))
    within = spans.where(
        col(SpanRow.currency) == DEFAULT_CURRENCY, col(SpanRow.start_us) < END, until_us > START, from_us < END
    )
    end_us, soon_us = col(SpanRow.end_us), END + literal_column(str(LONG_US))
    soon = within.where(end_us > START, end_us <= soon_us, end_us > SpanRow.start_us)
    changes = union_all(soon, within.where(is_long(), end_us > soon_us)).subquery().c
    hour = changes.at_us // HOUR
    return select_columns(hour, func.sum(changes.rate), func.sum(changes.rate * (changes.at_us - hour * HOUR))).group_by(hour)
