"""Test doubles: a clock that stands still until it is advanced, and a channel that records what it is sent.

channel = RecordingNotifier()
channel.fail(2)                      # the next two tries fail, and another may help
channel(message).sent                # False
[one.title for one in channel.messages]
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from costguard.guard.alerts.alert import DeliveryResult, Notification
from costguard.system.clock import Clock
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


class RecordedNotification(NamedTuple):
    """`message`, as it arrived at `at`."""

    at: datetime
    message: Notification


class RecordingNotifier:
    """Keeps the Notifier port. `messages`: what arrived, in order; `tries`: what was tried, failures too.

    `clock` dates what arrives; without one the message's own time does.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock
        self.told: list[RecordedNotification] = []
        self.tries: list[Notification] = []
        self._failing, self._again = 0, True
        self._down: list[tuple[datetime, datetime]] = []

    def __call__(self, message: Notification) -> DeliveryResult:
        """Keep `message`, or fail as told."""
        self.tries.append(message)
        at = self._clock.now() if self._clock else message.at
        if self._failing or any(start <= at < end for start, end in self._down):
            self._failing = max(0, self._failing - 1)
            return DeliveryResult(sent=False, why="the channel was told to fail", again=self._again)
        self.told.append(RecordedNotification(at, message))
        return DeliveryResult(sent=True)

    @property
    def messages(self) -> list[Notification]:
        """What arrived, in order."""
        return [one.message for one in self.told]

    def fail(self, times: int, *, again: bool = True) -> None:
        """Fail the next `times` tries; `again`: say that another try may help."""
        self._failing, self._again = times, again

    def fail_between(self, start: datetime, end: datetime) -> None:
        """Fail all that is tried at or after `start` and before `end`."""
        self._down.append((start, end))
