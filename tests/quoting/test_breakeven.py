"""Buy or rent: the source documents' three rows, and what they leave out."""

from __future__ import annotations

import pytest

from costguard.errors import InputError
from costguard.quoting.breakeven import compute_break_even
from costguard.values.money import Money, Rate


@pytest.mark.parametrize(("price", "rent", "hours"), [("1600", "0.40", 4000), ("15000", "4", 3750), ("150000", "32", 4687.5)])
def test_source_rows_are_price_over_rent(price: str, rent: str, hours: float) -> None:
    assert compute_break_even(Money.parse(price), Rate.parse(rent)).hours == hours


def test_power_lengthens_and_resale_shortens_it() -> None:
    price, rent = Money.parse("1600"), Rate.parse("0.40")
    powered = compute_break_even(price, rent, power_w=450, usd_per_kwh="0.30")
    assert powered.hours == pytest.approx(1600 / 0.265)
    assert powered.plain_hours == 4000
    assert compute_break_even(price, rent, power_w=450, usd_per_kwh="0.30", resale=Money.parse("600")).hours == pytest.approx(
        1000 / 0.265
    )


def test_weeks_and_months_follow_from_hours_a_week() -> None:
    found = compute_break_even(Money.parse("1600"), Rate.parse("0.40"), hours_per_week=40)
    assert found.weeks == 100
    assert found.months == pytest.approx(100 * 12 / 52)


def test_power_dearer_than_rent_never_pays_back() -> None:
    found = compute_break_even(Money.parse("1600"), Rate.parse("0.10"), power_w=450, usd_per_kwh="0.30", hours_per_week=40)
    assert found.never
    assert (found.hours, found.weeks, found.months) == (None, None, None)
    assert found.explain[0].startswith("never")


def test_resale_above_the_price_pays_back_at_once() -> None:
    assert compute_break_even(Money.parse("1000"), Rate.parse("1"), resale=Money.parse("1200")).hours == 0


def test_money_of_two_currencies_is_refused() -> None:
    with pytest.raises(InputError, match="currency"):
        compute_break_even(Money.parse("1600", "EUR"), Rate.parse("0.40"))


@pytest.mark.parametrize("hours", [0, -1, 169])
def test_impossible_weeks_are_refused(hours: float) -> None:
    with pytest.raises(InputError, match="hours_per_week"):
        compute_break_even(Money.parse("1600"), Rate.parse("0.40"), hours_per_week=hours)


def test_upkeep_counts_as_power_does() -> None:
    found = compute_break_even(Money.parse("1000"), Rate.parse("1.00"), upkeep=Rate.parse("0.50"))
    assert found.hours == 2000
