"""Which reports are due: by the clock of a zone, once each, and never of what ended before anybody asked for them."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.reporting.schedule import (
    MOST_DUE_REPORTS,
    REPORT_FREQUENCIES,
    ReportSchedule,
    ScheduleMark,
    find_schedule_changes,
    list_due_reports,
)

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def schedule(every: str = "month", at: time = time(8), name: str = "team") -> ReportSchedule:
    return ReportSchedule(name=name, every=every, at=at, channels=("console",), by=("owner",))


def labels(every: str, since: datetime, now: datetime, at: time = time(8)) -> list[str]:
    return [one.of.label for one in list_due_reports(schedule(every, at), since, now, BERLIN)]


def test_a_month_is_due_at_its_hour_of_the_first_day_after_it() -> None:
    since = datetime(2026, 10, 20, tzinfo=UTC)
    due = datetime(2026, 11, 1, 7, tzinfo=UTC)  # 08:00 CET
    assert labels("month", since, due - timedelta(seconds=1)) == []
    [one] = list_due_reports(schedule(), since, due, BERLIN)
    assert (one.of.label, one.at, one.skipped) == ("2026-10", due, 0)
    assert (one.is_late(due + HOUR), one.is_late(due + HOUR + timedelta(seconds=1))) == (False, True)


def test_what_was_reported_is_not_due_again_and_what_ended_before_anybody_asked_never_is() -> None:
    end_of_october = datetime(2026, 10, 31, 23, tzinfo=UTC)
    assert labels("month", end_of_october, NOON) == []
    assert labels("month", end_of_october - timedelta(microseconds=1), NOON) == ["2026-10"]
    assert labels("month", end_of_october, NOON + 30 * DAY) == ["2026-11"]


def test_after_a_long_while_the_newest_are_due_and_say_how_many_are_left_out() -> None:
    found = list_due_reports(schedule("day"), NOON - 30 * DAY, NOON, BERLIN)
    assert [one.of.label for one in found] == [f"2026-10-{day}" for day in range(25, 32)]
    assert len(found) == MOST_DUE_REPORTS
    assert [one.skipped for one in found] == [23, *[0] * 6]


@pytest.mark.parametrize(
    ("day", "at", "due"),
    [
        ("2026-03-28", "02:30", "2026-03-29T01:00"),  # the clocks skip it: when they jump, at 03:00 CEST
        ("2026-10-24", "02:30", "2026-10-25T00:30"),  # it comes twice: the first, in CEST
        ("2026-03-28", "08:00", "2026-03-29T06:00"),
        ("2026-10-24", "08:00", "2026-10-25T07:00"),
        ("2026-03-28", "00:00", "2026-03-28T23:00"),
    ],
)
def test_the_hour_is_that_of_the_clock_on_the_wall(day: str, at: str, due: str) -> None:
    when = datetime.fromisoformat(f"{due}+00:00")
    hour = time.fromisoformat(at)
    since = datetime.fromisoformat(f"{day}T12:00+00:00")
    assert labels("day", since, when, hour) == [day]
    assert labels("day", since, when - timedelta(seconds=1), hour) == []


def test_a_day_that_a_zone_skipped_has_no_report() -> None:
    apia = ZoneInfo("Pacific/Apia")  # went from 29 to 31 December 2011
    since = datetime(2011, 12, 28, 12, tzinfo=UTC)
    found = list_due_reports(schedule("day"), since, datetime(2012, 1, 1, tzinfo=UTC), apia)
    assert [one.of.label for one in found] == ["2011-12-28", "2011-12-29", "2011-12-31"]


@given(
    every=st.sampled_from(REPORT_FREQUENCIES),
    zone=st.sampled_from(
        ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Havana"]
    ),
    hour=st.times(),
    start=st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - given its zone there
    steps=st.lists(st.integers(1, 400), min_size=1, max_size=12),
)
def test_whenever_somebody_looks_each_period_is_reported_once_and_in_order(
    every: str, zone: str, hour: time, start: datetime, steps: list[int]
) -> None:
    """However far apart the looks are: what is left out is counted, and nothing else is missing."""
    one, place = schedule(every, hour.replace(second=0, microsecond=0)), ZoneInfo(zone)
    since, now, reported, skipped = start, start, list[datetime](), 0
    for step in steps:
        now += step * HOUR
        for found in list_due_reports(one, since, now, place):
            assert found.of.period.end > start
            assert found.at <= now
            reported.append(found.of.period.start)
            skipped += found.skipped
            since = found.of.period.end
    assert reported == sorted(set(reported))
    every_one = list_due_reports(one, start, now, place)
    assert len(reported) + skipped == len(every_one) + sum(found.skipped for found in every_one)


def test_a_schedule_is_new_where_nothing_that_counts_is_known_of_it() -> None:
    month, week = schedule(), schedule("week", name="lab")
    marks = {"report:team": ScheduleMark("month", NOON), "report:gone": ScheduleMark("day", NOON)}
    assert find_schedule_changes([month, week], marks, NOON) == ((week,), ("report:gone",))
    assert find_schedule_changes([schedule("day")], marks, NOON)[0] == (
        schedule("day"),
    )  # it reports other periods than before
    assert find_schedule_changes([month], {"report:team": ScheduleMark("month", NOON + DAY)}, NOON)[0] == (
        month,
    )  # a wrong clock wrote that
