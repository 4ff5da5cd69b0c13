"""Budgets: what they count, where they stand, what they warn of, and what they still admit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.budgets.budget import (
    MATCH_ALL,
    Budget,
    BudgetThreshold,
    ResourceFilter,
    find_budget_period,
    list_current_budgets,
    matches_filter,
)
from costguard.budgets.budget_status import BudgetStatus, admit_hold, admit_to_all, compute_budget_status, list_budget_warnings
from costguard.budgets.spend_forecast import NO_PAST, PastHours
from costguard.errors import InputError
from costguard.metering.burn import AttributedBurn
from costguard.metering.spending import Spending
from costguard.values.calendar import Period, make_month
from costguard.values.instant import HOUR_US, to_micros
from costguard.values.money import Money, MoneyInterval
from costguard.values.resource import INSTANCE, VOLUME, Attribution

ALICE = Attribution("aws", "main", "us-east-1", INSTANCE, "H100-SXM", 8, "spot", "alice", "p5", (("team", "vision"),))
DISK = Attribution("gcp", "lab", "us-central1", VOLUME)
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAILY = Budget(name="agent", cap=Money.parse("40"), period="day")


def usd(text: str) -> Money:
    return Money.parse(text)


def between(low: str, expected: str, high: str, currency: str = "USD") -> MoneyInterval:
    ends = [Money.parse(text, currency) for text in (low, expected, high)]
    return MoneyInterval(low=ends[0], expected=ends[1], high=ends[2])


def spent(*ends: str, currency: str = "USD", of: Attribution = ALICE, known: bool = True) -> Spending:
    low, expected, high = ends if len(ends) == 3 else ends * 3
    money = between(low, expected, high, currency)
    return Spending(attribution=of, charge="compute", money=money, us=1, known=known)


def burn(*ends: str, of: Attribution = ALICE, unseen: datetime | None = None) -> AttributedBurn:
    low, expected, high = ends if len(ends) == 3 else ends * 3
    return AttributedBurn(attribution=of, hourly=between(low, expected, high), since=NOON, unseen_since=unseen)


def stands(
    budget: Budget = DAILY,
    spendings: tuple[Spending, ...] = (),
    burns: tuple[AttributedBurn, ...] = (),
    *,
    holds: str = "0",
    now: datetime = NOON,
    past: PastHours = NO_PAST,
) -> BudgetStatus:
    return compute_budget_status(budget, spendings, burns, holds=Money.parse(holds, budget.cap.currency), now=now, past=past)


EXAMPLE = stands(spendings=(spent("6"),), burns=(burn("2.99"), burn("2.99")), holds="12")


def test_the_example_of_the_page_is_what_comes_out() -> None:
    assert EXAMPLE.exposure == usd("18")
    assert EXAMPLE.left == usd("22")
    assert EXAMPLE.if_unchanged == between("77.76", "77.76", "77.76")
    assert EXAMPLE.fraction == Fraction(15, 100)
    assert EXAMPLE.pace == Fraction(15, 100) - Fraction(1, 2)
    assert EXAMPLE.time_to_cap_hours == Fraction(3400, 598)
    assert admit_hold(EXAMPLE, usd("22")).admitted
    assert not admit_hold(EXAMPLE, usd("22.01")).admitted


@pytest.mark.parametrize(
    ("match", "counted"),
    [
        (MATCH_ALL, True),
        (ResourceFilter(providers=("aws",)), True),
        (ResourceFilter(providers=("gcp",)), False),
        (ResourceFilter(accounts=("main", "lab")), True),
        (ResourceFilter(regions=("us-west-2",)), False),
        (ResourceFilter(owners=("alice",), tiers=("spot",), gpus=("H100-SXM",)), True),
        (ResourceFilter(owners=("alice",), tiers=("on-demand",)), False),
        (ResourceFilter(kinds=(VOLUME,)), False),
        (ResourceFilter(labels=(("team", ("vision", "robotics")),)), True),
        (ResourceFilter(labels=(("team", ("robotics",)),)), False),
        (ResourceFilter(labels=(("team", ("vision",)), ("project", ("x",)))), False),
    ],
)
def test_a_match_counts_what_fits_all_that_it_states(match: ResourceFilter, counted: bool) -> None:  # noqa: FBT001 - a column of the table
    assert matches_filter(match, ALICE) is counted


@pytest.mark.parametrize(
    ("place", "region", "selected"),
    [
        ("us-central1-a", "us-central1", True),
        ("us-central1-ai1a", "us-central1", True),
        ("us-central1-a", "us-central1-a", True),
        ("europe-west10-a", "europe-west1", False),
        ("us-central1", "us-central1-a", False),
        ("us-east-1", "us-east", False),
    ],
)
def test_a_region_selects_its_zones(place: str, region: str, selected: bool) -> None:  # noqa: FBT001 - a column of the table
    assert matches_filter(ResourceFilter(regions=(region,)), replace(ALICE, region=place)) is selected


@pytest.mark.parametrize("field", ["providers", "accounts", "regions", "owners", "gpus", "tiers", "kinds", "labels"])
@pytest.mark.parametrize("of", [ALICE, DISK])
def test_an_empty_selector_selects_nothing(field: str, of: Attribution) -> None:
    assert not matches_filter(ResourceFilter(**{field: ()}), of)


def test_what_does_not_match_is_left_out_of_spending_and_burn() -> None:
    vision = replace(DAILY, match=ResourceFilter(labels=(("team", ("vision",)),)))
    found = stands(vision, (spent("6"), spent("100", of=DISK)), (burn("1"), burn("100", of=DISK)))
    assert found.spent == between("6", "6", "6")
    assert found.burn == between("1", "1", "1")


def test_another_currency_is_listed_and_never_added() -> None:
    found = stands(spendings=(spent("6"), spent("7", "8", "9", currency="EUR"), spent("1", currency="EUR")))
    assert found.spent == between("6", "6", "6")
    assert [one.says for one in list_budget_warnings(found)] == ["charges in EUR are not counted: its cap is in USD"]


def test_a_cap_in_a_currency_that_nothing_is_charged_in_warns_that_it_can_never_act() -> None:
    (warning,) = list_budget_warnings(stands(replace(DAILY, cap=Money.parse("10", "EUR")), burns=(burn("2.99"),)))
    assert "its cap is in EUR and charges are in USD, so it can never act" in warning.says


def test_what_runs_going_on_keeps_its_ends_apart_and_low_is_what_surely_bills() -> None:
    found = stands(spendings=(spent("5", "6", "7"),), burns=(burn("1", "2", "3"), burn("0", "0", "1")))
    assert found.if_unchanged == between("17", "30", "55")


def test_the_time_to_the_cap_is_the_earliest_and_none_beyond_the_period() -> None:
    assert stands(spendings=(spent("5", "6", "30"),), burns=(burn("1", "2", "10"),)).time_to_cap_hours == 1
    assert stands(spendings=(spent("28.5"),), burns=(burn("1"),)).time_to_cap_hours == Fraction(23, 2)
    assert stands(spendings=(spent("28"),), burns=(burn("1"),)).time_to_cap_hours is None
    assert stands(spendings=(spent("6"),)).time_to_cap_hours is None
    assert stands(spendings=(spent("40"),)).time_to_cap_hours == 0
    assert stands(spendings=(spent("41"),), burns=(burn("1"),)).time_to_cap_hours == 0


def test_a_rolling_window_has_no_pace_and_looks_ahead_by_its_own_length() -> None:
    weekly = replace(DAILY, period="rolling", days=7)
    found = stands(weekly, (spent("6"),), (burn("0.10"),))
    assert found.period == Period(start=NOON - timedelta(days=7), end=NOON)
    assert found.pace is None
    assert found.if_unchanged == between("16.80", "16.80", "16.80")
    assert found.time_to_cap_hours == 340


@pytest.mark.parametrize(
    ("period", "start", "hours"),
    [
        ("day", datetime(2026, 10, 24, 22, tzinfo=UTC), 25),
        ("week", datetime(2026, 10, 18, 22, tzinfo=UTC), 169),
        ("month", datetime(2026, 9, 30, 22, tzinfo=UTC), 745),
    ],
)
def test_periods_are_those_of_the_budgets_zone(period: str, start: datetime, hours: int) -> None:
    budget = replace(DAILY, period=period, zone=ZoneInfo("Europe/Berlin"))
    found = find_budget_period(budget, datetime(2026, 10, 25, 10, tzinfo=UTC))
    assert found == Period(start=start, end=start + timedelta(hours=hours))


def test_ninety_percent_on_day_two_is_a_concern() -> None:
    budget = Budget(name="all", cap=usd("1000"))
    found = stands(budget, (spent("900"),), now=datetime(2026, 11, 2, 12, tzinfo=UTC))
    assert [(c.measure, c.says) for c in list_budget_warnings(found)] == [
        ("pace", "90 % of 1,000.00 USD is spent when 5 % of the month has passed")
    ]


def test_each_usual_warning_has_its_edge() -> None:
    def measures(*spendings: Spending, burns: tuple[AttributedBurn, ...] = ()) -> list[str]:
        return [concern.measure for concern in list_budget_warnings(stands(spendings=spendings, burns=burns))]

    assert measures(spent("26")) == []
    assert measures(spent("26.01")) == ["pace"]
    assert measures(spent("4"), burns=(burn("3"),)) == []
    assert measures(spent("4.01"), burns=(burn("3"),)) == ["time_to_cap"]
    assert measures(spent("1", "2", "40")) == ["pace", "time_to_cap"]


PAST = PastHours(first=to_micros(NOON) // HOUR_US - 28 * 24, costs=(10**9,) * 28 * 24)
"""A dollar an hour for four weeks, which nothing does that runs now."""


def test_the_forecast_warns_by_its_low_end_alone() -> None:
    monthly = Budget(name="all", cap=usd("700"), warn=(BudgetThreshold(measure="forecast", limit=Fraction(1)),))
    low = stands(monthly, (spent("492"),), past=PAST).forecast.low
    assert usd("600") < low < usd("700")
    assert list_budget_warnings(stands(monthly, (spent("492"),), past=PAST)) == ()
    (warning,) = list_budget_warnings(stands(monthly, (spent("600"),), past=PAST))
    assert warning.says.startswith("on course for at least $7")
    assert warning.says.endswith(" expected, cap $700.00)")


def test_open_holds_are_in_the_high_end_of_the_forecast() -> None:
    monthly = Budget(name="all", cap=usd("700"))
    found = stands(monthly, (spent("10"),), holds="5000", past=PAST).forecast
    assert found.high == usd("5010")
    assert found.expected < usd("500")


def test_a_spend_that_nobody_could_look_at_is_never_stated_as_a_fact() -> None:
    night = NOON.replace(hour=0)
    monthly = Budget(name="all", cap=usd("1000"), warn=(BudgetThreshold(measure="spent", limit=Fraction(1)),))
    (warning,) = list_budget_warnings(stands(monthly, (spent("0", "80", "4170"),), (burn("0", "0", "9", unseen=night),)))
    assert warning.says == ("between 0 and 417 % (8 % expected) of 1,000.00 USD is spent: nobody could look since 00:00 UTC")


def test_a_cap_that_only_the_high_end_reaches_may_be_reached() -> None:
    def tell(*ends: str) -> str:
        soon = BudgetThreshold(measure="time_to_cap", limit=Fraction(24))
        (warning,) = list_budget_warnings(stands(replace(DAILY, warn=(soon,)), (spent(*ends),), (burn("1", "2", "8"),)))
        return warning.says

    assert tell("1", "2", "41") == "the cap may be reached: between 2 and 102 % (5 % expected) of 40.00 USD is spent"
    assert tell("40") == "the cap is reached"
    assert tell("8", "20", "32") == (
        "the cap of 40.00 USD is reached in 1.0 h at the earliest (10.0 h expected) if what runs goes on"
    )


def test_a_budget_warns_of_what_it_states_and_of_nothing_else() -> None:
    half = BudgetThreshold(measure="spent", limit=Fraction(1, 2))
    soon = BudgetThreshold(measure="time_to_cap", limit=Fraction(2))
    budget = replace(DAILY, warn=(half, soon))
    assert list_budget_warnings(stands(budget, (spent("20"),), (burn("10"),))) == ()
    told = [c.says for c in list_budget_warnings(stands(budget, (spent("25"),), (burn("10"),)))]
    assert told == [
        "62 % of 40.00 USD is spent",
        "the cap of 40.00 USD is reached in 1.5 h if what runs goes on",
    ]
    assert list_budget_warnings(stands(replace(budget, warn=()), (spent("99"),))) == ()


def test_the_tightest_of_nested_budgets_decides() -> None:
    everybody = stands(Budget(name="all", cap=usd("100")), (spent("6"),))
    team = stands(Budget(name="vision", cap=usd("10")), (spent("6"),))
    assert admit_to_all([everybody, team], usd("3")).budget == "vision"
    refused = admit_to_all([everybody, team], usd("4.01"))
    assert (refused.admitted, refused.reason, refused.budget, refused.left) == (False, "budget_cap", "vision", usd("4"))
    assert refused.says == "budget vision: $4.00 of $10.00 left, not enough for 4.01 USD"


@given(
    cap=st.integers(1, 10**15),
    high=st.integers(0, 10**15),
    holds=st.integers(0, 10**15),
    new=st.integers(1, 10**15),
)
def test_what_is_admitted_never_leaves_the_cap_and_what_is_refused_would(cap: int, high: int, holds: int, new: int) -> None:
    money = MoneyInterval(low=Money(nano=0), expected=Money(nano=high // 2), high=Money(nano=high))
    spending = Spending(attribution=ALICE, charge="compute", money=money, us=1)
    budget = replace(DAILY, cap=Money(nano=cap))
    found = admit_hold(compute_budget_status(budget, [spending], [], holds=Money(nano=holds), now=NOON), Money(nano=new))
    assert found.admitted == (high + holds + new <= cap)


@given(low=st.integers(0, 10**18), more=st.integers(0, 10**18), most=st.integers(0, 10**18), seconds=st.integers(0, 2_591_999))
def test_the_forecast_is_in_order_and_ends_at_what_is_spent(low: int, more: int, most: int, seconds: int) -> None:
    hourly = MoneyInterval(low=Money(nano=low), expected=Money(nano=low + more), high=Money(nano=low + more + most))
    budget = Budget(name="all", cap=usd("100"))
    now = make_month(2026, 11, UTC).start + timedelta(seconds=seconds)
    found = compute_budget_status(
        budget, [spent("1")], [AttributedBurn(attribution=ALICE, hourly=hourly, since=now)], holds=usd("0"), now=now
    )
    assert found.if_unchanged.low <= found.if_unchanged.expected <= found.if_unchanged.high
    last = found.period.end - timedelta(microseconds=1)
    ends = compute_budget_status(
        budget, [spent("1")], [AttributedBurn(attribution=ALICE, hourly=hourly, since=now)], holds=usd("0"), now=last
    )
    assert ends.if_unchanged.high.nano - usd("1").nano <= hourly.high.nano // 3_600_000_000 + 1


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: replace(DAILY, cap=usd("0")), "more than zero"),
        (lambda: replace(DAILY, cap=usd("-5")), "more than zero"),
        (lambda: replace(DAILY, name=" "), "is empty"),
        (lambda: replace(DAILY, period="monthly"), "unknown value"),
        (lambda: replace(DAILY, period="rolling"), "at least 1"),
        (lambda: replace(DAILY, days=7), "at most 0"),
        (lambda: BudgetThreshold(measure="spend", limit=Fraction(1)), "unknown value"),
        (lambda: BudgetThreshold(measure="spent", limit=Fraction(-1)), "negative"),
    ],
)
def test_what_is_no_budget_cannot_be_made(wrong: Callable[[], object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        wrong()


@pytest.mark.parametrize(
    ("period", "start", "end"),
    [("quarter", (2026, 9, 30, 22), (2026, 12, 31, 23)), ("year", (2025, 12, 31, 23), (2026, 12, 31, 23))],
)
def test_quarters_and_years_are_those_of_the_zone(period: str, start: tuple[int, ...], end: tuple[int, ...]) -> None:
    found = find_budget_period(replace(DAILY, period=period, zone=ZoneInfo("Europe/Berlin")), NOON)
    assert found == Period(start=datetime(*start, tzinfo=UTC), end=datetime(*end, tzinfo=UTC))  # type: ignore[misc, arg-type]


def test_a_total_without_an_end_never_begins_anew_and_forecasts_nothing() -> None:
    total = stands(replace(DAILY, period="total"), (spent("30"),), (burn("5"),))
    assert total.period.start < NOON - timedelta(days=9000)
    assert (total.pace, total.forecast, total.time_to_cap_hours) == (None, between("30", "30", "30"), Fraction(2))
    assert [one.measure for one in list_budget_warnings(total)] == ["time_to_cap"]


def test_a_project_counts_from_its_first_day_until_its_end() -> None:
    project = replace(DAILY, period="total", start=NOON - timedelta(days=10), end=NOON + timedelta(hours=2))
    standing = stands(project, (spent("30"),), (burn("5"),))
    assert standing.period == Period(start=project.start, end=project.end)  # type: ignore[arg-type]
    assert standing.pace == Fraction(30, 40) - Fraction(240, 242)
    month = replace(DAILY, period="month", start=NOON, end=NOON + timedelta(days=30))
    assert find_budget_period(month, NOON) == Period(start=NOON, end=make_month(2026, 11, UTC).end)
    assert find_budget_period(month, NOON + timedelta(days=29)) == Period(
        start=make_month(2026, 12, UTC).start, end=NOON + timedelta(days=30)
    )
    moments = (NOON - timedelta(days=11), NOON, NOON + timedelta(hours=2))
    assert [list_current_budgets((project, DAILY), at) for at in moments] == [(DAILY,), (project, DAILY), (DAILY,)]
