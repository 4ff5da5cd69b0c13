"""How time passes for whoever waits, and who answers meanwhile: by this machine's clock and threads, or by a simulated world's.

Everything that counts seconds, sleeps, or asks several questions at once does it through here. Of a world that is played there
is one thread, and its time passes only where somebody waits:

    with passing_in(world):                     # an hour of Vast's 5.5 s pauses in a second, and the same each time
        account.poll(scope)

A simulated world must be alone in its process: whoever waits anywhere in it waits by the world's clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Protocol


class World(Protocol):
    """A simulated one: its seconds, and how they pass."""

    def monotonic(self) -> float:
        """Seconds that only go on."""

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass, and a little at least."""


_world: World | None = None


@contextmanager
def passing_in(world: World) -> Iterator[None]:
    """In this block time is that of `world`, and nothing is done beside."""
    global _world  # noqa: PLW0603 - how time passes is the process's
    before, _world = _world, world
    try:
        yield
    finally:
        _world = before


def simulated() -> bool:
    """Whether time is simulated, so that whoever is to answer must do so before anybody waits for it."""
    return _world is not None


def monotonic() -> float:
    """Seconds that only go on."""
    return time.monotonic() if _world is None else _world.monotonic()


def pause(seconds: float) -> float:
    """Let simulated time pass. What is left of `seconds` for a caller who sleeps by other means: all where time is real."""
    if _world is None:
        return seconds
    _world.sleep(seconds)
    return 0.0


def executor(most: int, name: str) -> Executor:
    """Who does `most` things at once: threads; in a simulated world whoever submits, one thing after the other."""
    return ThreadPoolExecutor(max_workers=most, thread_name_prefix=name) if _world is None else _AtOnce()


class _AtOnce(Executor):
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
