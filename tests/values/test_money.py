"""Money is exact, adds up however a period is split, and is never a float."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.errors import InputError
from costguard.values.money import NANO, Money, MoneyInterval, Rate, divide_half_even

NANOS = st.integers(min_value=-(10**20), max_value=10**20)
RATES = st.integers(min_value=1, max_value=10**14)
SECONDS = st.integers(min_value=0, max_value=10**9)


def test_twelve_hours_at_two_forty_nine() -> None:
    assert Rate.parse("2.49").multiply_seconds(12 * 3600) == Money.parse("29.88")


@pytest.mark.parametrize(
    ("text", "nano"), [("2.49", 2_490_000_000), ("0.000000001", 1), ("-3", -3 * NANO), ("1e2", 100 * NANO)]
)
def test_decimal_text_is_read_exactly(text: str, nano: int) -> None:
    assert Money.parse(text).nano == nano


@pytest.mark.parametrize("wrong", [2.49, True, None, "", "two", "NaN", "Infinity", "0.0000000001", "$2", [2]], ids=repr)
def test_what_is_no_exact_amount_is_refused(wrong: Any) -> None:  # noqa: ANN401 - whatever a caller may hand in
    with pytest.raises(InputError):
        Money.parse(wrong)


def test_an_amount_beyond_all_numbers_is_refused() -> None:
    for text in ("1e999999999", "1e900000", "-1e19"):
        with pytest.raises(InputError):
            Money.parse(text)


@pytest.mark.parametrize("wrong", [0.5, True, Decimal(1), "1"], ids=repr)
def test_money_holds_an_integer_only(wrong: Any) -> None:  # noqa: ANN401
    with pytest.raises(InputError):
        Money(nano=wrong)


@pytest.mark.parametrize("wrong", ["0", "-1", "0.0"])
def test_a_price_of_zero_or_less_is_no_rate(wrong: str) -> None:
    with pytest.raises(InputError, match="more than zero"):
        Rate.parse(wrong)


@pytest.mark.parametrize("code", ["usd", "US", "DOLLAR", "", "\u00c4\u00d6\u00dc"])
def test_a_currency_is_three_capital_letters(code: str) -> None:
    with pytest.raises(InputError, match="currency"):
        Money(nano=1, currency=code)


def test_currencies_do_not_mix() -> None:
    with pytest.raises(InputError, match="cannot mix"):
        Money.parse("1") + Money.parse("1", "EUR")


@pytest.mark.parametrize(("text", "shown"), [("0.125", "0.12"), ("0.135", "0.14"), ("-0.125", "-0.12"), ("2", "2.00")])
def test_display_rounds_half_to_even(text: str, shown: str) -> None:
    assert Money.parse(text).format() == shown


@given(NANOS, NANOS)
def test_sums_and_differences_are_exact(a: int, b: int) -> None:
    assert (Money(nano=a) + Money(nano=b)).nano == a + b
    assert (Money(nano=a) - Money(nano=b)).nano == a - b


@given(NANOS)
def test_text_of_nine_decimals_reads_back_as_the_same_money(nano: int) -> None:
    assert Money.parse(Money(nano=nano).format(9)) == Money(nano=nano)


@given(NANOS, st.integers(min_value=1, max_value=10**6))
def test_division_rounds_half_to_even(numerator: int, denominator: int) -> None:
    assert divide_half_even(numerator, denominator) == round(Fraction(numerator, denominator))


@given(RATES, st.lists(SECONDS, min_size=1, max_size=20))
def test_the_parts_of_a_period_add_up_within_half_a_nano_each(nano_per_hour: int, parts: list[int]) -> None:
    rate = Rate(nano_per_hour=nano_per_hour)
    apart = sum(rate.multiply_seconds(seconds).nano for seconds in parts)
    assert abs(apart - rate.multiply_seconds(sum(parts)).nano) <= (len(parts) + 1) / 2


@given(RATES, st.lists(st.integers(min_value=0, max_value=10**5), min_size=1, max_size=20))
def test_whole_hours_add_up_exactly(nano_per_hour: int, hours: list[int]) -> None:
    rate = Rate(nano_per_hour=nano_per_hour)
    assert sum(rate.multiply_seconds(h * 3600).nano for h in hours) == rate.multiply_seconds(sum(hours) * 3600).nano


def test_a_cost_rounds_half_to_even() -> None:
    assert [Rate(nano_per_hour=nano).multiply_seconds(1800).nano for nano in (1, 3, 5)] == [0, 2, 2]


def test_intervals_are_added_and_multiplied_end_by_end_and_by_exact_numbers_only() -> None:
    one = MoneyInterval(low=Money(nano=10**9), expected=Money(nano=2 * 10**9), high=Money(nano=3 * 10**9))
    assert one + one == one * 2 == 2 * one == sum([one, one])
    assert one * Fraction(1, 3) == MoneyInterval(
        low=Money(nano=333_333_333), expected=Money(nano=666_666_667), high=Money(nano=10**9)
    )
    assert str(one * -1) == "-$2.00 (-3.00 to -1.00)"
    with pytest.raises(TypeError):
        one * 1.5  # type: ignore[operator]
