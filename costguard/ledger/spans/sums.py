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
from functools import cache, cached_property
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    SQLColumnExpression,
    and_,
    bindparam,
    case,
    func,
    literal_column,
    not_,
    union_all,
)
from sqlalchemy import select as select_columns
from sqlalchemy.orm import aliased
from sqlmodel import col, select

from costguard.ledger.db.codecs import (
    ABSENT_STATE,
    NanoAmounts,
    Query,
    SqlRow,
    decode_optional_instant,
    decode_span,
)
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
from costguard.ledger.spans.scope_state import find_last_observation, load_attributions
from costguard.ledger.tables.rollups import DailyRow, MonthlyRow
from costguard.ledger.tables.spans import CorrectionPartRow, ObservationRow, ResourceRow, SpanRow
from costguard.metering.meter import COMPUTE
from costguard.metering.span import EDGE, MAYBE, KnownUntil, Span, compute_amounts, count_expected_us
from costguard.metering.spending import Spending, UnobservedUsage
from costguard.values.calendar import Period, find_month_of_day, find_month_start
from costguard.values.instant import DAY_US, from_micros, to_micros
from costguard.values.money import NANO, Money, MoneyInterval
from costguard.values.resource import ENDED, INSTANCE, STOPPED, Attribution, ResourceKey

ReachFunction = Callable[[int, datetime, datetime, datetime | None, datetime | None], KnownUntil]
"""The reach of a span: of a scope's row, from its start; when its resource was logged, last seen, and found absent."""

_NONE: ColumnElement[int] = literal_column("0")
_NO_SOURCE: ColumnElement[str] = literal_column("''")
"""In the place of a resource's number, of a rest, and of a price's source."""


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
        self._sums: dict[SumKey, list[int]] = {}

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
        self._add(self._ask(_select_days(), {"first": first, "last": last}))
        self.add_edge(last * DAY_US, end)

    def add_open(self, period: Period, reach: ReachFunction) -> None:
        """Add the cost of open spans in `period`, as far as they are known to go."""
        start, end = to_micros(period.start), to_micros(period.end)
        for resource, attribution_id, span, far in iterate_open_spans(self._ask, self._attributions, end, reach):
            self._add_span(resource, attribution_id, span, *compute_open_amounts(span, start, end, far))

    def add_unobserved(self, period: Period, unobserved: Iterable[UnobservedUsage]) -> None:
        """Add the possible cost in `period` of usage that is not in the ledger. Nobody knows that it ran, so it has no time."""
        start, end = to_micros(period.start), to_micros(period.end)
        for usage, span in ((alike, span) for alike in unobserved for span in alike.spans):
            if span.start >= period.end:  # of the month before: nearly always
                continue
            number = self._numbers.setdefault(span.attribution, -1 - len(self._numbers))  # what never billed has no row
            self._attributions.setdefault(number, span.attribution)
            price, (_, _, high) = span.meter.price, compute_amounts(span, start, end)
            place = (number, span.meter.charge, price.currency, int(price.known))
            if not self._each:
                self._add_amounts(SumKey(0, *place, ""), (0, 0, high * len(usage.numbers)), 0)
                continue
            for resource in usage.numbers:
                self._add_amounts(SumKey(resource, *place, span.meter.source), (0, 0, high), 0)

    def _add_months(self, start: int, end: int) -> None:
        """Add the cost of closed spans in [start, end): the months with the nearest edges, and the time between these.

        What lies outside is subtracted by whole days: a bill's line does not say how it is spread over its day, so that low and
        high of the day's two parts do not add up to the day's.
        """
        first, last = _find_nearest_month(start), _find_nearest_month(end)
        if first >= last:
            self.add_edge(start, end)
            return
        self._add(self._ask(_select_months(one=last == first + 1), {"first": first, "last": last}))
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
        edge = {"start": start, "end": end}
        self._add(self._ask(_select_within(each=self._each), edge), sign)
        for resource, attribution_id, *columns in self._ask(_select_across(), edge):
            span = decode_span(NO_RESOURCE, self._attributions[attribution_id], columns)
            low, expected, high = compute_amounts(span, start, end)
            us = count_expected_us(span, start, end)
            self._add_span(resource, attribution_id, span, (sign * low, sign * expected, sign * high), sign * us)

    def build_spending(self) -> list[Spending]:
        """Return the sums, except those with neither cost nor machine time."""
        spendings = []
        for place, (low, expected, high, us) in sorted(self._sums.items()):
            attribution = self._attributions[place.attribution]
            billed_us = us if place.charge == COMPUTE and attribution.kind == INSTANCE else 0
            if high or billed_us:
                money = build_money_interval((low, expected, high), place.currency)
                one = Spending(attribution=attribution, charge=place.charge, money=money, us=billed_us, known=bool(place.known))
                spendings.append(one)
        return spendings

    @cached_property
    def _numbers(self) -> dict[Attribution, int]:
        return {attribution: number for number, attribution in self._attributions.items()}

    @property
    def attributions(self) -> Mapping[int, Attribution]:
        """The attributions by row, including those of resources that never billed."""
        return self._attributions

    @property
    def raw(self) -> Mapping[SumKey, list[int]]:
        """Low, expected and high nano-units, and microseconds that the line probably billed, for each key."""
        return self._sums

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
        sums = self._sums.get(place)
        if sums is None:
            self._sums[place] = [*money, us]
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
    for resource, scope_id, attribution_id, at_us, seen_us, absent_us, *columns in ask(_select_open_spans(), {"end": end_us}):
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


