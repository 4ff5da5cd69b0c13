"""A span: a half-open period in which one resource billed one line, and the cost of that period.

Money is telescoping: `C(t)` is the cost of the span up to t, rounded half to even to the nano-unit, and a part [a, b) costs
C(b) - C(a). So the parts of any split of a period add up exactly.

Example: $2.49 an hour from 12:00:00 to 12:00:45 with a minimum of 60 s: C(12:00:30) = C(12:00:45) = 2.49 / 60 = $0.0415. The
first half of the minute costs $0.0415 and the rest costs nothing: the minimum is owed from the start.

`presence` is the certainty that the line billed in the period; the three factors apply to the low, expected and high cost:

- SEEN (1, 1, 1): it billed.
- GAP (0, 1, 1): no poll covers the period, but the line billed before or after it.
- EDGE (0, 1/2, 1): billing began or ended within the period.
- MAYBE (0, 0, 1): no poll covers the period, and the line billed neither before nor after it.

A part of a span whose amount a settled bill line bounds (`Span.billed`) costs that amount as a whole. The line does not say
when in it the resource billed, so a part that is cut costs what every possibility allows. Example: $10 billed for a day that
may have cost $1 an hour. Its first half day cost from $0 (the $10 fit into the second half) to $10, and $5 is expected.

If the bill of a time that was SEEN is outside of what its price gives, the bill states another price (`Span.repriced`): the
time counts as observed, and the amount as billed. Example: 24 hours at $1, billed $13.92, are 24 hours, and $24 at list price.

The module also computes how far an open span is known to go (`compute_known_until`). Example: a scope was listed completely at
12:00 and has not answered since; its provider's listing may lag 30 s. At 13:00 its open spans go on to 11:59:30 at least, and
to 13:00 as the expected and the highest value, because a provider that does not answer goes on billing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from costguard.metering.meter import FIXED_UNITS, GB, MB_PER_GB, Meter, find_billing_month
from costguard.metering.observation import is_stated_by_bills
from costguard.values.calendar import Period
from costguard.values.checks import require, require_one_of
from costguard.values.instant import DAY_US, SECOND_US, to_micros
from costguard.values.money import Money, MoneyInterval, divide_half_even
from costguard.values.resource import Attribution, ResourceKey

NanoAmounts = tuple[int, int, int]
"""Low, expected and high nano-units."""

NO_PROGRESS = (0, 1)
"""No progress at all: where a span starts."""

SEEN, GAP, EDGE, MAYBE = "seen", "gap", "edge", "maybe"
PRESENCES = (SEEN, GAP, EDGE, MAYBE)
PICO = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One line of one resource from `start` to `end` (None: still open).

    `anchor`: the start of the run, from which steps and the minimum are counted. It equals `start` where the run began with
    this span, and is earlier otherwise. `why`: the event that opened the span; `ended_by`: the event that ended it. Both are
    text for people ("first seen", "stopped_at stated"). `billed`: the cost of the whole span according to a settled bill line,
    in place of the cost that presence and price give; None: no bill line bounds it. `repriced`: the bill states another
    price for the same time.
    """

    key: ResourceKey
    attribution: Attribution
    meter: Meter
    start: datetime
    anchor: datetime
    end: datetime | None = None
    presence: str = SEEN
    why: str = ""
    ended_by: str = ""
    billed: NanoAmounts | None = None
    repriced: bool = False

    def __post_init__(self) -> None:
        start, end = self.start, self.end
        if self.presence not in PRESENCES:
            require_one_of(self.presence, PRESENCES, "span.presence")
        if self.anchor > start:  # asked first: the words of an error cost more than all the rest
            require(truth=False, field="span.anchor", what=f"lies after the span's start ({self.anchor}, {start})")
        if end is None:
            require(self.meter.unit != GB and self.billed is None, "span", "of an amount must be closed")
        elif start > end:
            require(truth=False, field="span", what=f"ends ({end}) before it starts ({start})")

    @property
    def line(self) -> tuple[str, str]:
        """(charge, part)."""
        return self.meter.line


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownUntil:
    """How far an open span is known to go: at least to `low`, probably to `expected`, at most to `high`."""

    low: datetime
    expected: datetime
    high: datetime

    @classmethod
    def exactly(cls, at: datetime) -> KnownUntil:
        """Return a value whose low, expected and high are all `at`."""
        return cls(low=at, expected=at, high=at)


def compute_charge(span: Span, period: Period, reach: KnownUntil | None = None) -> MoneyInterval:
    """Return the cost of `span` within `period`.

    An open span needs `reach`; a closed span is counted to its end.
    """
    start, end = to_micros(period.start), to_micros(period.end)
    if reach is None:
        low, expected, high = compute_amounts(span, start, end)
    else:
        low, _, _ = compute_amounts(span, start, min(end, to_micros(reach.low)))
        _, expected, _ = compute_amounts(span, start, min(end, to_micros(reach.expected)))
        _, _, high = compute_amounts(span, start, min(end, to_micros(reach.high)))
    currency = span.meter.price.currency
    return MoneyInterval(
        low=Money(nano=low, currency=currency),
        expected=Money(nano=expected, currency=currency),
        high=Money(nano=high, currency=currency),
    )


