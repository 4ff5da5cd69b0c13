"""Half-open periods in UTC, `[start, end)`, among them billing periods: days, weeks, months and years of a time zone.

Example: November 2026 in America/New_York is [2026-11-01T04:00Z, 2026-12-01T05:00Z): 721 hours, because the clocks go back in
it. A day begins at its first instant: the clock change if the clocks skip midnight, the first midnight if midnight occurs
twice. So the periods of one kind tile the time line in every zone: each ends where the next begins.

A zone is passed as a `tzinfo`; the settings look it up, and this module reads no disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache

from costguard.values.checks import require, require_whole_number
from costguard.values.instant import EARLIEST, LATEST, require_instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """The instants t with start <= t < end. Both ends are aware and in UTC; an empty period has start == end."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        for field, at in (("period.start", self.start), ("period.end", self.end)):
            require(at.tzinfo is UTC, field, f"must be a time in UTC, not {at!r}", "use datetime(..., tzinfo=UTC)")
        require(self.start <= self.end, "period", f"ends ({self.end}) before it starts ({self.start})", "swap them")

    @property
    def length(self) -> timedelta:
        """Return end - start."""
        return self.end - self.start

    def holds(self, at: datetime) -> bool:
        """Return whether `at` lies inside; the end does not."""
        return self.start <= at < self.end

    def intersect(self, other: Period) -> Period | None:
        """Return the common part, or None if the periods only touch or are apart."""
        start, end = max(self.start, other.start), min(self.end, other.end)
        return Period(start=start, end=end) if start < end else None


DAY = timedelta(days=1)
WEEK = timedelta(days=7)
MONTHS_A_QUARTER, MONTHS_A_YEAR = 3, 12
LONGEST_ROLLING_DAYS = 3660
"""Days: ten years, longer than any budget."""


def make_day(on: date, zone: tzinfo) -> Period:
    """Return the day `on`: normally 23 to 25 hours, empty if the zone skipped it (Pacific/Apia, 2011-12-30)."""
    return Period(start=_find_day_start(on, zone), end=_find_day_start(on + DAY, zone))


def make_week(on: date, zone: tzinfo) -> Period:
    """Return the ISO week, Monday to Sunday, that contains the day `on`."""
    monday = on - on.weekday() * DAY
    return Period(start=_find_day_start(monday, zone), end=_find_day_start(monday + WEEK, zone))


def make_month(year: int, month: int, zone: tzinfo) -> Period:
    """Return a calendar month; `month` is 1 to 12."""
    require_whole_number(year, "year", least=EARLIEST.year, most=LATEST.year - 1)
    require_whole_number(month, "month", most=MONTHS_A_YEAR)
    following = date(year + month // MONTHS_A_YEAR, month % MONTHS_A_YEAR + 1, 1)
    return Period(start=_find_day_start(date(year, month, 1), zone), end=_find_day_start(following, zone))


def find_day(at: datetime, zone: tzinfo) -> Period:
    """Return the day that contains the instant `at`."""
    return make_day(_find_date(at, zone), zone)


def find_week(at: datetime, zone: tzinfo) -> Period:
    """Return the ISO week, Monday to Sunday, that contains the instant `at`."""
    return make_week(_find_date(at, zone), zone)


def find_month(at: datetime, zone: tzinfo) -> Period:
    """Return the calendar month that contains the instant `at`."""
    on = _find_date(at, zone)
    return make_month(on.year, on.month, zone)


def find_quarter(at: datetime, zone: tzinfo) -> Period:
    """Return the quarter, from January, April, July or October on, that contains the instant `at`."""
    on = _find_date(at, zone)
    return _make_months(on.year, (on.month - 1) // MONTHS_A_QUARTER * MONTHS_A_QUARTER + 1, MONTHS_A_QUARTER, zone)


def find_year(at: datetime, zone: tzinfo) -> Period:
    """Return the calendar year that contains the instant `at`."""
    return _make_months(_find_date(at, zone).year, 1, MONTHS_A_YEAR, zone)


def _make_months(year: int, month: int, count: int, zone: tzinfo) -> Period:
    """Return `count` months of one year from `month` on."""
    return Period(start=make_month(year, month, zone).start, end=make_month(year, month + count - 1, zone).end)


def make_rolling_window(at: datetime, days: int) -> Period:
    """Return the `days` times 24 hours before `at`; no zone is needed. `at` itself is not included."""
    require_whole_number(days, "days", most=LONGEST_ROLLING_DAYS)
    return Period(start=require_instant(at, "at") - days * DAY, end=at)


def resolve_wall_time(on: date, at: time, zone: tzinfo) -> datetime:
    """Return the first instant at which the clock of `zone` has reached `at` on the day `on`.

    A time that the clocks skip resolves to the clock change, a time that occurs twice to the first occurrence.
    """
    wall = datetime.combine(on, at)
    first = wall.replace(tzinfo=zone).astimezone(UTC)
    if first.astimezone(zone).replace(tzinfo=None) == wall:
        return first
    # The clocks skip it: between its two readings (PEP 495) lies the instant at which they jump, on a whole second.
    begun, lower = first, wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    while (apart := (begun - lower) // timedelta(seconds=1)) > 1:
        middle = lower + timedelta(seconds=apart // 2)
        if middle.astimezone(zone).replace(tzinfo=None) >= wall:
            begun = middle
        else:
            lower = middle
    return begun


def _find_date(at: datetime, zone: tzinfo) -> date:
    """Return the date at `at`. If clocks go back over midnight, the new day continues and the old one does not resume."""
    on = require_instant(at, "at").astimezone(zone).date()
    return on + DAY if _find_day_start(on + DAY, zone) <= at else on


def _find_day_start(on: date, zone: tzinfo) -> datetime:
    """Return the first instant of the day `on`; for a day that the zone skipped, that of the next day."""
    return resolve_wall_time(on, time(), zone)


@lru_cache(maxsize=4096)
def find_month_of_day(day: int) -> int:
    """Return the month (since 1970, UTC) of a day since 1970: 31 is February 1970, month 1."""
    at = date.fromordinal(date(1970, 1, 1).toordinal() + day)
    return 12 * (at.year - 1970) + at.month - 1


def find_month_start(month: int) -> datetime:
    """Return when a month (since 1970) begins in UTC."""
    return datetime(1970 + month // 12, month % 12 + 1, 1, tzinfo=UTC)
