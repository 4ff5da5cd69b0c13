"""A channel that keeps what it is sent, and fails as often as it is told to.

channel = RecordingNotifier()
channel.fail(2)                      # the next two tries fail, and another may help
channel(message).sent                # False
[one.title for one in channel.messages]
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from costguard.guard.alerts.alert import DeliveryResult, Notification
from costguard.system.clock import Clock


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
