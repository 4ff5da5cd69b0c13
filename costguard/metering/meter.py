"""A meter: one kind of charge, its price, and how its time is counted.

Examples: an AWS instance at $32.7726 an hour, counted in whole seconds, at least 60 s a run; 200 GB of a RunPod pod's own
volume at $0.10 per GB-month of 730 h while the pod runs. A price is a range low <= expected <= high; all three are equal where
the provider states the price.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import lcm

from costguard.values.calendar import find_month_of_day, find_month_start
from costguard.values.checks import require, require_one_of
from costguard.values.instant import DAY_US, HOUR_US, to_micros
from costguard.values.money import NANO

Line = tuple[str, str]
"""(charge, part)."""

COMPUTE, STORAGE, ADDRESS_CHARGE, TRAFFIC = "compute", "storage", "address", "traffic"

ELECTRICITY, KWH = "electricity", "kWh"
"""The charge whose `GB` meter counts watt-hours in place of MB, at the price of a kWh in place of a GB; its name for people."""

HOUR, GB_MONTH, GB = "Hours", "GB-Months", "GB"
GB_MONTH_730, GB_MONTH_720 = "GB-Months (730 h)", "GB-Months (720 h)"
GB_MONTH_PACIFIC = "GB-Months (Los Angeles)"
UNIT = "Units"
"""Of what is charged as one amount."""
IOPS, MIBPS = "IOPS", "MiBps"
MEASURES = (GB, IOPS, MIBPS)
"""What storage is sold by: its size, and the operations and MiB a second that are provisioned for it."""
_MONTH = "-Months"
GB_MONTHS = (GB_MONTH, GB_MONTH_730, GB_MONTH_720, GB_MONTH_PACIFIC)
MONTH_UNITS = tuple(unit.replace(GB, measure) for measure in MEASURES for unit in GB_MONTHS)
FIXED_UNITS = {
    HOUR: HOUR_US,
    **{unit: hours * HOUR_US for hours in (730, 720) for unit in MONTH_UNITS if unit.endswith(f"({hours} h)")},
}
"""Pricing unit -> its microseconds. `GB_MONTH` is a calendar month in UTC, whose length varies, and so are "IOPS-Months" and
"MiBps-Months"; those of `GB_MONTH_PACIFIC` are calendar months in Los Angeles; `GB` is no time at all."""
SHORTEST_MONTH_US = 28 * DAY_US
MB_PER_GB = 1000
"""The quantity of a `GB` meter is in MB, as providers count traffic; its price is of a GB, as they state it. So no price has to
divide by a thousand."""
UNITS = (HOUR, *MONTH_UNITS, GB)


def make_month_unit(measure: str, gb_unit: str) -> str:
    """Return the unit of `measure` for the month of `gb_unit`: "IOPS-Months (730 h)" for IOPS and `GB_MONTH_730`."""
    return gb_unit.replace(GB, measure, 1)


def find_billing_month(unit: str, at_us: int) -> tuple[int, int, int]:
    """Return the calendar month of `unit` that holds an instant: its number since 1970, its start and length in microseconds.

    In Los Angeles a month begins at 07:00 UTC from April to November, at 08:00 UTC else (US summer time since 2007). Example:
    November 2026 there has 721 hours, and March 743.
    """
    pacific = unit.endswith("(Los Angeles)")
    month = find_month_of_day(at_us // DAY_US)
    if at_us < _find_start_us(month, pacific=pacific):
        month -= 1
    start_us = _find_start_us(month, pacific=pacific)
    return month, start_us, _find_start_us(month + 1, pacific=pacific) - start_us


@lru_cache(maxsize=1024)
def _find_start_us(month: int, *, pacific: bool) -> int:
    hours = (7 if month % 12 in SUMMER_MONTHS else 8) if pacific else 0
    return to_micros(find_month_start(month)) + hours * HOUR_US


SUMMER_MONTHS = range(3, 11)
"""April to November, counted from 0: they begin on the clock of summer in Los Angeles."""


def get_measure(unit: str) -> str:
    """Return what a unit of months counts: "IOPS" for "IOPS-Months (730 h)"."""
    return unit.partition(_MONTH)[0]


LARGEST_PRICE = 34_000 * NANO
"""$34,000 an hour for one whole resource: a rack of 72 GPUs, the largest on sale, costs near $800 (2026-11). With it every
amount of 30 years fits the 64 bits of a database: 34e12 nano x 262,980 h = 8.9e18, of 9.2e18."""


@dataclass(frozen=True, slots=True)
class PriceRange:
    """Nano-units of `currency` per pricing unit: low <= expected <= high.

    `known`: whether a source states the price. A price that nobody states is an estimate if it has a low end, and unpriced if
    it has none: then `high` is what it costs at most, and nothing is expected of it.
    """

    low: int
    expected: int
    high: int
    currency: str = "USD"
    known: bool = True

    @property
    def estimated(self) -> bool:
        """Whether the price is an estimate: nobody states it, and it costs something at least."""
        return not self.known and self.low > 0

    @property
    def unpriced(self) -> bool:
        """Whether only an upper bound is known, so that nothing is expected.

        Ledgers of before 2026-11-25 hold such prices with half of the bound as expected.
        """
        return not self.known and not self.low and self.high > 0

    def __post_init__(self) -> None:
        order = 0 <= self.low <= self.expected <= self.high <= LARGEST_PRICE
        require(order, "price", f"is not in order: {self.low}, {self.expected}, {self.high}", "0 <= low <= expected <= high")

    def fits(self, unit: str, quantity: int) -> bool:
        """Return whether an hour of `quantity` at this price costs at most `LARGEST_PRICE`.

        Always True for a GB, which is not a time.
        """
        return unit == GB or self.high * quantity * HOUR_US <= LARGEST_PRICE * FIXED_UNITS.get(unit, SHORTEST_MONTH_US)

    @classmethod
    def exactly(cls, nano: int, currency: str = "USD") -> PriceRange:
        """Return the range of a stated price: low, expected and high are all `nano`."""
        return cls(nano, nano, nano, currency)

    def merge_with(self, other: PriceRange) -> PriceRange:
        """Return the range that covers two prices of one currency: lower low, higher high, expected half-way."""
        require(self.currency == other.currency, "currency", f"cannot mix {self.currency} with {other.currency}")
        low, high = min(self.low, other.low), max(self.high, other.high)
        return PriceRange(low, (self.expected + other.expected) // 2, high, self.currency, self.known and other.known)


@dataclass(frozen=True, slots=True)
class Meter:
    """The terms on which one line bills: charge, price and time steps.

    Cost = price x quantity x units of time. `part` distinguishes two lines of one charge (two disks). `quantum_s`: time is
    counted in started steps of this many seconds, from the start of the run. `minimum_s`: the least time that a run is charged
    for. `source`: where the price came from, with its date where that is known.
    """

    charge: str
    price: PriceRange
    unit: str = HOUR
    quantity: int = 1
    quantum_s: int = 1
    minimum_s: int = 0
    part: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        require_one_of(self.unit, UNITS, "meter.unit")
        sizes = self.quantity >= 0 and self.quantum_s >= 1 and self.minimum_s >= 0
        require(sizes, f"meter {self.charge}", "has a negative size")

    @property
    def line(self) -> tuple[str, str]:
        """(charge, part): spans of one line of one resource never overlap."""
        return self.charge, self.part

    def merge_with(self, other: Meter) -> Meter:
        """Return one meter that covers both, for a time in which it is unknown which of the two billed.

        The line stays the same; the quantity is that of the more expensive meter; the price ranges from the one to the other.
        Example: 100 GB or 150 GB at $0.10 become 150 GB at $0.066 (low), $0.083 (expected) and $0.10 (high). Where the two
        count time differently, the price starts at 0 and the steps are whole steps of both.
        """
        both = (self, other)
        more = max(both, key=lambda m: m.quantity * m.price.high)
        size = max(1, more.quantity)
        alike = (self.unit, self.quantum_s, self.minimum_s) == (other.unit, other.quantum_s, other.minimum_s)
        if alike and self.quantity == other.quantity:
            range_ = self.price.merge_with(other.price)
            return Meter(self.charge, range_, self.unit, self.quantity, self.quantum_s, self.minimum_s, more.part, more.source)
        price = replace(
            self.price.merge_with(other.price),
            low=min(m.quantity * m.price.low for m in both) // size if alike else 0,
            expected=sum(m.quantity * m.price.expected for m in both) // (2 * size),
            high=more.price.high,
        )
        steps, minimum = lcm(*(m.quantum_s for m in both)), max(m.minimum_s for m in both)
        return replace(more, price=price, quantum_s=steps, minimum_s=minimum)
