"""Shares of a fleet are rounded down, and each allows at least one."""

from __future__ import annotations

from dataclasses import replace
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


@pytest.mark.parametrize(("fleet", "in_day"), [(1, 20), (10, 20), (20, 40), (41, 82), (100, 200)])
def test_by_default_each_machine_may_be_stopped_twice_a_day_and_twenty_times_in_all(fleet: int, in_day: int) -> None:
    assert (get_limit_10m(fleet, Rails()), get_limit_day(fleet, Rails())) == (min(15, max(1, fleet)), in_day)


@pytest.mark.parametrize(
    ("rails", "expected"),
    [
        (Rails(), (1, 3, Fraction(1, 2))),
        (Rails(acts_per_10m=10), (1, 10, Fraction(1, 2))),
        (Rails(acts_per_run=2, acts_per_10m=2, fleet_share_day=Fraction(1, 10)), (2, 2, Fraction(1, 10))),
    ],
)
def test_what_nobody_accepted_is_limited_as_the_settings_say_or_else_more_than_the_rest(
    rails: Rails, expected: tuple[int, int, Fraction]
) -> None:
    limited = rails.limit_unaccepted()
    assert (limited.acts_per_run, limited.acts_per_10m, limited.fleet_share_day) == expected
    assert replace(limited, acts_per_run=5, acts_per_10m=15, fleet_share_day=rails.fleet_share_day) == replace(
        rails, acts_per_run=5, acts_per_10m=15
    )
