"""An 80 % interval: the true value lies between `low` and `high` with 80 % probability; `expected` is the best guess.

Example: 10 hours give or take a quarter, at a start-up of 0.1 to 0.3 h, are `Interval(low=8, expected=10,
high=12.5).add(Interval(low=0.1, expected=0.2, high=0.3))` = 8.1, 10.2, 12.8 hours.

Sums and products combine low with low and high with high, as if all errors had the same sign, so they are never too narrow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from costguard.values.checks import require, require_number

LARGEST_END = 1e30
"""Anything larger is a mistake of units, and infinity is not an answer."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval with 0 <= low <= expected <= high, all finite, in the unit of the field that contains it."""

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
        """Return the interval of a value known for certain."""
        return cls(value, value, value)

    @classmethod
    def around(cls, expected: float, factor: float) -> Interval:
        """Return expected / factor to expected x factor; `factor` >= 1."""
        return cls(expected / factor, expected, expected * factor)

    def scale(self, x: float) -> Interval:
        """Return all three values times `x` >= 0."""
        return Interval(self.low * x, self.expected * x, self.high * x)

    def add(self, other: Interval) -> Interval:
        """Add low to low, expected to expected and high to high."""
        return Interval(self.low + other.low, self.expected + other.expected, self.high + other.high)

    def multiply(self, other: Interval) -> Interval:
        """Multiply low by low, expected by expected and high by high."""
        return Interval(self.low * other.low, self.expected * other.expected, self.high * other.high)

    def multiply_independent(self, other: Interval) -> Interval:
        """Return the product of independent values: the logs of the half-widths add in quadrature."""
        worst = self.multiply(other)
        if not worst.low:
            return worst
        down = math.hypot(math.log(self.expected / self.low), math.log(other.expected / other.low))
        up = math.hypot(math.log(self.high / self.expected), math.log(other.high / other.expected))
        return Interval(
            max(worst.low, worst.expected * math.exp(-down)), worst.expected, min(worst.high, worst.expected * math.exp(up))
        )

    def invert(self) -> Interval:
        """Return 1 / each value, with the ends swapped; `low` > 0."""
        require(self.low > 0, "interval.low", "is zero and has no inverse", "write a low above zero")
        return Interval(1 / self.high, 1 / self.expected, 1 / self.low)
