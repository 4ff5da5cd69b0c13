"""Schedules: desired states by the clock of a zone. Never an event: what counts is what should be so now.

Example: off 20:00-08:00 Berlin. At 20:41 it should be off since 20:00, whoever slept at 20:00; in the night in which clocks go
back it should be off for 13 hours, and for 11 where they go forward.

A time that the clocks skip is the instant at which they jump; of a time that comes twice the first is meant.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple

from costguard.values.calendar import resolve_wall_time
from costguard.values.checks import require

DAY = timedelta(days=1)
DAYS_AROUND = 9
"""Days before and after now that are looked at: a week, and the windows at its edges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffWindow:
    """Off from `start` to `end` of the zone's clock, on the `days` (0: Monday) it starts on; `end` <= `start`: next day."""

    start: time
    end: time
    days: frozenset[int] = frozenset(range(7))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exemption:
    """From `start` on and before `end` the schedule wants nothing. One that lies in the past has no effect."""

    start: datetime
    end: datetime
    why: str = ""

    def __post_init__(self) -> None:
        require(self.start < self.end, "exemption.end", "must be after its start", "exchange them")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When it should be off, in `zone`. `holidays`: days on which it should be off all day."""

    zone: tzinfo
    off: tuple[OffWindow, ...]
    holidays: frozenset[date] = frozenset()
    exemptions: tuple[Exemption, ...] = ()


class ScheduleState(NamedTuple):
    """Whether it should be off, in [`since`, `until`). None: for longer than `AROUND` days, or for ever."""

    off: bool
    since: datetime | None
    until: datetime | None


@lru_cache(maxsize=1000)
def evaluate_schedule(schedule: Schedule, now: datetime) -> ScheduleState:
    """Whether `schedule` wants it off at `now` (UTC), since when without a break, and until when."""
    today = now.astimezone(schedule.zone).date()
    first, last = (
        resolve_wall_time(today - DAYS_AROUND * DAY, time(), schedule.zone),
        resolve_wall_time(today + DAYS_AROUND * DAY, time(), schedule.zone),
    )
    blocks = [(start, end) for start, end in _list_off_periods(schedule, today) if end > first and start < last]
    for start, end in blocks:
        if start <= now < end:
            return ScheduleState(True, start if start > first else None, end if end < last else None)  # noqa: FBT003 - as named above
    before = [end for _, end in blocks if end <= now]
    after = [start for start, _ in blocks if now < start]
    return ScheduleState(False, max(before, default=None), min(after, default=None))  # noqa: FBT003 - as named above


def _list_off_periods(schedule: Schedule, today: date) -> list[tuple[datetime, datetime]]:
    """All in which it should be off around `today`, in order, apart from each other, less the exemptions."""
    days = [today + number * DAY for number in range(-DAYS_AROUND - 1, DAYS_AROUND + 2)]
    windows = [
        _resolve_off_window(off, day, schedule.zone) for off in schedule.off for day in days if day.weekday() in off.days
    ]
    windows += [_resolve_off_window(ALL_DAY, day, schedule.zone) for day in days if day in schedule.holidays]
    joined = list[tuple[datetime, datetime]]()
    for start, end in sorted(window for window in windows if window[0] < window[1]):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    for exempt in schedule.exemptions:
        pieces = ((start, min(end, exempt.start)) for start, end in joined)
        rest = ((max(start, exempt.end), end) for start, end in joined)
        joined = sorted({piece for piece in (*pieces, *rest) if piece[0] < piece[1]})
    return joined


def _resolve_off_window(off: OffWindow, day: date, zone: tzinfo) -> tuple[datetime, datetime]:
    last = day if off.start < off.end else day + DAY
    return resolve_wall_time(day, off.start, zone), resolve_wall_time(last, off.end, zone)


ALL_DAY = OffWindow(start=time(), end=time())
