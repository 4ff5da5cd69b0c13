"""What burns now, and where the month leads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

from costguard.budgets.budget import Budget
from costguard.budgets.budget_status import BudgetStatus
from costguard.budgets.spend_forecast import WEEKS
from costguard.metering.burn import compute_hourly_price, list_burns
from costguard.metering.meter import GB_MONTH, GB_MONTH_720, GB_MONTH_730, STORAGE
from costguard.metering.span import MAYBE, compute_amounts
from costguard.metering.spending import LiveResource, ScopeCoverage, Spending
from costguard.reporting.status import FleetStatus, bound_by_hard_caps, build_fleet_status, build_scope_status
from costguard.values.calendar import Period, find_month
from costguard.values.money import Money
from tests.books import HOUR_US, NOW, at, live, meter, money, scope_now, spent, unpriced

QUARTER, MINUTES = timedelta(minutes=15), timedelta(minutes=5)
DOLLAR = 10**9


def asked(
    *resources: LiveResource, spending: Sequence[Spending] = (), scopes: Sequence[ScopeCoverage] = (), now: datetime = NOW
) -> FleetStatus:
    month = find_month(now, UTC)
    return build_fleet_status(at=now, month=month, zone=UTC, spending=spending, live=resources, scopes=scopes)


def test_the_burn_is_the_sum_of_the_open_lines_with_storage_by_the_hour() -> None:
    disk = meter(DOLLAR // 10, charge=STORAGE, unit=GB_MONTH_730, quantity=730)
    found = asked(live("i-1", meter(2 * DOLLAR), disk), live("i-2", meter(DOLLAR // 2)))
    assert found.usd.burn.stated == Money.parse("2.6")
    assert found.usd.burn.bounds == money("2.6")
    assert not found.usd.burn.unknown


@pytest.mark.parametrize(
    ("unit", "now", "hours"),
    [
        (GB_MONTH_730, NOW, 730),
        (GB_MONTH_720, NOW, 720),
        (GB_MONTH, at(21), 720),
        (GB_MONTH, at(21, month=10), 744),
        (GB_MONTH, datetime(2028, 2, 29, tzinfo=UTC), 696),
    ],
)
def test_a_gb_month_is_divided_by_the_hours_of_its_month(unit: str, now: datetime, hours: int) -> None:
    assert compute_hourly_price(meter(DOLLAR, unit=unit, quantity=hours), DOLLAR, now) == DOLLAR


def test_what_may_bill_unheard_stands_in_the_high_end_of_the_forecast_and_in_nothing_else() -> None:
    on = live("i-1", meter(2 * DOLLAR))
    off = replace(on, open=(), unheard=tuple(replace(span, presence=MAYBE) for span in on.open))
    found = asked(off, spending=[spent(money("0", "0", "120"))])
    assert found.usd.burn.stated == Money.parse("0")
    assert not found.usd.burn.unknown
    assert found.usd.ahead.if_unchanged == money("0", "0", str(120 + 2 * (9 * 24 + 12)))
    assert [one.hourly for one in list_burns([off], NOW)] == [money("0", "0", "2")]


def test_the_forecast_is_the_month_to_date_and_the_burn_to_its_end() -> None:
    found = asked(live("i-1", meter(2 * DOLLAR)), spending=[spent(money("90", "100", "120"))])
    assert found.usd.to_date == money("90", "100", "120")
    left = 9 * 24 + 12
    assert found.usd.ahead.if_unchanged == money(str(90 + 2 * left), str(100 + 2 * left), str(120 + 2 * left))


def test_the_forecast_is_what_an_open_span_will_have_cost() -> None:
    resource = live("i-1", meter(2_490_000_000), meter(DOLLAR // 5, charge=STORAGE, unit=GB_MONTH, quantity=720, part="gp3"))
    month = find_month(NOW, UTC)
    now_us, end_us = ((t - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) for t in (NOW, month.end))
    ahead = sum(compute_amounts(span, now_us, end_us)[1] for span in resource.open)
    assert asked(resource).usd.ahead.if_unchanged.expected.nano == ahead


def test_a_price_that_nobody_stated_is_not_in_the_burn_and_bounds_the_forecast() -> None:
    found = asked(live("i-1", meter(DOLLAR)), live("i-2", unpriced(16 * DOLLAR)))
    assert (found.usd.burn.stated, found.usd.burn.unstated) == (Money.parse(1), Money.parse(16))
    assert found.usd.burn.bounds == money("1", "9", "17")
    assert (found.usd.ahead.if_unchanged.low, found.usd.ahead.if_unchanged.high) == (Money.parse(228), Money.parse(17 * 228))


def test_an_absent_resource_burns_nothing_and_may_cost_what_it_did() -> None:
    gone = live("i-1", meter(2 * DOLLAR), absent_at=at(21, 11))
    found = asked(gone)
    assert found.usd.burn.stated == Money.parse(0)
    assert found.usd.ahead.if_unchanged == money("0", "0", str(2 * 228))
    assert found.resources[0].state == "absent"
    assert [burn.hourly for burn in list_burns([gone], NOW)] == [money("0", "0", "2")]


def test_currencies_are_never_added() -> None:
    found = asked(
        live("i-1", meter(DOLLAR)),
        live("o-1", meter(3 * DOLLAR, currency="EUR"), amount=money("5", currency="EUR")),
        spending=[spent(money("7")), spent(money("4", currency="EUR")), spent(money("9", currency="CHF"))],
    )
    assert (found.usd.burn.stated, found.usd.to_date) == (Money.parse(1), money("7"))
    chf, eur = found.others
    assert (chf.currency, chf.burn.stated.nano, chf.to_date) == ("CHF", 0, money("9", currency="CHF"))
    assert eur.ahead.if_unchanged == money(str(4 + 3 * 228), currency="EUR")


def test_the_part_of_the_month_at_unstated_prices_is_kept_apart() -> None:
    found = asked(spending=[spent(money("7")), spent(money("0", "4", "8"), known=False)])
    assert found.usd.to_date == money("7", "11", "15")
    assert found.usd.guessed == money("0", "4", "8")
    assert asked(spending=[spent(money("7"))]).usd.guessed is None


def test_budgets_count_the_bounds_of_every_line() -> None:
    burns = list_burns([live("i-1", unpriced(16 * DOLLAR)), live("i-2", meter(DOLLAR), owner="bob")], NOW)
    assert [(burn.attribution.owner, burn.hourly) for burn in burns] == [("ada", money("0", "8", "16")), ("bob", money("1"))]


@pytest.mark.parametrize(
    ("scope", "state", "unseen"),
    [
        (scope_now(), "complete", None),
        (scope_now(complete_at=NOW - QUARTER, polled_at=NOW - QUARTER), "complete", None),
        (scope_now(complete_at=at(21, 9), polled_at=at(21, 9)), "stale", timedelta(hours=3)),
        (scope_now(outcome="failed", complete_at=at(21, 11, 58)), "failed", None),
        (scope_now(outcome="failed", complete_at=at(21, 9)), "failed", timedelta(hours=3)),
        (scope_now(outcome="partial", complete_at=None, since=at(21, 10)), "partial", timedelta(hours=2)),
        (scope_now(outcome="failed", complete_at=None), "failed", timedelta(0)),
        (scope_now(complete_at=NOW + MINUTES, polled_at=NOW + MINUTES), "complete", None),
        (scope_now(complete_at=NOW + QUARTER, polled_at=NOW + QUARTER), "ahead", None),
        (scope_now(outcome="failed", complete_at=at(21, 9), polled_at=NOW + QUARTER), "ahead", timedelta(hours=3)),
    ],
)
def test_a_scope_is_shouted_about_when_it_was_not_seen_for_too_long(
    scope: ScopeCoverage, state: str, unseen: timedelta | None
) -> None:
    view = build_scope_status(scope, NOW, QUARTER)
    assert (view.state, view.unseen) == (state, unseen)


def test_a_month_that_is_over_is_not_forecast_further() -> None:
    month = Period(start=at(1, month=10), end=at(1))
    found = build_fleet_status(
        at=NOW, month=month, zone=UTC, spending=[spent(money("7"), hours=HOUR_US)], live=[live("i", meter(DOLLAR))], scopes=[]
    )
    assert found.usd.ahead.if_unchanged == money("7")


def stand_at(name: str, *, hard: bool, expected: str) -> BudgetStatus:
    return BudgetStatus(
        budget=Budget(name=name, cap=Money.parse("500"), hard=hard),
        period=find_month(NOW, UTC),
        spent=money("100"),
        burn=money("1"),
        holds=Money.parse("0"),
        forecast=money("200", expected, "900"),
        if_unchanged=money("700"),
        basis=WEEKS,
        fraction=Fraction(1, 5),
        pace=None,
        time_to_cap_hours=None,
    )


def test_a_hard_cap_bounds_the_high_end_alone_and_only_where_its_overshoot_is_known() -> None:
    budgets = (
        stand_at("kept", hard=True, expected="400"),
        stand_at("wanted", hard=True, expected="800"),
        stand_at("unknown", hard=True, expected="400"),
        stand_at("soft", hard=False, expected="400"),
    )
    overshoots = {name: Money.parse("20") for name in ("kept", "wanted", "soft")}
    found = bound_by_hard_caps(replace(asked(), budgets=budgets, overshoots=overshoots))
    assert [one.forecast for one in found.budgets] == [
        money("200", "400", "520"),
        money("200", "800", "800"),
        money("200", "400", "900"),
        money("200", "400", "900"),
    ]
