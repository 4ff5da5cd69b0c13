"""Half-open periods of time in UTC: `[start, end)`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from costguard.values.checks import require


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """The instants t with start <= t < end. Both are aware and in UTC; an empty period has start == end."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        for field, at in (("period.start", self.start), ("period.end", self.end)):
            require(at.tzinfo is UTC, field, f"must be an instant in UTC, not {at!r}", "use datetime(..., tzinfo=UTC)")
        require(self.start <= self.end, "period", f"ends ({self.end}) before it starts ({self.start})", "swap them")

    @property
    def length(self) -> timedelta:
        """End - start."""
        return self.end - self.start

    def holds(self, at: datetime) -> bool:
        """Whether `at` lies inside; the end does not."""
        return self.start <= at < self.end

    def intersect(self, other: Period) -> Period | None:
        """The part in both, or None where they only touch or lie apart."""
        start, end = max(self.start, other.start), min(self.end, other.end)
        return Period(start=start, end=end) if start < end else None
