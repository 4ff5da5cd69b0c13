"""The watchdog's duties, and the record of their failures.

Example: an account polled every 60 s whose poll raises: each failure is logged; with the third in a row the account is degraded
and polled again after 2, 4, 8 ... minutes, at most every ten; the first successful poll ends that.
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
    """A logger of events with fields, as structlog takes them."""

    def info(self, event: str, /, **fields: object) -> object:
        """Log a normal event."""

    def warning(self, event: str, /, **fields: object) -> object:
        """Log a problem after which work continues."""

    def error(self, event: str, /, **fields: object) -> object:
        """Log a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """A function to `run` `every` interval, plus or minus `jitter`.

    It never runs twice at once. `name` is used in the log.
    """

    name: str
    run: Callable[[], object]
    every: timedelta
    jitter: timedelta = timedelta()

    def __post_init__(self) -> None:
        if self.every < timedelta(seconds=1):
            raise InputError("must be at least a second", field=f"interval of {self.name}", hint='write "60s"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Duties:
    """All duties of a watchdog.

    `polls`: one per account. `guard.run` returns whether its run was committed to the ledger. `others`: if one fails
    repeatedly, it is retried less often. The guard first runs when every account was polled once, or after its own interval if
    that is sooner.
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
        """The names of the duties that are never retried less often: the guard and the outbox."""
        return frozenset(duty.name for duty in (self.guard, self.outbox) if duty)

    @property
    def every(self) -> tuple[Duty, ...]:
        """All duties."""
        return (*self.polls, self.guard, *((self.outbox,) if self.outbox else ()), *self.others)


@dataclass(slots=True)
class DutyHealth:
    """The state of a duty.

    Times are seconds of a monotonic clock. `not_before`: of the next try.
    """

    started: float | None = None
    running: bool = False
    failures: int = 0
    not_before: float = 0.0

    @property
    def degraded(self) -> bool:
        """Whether it failed so many times in a row that it is retried less often."""
        return self.failures >= DEGRADED_AFTER

    def failed(self, every_s: float, now: float) -> float:
        """Count a failure, and return the seconds until the next try."""
        self.failures += 1
        pause = every_s * 2 ** min(self.failures - DEGRADED_AFTER + 1, 20) if self.degraded else 0.0
        pause = max(every_s, min(pause, LONGEST_PAUSE_S))
        self.not_before = now + pause if self.degraded else 0.0
        return pause
