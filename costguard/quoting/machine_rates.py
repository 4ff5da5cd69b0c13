"""Public rates of machine families and factors of regions: what a machine without a GPU is likely to cost on demand.

A cloud sells a family at one rate: AWS's next size costs twice as much, and Google adds vCPUs and memory. So a short table
prices types that no snapshot of offers holds. Each row names the region of its price; the factor of another region scales it.

Example: AWS's m5 costs $0.192 an `xlarge` in us-east-1, so m5.large costs $0.096 there; eu-west-1's factor is 1.115: $0.107.
Google's e2 costs $0.021811 a vCPU and $0.002923 a GB in us-central1, so e2-standard-2 (2 vCPU, 8 GB) costs $0.0670.

The rates are in `machine_rates.csv`, the factors in `region_factors.csv` of each cloud's package.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from statistics import median

from costguard.errors import InputError
from costguard.values.checks import require_one_of
from costguard.values.interval import Interval
from costguard.values.money import Money

SIZE, VCPU, MACHINE = RATE_UNITS = ("xlarge", "vcpu", "machine")
"""What the price of a row is of: an AWS size unit, a vCPU (and a GB of memory), or the whole machine."""

OTHER_REGION_FACTOR = 2
"""No region of a cloud costs more than so many times its cheapest: sa-east-1 is at 1.6 to 1.97 (market of 2026-11). An
assumption for regions without a factor."""

_SIZES = {"nano": "0.03125", "micro": "0.0625", "small": "0.125", "medium": "0.25", "large": "0.5", "xlarge": "1"}
_SIZE = re.compile(r"(?:metal-)?(?P<count>\d{1,3})(?:xlarge|xl)")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRate:
    """One row. `machines`: a family, or the name of a type with unit "machine". `nano`, `nano_per_gb`: nano-USD an hour."""

    provider: str
    machines: str
    region: str
    unit: str
    nano: int
    nano_per_gb: int
    source: str
    observed_on: date


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionFactors:
    """What a region costs relative to the region that the tables price, by provider and region."""

    factors: Mapping[tuple[str, str], float]

    def find_factor(self, provider: str, region: str) -> Interval:
        """Return the factor of `region` or of the region of a zone.

        A region without one: as the cheapest known at least, as the median expected, and at most `OTHER_REGION_FACTOR`.
        """
        while region:
            if (provider, region) in self.factors:
                return Interval.exactly(self.factors[provider, region])
            region = region.rpartition("-")[0]
        factors = sorted(factor for (name, _), factor in self.factors.items() if name == provider)
        if not factors:
            return Interval(1.0, 1.0, float(OTHER_REGION_FACTOR))
        return Interval(factors[0], median(factors), max(factors[-1], OTHER_REGION_FACTOR))

    def find_cheapest(self, provider: str) -> float:
        """Return the factor of the cheapest region; 1 if none is known."""
        return min((factor for (name, _), factor in self.factors.items() if name == provider), default=1.0)


NO_FACTORS = RegionFactors(factors={})


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedPrice:
    """The price of a machine by the public rate of its family. `factor`: of its region over the region of the row."""

    nano: int
    factor: Interval
    row: MachineRate


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRates:
    """The rates of every cloud, by provider and machines, with the factors of regions."""

    rows: Mapping[tuple[str, str], MachineRate]
    regions: RegionFactors = NO_FACTORS

    def find_price(self, provider: str, instance_type: str, region: str, *, vcpus: float, ram_gb: float) -> RatedPrice | None:
        """Return what `instance_type` costs an hour on demand, in the region of its row; None if the tables lack it.

        `vcpus`, `ram_gb`: 0 if unknown, which only some rows need.
        """
        row = self.rows.get((provider, instance_type))
        nano = row.nano if row is not None and row.unit == MACHINE else None
        if nano is None:
            row, nano = self._find_family_price(provider, instance_type, vcpus, ram_gb)
        if row is None or not nano:
            return None
        own_factor, row_factor = self.regions.find_factor(provider, region), self.regions.find_factor(provider, row.region)
        return RatedPrice(nano=nano, factor=own_factor.scale(1 / row_factor.expected), row=row)

    def _find_family_price(
        self, provider: str, instance_type: str, vcpus: float, ram_gb: float
    ) -> tuple[MachineRate | None, int | None]:
        family, _, size = instance_type.partition(".")
        row = self.rows.get((provider, family))
        if row is not None and row.unit == SIZE:
            units = count_size_units(size)
            return row, None if units is None else round(row.nano * units)
        row = self.rows.get((provider, _find_vcpu_family(instance_type)))
        if row is None or row.unit != VCPU or vcpus <= 0 or ram_gb <= 0:
            return None, None
        return row, round(row.nano * Decimal(str(vcpus)) + row.nano_per_gb * Decimal(str(ram_gb)))


def count_size_units(size: str) -> Decimal | None:
    """Return how many `xlarge` a size of AWS is: 0.5 for "large", 24 for "metal-24xl"; None if its name does not say."""
    if size in _SIZES:
        return Decimal(_SIZES[size])
    match = _SIZE.fullmatch(size)
    return Decimal(match["count"]) if match else None


def _find_vcpu_family(instance_type: str) -> str:
    """Return Google's family of a type: "e2" for e2-standard-4, "n2-custom" and "custom" for custom types."""
    head, _, rest = instance_type.partition("-")
    return f"{head}-custom" if rest.startswith("custom-") else head


def read_machine_rates(rows: Iterable[Mapping[str, str]], factors: RegionFactors) -> MachineRates:
    """Return the rates in rows of `machine_rates.csv`; InputError names the row that cannot be read."""
    rates: dict[tuple[str, str], MachineRate] = {}
    for row in rows:
        field = f"machine_rates.csv {row['provider']} {row['machines']}"
        rates[row["provider"], row["machines"]] = MachineRate(
            provider=row["provider"],
            machines=row["machines"],
            region=row["region"],
            unit=require_one_of(row["unit"], RATE_UNITS, f"{field}.unit"),
            nano=Money.parse(row["usd"], field=f"{field}.usd").nano,
            nano_per_gb=Money.parse(row["usd_per_gb"] or "0", field=f"{field}.usd_per_gb").nano,
            source=row["source"],
            observed_on=read_day(row["observed_on"], f"{field}.observed_on"),
        )
    return MachineRates(rows=rates, regions=factors)


LARGEST_FACTOR = 10


def read_region_factors(rows: Iterable[Mapping[str, str]]) -> RegionFactors:
    """Return the factors in rows of `region_factors.csv`; InputError for one that is not above 0 and at most 10."""
    factors: dict[tuple[str, str], float] = {}
    for row in rows:
        field = f"region_factors.csv {row['provider']} {row['region']}"
        try:
            factor = float(row["factor"])
        except ValueError:
            raise InputError(f"is not a number: {row['factor']!r}", field=field, hint="write a factor such as 1.115") from None
        if not 0 < factor <= LARGEST_FACTOR:  # nan is in no range
            raise InputError(f"must be above 0 and at most {LARGEST_FACTOR}, not {row['factor']}", field=field)
        factors[row["provider"], row["region"]] = factor
    return RegionFactors(factors=factors)


def read_day(text: str, field: str) -> date:
    """Return the day of "2026-01-19"; the first of the month for "2026-01"."""
    try:
        return date.fromisoformat(text if text.count("-") > 1 else f"{text}-01")
    except ValueError:
        raise InputError(f"is not a day: {text!r}", field=field, hint="write 2026-01-19 or 2026-01") from None
