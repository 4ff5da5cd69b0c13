"""The values around accrual: the state of a scope between polls, and the changes that one poll makes."""

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
    """The recorded state of one resource between polls.

    `logged_at`: when `observation` was first made; `seen_at`: the last poll that saw it, None: the scope's last complete one.
    `absent_at`: the first complete poll in a row without it; then `seen_at` is set. `open`: spans without an end. `settled`:
    the end of the last closed span of each line, before which nothing of that line can start. `edges`: for each line that no
    longer bills, its last span where that is an EDGE (an unproven end); it is corrected if the line turns out to have gone on.
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
    """A scope as its last poll left it.

    `at`: the last poll of any outcome, `complete_at`: the last complete one. Both are times of the request, up to which the
    scope is covered. `resources` also contains ended ones, as long as the ledger keeps them; one that is seen again must be in
    it, so the ledger looks it up before it accrues. `doubted`: listings since the last complete one that share nothing with it.
    """

    scope: ScopeKey
    at: datetime | None = None
    complete_at: datetime | None = None
    doubted: int = 0
    resources: Mapping[ResourceKey, KnownResource] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationLogEntry:
    """A row of the observation log.

    `observation` None: a complete listing lacks the resource, last seen at `seen_at`. `at`: when the listing was requested; for
    an absence, when it was answered. A settled absence is an observation "ended".
    """

    key: ResourceKey
    at: datetime
    observation: Observation | None
    seen_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanCorrection:
    """A correction of a closed span: from `at` on it counts with this `presence`."""

    span: Span
    presence: str
    at: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccrualResult:
    """The changes of one poll, written in the order `logged`, `closed`, `opened`, `corrected`, then the coverage row.

    `closed`: spans of the ledger that get their end, complete, with `end` and `ended_by` set. `opened`: new spans; those with
    an end were opened and closed at once. `at`: up to when the scope is covered, the end of the coverage row. `fresh` False:
    the poll is not later than the scope's last one and changes nothing.
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