def compute_amounts(span: Span, start_us: int, end_us: int) -> tuple[int, int, int]:
    """Return the low, expected and high cost of `span` in [start_us, end_us), in nano-units.

    An open span is assumed to go on to `end_us`. Expected is low plus a part that is rounded by itself, and high is expected
    plus such a part, so low <= expected <= high holds in any period.
    """
    first, last = to_micros(span.start), to_micros(span.end) if span.end else None
    begin = max(first, start_us)
    finish = end_us if last is None else min(last, end_us)
    if finish <= begin:
        return 0, 0, 0
    if span.billed is not None and last is not None:
        return _cut_billed(span, span.billed, (first, last), (begin, finish))
    surely, probably, perhaps = _split_price(span)
    to, since = _compute_progress(span, finish), _compute_progress(span, begin) if begin > first else NO_PROGRESS
    quantity = span.meter.quantity
    low = _round_cost(surely * quantity, to) - _round_cost(surely * quantity, since)
    expected = low + _round_cost(probably * quantity, to) - _round_cost(probably * quantity, since)
    return low, expected, expected + _round_cost(perhaps * quantity, to) - _round_cost(perhaps * quantity, since)


def apply_bill(span: Span, billed: NanoAmounts, presence: str) -> Span:
    """Return a closed span with the amounts that a bill gives it. `presence`: as observed."""
    span = replace(span, presence=SEEN, billed=None, repriced=False)
    low, _, high = compute_amounts(span, to_micros(span.start), to_micros(span.end or span.start))
    is_outside = not low <= billed[1] <= high or is_stated_by_bills(span.meter.source)
    return replace(span, billed=billed, repriced=presence == SEEN and is_outside)


def remove_bill_price(span: Span) -> Span:
    """Return `span` at its own price, if a bill states another one."""
    return replace(span, billed=None, repriced=False) if span.repriced else span


def _cut_billed(span: Span, billed: NanoAmounts, extent: tuple[int, int], cut: tuple[int, int]) -> NanoAmounts:
    """Return the cost of a billed span within `cut`: at least what does not fit into the rest, at most what fits into it."""
    if cut == extent:
        return billed
    (first, last), (begin, finish) = extent, cut
    dearest = 2 * span.meter.price.high * span.meter.quantity
    until = [_round_cost(dearest, _compute_progress(span, at) if at > first else NO_PROGRESS) for at in (begin, finish, last)]
    if billed[2] > until[2]:  # at a higher price than the counted one
        until = [_spread(billed[2], first, last, at) for at in (begin, finish, last)]
    inside = until[1] - until[0]
    low, high = max(0, billed[0] - (until[2] - inside)), min(billed[2], inside)
    expected = _spread(billed[1], first, last, finish) - _spread(billed[1], first, last, begin)
    return low, min(max(expected, low), max(low, high)), max(low, high)


def _spread(amount: int, first: int, last: int, at: int) -> int:
    """Return the share of `amount` until `at`, spread evenly over [first, last)."""
    return divide_half_even(amount * (at - first), last - first)


def _compute_billed_share(span: Span, billed: NanoAmounts) -> tuple[int, int]:
    """Return (expected nano-units of the bill, those of the whole time at the expected price); the first at most the second."""
    price = span.meter.price.expected * span.meter.quantity
    full = _round_cost(2 * price, _compute_progress(span, to_micros(span.end or span.start)))
    return min(billed[1], full), max(1, full)


def count_expected_us(span: Span, start_us: int, end_us: int) -> int:
    """Return the microseconds that `span` probably billed within [start_us, end_us).

    An EDGE counts half, a MAYBE counts nothing, and a billed span counts the share of its time that its bill pays for.
    """
    if span.presence == MAYBE:
        return 0
    first = to_micros(span.start)
    begin = max(first, start_us)
    finish = max(begin, min(to_micros(span.end), end_us) if span.end else end_us)
    if span.billed is not None and not span.repriced:
        paid, full = _compute_billed_share(span, span.billed)
        return (finish - first) * paid // full - (begin - first) * paid // full
    part = 2 if span.presence == EDGE else 1
    return (finish - first) // part - (begin - first) // part


def count_priced_pico(span: Span, start_us: int, end_us: int) -> int:
    """Return the quantity that `span` probably billed within [start_us, end_us), in 10^-12 of its pricing unit.

    An EDGE counts half, a MAYBE counts nothing. The amounts telescope as money does, so the parts of a period add up. An open
    span is assumed to go on to `end_us`.
    """
    first, last = to_micros(span.start), to_micros(span.end) if span.end else None
    begin = max(first, start_us)
    finish = end_us if last is None else min(last, end_us)
    if span.presence == MAYBE or finish <= begin:
        return 0
    if span.billed is not None and last is not None and not span.repriced:
        _, paid, _ = _cut_billed(span, span.billed, (first, last), (begin, finish))
        price = span.meter.price.expected
        return divide_half_even(paid * PICO, price) if price else 0
    of = span.meter.quantity * PICO, 2 if span.presence == EDGE else 1
    return _count_pico(*of, _compute_progress(span, finish)) - (
        _count_pico(*of, _compute_progress(span, begin)) if begin > first else 0
    )


