"""Vast's numbers, read without believing them: what is absurd is missing, and never zero."""

from __future__ import annotations

from decimal import Decimal

from costguard.metering.observation import MOST_GPUS

NANO = 10**9
MONTH_H = 720
"""Hours of a month of storage: gpuhunt reckons GB x rate / 30 / 24 (vast.md, section 3)."""
SMALLEST, LARGEST = -30, 15
"""Powers of ten beyond which nothing of Vast lies, and some arithmetic overflows."""


def parse_finite(value: Decimal | None) -> Decimal | None:
    """`value` where it is a number that can be reckoned with; None otherwise."""
    if value is None or not value.is_finite() or (value and not SMALLEST <= value.adjusted() < LARGEST):
        return None
    return value


def parse_positive(value: Decimal | None) -> Decimal | None:
    """`value` where it is a finite number above zero."""
    found = parse_finite(value)
    return found if found is not None and found > 0 else None


def parse_gpu_count(value: float | None) -> int | None:
    """`value` as a number of GPUs, 2 as well as 2.0; None where it is missing, a fraction or absurd."""
    return int(value) if value is not None and 0 <= value <= MOST_GPUS and value == int(value) else None


def parse_percent(value: Decimal | None) -> float | None:
    """A use in percent; None where it is missing, negative (Vast's "no heartbeat") or above 100."""
    found = parse_finite(value)
    return float(found) if found is not None and 0 <= found <= 100 else None  # noqa: PLR2004 - percent


def to_nano(value: Decimal) -> int:
    """Billionths of a finite `value`, rounded half to even."""
    return int(value.scaleb(9).to_integral_value())
