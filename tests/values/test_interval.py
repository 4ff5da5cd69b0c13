"""Intervals stay in order, and sums and products are never narrower than their parts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.errors import InputError
from costguard.values.interval import Interval

sizes = st.floats(min_value=0, max_value=1e6)
intervals = st.lists(sizes, min_size=3, max_size=3).map(lambda three: Interval(*sorted(three)))


def test_independent_factors_widen_less_than_both_at_once() -> None:
    together = Interval.around(10, 1.5).multiply_independent(Interval.around(1, 1.5))
    assert together.expected == 10
    assert together.high == pytest.approx(10 * math.exp(math.hypot(math.log(1.5), math.log(1.5))))
    assert together.high < Interval.around(10, 1.5).multiply(Interval.around(1, 1.5)).high


def test_zero_has_no_inverse() -> None:
    with pytest.raises(InputError, match="no inverse"):
        Interval(0, 1, 2).invert()


@pytest.mark.parametrize("ends", [(2, 1, 3), (1, 3, 2), (-1, 0, 1), (0, 1, math.inf), (math.nan, 1, 2)])
def test_disorder_and_infinity_cannot_be_built(ends: tuple[float, float, float]) -> None:
    with pytest.raises(InputError, match="interval"):
        Interval(*ends)


@given(intervals, intervals)
def test_any_sum_and_product_is_in_order(a: Interval, b: Interval) -> None:
    for made in (a.add(b), a.multiply(b), a.multiply_independent(b), a.scale(2.5)):
        assert 0 <= made.low <= made.expected <= made.high
