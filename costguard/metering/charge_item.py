"""A charge item: the cost of one resource for one line at one price in one UTC day.

Itemized exports consist of them. The spans of a resource are cut at each UTC midnight, and merged where line, price and day are
the same.

Example: i-0abc ran from 22:30 to 01:00 at $2.49 an hour. That is two items: 1.5 Hours from 22:30 to midnight, $3.735, and 1
Hour from midnight to 01:00, $2.49. A day lies in one month, so no item is in two billing periods.

Example: a machine at $2.49 an hour that ran 09:00-10:00 and 15:00-15:30 is one item of the day, 09:00 to 15:30, 1.5 Hours,
$3.735; if its price had changed at noon, it would be two.

The items of a period add up to its `Spending` to the nano-unit, for low, expected and high alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Protocol

from costguard.metering.meter import COMPUTE, ELECTRICITY, GB, HOUR, KWH, UNIT, PriceRange, get_measure
from costguard.metering.span import (
    PICO,
    KnownUntil,
    Span,
    compute_amounts,
    count_expected_us,
    count_priced_pico,
    remove_bill_price,
)
from costguard.values.calendar import Period
from costguard.values.checks import require
from costguard.values.instant import DAY_US, HOUR_US, from_micros, to_micros
from costguard.values.money import Money, MoneyInterval
from costguard.values.provider import Seller
from costguard.values.resource import Attribution, ResourceKey

QUANTITY_PLACES = 12
"""Decimals of a quantity: an hour is cut finer than a microsecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeItem:
    """The cost of one line in one UTC day.

    `charge`, `part`: the line. `unit`, `price`, `source`: as in the meter. `start`, `end`: the first and the last instant at
    which it may have billed, within one UTC day. `quantity_pico`: 10^-12 of the unit that probably billed (whole steps, at
    least the minimum). `us`: microseconds that it probably billed, for a disk multiplied by its GB; 0 for charges by amount.
    `name` and `tags`: as last seen. `corrected`: an amount that was recorded before has been replaced in it. `counted`: what
    its time costs at the counted price, where a bill states another one; None: `money`.
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
    counted: MoneyInterval | None = None

    def __post_init__(self) -> None:
        first, last = to_micros(self.start), to_micros(self.end)
        sound = first < last and first // DAY_US == (last - 1) // DAY_US
        require(sound, "item", f"is not within one UTC day: {self.start} to {self.end}")

    @property
    def quantity(self) -> Decimal:
        """Charged pricing units, to twelve decimals."""
        return Decimal(self.quantity_pico) / PICO

    @property
    def unit_price(self) -> Decimal:
        """The expected price of one pricing unit, exactly."""
        return Decimal(self.price.expected).scaleb(-9)

    @property
    def used(self) -> Decimal:
        """The usage, as opposed to the charged quantity: hours, GB-hours or GB, to twelve decimals."""
        return self.quantity if self.unit in (GB, UNIT) else round(Decimal(self.us) / HOUR_US, QUANTITY_PLACES)

    @property
    def priced_unit(self) -> str:
        """The unit of the price, for people: kWh of electricity."""
        return KWH if (self.charge, self.unit) == (ELECTRICITY, GB) else self.unit

    @property
    def used_unit(self) -> str:
        """The unit of `used`."""
        return self.priced_unit if self.unit in (GB, HOUR, UNIT) else f"{get_measure(self.unit)}-Hours"

    @property
    def unpriced(self) -> bool:
        """Whether nothing is expected of it, because only an upper bound of its price is known."""
        return self.price.unpriced and not self.price.expected

    @property
    def computes(self) -> bool:
        """Whether the charge is for computing, and not for a disk, an address or traffic."""
        return self.charge == COMPUTE


class ChargeItems(Protocol):
    """The items of a period, one resource after the other.

    Each iteration reads them again.
    """

    @property
    def sellers(self) -> Mapping[str, Seller]:
        """The sellers by provider name in the ledger, as the provider packages state them: see `values.provider.get_seller`."""

    def __iter__(self) -> Iterator[ChargeItem]:
        """Iterate from the first resource on; items already returned are not kept."""


@dataclass(frozen=True, slots=True)
class BilledSpan:
    """A span that counts in a period.

    `reach`: set for an open span; None: it goes to its end, or to the end of the period.
    """

    span: Span
    reach: KnownUntil | None = None
    corrected: bool = False


_ItemPlace = tuple[int, Attribution, str, str, str, PriceRange, str]


@dataclass(slots=True)
class _ItemSum:
    start_us: int
    end_us: int
    low: int = 0
    expected: int = 0
    high: int = 0
    pico: int = 0
    us: int = 0
    corrected: bool = False
    counted: tuple[int, int, int] = (0, 0, 0)
    repriced: bool = False


def itemize_spans(
    key: ResourceKey, billed: Iterable[BilledSpan], period: Period, *, name: str = "", tags: tuple[tuple[str, str], ...] = ()
) -> list[ChargeItem]:
    """Return the items of one resource in `period`, day by day."""
    sums = dict[_ItemPlace, _ItemSum]()
    for one in billed:
        meter = one.span.meter
        line = (one.span.attribution, meter.charge, meter.part, meter.unit, meter.price, meter.source)
        for start, end in _split_days(one, to_micros(period.start), to_micros(period.end)):
            total = sums.setdefault((start // DAY_US, *line), _ItemSum(start, end))
            total.start_us, total.end_us = min(total.start_us, start), max(total.end_us, end)
            _add_part(total, one, start, end)
    return [
        _build_item(key, place, total, name, tags)
        for place, total in sorted(sums.items(), key=lambda each: (each[0][0], *each[0][2:4], each[1].start_us))
        if total.high or total.us
    ]


def _split_days(one: BilledSpan, start_us: int, end_us: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a span that lie in [start_us, end_us), cut at each UTC midnight."""
    span, reach = one.span, one.reach
    begin = max(start_us, to_micros(span.start))
    last = span.end or (reach.high if reach else None)
    finish = end_us if last is None else min(end_us, to_micros(last))
    while begin < finish:
        midnight = min(finish, (begin // DAY_US + 1) * DAY_US)
        yield begin, midnight
        begin = midnight


def _add_part(total: _ItemSum, one: BilledSpan, start: int, end: int) -> None:
    """Add the cost of a span in [start, end); an open span counts as far as its `reach`."""
    span, reach = one.span, one.reach
    low, expected, high = compute_amounts(span, start, end)
    until = end
    if reach is not None:
        until = min(end, to_micros(reach.expected))
        low, expected = compute_amounts(span, start, min(end, to_micros(reach.low)))[0], compute_amounts(span, start, until)[1]
    total.low, total.expected, total.high = total.low + low, total.expected + expected, total.high + high
    total.pico += count_priced_pico(span, start, until)
    own = compute_amounts(remove_bill_price(span), start, end) if span.repriced else (low, expected, high)
    total.counted = (total.counted[0] + own[0], total.counted[1] + own[1], total.counted[2] + own[2])
    total.repriced |= span.repriced
    total.us += 0 if span.meter.unit == GB else count_expected_us(span, start, until) * span.meter.quantity
    total.corrected |= one.corrected


def _build_item(
    key: ResourceKey, place: _ItemPlace, total: _ItemSum, name: str, tags: tuple[tuple[str, str], ...]
) -> ChargeItem:
    _, attribution, charge, part, unit, price, source = place
    low, expected, high = (Money(nano=nano, currency=price.currency) for nano in (total.low, total.expected, total.high))
    money = MoneyInterval(low=low, expected=expected, high=high)
    counted = money
    if total.repriced:
        low, expected, high = (Money(nano=nano, currency=price.currency) for nano in total.counted)
        counted = MoneyInterval(low=low, expected=expected, high=high)
    return ChargeItem(
        key=key,
        attribution=attribution,
        charge=charge,
        part=part,
        unit=unit,
        price=price,
        source=source,
        start=from_micros(total.start_us),
        end=from_micros(total.end_us),
        money=money,
        quantity_pico=total.pico,
        us=total.us,
        name=name,
        tags=tags,
        corrected=total.corrected,
        counted=counted if total.repriced else None,
    )
