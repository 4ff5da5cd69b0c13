"""Billing periods: days, weeks, months and years of a time zone, as half-open periods of UTC.

Example: November 2026 in America/New_York is [2026-11-01T04:00Z, 2026-12-01T05:00Z): 721 hours, because the clocks go back in
it. A day begins at its first instant: where the clocks skip midnight that is when they have jumped, where midnight comes
twice it is the first. So periods of a kind tile the line in every zone: each ends where the next begins.

A zone comes in as a `tzinfo`: the settings look it up, and nothing here reads a disk.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, tzinfo

from costguard.values.checks import whole
from costguard.values.instant import EARLIEST, LATEST, sensible
from costguard.values.period import Period

DAY = timedelta(days=1)
WEEK = timedelta(days=7)
MONTHS = 12
LONGEST_ROLLING = 3660
"""Days: ten years, longer than any budget."""


def day(on: date, zone: tzinfo) -> Period:
    """The day `on`: 23 to 25 hours as a rule, none at all where a zone skipped it (Pacific/Apia, 2011-12-30)."""
    return Period(start=_first(on, zone), end=_first(on + DAY, zone))


def week(on: date, zone: tzinfo) -> Period:
    """The ISO week, Monday to Sunday, that holds the day `on`."""
    monday = on - on.weekday() * DAY
    return Period(start=_first(monday, zone), end=_first(monday + WEEK, zone))


def month(year: int, month: int, zone: tzinfo) -> Period:
    """One calendar month, `month` from 1 to 12."""
    whole(year, "year", least=EARLIEST.year, most=LATEST.year - 1)
    whole(month, "month", most=MONTHS)
    following = date(year + month // MONTHS, month % MONTHS + 1, 1)
    return Period(start=_first(date(year, month, 1), zone), end=_first(following, zone))


def year(year: int, zone: tzinfo) -> Period:
    """One calendar year."""
    return Period(start=month(year, 1, zone).start, end=month(year, MONTHS, zone).end)


def day_of(at: datetime, zone: tzinfo) -> Period:
    """The day that holds the instant `at`."""
    return day(_date_of(at, zone), zone)


def week_of(at: datetime, zone: tzinfo) -> Period:
    """The ISO week, Monday to Sunday, that holds the instant `at`."""
    return week(_date_of(at, zone), zone)


def month_of(at: datetime, zone: tzinfo) -> Period:
    """The calendar month that holds the instant `at`."""
    on = _date_of(at, zone)
    return month(on.year, on.month, zone)


def year_of(at: datetime, zone: tzinfo) -> Period:
    """The calendar year that holds the instant `at`."""
    return year(_date_of(at, zone).year, zone)


def rolling(at: datetime, days: int) -> Period:
    """The `days` times 24 hours before `at`, which needs no zone. It ends at `at`, which it does not hold."""
    whole(days, "days", most=LONGEST_ROLLING)
    return Period(start=sensible(at, "at") - days * DAY, end=at)


def reached(on: date, at: time, zone: tzinfo) -> datetime:
    """The first instant at which the clock of `zone` has reached `at` on the day `on`.

    A time that the clocks skip is the instant at which they jump; of a time that comes twice the first is meant.
    """
    wall = datetime.combine(on, at)
    first = wall.replace(tzinfo=zone).astimezone(UTC)
    if first.astimezone(zone).replace(tzinfo=None) == wall:
        return first
    # The clocks skip it: between its two readings (PEP 495) lies the instant at which they jump, on a whole second.
    begun, before = first, wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    while (apart := (begun - before) // timedelta(seconds=1)) > 1:
        middle = before + timedelta(seconds=apart // 2)
        if middle.astimezone(zone).replace(tzinfo=None) >= wall:
            begun = middle
        else:
            before = middle
    return begun


def _date_of(at: datetime, zone: tzinfo) -> date:
    """The date at `at`. Once a day has begun it stays begun: clocks that go back over midnight do not bring yesterday back."""
    on = sensible(at, "at").astimezone(zone).date()
    return on + DAY if _first(on + DAY, zone) <= at else on


def _first(on: date, zone: tzinfo) -> datetime:
    """The first instant of the day `on`. For a day that a zone skipped: that of the day after."""
    return reached(on, time(), zone)
