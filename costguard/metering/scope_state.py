"""The values around accrual: what is known of a scope between polls, and what one poll changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from costguard.metering.meter import Line
from costguard.metering.observation import Observation
from costguard.metering.span import Span
from costguard.values.resource import ResourceKey, ScopeKey


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownResource:
    """What is known of one resource between polls.

    `logged_at`: when `observation` was first said; `seen_at`: the last poll that saw it, None: the scope's last complete one.
    `absent_at`: the first complete poll in a row without it; then `seen_at` is set. `open`: spans without an end. `settled`:
    the end of the last closed span of each line, before which nothing of that line can start. `edges`: of each line that bills
    no more, its last span where that is an EDGE, an end nobody proved: corrected where it turns out to have gone on.
    """

    observation: Observation
    first_seen_at: datetime
    logged_at: datetime
    seen_at: datetime | None = None
    absent_at: datetime | None = None
    open: Mapping[Line, Span] = field(default_factory=dict)
    settled: Mapping[Line, datetime] = field(default_factory=dict)
    edges: Mapping[Line, Span] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeState:
    """A scope as its last poll left it. `at`: the last poll of any outcome, `complete_at`: the last complete one.

    Both are when it was asked for, up to when the scope is covered. `resources` holds those that have ended, too, as long as
    the ledger cares to remember; one that is seen again must be in it, so the ledger looks it up before it accrues.
    """

    scope: ScopeKey
    at: datetime | None = None
    complete_at: datetime | None = None
    resources: Mapping[ResourceKey, KnownResource] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationLogEntry:
    """A row of the observation log: what changed. `observation` None: a complete listing lacks it, last seen at `seen_at`.

    `at` is when the listing was asked for; of an absence, when it was answered. A settled absence is an observation "ended".
    """

    key: ResourceKey
    at: datetime
    observation: Observation | None
    seen_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanCorrection:
    """A closed span turned out otherwise: from now on it counts with this `presence`."""

    span: Span
    presence: str
    at: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccrualResult:
    """What one poll changes. To be written in this order: `logged`, `closed`, `opened`, `corrected`; then the coverage row.

    `closed`: spans of the ledger that get their end, whole, with `end` and `ended_by` set. `opened`: new spans; those with an
    end were opened and closed at once. `at`: up to when the scope is covered, the end of the coverage row. `fresh` False: the
    poll lies not after the scope's last one and changes nothing.
    """

    state: ScopeState
    at: datetime
    outcome: str
    why: str = ""
    logged: tuple[ObservationLogEntry, ...] = ()
    closed: tuple[Span, ...] = ()
    opened: tuple[Span, ...] = ()
    corrected: tuple[SpanCorrection, ...] = ()
    notes: tuple[str, ...] = ()
    fresh: bool = True