def build_money_interval(money: NanoAmounts, currency: str) -> MoneyInterval:
    """Return the interval of three amounts: low, expected, high."""
    low, expected, high = (Money(nano=nano, currency=currency) for nano in money)
    return MoneyInterval(low=low, expected=expected, high=high)


def sum_split(amount: SQLColumnExpression[Any]) -> tuple[ColumnElement[int], ColumnElement[int]]:
    """Return the sum of `amount` as whole units and nano-units, because bounds of unpriced fleets exceed 64 bits."""
    return func.sum(amount // NANO), func.sum(amount - amount // NANO * NANO)


def _sum_amounts(low: SQLColumnExpression[Any], *more: SQLColumnExpression[Any]) -> list[ColumnElement[int]]:
    return [func.sum(low), *(part for amount in more for part in sum_split(amount))]


def select_expected_us() -> ColumnElement[Any]:
    """Return the microseconds that a closed span, or a part of it, probably billed, as `count_expected_us` has them."""
    presence, length = select_corrected("presence"), col(SpanRow.end_us) - col(SpanRow.start_us)
    us = length // case((presence == EDGE, 2), else_=1) * case((presence == MAYBE, 0), else_=1)
    return func.coalesce(CorrectionPartRow.us, us)


@cache
def _select_days() -> Rows:
    place = (col(DailyRow.attribution_id), col(DailyRow.charge), col(DailyRow.currency), col(DailyRow.known))
    sums = _sum_amounts(col(DailyRow.low), col(DailyRow.expected), col(DailyRow.high))
    days = select_columns(_NONE, *place, _NO_SOURCE, *sums, func.sum(DailyRow.us)).group_by(*place)
    return days.where(col(DailyRow.day) >= bindparam("first"), col(DailyRow.day) < bindparam("last"))


@cache
def _select_months(*, one: bool) -> Rows:
    """Select the sums by resource of several months, or of `one`, whose rows are the sums."""
    place = [getattr(MonthlyRow, name) for name in ("resource_id", "attribution_id", "charge", "currency", "known", "source")]
    low, expected, high, us = col(MonthlyRow.low), col(MonthlyRow.expected), col(MonthlyRow.high), col(MonthlyRow.us)
    months = select_columns(*place, low, _NONE, expected, _NONE, high, us)
    if not one:
        months = select_columns(*place, *_sum_amounts(low, expected, high), func.sum(us)).group_by(*place)
    return months.where(col(MonthlyRow.month) >= bindparam("first"), col(MonthlyRow.month) < bindparam("last"))


@cache
def _select_within(*, each: bool) -> Rows:
    """Select the sums of the closed spans that lie in [start, end)."""
    place = (col(SpanRow.attribution_id), col(SpanRow.charge), col(SpanRow.currency), select_corrected("price_known"))
    by = (col(SpanRow.resource_id), *place, col(SpanRow.price_source)) if each else place
    sums = _sum_amounts(*(select_corrected(name) for name in ("low", "expected", "high")))
    spans = join_parts(select_columns(*(by if each else (_NONE, *by, _NO_SOURCE)), *sums, func.sum(select_expected_us())))
    end_us = col(SpanRow.end_us)
    return spans.where(end_us > START, end_us <= END, col(SpanRow.start_us) >= START).group_by(*by)


LONG_US = 8 * DAY_US
"""The index `span_long` holds the spans that are longer (`tables.IS_LONG`; a test holds the two together)."""


@cache
def _select_across() -> CompoundSelect[Any]:
    """Select the spans that reach out of [start, end): those that end soon after it, and the long ones that end later."""
    start_us, end_us = col(SpanRow.start_us), col(SpanRow.end_us)
    columns = (col(SpanRow.resource_id), col(SpanRow.attribution_id), *select_corrected_span())
    spans = join_parts(select_columns(*columns)).where(start_us < END)
    inside, soon_us = and_(start_us >= START, end_us <= END), END + literal_column(str(LONG_US))
    return union_all(spans.where(end_us > START, end_us <= soon_us, not_(inside)), spans.where(is_long(), end_us > soon_us))


def is_long() -> ColumnElement[bool]:
    """Return whether a span is in the index of long ones: the number is a part of the statement, as it is of the index."""
    return col(SpanRow.end_us) - col(SpanRow.start_us) > literal_column(str(LONG_US))


def select_seen(last: type[ObservationRow] = ObservationRow) -> tuple[SQLColumnExpression[Any], ...]:
    """Return when a resource was logged, last seen, and found absent. `last`: its last observation."""
    return col(last.at_us), col(last.seen_us), case((col(last.state) == ABSENT_STATE, col(last.at_us)))


@cache
def _select_open_spans() -> Rows:
    columns = (col(SpanRow.resource_id), col(ResourceRow.scope_id), col(SpanRow.attribution_id), *select_seen(), *SPAN)
    spans = select_columns(*columns).join_from(SpanRow, ResourceRow, col(ResourceRow.id) == SpanRow.resource_id)
    last = spans.join(ObservationRow, col(ObservationRow.id) == find_last_observation())
    return last.where(col(SpanRow.end_us).is_(None), col(SpanRow.start_us) < END)


def compute_spend_to_date(
    ask: Query, since: Mapping[str, datetime | None], reach: ReachFunction, as_of: datetime
) -> dict[ResourceKey, dict[str, Money]]:
    """Return by resource and name in `since` the sure cost from that instant (None: its run's start) to `as_of`.

    A resource is missing if nothing of it billed at a stated price in that time, if it billed in several currencies, or if the
    start of its run is unknown.
    """
    keys = {number: ResourceKey(*key) for number, *key in ask(_select_living())}
    attributions = load_attributions(ask)
    still = [row for row in ask(_select_open_runs()) if row[0] in keys]
    spend: dict[ResourceKey, dict[str, Money]] = {key: {} for key in keys.values()}
    for name, start in since.items():
        sums: dict[int, dict[str, int]] = defaultdict(dict)
        for number, currency, nano in _sum_closed(ask, start, attributions):
            sums[number][currency] = sums[number].get(currency, 0) + nano
        for number, currency, nano in _sum_open(still, start, reach, attributions, as_of):
            sums[number][currency] = sums[number].get(currency, 0) + nano
        for number, of in sums.items():
            if number in keys and len(of) == 1:
                ((currency, nano),) = of.items()
                spend[keys[number]][name] = Money(nano=nano, currency=currency)
    return {key: of for key, of in spend.items() if of}


def load_stopped_since(ask: Query) -> dict[ResourceKey, datetime]:
    """Return for each stopped resource since when every listing has shown it as stopped."""
    return {ResourceKey(*key): from_micros(at_us) for at_us, *key in ask(_select_stopped())}


def _sum_closed(ask: Query, start: datetime | None, attributions: Mapping[int, Attribution]) -> Iterator[tuple[int, str, int]]:
    """Yield (resource, currency, nano-units) of closed spans."""
    values = {} if start is None else {"start": to_micros(start)}
    for number, currency, nano in ask(_sum_priced_after(run=start is None), values):
        yield number, currency, int(nano)
    for number, start_us, attribution_id, *columns in ask(_select_priced_across(run=start is None), values):
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


def _find_run_start() -> ColumnElement[Any]:
    """Return when the run of the `ResourceRow` around it began: as its provider says, else as its open computing counts."""
    one = aliased(SpanRow)
    anchor = select(func.min(one.anchor_us)).where(
        one.resource_id == ResourceRow.id, one.charge == COMPUTE, col(one.end_us).is_(None)
    )
    return func.coalesce(ObservationRow.started_us, anchor.correlate(ResourceRow).scalar_subquery())


def _join_last_listed(statement: Rows) -> Rows:
    return statement.join_from(ResourceRow, ObservationRow, col(ObservationRow.id) == find_last_observation(listed=True))


@cache
def _select_living() -> Rows:
    return _join_last_listed(select_columns(col(ResourceRow.id), *RESOURCE)).where(col(ObservationRow.state) != ENDED)


def _select_priced(*columns: SQLColumnExpression[Any]) -> Rows:
    """Select of the closed spans of living resources, and their parts, those whose price is known."""
    spans = select_columns(*columns).join(ResourceRow, col(ResourceRow.id) == SpanRow.resource_id)
    spans = spans.join(ObservationRow, col(ObservationRow.id) == find_last_observation(listed=True))
    is_priced = select_corrected("price_known") == 1
    return join_parts(spans).where(col(ObservationRow.state) != ENDED, col(SpanRow.end_us).is_not(None), is_priced)


@cache
def _sum_priced_after(*, run: bool) -> Rows:
    start = _find_run_start() if run else START
    place = (col(ResourceRow.id), col(SpanRow.currency))
    sums = _select_priced(*place, func.sum(select_corrected("low"))).group_by(*place)
    return sums.where(col(SpanRow.end_us) > start, col(SpanRow.start_us) >= start)


@cache
def _select_priced_across(*, run: bool) -> Rows:
    """At most one a line, with its parts: spans of a line do not overlap."""
    start = _find_run_start() if run else START
    spans = _select_priced(col(ResourceRow.id), start, col(SpanRow.attribution_id), *select_corrected_span())
    return spans.where(col(SpanRow.end_us) > start, col(SpanRow.start_us) < start)


@cache
def _select_open_runs() -> Rows:
    last = aliased(ObservationRow)
    resource = (col(ResourceRow.id), col(ResourceRow.scope_id), col(SpanRow.attribution_id), _find_run_start())
    runs = _join_last_listed(select_columns(*resource, *select_seen(last), *SPAN))
    runs = runs.join(SpanRow, col(SpanRow.resource_id) == ResourceRow.id).where(col(SpanRow.end_us).is_(None))
    return runs.join(last, col(last.id) == find_last_observation())


@cache
def _select_stopped() -> Rows:
    other, stopped = aliased(ObservationRow), aliased(ObservationRow)
    awake = select(func.max(other.id)).where(
        other.resource_id == ResourceRow.id, col(other.state).not_in((STOPPED, ABSENT_STATE))
    )
    since = func.coalesce(awake.correlate(ResourceRow).scalar_subquery(), 0)
    is_since = and_(col(stopped.resource_id) == ResourceRow.id, col(stopped.state) == STOPPED, col(stopped.id) > since)
    resources = _join_last_listed(select_columns(func.min(stopped.at_us), *RESOURCE)).join(stopped, is_since)
    return resources.where(col(ObservationRow.state) == STOPPED).group_by(col(ResourceRow.id), *RESOURCE)
