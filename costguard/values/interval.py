"""An 80 % interval: the truth lies between `low` and `high` four times in five, and `expected` is the best single guess.

Example: 10 hours give or take a quarter, at a start-up of 0.1 to 0.3 h, are
`Interval(low=8, expected=10, high=12.5).plus(Interval(low=0.1, expected=0.2, high=0.3))` = 8.1, 10.2, 12.8 hours.
Sums and products add and multiply end by end, as if everything went well or badly at once: wider, never narrower,
than the truth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from costguard.values.checks import require, require_number

LARGEST_END = 1e30
"""Anything larger is a mistake of units, and infinity is not an answer."""


@dataclass(frozen=True, slots=True)
class Interval:
    """0 <= low <= expected <= high, all finite. The unit is the field's that holds it."""

    low: float
    expected: float
    high: float

    def __post_init__(self) -> None:
        if 0 <= self.low <= self.expected <= self.high <= LARGEST_END:
            return
        for name in ("low", "expected", "high"):
            require_number(getattr(self, name), f"interval.{name}", most=LARGEST_END)
        require(
            self.low <= self.expected <= self.high,
            "interval",
            f"is not in order: {self.low:g}, {self.expected:g}, {self.high:g}",
            "write low <= expected <= high",
        )

    @classmethod
    def exactly(cls, value: float) -> Interval:
        """A value known for certain."""
        return cls(value, value, value)

    @classmethod
    def around(cls, expected: float, factor: float) -> Interval:
        """From expected / factor to expected x factor; `factor` >= 1."""
        return cls(expected / factor, expected, expected * factor)

    def scale(self, x: float) -> Interval:
        """All three times `x` >= 0."""
        return Interval(self.low * x, self.expected * x, self.high * x)

    def add(self, other: Interval) -> Interval:
        """End by end."""
        return Interval(self.low + other.low, self.expected + other.expected, self.high + other.high)

    def multiply(self, other: Interval) -> Interval:
        """End by end."""
        return Interval(self.low * other.low, self.expected * other.expected, self.high * other.high)

    def multiply_independent(self, other: Interval) -> Interval:
        """The product where both are unlikely to be at the same end at once: logs of the half-widths add in quadrature."""
        worst = self.multiply(other)
        if not worst.low:
            return worst
        down = math.hypot(math.log(self.expected / self.low), math.log(other.expected / other.low))
        up = math.hypot(math.log(self.high / self.expected), math.log(other.high / other.expected))
        return Interval(
            max(worst.low, worst.expected * math.exp(-down)), worst.expected, min(worst.high, worst.expected * math.exp(up))
        )

    def invert(self) -> Interval:
        """1 / each, in order again; `low` > 0."""
        require(self.low > 0, "interval.low", "is zero and has no inverse", "write a low above zero")
        return Interval(1 / self.high, 1 / self.expected, 1 / self.low)
