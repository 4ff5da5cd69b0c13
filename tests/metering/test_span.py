"""Spans as money: any split adds up to the nano-dollar, every part is in order, and time is counted as providers count it."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.errors import InputError
from costguard.metering.burn import compute_hourly_price
from costguard.metering.meter import (
    FIXED_UNITS,
    GB,
    GB_MONTH,
    GB_MONTH_720,
    GB_MONTH_730,
    GB_MONTH_PACIFIC,
    HOUR,
    LARGEST_PRICE,
    Meter,
    PriceRange,
)
from costguard.metering.span import (
    EDGE,
    GAP,
    MAYBE,
    PRESENCES,
    SEEN,
    KnownUntil,
    Span,
    compute_amounts,
    compute_charge,
    compute_known_until,
    count_expected_us,
    split_by_day,
)
from costguard.values import calendar
from costguard.values.calendar import Period
from costguard.values.instant import DAY_US, EARLIEST, HOUR_US, LATEST, SECOND_US, from_micros, require_instant, to_micros
from costguard.values.money import NANO
from costguard.values.resource import Attribution, ResourceKey

KEY = ResourceKey("acme", "team", "eu", "i-1")
WHO = Attribution("acme", "team", "eu", "instance")
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECOND, MINUTE, HOURS = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
ALL = (-(2**60), 2**60)


def usd(text: str) -> PriceRange:
    return PriceRange.exactly(int(Fraction(text) * NANO))


def made(
    meter: Meter,
    length: timedelta | None,
    *,
    start: datetime = NOON,
    before: timedelta = timedelta(0),
    presence: str = SEEN,
) -> Span:
    """A span of `length` (None: open) whose run began `before` its start."""
    end = None if length is None else start + length
    return Span(key=KEY, attribution=WHO, meter=meter, start=start, anchor=start - before, end=end, presence=presence)


def total(span: Span) -> tuple[int, int, int]:
    """All of a closed span."""
    assert span.end is not None
    return compute_amounts(span, to_micros(span.start), to_micros(span.end))


lengths = st.one_of(
    st.timedeltas(timedelta(0), timedelta(minutes=10)),
    st.timedeltas(timedelta(0), timedelta(days=3)),
    st.timedeltas(timedelta(0), timedelta(days=400)),
)
prices = st.one_of(st.integers(0, 200 * NANO), st.integers(0, LARGEST_PRICE))
price_ranges = st.tuples(prices, prices, prices).map(lambda p: PriceRange(min(p), sum(p) - min(p) - max(p), max(p)))
meters = st.builds(
    Meter,
    st.just("compute"),
    price_ranges,
    unit=st.sampled_from((*FIXED_UNITS, GB_MONTH)),
    quantity=st.integers(0, 10_000),
    quantum_s=st.sampled_from((1, 60, 3600, 7)),
    minimum_s=st.sampled_from((0, 60, 600, 3600)),
)
amounts_of_traffic = st.builds(Meter, st.just("traffic"), price_ranges, unit=st.just(GB), quantity=st.integers(0, 10**9))
starts = st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - the strategy adds the zone
spans = st.builds(
    made,
    st.one_of(meters, amounts_of_traffic),
    lengths,
    start=starts,
    before=st.one_of(st.just(timedelta(0)), lengths),
    presence=st.sampled_from(PRESENCES),
)


def cuts_of(span: Span) -> st.SearchStrategy[list[int]]:
    assert span.end is not None
    first, last = to_micros(span.start), to_micros(span.end)
    slack = 2 * HOUR_US
    return st.lists(st.integers(first - slack, last + slack), max_size=8).map(sorted)


cut_spans = spans.flatmap(lambda span: st.tuples(st.just(span), cuts_of(span)))


# Any split adds up.


@given(cut_spans)
def test_any_split_of_a_span_adds_up_to_the_nano_dollar(cut: tuple[Span, list[int]]) -> None:
    span, cuts = cut
    edges = [ALL[0], *cuts, ALL[1]]
    parts = [compute_amounts(span, start, end) for start, end in pairwise(edges)]
    assert tuple(map(sum, zip(*parts, strict=True))) == compute_amounts(span, *ALL) == total(span)
    assert sum(count_expected_us(span, start, end) for start, end in pairwise(edges)) == count_expected_us(span, *ALL)


@given(cut_spans)
def test_every_part_of_a_span_is_in_order_and_not_negative(cut: tuple[Span, list[int]]) -> None:
    span, cuts = cut
    for start, end in pairwise([ALL[0], *cuts, ALL[1]]):
        low, expected, high = compute_amounts(span, start, end)
        assert 0 <= low <= expected <= high
        assert count_expected_us(span, start, end) >= 0


@given(spans)
def test_the_days_of_a_span_add_up_to_it(span: Span) -> None:
    days = split_by_day(span)
    assert tuple(sum(money[end] for _, money, _ in days) for end in range(3)) == total(span)
    assert sum(us for _, _, us in days) == count_expected_us(span, *ALL)
    assert len({day for day, _, _ in days}) == len(days)
    assert [day for day, _, _ in days] == sorted(day for day, _, _ in days)


def exact(span: Span, nano: int) -> Fraction:
    """What a closed span costs at `nano` a unit, worked out in another way: step by step and month by month."""
    assert span.end is not None
    meter, end = span.meter, span.end
    if meter.unit == GB:
        return Fraction(nano * meter.quantity, 1000) if span.start < end else Fraction(0)
    paid = [_paid_until(meter, span.anchor, at) for at in (span.start, end)]
    if not meter.unit.endswith("-Months"):
        stated = re.search(r"\((\d+) h\)$", meter.unit)
        hours = int(stated[1]) if stated else {HOUR: 1}[meter.unit]
        return nano * meter.quantity * Fraction((paid[1] - paid[0]) // timedelta(microseconds=1), hours * HOUR_US)
    return nano * meter.quantity * _months_between(*paid)


def _paid_until(meter: Meter, anchor: datetime, at: datetime) -> datetime:
    if at == anchor:
        return anchor
    steps = -((anchor - at) // timedelta(seconds=meter.quantum_s))
    return anchor + max(steps * timedelta(seconds=meter.quantum_s), timedelta(seconds=meter.minimum_s))


def _months_between(start: datetime, end: datetime) -> Fraction:
    months = Fraction(0)
    while start < end:
        begun = start.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        over = (begun + timedelta(days=32)).replace(day=1)
        upto = min(end, over)
        months += Fraction((upto - start) // timedelta(microseconds=1), (over - begun) // timedelta(microseconds=1))
        start = upto
    return months


@given(spans)
def test_a_span_costs_what_exact_arithmetic_says_to_the_nano_dollar(span: Span) -> None:
    price = span.meter.price
    halves = {SEEN: (2, 2, 2), GAP: (0, 2, 2), EDGE: (0, 1, 2), MAYBE: (0, 0, 2)}[span.presence]
    for found, nano, half in zip(total(span), (price.low, price.expected, price.high), halves, strict=True):
        assert abs(found - exact(span, nano) * half / 2) <= Fraction(3, 2)  # each of three layers is rounded by itself


@given(meters, starts, lengths, st.floats(0, 1))
def test_a_run_cut_in_two_spans_owes_its_steps_and_minimum_once(
    meter: Meter, start: datetime, length: timedelta, where: float
) -> None:
    whole = made(meter, length, start=start)
    cut = start + length * where
    one = made(meter, cut - start, start=start)
    other = made(meter, start + length - cut, start=cut, before=cut - start)
    for together, first, second in zip(total(whole), total(one), total(other), strict=True):
        assert abs(together - first - second) <= 3


# Presence: how sure it is that the line billed.


@pytest.mark.parametrize(
    ("presence", "cents", "minutes"),
    [(SEEN, (200, 200, 200), 60), (GAP, (0, 200, 200), 60), (EDGE, (0, 100, 200), 30), (MAYBE, (0, 0, 200), 0)],
)
def test_what_nobody_saw_costs_from_nothing_to_all(presence: str, cents: tuple[int, int, int], minutes: int) -> None:
    span = made(Meter("compute", usd("2")), HOURS, presence=presence)
    assert total(span) == tuple(cent * NANO // 100 for cent in cents)
    assert count_expected_us(span, *ALL) == minutes * 60 * SECOND_US


# Minimum and steps.


def test_a_minimum_of_a_minute_is_owed_from_the_start() -> None:
    span = made(Meter("compute", usd("2.49"), minimum_s=60), 45 * SECOND)
    assert total(span) == (41_500_000,) * 3
    first = to_micros(NOON)
    assert compute_amounts(span, first, first + 30 * SECOND_US) == (41_500_000,) * 3
    assert compute_amounts(span, first + 30 * SECOND_US, first + 45 * SECOND_US) == (0, 0, 0)


def test_an_hour_begun_is_owed_from_its_first_microsecond() -> None:
    span, first = made(Meter("compute", usd("1"), quantum_s=3600), 2 * HOURS), to_micros(NOON)
    assert compute_amounts(span, first, first + 1)[1] == NANO
    assert compute_amounts(span, first + 1, first + HOUR_US)[1] == 0
    assert compute_amounts(span, first + HOUR_US, first + HOUR_US + 1)[1] == NANO


def test_steps_are_counted_from_the_start_of_the_run_and_not_of_the_span() -> None:
    """A price changed 90 s into a run that is counted by the minute: the second minute was owed already."""
    later = made(Meter("compute", usd("3.6"), quantum_s=60), 40 * SECOND, before=90 * SECOND)
    assert total(later)[1] == 60 * 1_000_000  # 130 s are three minutes, and two of them were paid for


def test_an_empty_span_costs_nothing() -> None:
    assert total(made(Meter("compute", usd("3.6"), minimum_s=60), timedelta(0))) == (0, 0, 0)
    assert split_by_day(made(Meter("compute", usd("3.6")), timedelta(0))) == []


# Months.


@pytest.mark.parametrize("year", [2027, 2028])
def test_every_month_of_the_calendar_costs_one_month(year: int) -> None:
    gp3 = Meter("storage", usd("0.08"), unit=GB_MONTH, quantity=500)
    begins = [datetime(year + m // 12, m % 12 + 1, 1, tzinfo=UTC) for m in range(13)]
    for start, end in pairwise(begins):
        assert total(made(gp3, end - start, start=start)) == (40 * NANO,) * 3
    assert total(made(gp3, begins[-1] - begins[0], start=begins[0])) == (480 * NANO,) * 3


@pytest.mark.parametrize(("month", "hours"), [(1, 744), (2, 672), (3, 743), (4, 720), (10, 744), (11, 721), (12, 744)])
def test_a_month_of_google_is_the_calendar_month_in_los_angeles(month: int, hours: int) -> None:
    wall = calendar.make_month(2026, month, ZoneInfo("America/Los_Angeles"))
    disk = Meter("storage", usd("0.10"), unit=GB_MONTH_PACIFIC, quantity=100)
    assert wall.length == hours * HOURS
    assert total(made(disk, wall.length, start=wall.start)) == (10 * NANO,) * 3
    at = wall.start + timedelta(days=9)
    assert compute_hourly_price(disk, NANO // 10, at) == pytest.approx(10 * NANO / hours, abs=1)
    assert total(made(disk, HOURS, start=wall.end - HOURS))[1] == round(10 * NANO / hours)


@pytest.mark.parametrize(("year", "month", "days"), [(2027, 2, 28), (2028, 2, 29), (2027, 4, 30), (2027, 1, 31)])
def test_a_day_is_its_share_of_the_month_it_lies_in(year: int, month: int, days: int) -> None:
    start = datetime(year, month, 1, tzinfo=UTC)
    span = made(Meter("storage", usd(str(days)), unit=GB_MONTH), timedelta(days=days), start=start)
    assert [money[1] for _, money, _ in split_by_day(span)] == [NANO] * days


# Amounts rather than time.


def test_traffic_is_spread_evenly_over_the_time_in_which_it_was_used() -> None:
    span = made(Meter("traffic", usd("0.01"), unit=GB, quantity=5_000), timedelta(days=2), start=NOON)
    assert total(span) == (50_000_000,) * 3
    assert [money[1] for _, money, _ in split_by_day(span)] == [12_500_000, 25_000_000, 12_500_000]


def test_traffic_without_an_end_cannot_be() -> None:
    with pytest.raises(InputError, match="closed"):
        made(Meter("traffic", usd("0.01"), unit=GB), None)


# The largest there is.


def test_thirty_years_at_the_largest_price_fit_64_bits() -> None:
    assert total(made(Meter("compute", PriceRange.exactly(LARGEST_PRICE)), timedelta(days=30 * 366)))[2] < 2**63


@pytest.mark.parametrize(("unit", "hours"), [(HOUR, 1), (GB_MONTH_730, 730), (GB_MONTH_720, 720), (GB_MONTH, 672)])
def test_a_price_fits_where_an_hour_of_the_whole_quantity_is_at_most_the_largest(unit: str, hours: int) -> None:
    price = PriceRange.exactly(NANO)
    assert price.fits(unit, 34_000 * hours)
    assert not price.fits(unit, 34_000 * hours + 1)


def test_a_span_of_two_centuries_has_every_day() -> None:
    span = made(Meter("compute", usd("1"), quantum_s=3600), LATEST - EARLIEST, start=EARLIEST)
    assert total(span)[1] == (LATEST - EARLIEST) // HOURS * NANO
    assert len(split_by_day(span)) == (LATEST - EARLIEST).days


# Open spans and their reach.


def test_an_open_span_costs_from_what_is_sure_to_what_is_possible() -> None:
    span = made(Meter("compute", usd("2")), None)
    reach = KnownUntil(low=NOON + HOURS, expected=NOON + 2 * HOURS, high=NOON + 3 * HOURS)
    day = Period(start=NOON - HOURS, end=NOON + timedelta(days=1))
    assert compute_charge(span, day, reach).format_ends() == {"low": "2.00", "expected": "4.00", "high": "6.00"}
    early = Period(start=NOON - HOURS, end=NOON + 90 * MINUTE)
    assert compute_charge(span, early, reach).format_ends() == {"low": "2.00", "expected": "3.00", "high": "3.00"}
    late = Period(start=NOON + 150 * MINUTE, end=NOON + timedelta(days=1))
    assert compute_charge(span, late, reach).format_ends() == {"low": "0.00", "expected": "0.00", "high": "1.00"}


def test_a_closed_span_goes_to_its_end_in_its_own_currency() -> None:
    span = made(Meter("compute", PriceRange.exactly(NANO, "EUR")), HOURS)
    found = compute_charge(span, Period(start=NOON, end=NOON + timedelta(days=9)))
    assert (found.low, found.high.currency, found.expected.nano) == (found.high, "EUR", NANO)


@given(meters, starts, st.lists(lengths, min_size=3, max_size=3), lengths, lengths)
def test_a_reach_in_order_gives_money_in_order_in_any_period(
    meter: Meter, start: datetime, far: list[timedelta], begin: timedelta, length: timedelta
) -> None:
    low, expected, high = (start + reached for reached in sorted(far))
    period = Period(start=start + begin, end=start + begin + length)
    found = compute_charge(made(meter, None, start=start), period, KnownUntil(low=low, expected=expected, high=high))
    assert found.low.nano >= 0


def test_a_scope_listed_at_noon_reaches_noon_less_its_lag_for_sure_and_now_at_most() -> None:
    lag = timedelta(seconds=30)
    found = compute_known_until(
        start=NOON - HOURS, complete_at=NOON, logged_at=NOON - HOURS, seen_at=None, absent_at=None, lag=lag, as_of=NOON + HOURS
    )
    assert found == KnownUntil(low=NOON - lag, expected=NOON + HOURS, high=NOON + HOURS)


def test_what_complete_listings_lack_probably_ended_half_way() -> None:
    found = compute_known_until(
        start=NOON - HOURS,
        complete_at=NOON + 10 * MINUTE,
        logged_at=NOON - HOURS,
        seen_at=NOON,
        absent_at=NOON + 4 * MINUTE,
        lag=timedelta(0),
        as_of=NOON + HOURS,
    )
    assert found == KnownUntil(low=NOON, expected=NOON + 2 * MINUTE, high=NOON + HOURS)


def test_a_report_about_the_past_reaches_no_further_than_it_asks() -> None:
    found = compute_known_until(
        start=NOON - HOURS,
        complete_at=NOON,
        logged_at=NOON,
        seen_at=None,
        absent_at=None,
        lag=timedelta(0),
        as_of=NOON - 30 * MINUTE,
    )
    assert found == KnownUntil.exactly(NOON - 30 * MINUTE)


@given(
    start=starts,
    logged_at=starts,
    complete_at=st.none() | starts,
    seen_at=st.none() | starts,
    absent_at=st.none() | starts,
    lag=st.timedeltas(timedelta(0), HOURS),
    as_of=starts,
)
def test_a_reach_is_in_order_whatever_is_known(
    *,
    start: datetime,
    logged_at: datetime,
    complete_at: datetime | None,
    seen_at: datetime | None,
    absent_at: datetime | None,
    lag: timedelta,
    as_of: datetime,
) -> None:
    found = compute_known_until(
        start=start, complete_at=complete_at, logged_at=logged_at, seen_at=seen_at, absent_at=absent_at, lag=lag, as_of=as_of
    )
    assert found.low <= found.expected <= found.high
    assert found.low <= as_of
    assert found.high == max(start, as_of)


# Prices in range.


def test_either_of_two_prices_lies_between_them() -> None:
    found = PriceRange(1, 2, 3).merge_with(PriceRange(2, 6, 9, known=False))
    assert found == PriceRange(1, 4, 9, known=False)


def test_two_currencies_have_no_price_between_them() -> None:
    with pytest.raises(InputError, match="currency"):
        PriceRange.exactly(1).merge_with(PriceRange.exactly(1, "EUR"))


def test_a_disk_that_grew_while_nobody_looked_costs_from_the_smaller_to_the_larger() -> None:
    small, large = (Meter("storage", usd("0.10"), unit=GB_MONTH, quantity=gb) for gb in (100, 150))
    found = small.merge_with(large)
    assert (found.quantity, found.price) == (150, PriceRange(66_666_666, 83_333_333, 100_000_000))
    assert large.merge_with(small) == found


def test_the_dearer_of_two_counts_and_not_the_larger() -> None:
    """A pod's 100 GB at the stopped price of $0.20 cost more than 150 GB at $0.10."""
    small, large = Meter("storage", usd("0.20"), quantity=100), Meter("storage", usd("0.10"), quantity=150)
    assert small.merge_with(large) == Meter("storage", PriceRange(150_000_000, 175_000_000, 200_000_000), quantity=100)


