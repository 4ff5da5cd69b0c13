"""Shares of a fleet are rounded down, and each allows at least one."""

from __future__ import annotations

from fractions import Fraction

import pytest

from costguard.guard.limits import most_in_10m, most_in_day
from costguard.guard.policy import Rails

RAILS = Rails(acts_per_10m=1000)


@pytest.mark.parametrize(("fleet", "in_10m", "in_day"), [(0, 1, 1), (1, 1, 1), (9, 1, 1), (11, 1, 2), (19, 1, 3), (29, 2, 5)])
def test_a_tenth_and_a_fifth_of_a_fleet_are_rounded_down_to_one_at_least(fleet: int, in_10m: int, in_day: int) -> None:
    assert (most_in_10m(fleet, RAILS), most_in_day(fleet, RAILS)) == (in_10m, in_day)


def test_a_share_that_no_float_holds_is_counted_exactly() -> None:
    assert most_in_day(30, Rails(fleet_share_day=Fraction(7, 10))) == 21
    assert most_in_day(100, Rails(fleet_share_day=Fraction(29, 100))) == 29
