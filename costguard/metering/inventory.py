"""The result of one listing of a scope: complete, partial or failed.

An empty listing differs from a failed one. Only `Complete` proves that something is absent. `Partial` proves only that the
resources in it exist.

The module also finds the gaps in which a scope was not listed completely. Example: complete until 12:00, failed at 12:05 and
12:10, complete again from 15:00. With pauses of up to 15 min allowed, that is one gap of three hours, with the reason of the
last failed listing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from costguard.metering.observation import Observation
from costguard.metering.spending import PollStretch
from costguard.values.calendar import Period
from costguard.values.checks import require
from costguard.values.instant import require_instant
from costguard.values.resource import ResourceKey, ScopeKey, is_storable
from costguard.values.sample import Sample

COMPLETE, PARTIAL, FAILED = "complete", "partial", "failed"

OTHER_ACCOUNT = "its key is of another account"
"""How the reason of a listing begins that was not requested, because the key is not that of the account in the ledger."""
SHARES_NOTHING = "not believed yet: the listing shares nothing with the last complete one, so it may be of another account"

POLL_AHEAD_MAX = timedelta(minutes=5)
"""A poll dated further ahead of the present than this was dated by a wrong clock: an assumption, 2026-11."""


@dataclass(frozen=True, slots=True)
class Complete:
    """All resources of the scope: every page was read to its stated end."""

    items: tuple[Observation, ...]


@dataclass(frozen=True, slots=True)
class Partial:
    """Some of the resources of the scope.

    `why`: the reason that the listing is not complete.
    """

    items: tuple[Observation, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Failed:
    """No resources could be listed.

    `why`: the reason.
    """

    why: str


Inventory = Complete | Partial | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """One listing of one scope, answered in full at `at` by the local clock (UTC).

    `asked_at`: when it was requested, None: the same as `at`. The listing was true at some instant between `asked_at`, less the
    provider's lag, and `at`. `gone`: ids that were looked up by themselves and do not exist, which settles an absence that a
    listing only suggests. `unanswered`: ids that were to be looked up, with no answer. `samples`: utilization samples that came
    with the listing. `notes`: facts that are missing although the listing is complete, a sentence each. `identity`: what the
    settings call the key ("default") and what its provider calls the key's account; None: not known. `proven`: it is that of
    the account in the ledger; else a listing that shares nothing with the last one is doubted.
    """

    scope: ScopeKey
    at: datetime
    inventory: Inventory
    asked_at: datetime | None = None
    gone: frozenset[ResourceKey] = frozenset()
    unanswered: frozenset[ResourceKey] = frozenset()
    samples: tuple[Sample, ...] = ()
    notes: tuple[str, ...] = ()
    identity: tuple[str, str] | None = None
    proven: bool = False

    def __post_init__(self) -> None:
        require_instant(self.at, f"poll of {'/'.join(self.scope)}")
        require(self.asked_at is None or self.asked_at <= self.at, "poll.asked_at", "is after the answer", "swap them")
        require(all(self.scope), "scope", f"needs a provider, an account and a name, not {self.scope}")
        hint = "a provider, an account and a scope are text without NUL and half characters"
        require(all(map(is_storable, self.scope)), "scope", "has a name that cannot be stored", hint)

    @property
    def seen_at(self) -> datetime:
        """The latest instant up to which the answer is valid, except for the provider's lag: the time of the request."""
        return self.asked_at or self.at


def remove_duplicates(inventory: Inventory) -> tuple[Inventory, tuple[str, ...]]:
    """Return `inventory` with each id once, and notes.

    Two equal entries become one. Two that differ are both removed, and the listing becomes partial.
    """
    if isinstance(inventory, Failed):
        return inventory, ()
    by_key = {item.key: item for item in inventory.items}
    if len(by_key) == len(inventory.items):
        return inventory, ()
    torn = sorted({item.key for item in inventory.items if by_key[item.key] != item})
    if not torn:
        return type(inventory)(tuple(by_key.values()), *([inventory.why] if isinstance(inventory, Partial) else [])), ()
    others = f" and {len(torn) - 1} more appear" if torn[1:] else " appears"
    note = f"{torn[0].id}{others} twice in one listing, with different values"
    doubtful = frozenset(torn)
    items = tuple(item for key, item in by_key.items() if key not in doubtful)
    return Partial(items, f"{inventory.why}; {note}" if isinstance(inventory, Partial) else note), (note,)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageGap:
    """A period without a complete listing.

    `why`: the reason of the last listing in it; "" if there was none.
    """

    period: Period
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UncoveredScope:
    """A scope with coverage gaps in a period, in order of time.

    `never`: no listing in the period was complete.
    """

    scope: ScopeKey
    holes: tuple[CoverageGap, ...]
    never: bool = False

    @property
    def length(self) -> timedelta:
        """The sum of all gaps."""
        return sum((hole.period.length for hole in self.holes), timedelta())


def find_uncovered_scopes(
    scopes: Iterable[ScopeKey], stretches: Iterable[PollStretch], period: Period, *, as_of: datetime, pause: timedelta
) -> tuple[UncoveredScope, ...]:
    """Return the scopes with coverage gaps in `period`, up to `as_of`, sorted by name.

    `pause`: a time between two complete listings that is not longer is no gap. A scope without a stretch was never seen in the
    period.
    """
    passed = Period(start=period.start, end=max(period.start, min(period.end, as_of)))
    by_scope: dict[ScopeKey, list[PollStretch]] = defaultdict(list)
    for stretch in stretches:
        by_scope[stretch.scope].append(stretch)
    uncovered_scopes = []
    for scope in sorted({*scopes, *by_scope}):
        own = by_scope.get(scope, [])
        holes = find_coverage_gaps(own, passed, pause)
        never = not any(s.outcome == COMPLETE and s.start < passed.end and s.end >= passed.start for s in own)
        if holes:
            uncovered_scopes.append(UncoveredScope(scope=scope, holes=holes, never=never))
    return tuple(uncovered_scopes)


def find_coverage_gaps(stretches: Iterable[PollStretch], within: Period, pause: timedelta) -> tuple[CoverageGap, ...]:
    """Return the gaps of one scope that are longer than `pause`."""
    ordered = sorted(stretches, key=lambda s: (s.start, s.end))
    reached, bounds = within.start, []
    for stretch in ordered:
        if stretch.outcome == COMPLETE and stretch.end >= within.start:
            bounds.append((reached, min(stretch.start, within.end)))
            reached = stretch.end
    bounds.append((reached, within.end))
    return tuple(
        CoverageGap(period=Period(start=start, end=end), why=_find_gap_reason(ordered, start, end))
        for start, end in bounds
        if end - start > pause
    )


def _find_gap_reason(ordered: list[PollStretch], start: datetime, end: datetime) -> str:
    """Return the reason of the last listing between `start` and `end` that was not complete; "" if there is none."""
    reasons = [s.why or s.outcome for s in ordered if s.outcome != COMPLETE and s.start < end and s.end >= start]
    return reasons[-1] if reasons else ""