@given(meters, price_ranges, st.integers(0, 10_000), st.sampled_from((1, 60, 3600)), lengths)
def test_either_of_two_meters_holds_both(
    one: Meter, price: PriceRange, quantity: int, quantum_s: int, length: timedelta
) -> None:
    other = replace(one, price=price, quantity=quantity, quantum_s=quantum_s)
    low, expected, high = total(made(one.merge_with(other), length))
    assert low <= expected <= high
    for meter in (one, other):
        least, _, most = total(made(meter, length))
        assert low <= least + 3
        assert most <= high + 3


@pytest.mark.parametrize("ends", [(2, 1, 3), (1, 3, 2), (-1, 0, 1), (0, 0, LARGEST_PRICE + 1)])
def test_a_price_out_of_order_cannot_be_built(ends: tuple[int, int, int]) -> None:
    with pytest.raises(InputError, match="price"):
        PriceRange(*ends)


@pytest.mark.parametrize("field", ["quantity", "minimum_s", "quantum_s"])
def test_a_meter_of_negative_size_cannot_be_built(field: str) -> None:
    with pytest.raises(InputError, match="negative"):
        replace(Meter("compute", usd("1")), **{field: -1})  # type: ignore[arg-type]


def test_a_meter_of_an_unknown_unit_offers_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean Hours"):
        Meter("compute", usd("1"), unit="Hour")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"end": NOON - SECOND}, "before it starts"),
        ({"anchor": NOON + SECOND}, "anchor"),
        ({"presence": "perhaps"}, "presence"),
    ],
)
def test_a_span_that_cannot_be_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        replace(made(Meter("compute", usd("1")), HOURS), **change)  # type: ignore[arg-type]


# Instants.


def test_an_instant_is_whole_microseconds_since_1970() -> None:
    assert to_micros(datetime(2026, 11, 21, tzinfo=UTC)) == 1_795_219_200_000_000
    assert to_micros(datetime(1970, 1, 2, tzinfo=UTC)) == DAY_US


@given(st.datetimes(timezones=st.just(UTC)))
def test_micros_and_instants_are_each_others_inverse(at: datetime) -> None:
    assert from_micros(to_micros(at)) == at
    assert from_micros(to_micros(at)).tzinfo is UTC


@pytest.mark.parametrize(
    "at", [EARLIEST - timedelta(microseconds=1), LATEST, NOON.replace(tzinfo=None), NOON.astimezone(timezone(HOURS))]
)
def test_an_instant_that_is_no_sense_is_refused_by_field(at: datetime) -> None:
    with pytest.raises(InputError, match=r"poll\.at"):
        require_instant(at, "poll.at")
