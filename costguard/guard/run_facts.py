"""What a guard run knows of the past: earlier runs, what they saw, and acts that were confirmed. The ledger keeps it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from costguard.guard.action_intents import Intent
from costguard.metering.observation import Observation
from costguard.values.money import Rate
from costguard.values.resource import ResourceKey

LATE_AFTER_RUNS = 3
"""A guard whose last run is older than so many intervals is late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRun:
    """One guard run as recorded, with the facts for the next one. `epoch`: of the leader lease in which it was made.

    `interval`: how often runs are meant to come. `clock_skew`: how far the wall clock moved since the last run against the
    clock that also counts during sleep. `outcome`: a word for the result; `notes`: sentences. `facts`: (name, text) for the
    next run (since when the breaker is open).
    """

    id: str
    at: datetime
    epoch: int
    interval: timedelta
    clock_skew: timedelta = timedelta()
    outcome: str = ""
    notes: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectionSighting:
    """The cloud last showed `key` as protected at `at`. `how`: the cause ("label costguard=never")."""

    key: ResourceKey
    at: datetime
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopFacts:
    """What the evidence of a stop says: the digest of its policy (`meaning`), the machine's type and its compute price.

    `asked_at`: when it was sent first; None: not known. `unproven`: why something else may have stopped the machine; "" if
    its provider accepted the stop, and it was confirmed in time.
    """

    meaning: str
    instance_type: str
    price: Rate | None
    asked_at: datetime | None = None
    unproven: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartHistory:
    """What the ledger knows of a stopped machine. `intents`: of the last days, the oldest first; `facts`: of each stop.

    `awake_at`: since when it was last listed in a state other than stopped, stopping or absent; None: never.
    """

    intents: tuple[Intent, ...]
    facts: Mapping[str, StopFacts]
    awake_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstSighting:
    """When a resource was first seen. `polls`: complete listings of its scope since then, including the first."""

    at: datetime
    polls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DepartureEvidence:
    """What listings show of a resource that may have ended. `listed`: the last complete listing that showed its end.

    `absences`: how many complete listings in a row do not contain it, if none showed its end.
    """

    listed: Observation | None = None
    absences: int = 0


UNDONE_WITHIN, UNDONE_COUNTS_FOR = timedelta(hours=1), timedelta(days=30)
"""After an idle stop: how soon a machine runs again that was needed, as in reports; and how long that counts against stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A machine that costguard stopped as idle, at `stopped_at`, and that ran again at `at` without a start of ours."""

    key: ResourceKey
    stopped_at: datetime
    at: datetime


def explain_undone_stop(restarts: Iterable[Restart], key: ResourceKey, now: datetime) -> str:
    """Explain why the next idle stop of `key` may be wrong: an earlier one was undone within the hour; "" if none was."""
    undone = [
        one
        for one in restarts
        if one.key == key and one.at - one.stopped_at <= UNDONE_WITHIN and now - one.at <= UNDONE_COUNTS_FOR
    ]
    if not undone:
        return ""
    last = max(undone, key=lambda one: one.at)
    return f"its stop of {last.stopped_at:%Y-%m-%d %H:%M} UTC was undone within the hour, so that this one may be wrong too"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmedAct:
    """One confirmed act: when its first request was sent, and when a listing proved its effect."""

    intent_id: str
    provider: str
    act: str
    sent_at: datetime
    confirmed_at: datetime

    @property
    def took(self) -> timedelta:
        """Return the time from the first request to the confirmation."""
        return self.confirmed_at - self.sent_at
