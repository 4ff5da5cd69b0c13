"""What the watchdog is given to run, and how it remembers what failed.

Example: an account polled every 60 s whose poll raises: each failure is logged; with the third in a row the account is
degraded and tried after 2, 4, 8 ... minutes, at most every ten; the first run that returns ends that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from costguard.errors import InputError

DEGRADED_AFTER = 3
"""Failures in a row. Erlang's supervisors give up upwards; here the others run on, and it is tried more rarely."""
LONGEST_PAUSE_S = 600.0


class Log(Protocol):
    """Facts with fields, as structlog takes them."""

    def info(self, event: str, /, **fields: object) -> object:
        """Something happened."""

    def warning(self, event: str, /, **fields: object) -> object:
        """Something is not as it should be, and goes on by itself."""

    def error(self, event: str, /, **fields: object) -> object:
        """Something failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """`run` it `every` so often, give or take `jitter`. It never runs twice at once. `name` stands in the log."""

    name: str
    run: Callable[[], object]
    every: timedelta
    jitter: timedelta = timedelta()

    def __post_init__(self) -> None:
        if self.every < timedelta(seconds=1):
            raise InputError("must be at least a second", field=f"interval of {self.name}", hint='write "60s"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Duties:
    """All there is to do. `polls`: one an account. `guard.run` returns whether its run was committed to the ledger.

    `others` may wait: one that fails again and again is tried more rarely. The guard first runs when every account was polled
    once, or after its own interval if that is sooner.
    """

    polls: tuple[Duty, ...]
    guard: Duty
    outbox: Duty | None = None
    others: tuple[Duty, ...] = ()

    def __post_init__(self) -> None:
        names = [duty.name for duty in self.every]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InputError(f"two duties are called {twice[0]}", field="watch", hint="name each account once")

    @property
    def tried_always(self) -> frozenset[str]:
        """The names of those that are never tried more rarely: the guard and the outbox."""
        return frozenset(duty.name for duty in (self.guard, self.outbox) if duty)

    @property
    def every(self) -> tuple[Duty, ...]:
        """Each of them."""
        return (*self.polls, self.guard, *((self.outbox,) if self.outbox else ()), *self.others)


@dataclass(slots=True)
class DutyHealth:
    """How a duty fares. Instants are seconds of a clock that only runs forward. `not_before`: of the next try."""

    started: float | None = None
    running: bool = False
    failures: int = 0
    not_before: float = 0.0

    @property
    def degraded(self) -> bool:
        """Whether it failed so often in a row that it is tried more rarely."""
        return self.failures >= DEGRADED_AFTER

    def failed(self, every_s: float, now: float) -> float:
        """Count a failure; seconds until it is tried again."""
        self.failures += 1
        pause = every_s * 2 ** min(self.failures - DEGRADED_AFTER + 1, 20) if self.degraded else 0.0
        pause = max(every_s, min(pause, LONGEST_PAUSE_S))
        self.not_before = now + pause if self.degraded else 0.0
        return pause
