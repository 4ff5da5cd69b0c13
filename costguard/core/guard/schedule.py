"""Schedules: desired states by the clock of a zone. Never an event: what counts is what should be so now.

Example: off 20:00-08:00 Berlin. At 20:41 it should be off since 20:00, whoever slept at 20:00; in the night in which clocks go
back it should be off for 13 hours.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, tzinfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Off:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When it should be off, in `zone`. `holidays`: days on which it should be off all day."""

    zone: tzinfo
    off: tuple[Off, ...]
    holidays: frozenset[date] = frozenset()
    exemptions: tuple[Exemption, ...] = ()
