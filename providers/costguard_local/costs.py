"""What a machine of your own costs an hour, and how much energy its GPUs took by the agent's samples. Pure.

    wear  = price / (years * 8,760 h)
    power = watts / 1000 * usd_per_kwh

Example: a machine of $1,600 that lasts 3 years, draws 450 W under load and 60 W idle at $0.30 per kWh costs $0.0609 of wear
and $0.018 to $0.135 of power an hour: $0.0789, expected $0.1374, $0.1959. With an agent and `host_watts = 90` it costs $0.0879
an hour, exactly, and its GPUs' energy besides, by what they drew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from costguard.metering.observation import POWER_RANGE, Estimate, Price
from costguard.quoting.own_hardware import HOURS_PER_YEAR, YEARS
from costguard.values.money import Money, Rate
from costguard.values.sample import GPU_POWER, Sample

SAMPLE_GAP_MAX = timedelta(minutes=3)
"""A sample stands for the time since the one before it, at most this long: three intervals of the guard (60 s)."""
MILLIWATT_SECONDS_PER_WH = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMachine:
    """A machine of your own. Watts are of the whole machine but for `host_watts`: what it draws beside its GPUs.

    `idle_watts`: what it draws at least; 0 if it may be off. `host_watts` None: not stated, so its power is an interval even
    while its agent measures its GPUs. `price` None: its wear is not counted.
    """

    name: str
    usd_per_kwh: Money
    watts: float
    idle_watts: float = 0
    host_watts: float | None = None
    price: Money | None = None
    years: float = YEARS
    gpu: str = ""
    gpus: int = 0
    owner: str = ""


@dataclass(frozen=True, slots=True)
class EnergyReading:
    """The energy that the GPUs of a machine took until `at`, in milliwatt-seconds since it was first counted."""

    at: datetime
    milliwatt_seconds: int

    @property
    def watt_hours(self) -> int:
        """Return whole watt-hours, rounded down, so that the reading never falls."""
        return self.milliwatt_seconds // MILLIWATT_SECONDS_PER_WH


def price_estimated(machine: OwnMachine) -> Price:
    """Return the price of an hour in which nothing measures the machine: between idle and load, expected half-way."""
    low, high = _add_wear(machine, machine.idle_watts), _add_wear(machine, machine.watts)
    expected = max(1, round((low + high) / 2))
    bounds = Estimate(int(low), max(expected, -int(-high // 1)), POWER_RANGE)
    source = f"[providers.local], {machine.idle_watts:g} to {machine.watts:g} W, not measured"
    return Price(Rate(nano_per_hour=expected), source=source, estimate=bounds)


def price_measured(machine: OwnMachine) -> Price:
    """Return the price of an hour without the energy of its GPUs, which is counted. `host_watts` is stated."""
    nano = round(_add_wear(machine, machine.host_watts or 0))
    return Price(Rate(nano_per_hour=max(1, nano)), source=f"[providers.local], {machine.host_watts:g} W without its GPUs")


def _add_wear(machine: OwnMachine, watts: float) -> Fraction:
    """Return nano-dollars an hour of `watts` and wear."""
    power = Fraction(watts) / 1000 * machine.usd_per_kwh.nano
    return power + Fraction(machine.price.nano if machine.price else 0) / (Fraction(machine.years) * HOURS_PER_YEAR)


def count_energy(reading: EnergyReading, samples: Iterable[Sample]) -> EnergyReading:
    """Return `reading` and the energy of the power samples after it, in order of time.

    A sample is the mean since the one before it. Of a gap longer than `SAMPLE_GAP_MAX` only so much counts. One that is not
    later than the last counted is ignored: a clock that was set back counts nothing twice.
    """
    at, total = reading.at, reading.milliwatt_seconds
    for sample in samples:
        if sample.signal == GPU_POWER and sample.at > at and sample.value >= 0:
            total += round(min(sample.at - at, SAMPLE_GAP_MAX).total_seconds() * sample.value * 1000)
            at = sample.at
    return EnergyReading(at, total)
