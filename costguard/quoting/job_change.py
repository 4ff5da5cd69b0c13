"""What a change costs: a job file quoted as it was and as it is, and whether the sums are over a limit.

Example: a job of $2.70 becomes one of $31.10, and a new one of $4.00 comes beside it: the change goes from $2.70 to $35.10, by
$32.40. A job that cannot be quoted has no cost; where a limit is set it counts as over it, because nobody knows that it is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from costguard.errors import shorten

ZERO = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCost:
    """One side of a job file: its cheapest quote in dollars, or why there is none.

    - `low`, `expected`, `high`: dollars of the run, of a server dollars a month (`monthly`); None: not quoted.
    - `hours`: expected hours; None: unknown, or a server. `place`: hardware and provider in words.
    - `problem`: why it is not quoted, "" where it is. `notes`: what was assumed or is uncertain.
    """

    low: Decimal | None = None
    expected: Decimal | None = None
    high: Decimal | None = None
    hours: float | None = None
    place: str = ""
    monthly: bool = False
    problem: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChange:
    """A changed job file. `before` None: it is new; `after` None: it is gone."""

    file: str
    before: JobCost | None
    after: JobCost | None

    @property
    def difference(self) -> Decimal | None:
        """Return how many dollars more it costs; None where a side that exists is not quoted."""
        sides = [ZERO if side is None else side.expected for side in (self.before, self.after)]
        was, becomes = sides
        return None if was is None or becomes is None else becomes - was


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeLimits:
    """Dollars that the changed jobs may cost together, and by which they may become dearer; None: no limit."""

    usd_max: Decimal | None = None
    increase_usd_max: Decimal | None = None

    @property
    def is_set(self) -> bool:
        """Return whether there is a limit."""
        return self.usd_max is not None or self.increase_usd_max is not None


def sum_expected(sides: Iterable[JobCost | None]) -> Decimal:
    """Return the expected dollars of all sides that are quoted."""
    return sum((side.expected for side in sides if side is not None and side.expected is not None), ZERO)


def list_breaches(changes: Sequence[JobChange], limits: ChangeLimits) -> tuple[str, ...]:
    """Return each reason for which the change is over its limits; empty if it is within them, or there are none."""
    if not limits.is_set:
        return ()
    old_usd, new_usd = sum_expected(one.before for one in changes), sum_expected(one.after for one in changes)
    unknown = [shorten(one.file, 80) for one in changes if one.after and one.after.problem]
    breaches = [f"{name} is not quoted, so its cost is unknown" for name in unknown]
    if limits.usd_max is not None and new_usd > limits.usd_max:
        breaches.append(f"${new_usd:.2f} is over the limit of ${limits.usd_max:.2f}")
    if limits.increase_usd_max is not None and new_usd - old_usd > limits.increase_usd_max:
        breaches.append(f"${new_usd - old_usd:.2f} more is over the limit of ${limits.increase_usd_max:.2f} more")
    return tuple(breaches)
