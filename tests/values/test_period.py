"""Half-open periods: what lies inside, what only touches, and what cannot be one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from costguard.errors import InputError
from costguard.values.calendar import Period


def at(hour: int) -> datetime:
    return datetime(2026, 11, 21, hour, tzinfo=UTC)


MORNING = Period(start=at(6), end=at(12))


@pytest.mark.parametrize(("hour", "inside"), [(5, False), (6, True), (11, True), (12, False)])
def test_a_period_holds_its_start_and_not_its_end(hour: int, inside: bool) -> None:  # noqa: FBT001 - a column of the table
    assert MORNING.holds(at(hour)) is inside


def test_the_length_is_from_start_to_end_and_an_empty_period_holds_nothing() -> None:
    assert MORNING.length == timedelta(hours=6)
    empty = Period(start=at(6), end=at(6))
    assert empty.length == timedelta(0)
    assert not empty.holds(at(6))


def test_the_overlap_is_what_lies_in_both_whoever_asks() -> None:
    lunch = Period(start=at(11), end=at(14))
    assert MORNING.intersect(lunch) == lunch.intersect(MORNING) == Period(start=at(11), end=at(12))
    assert MORNING.intersect(MORNING) == MORNING


def test_periods_that_only_touch_do_not_overlap() -> None:
    assert MORNING.intersect(Period(start=at(12), end=at(14))) is None
    assert MORNING.intersect(Period(start=at(13), end=at(14))) is None


def test_a_period_cannot_end_before_it_starts() -> None:
    with pytest.raises(InputError, match="swap them"):
        Period(start=at(12), end=at(6))


@pytest.mark.parametrize("zone", [None, timezone(timedelta(hours=1))])
def test_an_instant_outside_utc_is_refused_by_field(zone: timezone | None) -> None:
    with pytest.raises(InputError, match=r"period\.end"):
        Period(start=at(6), end=datetime(2026, 11, 21, 12, tzinfo=zone))