def split_by_day(span: Span) -> list[tuple[int, NanoAmounts, int]]:
    """Return (day since 1970 in UTC, its amounts, its expected microseconds) for each day that a closed span touches.

    Days with no amount and no microseconds are left out. An open span is refused.
    """
    require(span.end is not None, "span", "is open: only a closed one has days")
    first, last = to_micros(span.start) // DAY_US, to_micros(span.end or span.start) // DAY_US
    days = ((day, day * DAY_US, (day + 1) * DAY_US) for day in range(first, last + 1))
    parts = [(day, compute_amounts(span, start, end), count_expected_us(span, start, end)) for day, start, end in days]
    return [(day, money, us) for day, money, us in parts if us or any(money)]


def _split_price(span: Span) -> tuple[int, int, int]:
    """Return twice the price of the low cost, and twice the increments from low to expected and from expected to high."""
    low, expected, high = span.meter.price.low, span.meter.price.expected, span.meter.price.high
    if span.presence == SEEN:
        return 2 * low, 2 * (expected - low), 2 * (high - expected)
    if span.presence == GAP:
        return 0, 2 * expected, 2 * (high - expected)
    if span.presence == MAYBE:
        return 0, 0, 2 * high
    return 0, expected, 2 * high - expected


def _round_cost(twice_nano: int, progress: tuple[int, int]) -> int:
    """Return C(t) in nano-units, rounded half to even.

    It is half of `twice_nano` per unit, times `progress`, the units until t.
    """
    numerator, denominator = progress
    return divide_half_even(twice_nano * numerator, 2 * denominator) if twice_nano and numerator else 0


def _count_pico(scaled: int, parts: int, progress: tuple[int, int]) -> int:
    numerator, denominator = progress
    return divide_half_even(scaled * numerator, parts * denominator)


def _compute_progress(span: Span, at_us: int) -> tuple[int, int]:
    """Return the pricing units from the span's start to `at_us`, as (numerator, denominator)."""
    meter, start, anchor = span.meter, to_micros(span.start), to_micros(span.anchor)
    if meter.unit == GB:  # an amount, spread evenly over the period in which it was used
        return at_us - start, MB_PER_GB * max(1, to_micros(span.end or span.start) - start)
    begun, reached = _count_billable_us(meter, start - anchor), _count_billable_us(meter, at_us - anchor)
    unit = FIXED_UNITS.get(meter.unit)
    if unit is not None:
        return reached - begun, unit
    return _count_months(meter.unit, anchor + begun, anchor + reached)


def _count_billable_us(meter: Meter, elapsed_us: int) -> int:
    """Return the microseconds charged for a run that has lasted `elapsed_us`: whole steps, at least the minimum."""
    if elapsed_us <= 0:
        return 0
    step = meter.quantum_s * SECOND_US
    return max(-(-elapsed_us // step) * step, meter.minimum_s * SECOND_US)


def _count_months(unit: str, begin_us: int, end_us: int) -> tuple[int, int]:
    """Return the calendar months of `unit` from one instant to another, as (numerator, denominator).

    Half of February and half of March are (1, 1): each is the fraction of its own month.
    """
    from_month, from_us, from_length = find_billing_month(unit, begin_us)
    to_month, to_us, to_length = find_billing_month(unit, end_us)
    if from_month == to_month:
        return end_us - begin_us, to_length
    months = (to_month - from_month) * from_length * to_length
    return months + (end_us - to_us) * from_length - (begin_us - from_us) * to_length, from_length * to_length


def compute_known_until(
    *,
    start: datetime,
    complete_at: datetime | None,
    logged_at: datetime,
    seen_at: datetime | None,
    absent_at: datetime | None,
    lag: timedelta,
    as_of: datetime,
) -> KnownUntil:
    """Return how far a span that opened at `start` is known to go at `as_of`.

    `complete_at`: the scope's last complete poll. `logged_at`: when the resource's current observation was first made. `lag`:
    how far the provider's listing may lag behind. If complete listings lack the resource since `absent_at`, and it was last
    seen at `seen_at`, then the span ended between the two, or the resource comes back: expected is half-way between them, high
    is `as_of`.
    """
    if absent_at is not None:
        last = seen_at or logged_at
        expected = last + (absent_at - last) / 2
    else:
        last = max(seen_at or logged_at, logged_at, complete_at or logged_at)
        expected = as_of
    low = min(max(start, last - lag), as_of)
    high = max(start, as_of)
    return KnownUntil(low=low, expected=min(max(low, expected), high), high=high)
