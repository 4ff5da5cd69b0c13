"""How far a bill may lie from the charges: a part of it, an amount, or whichever of both is more.

Example: "1%, 0.10" allows $0.10 of a bill of $8 and $20 of one of $2,000.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from costguard.values.checks import describe_value, require
from costguard.values.money import Money, divide_half_even

_TOLERANCE_PART = re.compile(r"(\d{1,4}(?:\.\d{1,4})?)\s*(%?)", re.ASCII)
TOLERANCE_HINT = 'write 2%, 0.50, or both: "1%, 0.10"'
MILLIONTHS = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """`millionths` of the bill, or `nano` of its currency, whichever is more."""

    millionths: int
    nano: int

    def compute_allowed(self, nano: int) -> int:
        """The nano-units that a bill of `nano` may differ by."""
        return max(self.nano, divide_half_even(abs(nano) * self.millionths, MILLIONTHS))

    def format(self) -> str:
        """As it is written: `1%, 0.10`; `0` for none at all."""
        percent = f"{Decimal(self.millionths).scaleb(-4).normalize():f}%" if self.millionths else ""
        whole, _, decimals = Money(nano=self.nano).format(9).partition(".")
        amount = f"{whole}.{decimals.rstrip('0').ljust(2, '0')}" if self.nano else ""
        return ", ".join(filter(None, (percent, amount))) or "0"


DEFAULT_TOLERANCE = Tolerance(millionths=10_000, nano=100_000_000)
"""1 %, and at least 0.10: RELIABILITY, M13."""


def parse_tolerance(text: str, field: str) -> Tolerance:
    """What `text` allows: "2%", "0.50", or "1%, 0.10". InputError for anything else."""
    millionths, nano, seen = 0, 0, set[str]()
    for part in text.split(","):
        found = _TOLERANCE_PART.fullmatch(part.strip())
        sign = found[2] if found else ""
        require(found is not None and sign not in seen, field, f"is no tolerance: {describe_value(text)}", TOLERANCE_HINT)
        seen.add(sign)
        number = Decimal(found[1] if found else 0)
        if sign:
            require(number <= 100, field, f"is more than the whole bill: {describe_value(text)}", TOLERANCE_HINT)  # noqa: PLR2004 - per cent
            millionths = int(number.scaleb(4))
        else:
            nano = int(number.scaleb(9))
    return Tolerance(millionths=millionths, nano=nano)
