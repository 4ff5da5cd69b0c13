"""Compare a simulated period as metered by costguard with the exact bill of the simulated clouds.

Example: a cloud billed $812.40 in exact rationals; costguard computes $812.40 to $812.95, because one machine vanished
unobserved. That is right. For nine of its ten resources, whose starts and stops the cloud stated, the two figures are equal to
the nano-dollar.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from statistics import median

from costguard.values.calendar import Period
from costguard.values.money import NANO, Money, MoneyInterval
from costguard.values.resource import ResourceKey

ROUNDING_PER_SPAN = 2
"""Nano-dollars by which an amount may differ from exact rationals for each of its spans: a span is rounded in at most three
parts, each by half a nano-dollar at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceBillCheck:
    """One resource: its metered cost and its bill.

    `money`: the cost that costguard computes. `billed`: exact dollars on the bill. `spans`: the number of rounded spans.
    `pending`: dollars that may be billed and not recorded yet, for traffic below a GB (`accrual.COUNTED_MB`).
    """

    key: ResourceKey
    money: MoneyInterval
    billed: Fraction
    spans: int
    pending: Fraction = Fraction(0)

    @property
    def stated(self) -> bool:
        """Whether costguard's interval is a single figure, because the cloud stated all times and prices."""
        return self.money.low == self.money.high

    @property
    def width(self) -> Fraction | None:
        """The width of costguard's interval as a share of the bill; None if nothing was billed."""
        return Fraction(self.money.high.nano - self.money.low.nano, NANO) / self.billed if self.billed else None

    @property
    def off(self) -> Fraction:
        """Dollars by which the bill lies outside the interval; 0 if it lies inside."""
        low, high = (Fraction(end.nano, NANO) for end in (self.money.low, self.money.high))
        return max(low - self.billed, self.billed - high, Fraction(0))

    @property
    def right(self) -> bool:
        """Whether the bill lies inside the interval, apart from rounding and `pending`."""
        return (self.off - self.pending) * NANO <= ROUNDING_PER_SPAN * self.spans


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudBillCheck:
    """All resources of one simulated cloud."""

    provider: str
    resources: tuple[ResourceBillCheck, ...]

    @property
    def money(self) -> MoneyInterval:
        """The sum of the costs that costguard computes."""
        nothing = Money(nano=0)
        total = MoneyInterval(low=nothing, expected=nothing, high=nothing)
        for one in self.resources:
            total = total.add(one.money)
        return total

    @property
    def billed(self) -> Fraction:
        """The exact dollars on the bill."""
        return sum((one.billed for one in self.resources), Fraction(0))

    @property
    def stated(self) -> int:
        """The number of resources whose interval is a single figure."""
        return sum(one.stated for one in self.resources)

    @property
    def wrong(self) -> tuple[ResourceBillCheck, ...]:
        """The resources whose bill lies outside the interval."""
        return tuple(one for one in self.resources if not one.right)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedBillCheck:
    """The check of a whole simulation.

    `listings`: their number; `faults`: fault -> the number of listings with it; `met`: event -> how often it occurred.
    """

    seed: int
    period: Period
    scopes: int
    listings: int
    faults: Mapping[str, int]
    met: Mapping[str, int]
    clouds: tuple[CloudBillCheck, ...]

    @property
    def width_median(self) -> Fraction | None:
        """The median of the widths of all resources of which something was billed; None if there is none."""
        widths = [width for cloud in self.clouds for one in cloud.resources if (width := one.width) is not None]
        return median(widths) if widths else None

    @property
    def wrong(self) -> tuple[ResourceBillCheck, ...]:
        """The resources of all clouds whose bill lies outside the interval."""
        return tuple(one for cloud in self.clouds for one in cloud.wrong)
