"""A clock that stands still until it is told to go on."""

from __future__ import annotations

from datetime import datetime, timedelta

from costguard.values.instant import require_instant

NO_TIME = timedelta()


class FakeClock:
    """The time of day, `start` at first, and the time since the machine booted, both as told.

    Keeps the Clock port. Not for two threads that advance it.
    """

    def __init__(self, start: datetime) -> None:
        require_instant(start, "clock.start")
        self._now, self._up = start, NO_TIME

    def now(self) -> datetime:
        """This instant, in UTC."""
        return self._now

    def boottime(self) -> timedelta:
        """Since the clock was made. It never jumps, and goes on while a machine sleeps."""
        return self._up

    def advance(self, by: timedelta) -> datetime:
        """Let `by` pass for both clocks; InputError where it is negative. What time it is now."""
        if by < NO_TIME:
            from costguard.errors import InputError

            raise InputError("time does not go back", field="clock.advance", hint="jump() sets the wall clock back")
        self._now += by
        self._up += by
        return self._now

    def advance_to(self, at: datetime) -> datetime:
        """Let time pass until the wall clock says `at`."""
        return self.advance(at - self._now)

    def jump(self, by: timedelta) -> datetime:
        """Set the wall clock forwards or back by `by`, as a wrong NTP answer does; no time passes for `boottime`."""
        self._now += by
        return self._now
