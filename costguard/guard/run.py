"""Runs of the guard as recorded, and what the ledger can say for them: how well a resource is known, how long a stop takes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from costguard.metering.observation import Observation
from costguard.values.resource import ResourceKey


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRun:
    """One run, written with all that it leaves to the next. `epoch`: of the turn in which it was made.

    `interval`: how often runs are meant to come. `clock_skew`: by how much the wall clock moved away from the one that counts
    on in sleep, since the last run. `outcome`: a word for how it went; `notes`: sentences. `facts`: (name, text) for the next
    run (since when the breaker is open).
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
    """`key` was last seen protected on the cloud's side at `at`. `how`: by what ("label costguard=never")."""

    key: ResourceKey
    at: datetime
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstSighting:
    """Since when a resource is known. `polls`: complete listings of its scope since then, its first one counted."""

    at: datetime
    polls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DepartureEvidence:
    """What listings say of a resource that may be over. `listed`: as the last complete one that had it showed its end.

    `absences`: how many complete listings in a row lack it, where none showed its end.
    """

    listed: Observation | None = None
    absences: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmedAct:
    """One act that was confirmed: when its first request was let go, and when a listing had proven it."""

    intent_id: str
    provider: str
    act: str
    sent_at: datetime
    confirmed_at: datetime

    @property
    def took(self) -> timedelta:
        """From the one to the other."""
        return self.confirmed_at - self.sent_at
