"""The forecast of a period: from the hours of past weeks, what runs now, and how much weeks differ."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.budgets.spend_forecast import BURN, DAYS, NO_PAST, WEEKS, PastHours, SpendForecast, forecast_spend
from costguard.metering.burn import AttributedBurn
from costguard.values.instant import HOUR_US, to_micros
from costguard.values.money import NANO, Money, MoneyInterval
from costguard.values.resource import INSTANCE, Attribution

FRIDAY = datetime(2026, 11, 27, 12, tzinfo=UTC)
WHERE = Attribution("aws", "main", "us-east-1", INSTANCE)
WEEK = 168


def point(dollars: float) -> MoneyInterval:
    money = Money(nano=round(dollars * NANO))
    return MoneyInterval(low=money, expected=money, high=money)


def runs(rate: float, days: float, until: datetime | None = None, high: float | None = None) -> AttributedBurn:
    hourly = point(rate)
    if high is not None:
        hourly = MoneyInterval(low=Money(nano=0), expected=hourly.expected, high=point(high).high)
    return AttributedBurn(attribution=WHERE, hourly=hourly, since=FRIDAY - timedelta(days=days), until=until)


def past(hours: int, cost: Callable[[datetime], float]) -> PastHours:
    first = to_micros(FRIDAY) // HOUR_US - hours
    starts = (FRIDAY - timedelta(hours=hours - hour) for hour in range(hours))
    return PastHours(first=first, costs=tuple(round(cost(at) * NANO) for at in starts))


def ahead(before: PastHours, *burns: AttributedBurn, left: timedelta = timedelta(days=2.5), spent: float = 0) -> SpendForecast:
    return forecast_spend(point(spent), before, burns, now=FRIDAY, left=left)


def dollars(money: Money) -> float:
    return money.nano / NANO


def office(at: datetime) -> float:
    """$10 an hour in the office's hours of weekdays, and $2 else."""
    return 10.0 if at.weekday() < 5 and 8 <= at.hour < 18 else 2.0


def test_the_example_of_the_module_is_what_comes_out() -> None:
    def cost(at: datetime) -> float:
        is_end = at.weekday() > 4 or (at.weekday() == 4 and at.hour >= 12)
        return 2.0 if is_end else 580 / 108

    found = ahead(past(4 * WEEK, cost), left=timedelta(days=2.5), spent=600)
    assert dollars(found.total.expected) == pytest.approx(720 - 24, abs=25)
    assert found.basis == WEEKS


def test_a_weekend_is_forecast_as_a_weekend() -> None:
    found = ahead(past(4 * WEEK, office), runs(10, 0.1))
    usual = 6 * 10 + 54 * 2
    assert dollars(found.total.expected) == pytest.approx(usual, abs=1)
    assert dollars(found.if_unchanged.expected) == 600


def test_what_burns_beyond_its_usual_hour_fades_within_days() -> None:
    calm = ahead(past(4 * WEEK, office), runs(10, 0), left=timedelta(days=20))
    high = ahead(past(4 * WEEK, office), runs(110, 0), left=timedelta(days=20))
    assert dollars(high.total.expected) - dollars(calm.total.expected) == pytest.approx(100 * 12, rel=0.01)


def test_a_machine_that_lasts_and_that_past_weeks_lack_counts_for_half() -> None:
    def with_old(at: datetime) -> float:
        return office(at)

    calm = ahead(past(12 * WEEK, with_old), runs(10, 0.1), left=timedelta(days=20))
    more = ahead(past(12 * WEEK, with_old), runs(10, 0.1), runs(5, 4), left=timedelta(days=20))
    grown = dollars(more.total.expected) - dollars(calm.total.expected)
    assert 0.4 * 5 * 480 < grown < 0.7 * 5 * 480


def test_a_machine_whose_stop_is_planned_is_not_counted_beyond_it() -> None:
    before = NO_PAST
    stays = ahead(before, runs(5, 60), left=timedelta(days=20))
    goes = ahead(before, runs(5, 60, until=FRIDAY + timedelta(days=1)), left=timedelta(days=20))
    assert dollars(stays.total.expected) == pytest.approx(5 * 480, rel=0.01)
    assert dollars(goes.total.expected) == pytest.approx(5 * 24, rel=0.05)


def test_a_machine_that_runs_for_weeks_is_counted_once() -> None:
    found = ahead(NO_PAST, runs(5, 100), left=timedelta(days=20))
    assert found.basis == WEEKS
    assert dollars(found.total.expected) == pytest.approx(2400, rel=0.001)


@pytest.mark.parametrize(("hours", "basis"), [(20, BURN), (24, DAYS), (167, DAYS), (168, WEEKS)])
def test_a_short_history_is_named(hours: int, basis: str) -> None:
    assert ahead(past(hours, lambda _: 2.0), runs(1, 0)).basis == basis


def test_little_history_makes_a_wide_interval() -> None:
    def width(hours: int) -> float:
        total = ahead(past(hours, office), runs(10, 0.1), left=timedelta(days=20)).total
        return (dollars(total.high) - dollars(total.low)) / dollars(total.expected)

    assert width(30) > 3 * width(4 * WEEK)
    assert width(WEEK) > width(4 * WEEK) > width(12 * WEEK)


def test_weeks_that_differ_make_a_wide_interval() -> None:
    def uneven(at: datetime) -> float:
        return office(at) * (3 if at.isocalendar().week % 2 else 0.5)

    even, other = (ahead(past(8 * WEEK, cost), left=timedelta(days=20)).total for cost in (office, uneven))
    assert (other.high.nano - other.low.nano) > 2 * (even.high.nano - even.low.nano)


def test_a_price_that_nobody_knows_widens_the_interval_by_all_of_it() -> None:
    known = ahead(past(4 * WEEK, office), runs(0, 30), left=timedelta(days=10)).total
    unknown = ahead(past(4 * WEEK, office), runs(0, 30, high=7), left=timedelta(days=10)).total
    assert dollars(unknown.high) - dollars(known.high) == pytest.approx(7 * 240)
    assert unknown.low == known.low


def test_nothing_left_is_what_was_spent() -> None:
    found = ahead(past(4 * WEEK, office), runs(10, 3), left=timedelta(0), spent=700)
    assert found.total == found.if_unchanged == point(700)


@given(
    costs=st.lists(st.integers(0, 10**12), max_size=400),
    rates=st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**7)), max_size=4),
    seconds=st.integers(0, 40 * 86400),
)
def test_the_ends_are_in_order_and_never_below_what_was_spent(
    costs: list[int], rates: list[tuple[int, int]], seconds: int
) -> None:
    before = PastHours(first=to_micros(FRIDAY) // HOUR_US - len(costs), costs=tuple(costs))
    burns = [
        AttributedBurn(attribution=WHERE, hourly=point(rate / NANO), since=FRIDAY - timedelta(seconds=age))
        for rate, age in rates
    ]
    total = forecast_spend(point(5), before, burns, now=FRIDAY, left=timedelta(seconds=seconds)).total
    assert point(5).low <= total.low <= total.expected <= total.high
