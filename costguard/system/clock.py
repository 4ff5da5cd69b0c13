"""Clock, sleep and executor, which a simulation can replace; and deadlines for sending.

Everything that measures seconds, sleeps, or runs several requests concurrently uses this module. A simulated world has one
thread, and its time advances only when something waits. Nothing else may run in its process:

    with use_simulated_clock(world):           # an hour of Vast's 5.5 s pauses in a second, and the same each time
        account.poll(scope)

A thread's send deadline stops a late request. Example: a stop may be sent until 12:00:30. At 12:00:06 its adapter reads the
state again, and the process is suspended. At 12:07 it resumes, the answer is there, and the request that would follow is
refused before its first byte.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Protocol


class SimulatedClock(Protocol):
    """A clock whose time advances only by `sleep`."""

    def monotonic(self) -> float:
        """Return seconds that never decrease."""

    def sleep(self, seconds: float) -> None:
        """Advance the time by `seconds`, and by a small amount at least."""


_simulated_clock: SimulatedClock | None = None


@contextmanager
def use_simulated_clock(world: SimulatedClock) -> Iterator[None]:
    """Use the time of `world` in this block, and run everything in one thread."""
    global _simulated_clock  # noqa: PLW0603 - how time passes is the process's
    old_clock, _simulated_clock = _simulated_clock, world
    try:
        yield
    finally:
        _simulated_clock = old_clock


def is_simulated() -> bool:
    """Return whether time is simulated; then an answer must be complete before anything waits for it."""
    return _simulated_clock is not None


def read_monotonic() -> float:
    """Return seconds that never decrease, real or simulated."""
    return time.monotonic() if _simulated_clock is None else _simulated_clock.monotonic()


def pass_simulated_time(seconds: float) -> float:
    """Advance simulated time by `seconds`, and return the seconds still to sleep: 0, or all of them if time is real."""
    if _simulated_clock is None:
        return seconds
    _simulated_clock.sleep(seconds)
    return 0.0


def make_executor(most: int, name: str) -> Executor:
    """Return an executor of `most` threads; in a simulated world one that runs each task at once in the caller's thread."""
    return ThreadPoolExecutor(max_workers=most, thread_name_prefix=name) if _simulated_clock is None else _ImmediateExecutor()


class _ImmediateExecutor(Executor):
    """An executor that runs a task within `submit`."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:  # noqa: ANN401 - as Executor has it
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as broken:  # noqa: BLE001 - it is the answer of whoever asks for the result
            future.set_exception(broken)
        return future


class Clock(Protocol):
    """The time of day."""

    def now(self) -> datetime:
        """Return the current time in UTC."""


_send_limit = threading.local()


@contextmanager
def limit_sending(at_s: float, seconds: Callable[[], float]) -> Iterator[None]:
    """Refuse, in this block, every request of this thread from `at_s` on, by the monotonic clock `seconds`."""
    old_limit = getattr(_send_limit, "late", None)
    _send_limit.late = lambda: seconds() >= at_s
    try:
        yield
    finally:
        _send_limit.late = old_limit


def is_too_late_to_send() -> bool:
    """Return whether this thread's send deadline has passed."""
    late: Callable[[], bool] | None = getattr(_send_limit, "late", None)
    return late is not None and late()
