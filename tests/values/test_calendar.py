"""Days, weeks and months tile the line in every zone, also where midnight is skipped or comes twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costguard.errors import InputError
from costguard.values import calendar
from costguard.values.calendar import Period
from tests.campaign import examples

ZONES = sorted(available_timezones())
FIRST, LAST = 2020, 2040
TICK = timedelta(microseconds=1)
DAY = timedelta(days=1)


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]  # year, month, day and so on


def wall(at: datetime, zone: tzinfo) -> datetime:
    return at.astimezone(zone).replace(tzinfo=None)


def holds_its_own(period: Period, of: Callable[[datetime, tzinfo], Period], zone: tzinfo) -> bool:
    middle = period.start + period.length / 2
    return all(of(at, zone) == period for at in (period.start, middle, period.end - TICK))


@pytest.mark.sampled(7, first=3)
@pytest.mark.parametrize("letter", sorted({name[0] for name in ZONES}))
def test_months_tile_the_line_and_hold_their_instants_in_every_zone(letter: str) -> None:
    for name in (name for name in ZONES if name[0] == letter):
        zone = ZoneInfo(name)
        months = [calendar.make_month(year, month, zone) for year in range(FIRST, LAST + 1) for month in range(1, 13)]
        assert all(one.end == after.start for one, after in pairwise(months)), name
        assert all(timedelta(days=27, hours=20) < month.length < timedelta(days=31, hours=4) for month in months), name
        assert all(holds_its_own(month, calendar.find_month, zone) for month in months), name


@pytest.mark.sampled(7, first=3)
@pytest.mark.parametrize("letter", sorted({name[0] for name in ZONES}))
def test_days_and_weeks_tile_the_line_around_every_change_of_the_clocks(letter: str) -> None:
    for name in (name for name in ZONES if name[0] == letter):
        zone = ZoneInfo(name)
        for on in changes(name):
            days = [calendar.make_day(on + n * DAY, zone) for n in range(-2, 3)]
            assert all(one.end == after.start for one, after in pairwise(days)), (name, on)
            assert all(timedelta(hours=20) < day.length < timedelta(hours=28) for day in days), (name, on)
            assert all(holds_its_own(day, calendar.find_day, zone) for day in days), (name, on)
            weeks = [calendar.make_week(on + n * DAY, zone) for n in (-7, 0, 7)]
            assert all(one.end == after.start for one, after in pairwise(weeks)), (name, on)
            assert all(holds_its_own(week, calendar.find_week, zone) for week in weeks), (name, on)


def changes(name: str) -> list[date]:
    """The days from 2020 to 2040 whose noon has another offset than the noon before."""
    zone, noon, found = ZoneInfo(name), datetime(FIRST, 1, 1, 12), []  # noqa: DTZ001 - noon on the wall of the zone
    before = zone.utcoffset(noon)
    while noon.year <= LAST:
        if (offset := zone.utcoffset(noon)) != before:
            found.append(noon.date())
        before, noon = offset, noon + DAY
    return found


@settings(max_examples=examples(1000), deadline=None)
@given(name=st.sampled_from(ZONES), at=st.datetimes(datetime(2000, 1, 3), datetime(2199, 12, 1), timezones=st.just(UTC)))  # noqa: DTZ001 - hypothesis adds the zone
def test_every_instant_lies_in_its_day_week_and_month(name: str, at: datetime) -> None:
    zone = ZoneInfo(name)
    day, week, month = (of(at, zone) for of in (calendar.find_day, calendar.find_week, calendar.find_month))
    assert day.holds(at)
    assert week.holds(at)
    assert month.holds(at)
    assert week.start <= day.start < day.end <= week.end
    assert month.start <= day.start < day.end <= month.end
    assert wall(day.start, zone).date() == wall(at, zone).date() or wall(at, zone) < wall(day.start, zone)


@pytest.mark.parametrize(
    ("name", "on", "start", "clock"),
    [
        ("America/Sao_Paulo", date(2018, 11, 4), utc(2018, 11, 4, 3), "01:00"),
        ("Asia/Beirut", date(2021, 3, 28), utc(2021, 3, 27, 22), "01:00"),
        ("Africa/Cairo", date(2024, 4, 26), utc(2024, 4, 25, 22), "01:00"),
        ("America/Havana", date(2024, 3, 10), utc(2024, 3, 10, 5), "01:00"),
        ("Asia/Gaza", date(2020, 3, 28), utc(2020, 3, 27, 22), "01:00"),
        ("Asia/Amman", date(2021, 3, 26), utc(2021, 3, 25, 22), "01:00"),
    ],
)
def test_where_midnight_is_skipped_the_day_begins_as_the_clocks_jump(name: str, on: date, start: datetime, clock: str) -> None:
    zone = ZoneInfo(name)
    assert calendar.make_day(on, zone).start == start
    assert f"{wall(start, zone):%H:%M}" == clock
    assert wall(start - TICK, zone).date() == on - DAY
    assert calendar.make_day(on, zone).length == timedelta(hours=23)


def test_where_midnight_comes_twice_the_day_begins_at_the_first() -> None:
    zone = ZoneInfo("America/Havana")
    day = calendar.make_day(date(2024, 11, 3), zone)
    assert day == Period(start=utc(2024, 11, 3, 4), end=utc(2024, 11, 4, 5))
    assert wall(day.start, zone) == wall(day.start + timedelta(hours=1), zone)


def test_a_day_that_a_zone_skipped_is_empty_and_holds_nothing() -> None:
    apia = ZoneInfo("Pacific/Apia")
    skipped = calendar.make_day(date(2011, 12, 30), apia)
    assert skipped.length == timedelta(0)
    assert calendar.make_day(date(2011, 12, 29), apia).end == skipped.start == calendar.make_day(date(2011, 12, 31), apia).start
    assert calendar.find_day(skipped.start, apia) == calendar.make_day(date(2011, 12, 31), apia)
    assert calendar.make_month(2011, 12, apia).length == timedelta(days=30)


def test_a_month_in_new_york_has_the_hour_that_comes_twice() -> None:
    november = calendar.make_month(2026, 11, ZoneInfo("America/New_York"))
    assert november == Period(start=utc(2026, 11, 1, 4), end=utc(2026, 12, 1, 5))
    assert november.length == timedelta(hours=721)


def test_a_week_begins_on_monday_also_across_a_year() -> None:
    assert calendar.find_week(utc(2027, 1, 1), UTC) == Period(start=utc(2026, 12, 28), end=utc(2027, 1, 4))
    assert calendar.make_week(date(2026, 12, 28), UTC) == calendar.make_week(date(2027, 1, 3), UTC)


def test_a_rolling_window_ends_now_and_is_whole_days_of_24_hours() -> None:
    at = utc(2026, 11, 1, 12)
    assert calendar.make_rolling_window(at, 7) == Period(start=utc(2026, 10, 25, 12), end=at)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: calendar.make_month(2026, 13, UTC),
        lambda: calendar.make_month(2026, 0, UTC),
        lambda: calendar.make_month(1999, 12, UTC),
        lambda: calendar.make_month(2200, 1, UTC),
        lambda: calendar.make_rolling_window(utc(2026, 1, 1), 0),
        lambda: calendar.make_rolling_window(utc(2026, 1, 1), 10**6),
        lambda: calendar.find_month(datetime(2026, 1, 1), UTC),  # noqa: DTZ001 - what is refused
        lambda: calendar.find_day(utc(1970, 1, 1), UTC),
    ],
)
def test_what_is_no_period_is_refused(wrong: Callable[[], Period]) -> None:
    with pytest.raises(InputError):
        wrong()
