"""Schedules are desired states: what should be off now, since when and until when, by the clock of any zone."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costguard.errors import InputError
from costguard.guard.policy import Exemption, OffWindow, Schedule, evaluate_schedule

BERLIN = ZoneInfo("Europe/Berlin")
HOUR = timedelta(hours=1)
NIGHTS = OffWindow(start=time(20), end=time(8))
ZONES = (
    *("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/St_Johns", "Asia/Kathmandu", "Pacific/Apia"),
    *("America/Sao_Paulo", "Asia/Beirut", "Africa/Casablanca", "Pacific/Chatham", "America/Havana", "Antarctica/Troll"),
)


def at(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> datetime:
    """An instant by the clock of Berlin."""
    return datetime(year, month, day, hour, minute, tzinfo=BERLIN).astimezone(UTC)


def berlin(*off: OffWindow, holidays: frozenset[date] = frozenset(), exemptions: tuple[Exemption, ...] = ()) -> Schedule:
    return Schedule(zone=BERLIN, off=off, holidays=holidays, exemptions=exemptions)


def test_at_night_it_should_be_off_since_eight_until_eight() -> None:
    night = (True, at(2026, 11, 24, 20), at(2026, 11, 25, 8))
    assert evaluate_schedule(berlin(NIGHTS), at(2026, 11, 24, 20)) == night
    assert evaluate_schedule(berlin(NIGHTS), at(2026, 11, 24, 20, 41)) == night
    assert evaluate_schedule(berlin(NIGHTS), at(2026, 11, 25, 7, 59)) == night
    assert evaluate_schedule(berlin(NIGHTS), at(2026, 11, 25, 8)) == (False, at(2026, 11, 25, 8), at(2026, 11, 25, 20))


@pytest.mark.parametrize(("evening", "hours"), [((2026, 10, 24), 13), ((2026, 3, 28), 11), ((2026, 6, 1), 12)])
def test_the_night_is_as_long_as_it_is(evening: tuple[int, int, int], hours: int) -> None:
    found = evaluate_schedule(berlin(NIGHTS), at(*evening, 23))
    assert found.since is not None
    assert found.until is not None
    assert found.until - found.since == hours * HOUR


def test_a_time_that_the_clocks_skip_is_the_instant_at_which_they_jump() -> None:
    found = evaluate_schedule(berlin(OffWindow(start=time(2, 30), end=time(4))), at(2026, 3, 29, 3, 30))
    assert found == (True, datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 3, 29, 2, tzinfo=UTC))


def test_of_a_time_that_comes_twice_the_first_is_meant() -> None:
    schedule = berlin(OffWindow(start=time(1, 30), end=time(2, 30)))
    first, second = datetime(2026, 10, 25, 0, 15, tzinfo=UTC), datetime(2026, 10, 25, 1, 15, tzinfo=UTC)
    assert evaluate_schedule(schedule, first).off
    assert not evaluate_schedule(schedule, second).off


def test_days_are_those_on_which_it_starts() -> None:
    fridays = berlin(OffWindow(start=time(20), end=time(8), days=frozenset((4,))))
    assert evaluate_schedule(fridays, at(2026, 11, 28, 7)).off, "Saturday morning belongs to Friday's night"
    assert not evaluate_schedule(fridays, at(2026, 11, 28, 21)).off


def test_windows_that_touch_are_one() -> None:
    weekend = OffWindow(start=time(), end=time(), days=frozenset((5, 6)))
    found = evaluate_schedule(berlin(NIGHTS, weekend), at(2026, 11, 28, 12))
    assert found == (True, at(2026, 11, 27, 20), at(2026, 11, 30, 8))


def test_a_holiday_is_off_all_day() -> None:
    found = evaluate_schedule(berlin(holidays=frozenset((date(2026, 12, 25),))), at(2026, 12, 25, 12))
    assert found == (True, at(2026, 12, 25), at(2026, 12, 26))


def test_in_an_exemption_nothing_is_wanted_and_around_it_all() -> None:
    exempt = Exemption(start=at(2026, 11, 24, 22), end=at(2026, 11, 24, 23), why="release")
    schedule = berlin(NIGHTS, exemptions=(exempt,))
    assert evaluate_schedule(schedule, at(2026, 11, 24, 21, 59)) == (True, at(2026, 11, 24, 20), exempt.start)
    assert evaluate_schedule(schedule, exempt.start) == (False, exempt.start, exempt.end)
    assert evaluate_schedule(schedule, exempt.end) == (True, exempt.end, at(2026, 11, 25, 8))


def test_what_is_always_off_has_no_beginning_and_no_end_and_what_never_is_neither() -> None:
    assert evaluate_schedule(berlin(OffWindow(start=time(), end=time())), at(2026, 11, 24)) == (True, None, None)
    assert evaluate_schedule(berlin(), at(2026, 11, 24)) == (False, None, None)


def test_an_exemption_ends_after_it_starts() -> None:
    with pytest.raises(InputError, match="must be after its start"):
        Exemption(start=at(2026, 1, 2), end=at(2026, 1, 2))


walls = st.builds(time, st.integers(0, 23), st.sampled_from((0, 15, 30, 45)))
offs = st.builds(OffWindow, start=walls, end=walls, days=st.frozensets(st.integers(0, 6)))
instants = st.datetimes(datetime(2011, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis adds the zone


@settings(deadline=None)
@given(st.sampled_from(ZONES), st.lists(offs, max_size=3), instants)
def test_in_every_zone_the_answer_holds_now_and_to_its_end_and_is_another_at_its_end(
    zone: str, off: list[OffWindow], now: datetime
) -> None:
    schedule = Schedule(zone=ZoneInfo(zone), off=tuple(off))
    found = evaluate_schedule(schedule, now)
    assert found.since is None or found.since <= now
    if found.until is not None:
        assert now < found.until
        assert evaluate_schedule(schedule, found.until - timedelta(microseconds=1)).off == found.off
        assert evaluate_schedule(schedule, found.until).off != found.off
    if found.since is not None:
        assert evaluate_schedule(schedule, found.since).off == found.off
        assert evaluate_schedule(schedule, found.since - timedelta(microseconds=1)).off != found.off


@settings(deadline=None)
@given(st.sampled_from(ZONES), walls, walls, instants)
def test_away_from_changes_of_the_clock_it_is_what_the_clock_on_the_wall_says(
    zone: str, start: time, end: time, now: datetime
) -> None:
    there = ZoneInfo(zone)
    offsets = {(now + hours * HOUR).astimezone(there).utcoffset() for hours in range(-49, 49)}
    wall = now.astimezone(there).time()
    inside = start <= wall < end if start < end else (wall >= start or wall < end)
    if len(offsets) == 1:
        assert evaluate_schedule(Schedule(zone=there, off=(OffWindow(start=start, end=end),)), now).off == inside
