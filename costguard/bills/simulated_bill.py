"""A simulated stretch of time, played through costguard and held against the simulated clouds' own bill.

Example: a cloud billed $812.40 in exact rationals; costguard says $812.40 to $812.95, since one machine vanished unseen. It is
right. Of nine of its ten resources, whose starts and stops the cloud stated, the two figures are equal to the nano-dollar.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from costguard.values.calendar import Period
from costguard.values.money import NANO, Money, MoneyInterval
from costguard.values.resource import ResourceKey

ROUNDING_PER_SPAN = 2
"""Nano-dollars by which an amount may differ from exact rationals for each of its spans: a span is rounded in at most three
parts, each by half a nano-dollar at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceBillCheck:
    """One resource: what costguard says, and `billed`, exact dollars that its cloud bills. `spans`: how many were rounded.

    `pending`: dollars that may be billed and not written down yet, traffic below a GB (`accrual.COUNTED_MB`).
    """

    key: ResourceKey
    money: MoneyInterval
    billed: Fraction
    spans: int
    pending: Fraction = Fraction(0)

    @property
    def stated(self) -> bool:
        """Whether costguard names one figure, since all was told."""
        return self.money.low == self.money.high

    @property
    def off(self) -> Fraction:
        """Dollars by which the bill lies outside the interval; 0 inside."""
        low, high = (Fraction(end.nano, NANO) for end in (self.money.low, self.money.high))
        return max(low - self.billed, self.billed - high, Fraction(0))

    @property
    def right(self) -> bool:
        """Whether the bill lies inside the interval, or equals it where that is a point, but for rounding."""
        return (self.off - self.pending) * NANO <= ROUNDING_PER_SPAN * self.spans


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudBillCheck:
    """All of one simulated cloud."""

    provider: str
    resources: tuple[ResourceBillCheck, ...]

    @property
    def money(self) -> MoneyInterval:
        """What costguard says of all of them."""
        nothing = Money(nano=0)
        total = MoneyInterval(low=nothing, expected=nothing, high=nothing)
        for one in self.resources:
            total = total.add(one.money)
        return total

    @property
    def billed(self) -> Fraction:
        """Exact dollars on the bill."""
        return sum((one.billed for one in self.resources), Fraction(0))

    @property
    def stated(self) -> int:
        """How many are named by one figure."""
        return sum(one.stated for one in self.resources)

    @property
    def wrong(self) -> tuple[ResourceBillCheck, ...]:
        """Those whose bill lies outside."""
        return tuple(one for one in self.resources if not one.right)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedBillCheck:
    """A whole play. `listings`: how many; `faults`: what went wrong with how many of them; `met`: what happened how often."""

    seed: int
    period: Period
    scopes: int
    listings: int
    faults: Mapping[str, int]
    met: Mapping[str, int]
    clouds: tuple[CloudBillCheck, ...]

    @property
    def wrong(self) -> tuple[ResourceBillCheck, ...]:
        """Every resource of which costguard was wrong."""
        return tuple(one for cloud in self.clouds for one in cloud.wrong)
