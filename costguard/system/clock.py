"""Clock, sleep and executor, which a simulation can replace; and deadlines for sending.

Everything that counts seconds, sleeps, or asks several questions at once uses this module. A simulated world has one thread,
and its time passes only where somebody waits; it must be alone in its process:

    with passing_in(world):                     # an hour of Vast's 5.5 s pauses in a second, and the same each time
        account.poll(scope)

A thread's send deadline stops a late request. Example: a stop may be sent until 12:00:30. At 12:00:06 its adapter looks again,
and the process is suspended. At 12:07 it resumes, the answer is there, and the request that would follow is refused before its
first byte.
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
    """A simulated one: its seconds, and how they pass."""

    def monotonic(self) -> float:
        """Seconds that only go on."""

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass, and a little at least."""


_simulated_clock: SimulatedClock | None = None


@contextmanager
def use_simulated_clock(world: SimulatedClock) -> Iterator[None]:
    """In this block time is that of `world`, and nothing is done beside."""
    global _simulated_clock  # noqa: PLW0603 - how time passes is the process's
    before, _simulated_clock = _simulated_clock, world
    try:
        yield
    finally:
        _simulated_clock = before


def is_simulated() -> bool:
    """Whether time is simulated, so that whoever is to answer must do so before anybody waits for it."""
    return _simulated_clock is not None


def read_monotonic() -> float:
    """Seconds that only go on."""
    return time.monotonic() if _simulated_clock is None else _simulated_clock.monotonic()


def pass_simulated_time(seconds: float) -> float:
    """Let simulated time pass. What is left of `seconds` for a caller who sleeps by other means: all where time is real."""
    if _simulated_clock is None:
        return seconds
    _simulated_clock.sleep(seconds)
    return 0.0


def make_executor(most: int, name: str) -> Executor:
    """Who does `most` things at once: threads; in a simulated world whoever submits, one thing after the other."""
    return ThreadPoolExecutor(max_workers=most, thread_name_prefix=name) if _simulated_clock is None else _ImmediateExecutor()


class _ImmediateExecutor(Executor):
    """Does what is submitted before it answers."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:  # noqa: ANN401 - as Executor has it
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **named))
        except Exception as broken:  # noqa: BLE001 - it is the answer of whoever asks for the result
            done.set_exception(broken)
        return done


class Clock(Protocol):
    """The time of day."""

    def now(self) -> datetime:
        """This instant, in UTC."""


_send_limit = threading.local()


@contextmanager
def limit_sending(at_s: float, seconds: Callable[[], float]) -> Iterator[None]:
    """In this block nothing is sent by this thread at `at_s` or later, by `seconds`, a clock that only goes on."""
    before = getattr(_send_limit, "late", None)
    _send_limit.late = lambda: seconds() >= at_s
    try:
        yield
    finally:
        _send_limit.late = before


def is_too_late_to_send() -> bool:
    """Whether nothing more may be sent now."""
    late: Callable[[], bool] | None = getattr(_send_limit, "late", None)
    return late is not None and late()
