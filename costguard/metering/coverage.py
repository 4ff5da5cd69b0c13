"""How completely scopes were seen in a period: the holes between complete listings.

Example: complete until 12:00, failed at 12:05 and 12:10, complete again from 15:00. With pauses of up to 15 min allowed, that
is one hole of three hours, with the reason that the last failed listing gave.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from costguard.metering.inventory import COMPLETE
from costguard.metering.spending import PollStretch
from costguard.values.period import Period
from costguard.values.resource import ScopeKey


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageGap:
    """A time in which no listing was complete. `why`: what the last listing in it said; "" where nobody looked."""

    period: Period
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UncoveredScope:
    """A scope with holes in a period, in order of time. `never`: no listing in the period was complete."""

    scope: ScopeKey
    holes: tuple[CoverageGap, ...]
    never: bool = False

    @property
    def length(self) -> timedelta:
        """All holes together."""
        return sum((hole.period.length for hole in self.holes), timedelta())


def find_uncovered_scopes(
    scopes: Iterable[ScopeKey], stretches: Iterable[PollStretch], period: Period, *, as_of: datetime, pause: timedelta
) -> tuple[UncoveredScope, ...]:
    """The scopes that were not seen completely all through `period` as far as it has passed at `as_of`, by name.

    `pause`: so long between two complete listings is no hole. A scope without a stretch was never seen in the period.
    """
    passed = Period(start=period.start, end=max(period.start, min(period.end, as_of)))
    by_scope: dict[ScopeKey, list[PollStretch]] = defaultdict(list)
    for stretch in stretches:
        by_scope[stretch.scope].append(stretch)
    found = []
    for scope in sorted({*scopes, *by_scope}):
        own = by_scope.get(scope, [])
        holes = find_coverage_gaps(own, passed, pause)
        never = not any(s.outcome == COMPLETE and s.start < passed.end and s.end >= passed.start for s in own)
        if holes:
            found.append(UncoveredScope(scope=scope, holes=holes, never=never))
    return tuple(found)


def find_coverage_gaps(stretches: Iterable[PollStretch], within: Period, pause: timedelta) -> tuple[CoverageGap, ...]:
    """The holes of one scope that are longer than `pause`."""
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
    """What the last listing between `start` and `end` that was not complete said."""
    said = [s.why or s.outcome for s in ordered if s.outcome != COMPLETE and s.start < end and s.end >= start]
    return said[-1] if said else ""
