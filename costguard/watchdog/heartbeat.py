"""The heartbeat: an external service is called after each committed run and alerts when calls stop.

This is a dead man's switch.

Example: runs at 12:00:00, 12:00:30 and 12:00:59, all committed: calls at 12:00:00 and at 12:00:59. The run of 12:01:30 could
not be written: no call is made, and the service alerts when its own time limit expires.

The call is made in a separate thread, one at a time, so that no run waits for it. A failure is logged once, and again only
after a success.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from threading import Lock, Thread

from costguard.watchdog.duty import Log

LEAST_INTERVAL = timedelta(seconds=50)
"""The least between two: services that listen count by the minute, and refuse who asks much more often. It is less than a
minute, as runs every 60 s come a little early as often as late, and each of them should be heard."""


class Heartbeat:
    """`ask`: makes one call and returns "" if it succeeded or no service is set, else the reason.

    `clock`: monotonic seconds.
    """

    def __init__(
        self,
        ask: Callable[[], str],
        *,
        log: Log,
        every: timedelta = LEAST_INTERVAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask, self._log, self._every, self._clock = ask, log, every, clock
        self._lock, self._last, self._thread, self._failing = Lock(), float("-inf"), Thread(), False

    def beat(self) -> None:
        """Report a committed run; no call is made within `every` of the last one, or while that is still in progress."""
        with self._lock:
            now = self._clock()
            if now - self._last < self._every.total_seconds() or self._thread.is_alive():
                return
            self._last, self._thread = now, Thread(target=self._beat, name="heartbeat", daemon=True)
            self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait for the call in progress, at most `seconds`: a process that ends right after its run would cut it off."""
        with self._lock:
            thread = self._thread
        if thread.is_alive():
            thread.join(seconds)

    def _beat(self) -> None:
        try:
            why = self._ask()
        except Exception as error:  # noqa: BLE001 - nothing that goes wrong here may end in a bare thread's traceback
            why = f"{type(error).__name__}: {error}"
        was, self._failing = self._failing, bool(why)
        if why and not was:
            self._log.warning("heartbeat_failed", why=why)
        elif was and not why:
            self._log.info("heartbeat_heard_again")
