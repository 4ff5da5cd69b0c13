"""Burn: the money per hour that bills now, and the cost of a period if it goes on.

Example: an instance at $2.00 an hour and its disk of 730 GB at $0.10 per GB-month of 730 h burn $2.10 an hour. With $100 spent
in a period and 100 h left of it, it costs 100 + 2.10 x 100 = $310; low, expected and high are each computed like this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache, partial

from costguard.metering.accrual import POLL_GAP
from costguard.metering.meter import COMPUTE, FIXED_UNITS, GB, Meter, find_billing_month
from costguard.metering.span import Span
from costguard.metering.spending import LiveResource, UnobservedUsage
from costguard.values.checks import require
from costguard.values.instant import HOUR_US, to_micros
from costguard.values.money import Money, MoneyInterval, divide_half_even, make_zero_interval
from costguard.values.resource import Attribution, ResourceKey


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyBurn:
    """Money an hour in one currency.

    `stated`: the expected amount, at prices that are stated or estimated; `estimated_part`: that at estimated prices.
    `unstated`: the highest cost of the unpriced lines, of which nothing is expected. `bounds` covers all of them.
    """

    bounds: MoneyInterval
    stated: Money
    unstated: Money
    estimated_part: Money

    @property
    def unknown(self) -> bool:
        """Whether a part of it is unpriced."""
        return self.unstated.nano > 0

    @property
    def guessed(self) -> bool:
        """Whether a part of it is at an estimated price."""
        return self.estimated_part.nano > 0

    @property
    def currency(self) -> str:
        """The ISO 4217 code of the currency."""
        return self.stated.currency

    def add(self, other: HourlyBurn) -> HourlyBurn:
        """Return the sum of both."""
        bounds = self.bounds.add(other.bounds)
        stated_money, unstated = self.stated + other.stated, self.unstated + other.unstated
        return HourlyBurn(
            bounds=bounds, stated=stated_money, unstated=unstated, estimated_part=self.estimated_part + other.estimated_part
        )


def compute_hourly_burn(live: LiveResource, at: datetime) -> tuple[HourlyBurn, ...]:
    """Return the burn of `live` at `at` by currency: its open lines, and usage that may bill unobserved."""
    by_currency: dict[str, HourlyBurn] = {}
    for _, burn in _yield_line_burns(live.open, live.unheard, at, absent=live.absent_at is not None):
        by_currency[burn.currency] = by_currency.get(burn.currency, make_zero_burn(burn.currency)).add(burn)
    return tuple(by_currency[currency] for currency in sorted(by_currency))


def list_burns(
    live: Iterable[LiveResource], at: datetime, ends: Mapping[ResourceKey, datetime] | None = None
) -> tuple[AttributedBurn, ...]:
    """Return the burn at `at` of each line that bills or may bill, as the budgets count it. `ends`: the planned stops."""
    stops = ends or {}
    return tuple(
        AttributedBurn(
            attribution=span.attribution,
            hourly=hourly.bounds,
            since=span.start,
            until=stops.get(one.observation.key) if span.meter.charge == COMPUTE else None,
            unseen_since=one.seen_at if one.absent_at is None and at - one.seen_at > POLL_GAP else None,
        )
        for one in live
        for span, hourly in _yield_line_burns(one.open, one.unheard, at, absent=one.absent_at is not None)
    )


def list_line_burns(
    lines: Iterable[tuple[Span, bool]], unobserved: Iterable[UnobservedUsage], at: datetime
) -> tuple[AttributedBurn, ...]:
    """Return what `list_burns` does without planned stops: of `unobserved`, the burn of machines that look alike is one.

    `lines`: each open line, and whether complete listings lack its resource.
    """
    burns = [(span, _compute_line_burn(span, at, doubtful=absent).bounds) for span, absent in lines]
    for usage in unobserved:
        count = len(usage.numbers)
        burns += [(span, _compute_line_burn(span, at, doubtful=True).bounds.multiply(count)) for span in usage.spans]
    return tuple(AttributedBurn(attribution=span.attribution, hourly=hourly, since=span.start) for span, hourly in burns)


def compute_hourly_price(meter: Meter, nano: int, at: datetime) -> int:
    """Return nano-units an hour of `meter` at `nano` per unit; 0 for a GB.

    A calendar GB-month is divided by the hours of the month of `at`.
    """
    return _compute_hourly_price(meter, nano, _find_unit_us(meter, at))


def _find_unit_us(meter: Meter, at: datetime) -> int:
    """Return the microseconds of the pricing unit at `at`; 0 for a GB."""
    return 0 if meter.unit == GB else FIXED_UNITS.get(meter.unit) or find_billing_month(meter.unit, to_micros(at))[2]


def _compute_hourly_price(meter: Meter, nano: int, unit_us: int) -> int:
    return divide_half_even(nano * meter.quantity * HOUR_US, unit_us) if unit_us else 0


@lru_cache(maxsize=32)
def make_zero_burn(currency: str = "USD") -> HourlyBurn:
    """Return a burn of zero."""
    zero = Money(nano=0, currency=currency)
    return HourlyBurn(bounds=make_zero_interval(currency), stated=zero, unstated=zero, estimated_part=zero)


def sum_burns(burns: Iterable[HourlyBurn], currency: str) -> HourlyBurn:
    """Return the sum of `burns`, all in `currency`; raises InputError for one in another."""
    burns = tuple(burns)
    for one in burns:
        require(one.currency == currency, "currency", f"cannot mix {currency} with {one.currency}")
    bounds, nano = [one.bounds for one in burns], partial(_sum_nano, currency)
    return HourlyBurn(
        bounds=MoneyInterval(
            low=nano(one.low for one in bounds),
            expected=nano(one.expected for one in bounds),
            high=nano(one.high for one in bounds),
        ),
        stated=nano(one.stated for one in burns),
        unstated=nano(one.unstated for one in burns),
        estimated_part=nano(one.estimated_part for one in burns),
    )


def _sum_nano(currency: str, amounts: Iterable[Money]) -> Money:
    return Money(nano=sum(one.nano for one in amounts), currency=currency)


def extend_burn(to_date: MoneyInterval, hourly: MoneyInterval, left_us: int) -> MoneyInterval:
    """Return `to_date` plus `hourly` for `left_us` microseconds: the cost if what runs goes on."""
    low, expected, high = (_extend_burn(end, left_us) for end in (hourly.low, hourly.expected, hourly.high))
    return to_date.add(MoneyInterval(low=low, expected=expected, high=high))


def _extend_burn(hourly: Money, us: int) -> Money:
    return Money(nano=divide_half_even(hourly.nano * us, HOUR_US), currency=hourly.currency)


def _yield_line_burns(
    lines: Iterable[Span], unheard: Iterable[Span], at: datetime, *, absent: bool
) -> Iterator[tuple[Span, HourlyBurn]]:
    """Yield each line with its burn.

    Where its resource is absent or was not observed, low and expected are zero.
    """
    yield from ((span, _compute_line_burn(span, at, doubtful=absent)) for span in lines)
    for span in unheard:
        hourly = _compute_line_burn(span, at, doubtful=True)
        yield span, replace(hourly, unstated=hourly.stated)  # it bounds what may be, and is no price that nobody stated


def _compute_line_burn(span: Span, at: datetime, *, doubtful: bool) -> HourlyBurn:
    """Return the burn of one line.

    `doubtful`: it may not bill, so low and expected are zero and high is its price.
    """
    return _compute_meter_burn(span.meter, _find_unit_us(span.meter, at), doubtful)


@lru_cache(maxsize=1024)
def _compute_meter_burn(meter: Meter, unit_us: int, doubtful: bool) -> HourlyBurn:  # noqa: FBT001 - a cache tells arguments by their place
    """Return the burn of `meter` at a length of its unit: thousands of machines and disks have a few meters."""
    price, zero = meter.price, Money(nano=0, currency=meter.price.currency)
    low, expected, high = (
        Money(nano=_compute_hourly_price(meter, nano, unit_us), currency=price.currency)
        for nano in (price.low, price.expected, price.high)
    )
    if doubtful:
        low = expected = zero
    bounds = MoneyInterval(low=low, expected=expected, high=high)
    return HourlyBurn(
        bounds=bounds,
        stated=zero if price.unpriced else expected,
        unstated=high if price.unpriced else zero,
        estimated_part=expected if price.estimated else zero,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributedBurn:
    """The present burn of one line: `hourly` is money an hour.

    `since`: since when it bills at this price. `until`: when a person planned its stop; None: nobody did. `unseen_since`: since
    when nobody could look at its resource; None: somebody just did, or complete listings lack it.
    """

    attribution: Attribution
    hourly: MoneyInterval
    since: datetime
    until: datetime | None = None
    unseen_since: datetime | None = None
