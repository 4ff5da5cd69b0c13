"""A charge item: what one resource cost for one line at one price in one UTC day. What item-by-item formats are made of.

Example: i-0abc ran from 22:30 to 01:00 at $2.49 an hour. That is two items: 1.5 Hours from 22:30 to midnight, $3.735, and
1 Hour from midnight to 01:00, $2.49. A day lies in one month, so no item straddles two billing periods. Runs of the same
resource on the same day at the same price are one item, from the first start to the last end.

The items of a period add up to its `Spending` to the nano-unit, at each of the three ends of the interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Protocol

from costguard.metering.meter import COMPUTE, GB, HOUR, PriceRange
from costguard.metering.span import PICO
from costguard.values.checks import require
from costguard.values.instant import DAY_US, HOUR_US, MICROSECOND, to_micros
from costguard.values.money import MoneyInterval
from costguard.values.provider import Seller
from costguard.values.resource import Attribution, ResourceKey

QUANTITY_PLACES = 12
"""Decimals of a quantity: an hour is cut finer than a microsecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeItem:
    """`charge` and `part`: the line. `unit`, `price`: as the meter has them. `source`: where the price came from.

    `start`, `end`: the first and the last instant at which it may have billed, within one UTC day. `quantity_pico`: 10^-12 of
    the unit that probably billed (whole steps, at least the minimum). `us`: microseconds that it probably billed, of a disk
    each times its GB; 0 for what is billed by amount. `name` and `tags`: as last seen. `corrected`: an amount that was
    recorded before has been replaced in it.
    """

    key: ResourceKey
    attribution: Attribution
    charge: str
    part: str
    unit: str
    price: PriceRange
    source: str
    start: datetime
    end: datetime
    money: MoneyInterval
    quantity_pico: int
    us: int
    name: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    corrected: bool = False

    def __post_init__(self) -> None:
        first, last = to_micros(self.start), to_micros(self.end)
        sound = first < last and first // DAY_US == (last - 1) // DAY_US
        require(sound, "item", f"lies not within one UTC day: {self.start} to {self.end}")

    @property
    def quantity(self) -> Decimal:
        """Pricing units, to twelve decimals."""
        return Decimal(self.quantity_pico) / PICO

    @property
    def unit_price(self) -> Decimal:
        """Expected money of one pricing unit, exactly."""
        return Decimal(self.price.expected).scaleb(-9)

    @property
    def used(self) -> Decimal:
        """What was used, rather than what is charged for: hours, GB-hours or GB, to twelve decimals."""
        return self.quantity if self.unit == GB else round(Decimal(self.us) / HOUR_US, QUANTITY_PLACES)

    @property
    def used_unit(self) -> str:
        """The unit of `used`."""
        return GB if self.unit == GB else "Hours" if self.unit == HOUR else "GB-Hours"

    @property
    def computes(self) -> bool:
        """Whether it is of computing rather than of a disk, an address or traffic."""
        return self.charge == COMPUTE

    @property
    def last_moment(self) -> datetime:
        """The last instant inside."""
        return self.end - MICROSECOND


class ChargeItems(Protocol):
    """The items of a period, one resource after the other. Each time they are gone through they are read anew."""

    @property
    def sellers(self) -> Mapping[str, Seller]:
        """What providers say of themselves as sellers, by what the ledger calls them: see `provider.seller_of`."""

    def __iter__(self) -> Iterator[ChargeItem]:
        """From the first resource on; nothing is kept of those that have been given."""
