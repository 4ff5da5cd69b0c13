"""Shares of a fleet are rounded down, and each allows at least one."""

from __future__ import annotations

from fractions import Fraction

import pytest

from costguard.guard.limits import get_limit_10m, get_limit_day
from costguard.guard.policy import Rails

RAILS = Rails(acts_per_10m=1000, fleet_share_10m=Fraction(10, 100), fleet_share_day=Fraction(20, 100), acts_least_day=1)


@pytest.mark.parametrize(("fleet", "in_10m", "in_day"), [(0, 1, 1), (1, 1, 1), (9, 1, 1), (11, 1, 2), (19, 1, 3), (29, 2, 5)])
def test_a_tenth_and_a_fifth_of_a_fleet_are_rounded_down_to_one_at_least(fleet: int, in_10m: int, in_day: int) -> None:
    assert (get_limit_10m(fleet, RAILS), get_limit_day(fleet, RAILS)) == (in_10m, in_day)


def test_a_share_that_no_float_holds_is_counted_exactly() -> None:
    assert get_limit_day(30, Rails(fleet_share_day=Fraction(7, 10))) == 21
    assert get_limit_day(100, Rails(fleet_share_day=Fraction(29, 100))) == 29


@pytest.mark.parametrize(("fleet", "in_day"), [(1, 20), (20, 20), (40, 20), (41, 20), (42, 21), (100, 50)])
def test_by_default_half_of_the_fleet_may_be_stopped_in_a_day_and_twenty_at_least(fleet: int, in_day: int) -> None:
    assert (get_limit_10m(fleet, Rails()), get_limit_day(fleet, Rails())) == (min(3, max(1, fleet)), in_day)
