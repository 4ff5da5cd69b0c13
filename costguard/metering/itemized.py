"""The spans of one resource as charge items: cut at each UTC midnight, and put together where line, price and day are the same.

Example: a machine at $2.49 an hour that ran 09:00-10:00 and 15:00-15:30 is one item of the day, 09:00 to 15:30, 1.5 Hours,
$3.735; had its price changed at noon, it would be two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from costguard.metering.charge_item import ChargeItem
from costguard.metering.meter import GB, PriceRange
from costguard.metering.span import KnownUntil, Span, compute_amounts, count_expected_us, count_priced_pico
from costguard.values.instant import DAY_US, from_micros, to_micros
from costguard.values.money import Money, MoneyInterval
from costguard.values.period import Period
from costguard.values.resource import Attribution, ResourceKey


@dataclass(frozen=True, slots=True)
class BilledSpan:
    """A span that counts in a period. `reach`: of an open one; None: it goes to its end, or to the end of the period."""

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


def itemize_spans(
    key: ResourceKey, billed: Iterable[BilledSpan], period: Period, *, name: str = "", tags: tuple[tuple[str, str], ...] = ()
) -> list[ChargeItem]:
    """The items of one resource in `period`, day by day."""
    sums = dict[_ItemPlace, _ItemSum]()
    for one in billed:
        meter = one.span.meter
        line = (one.span.attribution, meter.charge, meter.part, meter.unit, meter.price, meter.source)
        for start, end in _split_days(one, to_micros(period.start), to_micros(period.end)):
            found = sums.setdefault((start // DAY_US, *line), _ItemSum(start, end))
            found.start_us, found.end_us = min(found.start_us, start), max(found.end_us, end)
            _add_part(found, one, start, end)
    return [
        _build_item(key, place, found, name, tags)
        for place, found in sorted(sums.items(), key=lambda each: (each[0][0], *each[0][2:4], each[1].start_us))
        if found.high or found.us
    ]


def _split_days(one: BilledSpan, start_us: int, end_us: int) -> Iterator[tuple[int, int]]:
    """The parts of a span that lie in [start, end) and in one UTC day each."""
    span, reach = one.span, one.reach
    begin = max(start_us, to_micros(span.start))
    last = span.end or (reach.high if reach else None)
    finish = end_us if last is None else min(end_us, to_micros(last))
    while begin < finish:
        midnight = min(finish, (begin // DAY_US + 1) * DAY_US)
        yield begin, midnight
        begin = midnight


def _add_part(found: _ItemSum, one: BilledSpan, start: int, end: int) -> None:
    """Add what a span comes to in [start, end); an open one as far as it reaches."""
    span, reach = one.span, one.reach
    low, expected, high = compute_amounts(span, start, end)
    until = end
    if reach is not None:
        until = min(end, to_micros(reach.expected))
        low, expected = compute_amounts(span, start, min(end, to_micros(reach.low)))[0], compute_amounts(span, start, until)[1]
    found.low, found.expected, found.high = found.low + low, found.expected + expected, found.high + high
    found.pico += count_priced_pico(span, start, until)
    found.us += 0 if span.meter.unit == GB else count_expected_us(span, start, until) * span.meter.quantity
    found.corrected |= one.corrected


def _build_item(
    key: ResourceKey, place: _ItemPlace, found: _ItemSum, name: str, tags: tuple[tuple[str, str], ...]
) -> ChargeItem:
    _, attribution, charge, part, unit, price, source = place
    low, expected, high = (Money(nano=nano, currency=price.currency) for nano in (found.low, found.expected, found.high))
    return ChargeItem(
        key=key,
        attribution=attribution,
        charge=charge,
        part=part,
        unit=unit,
        price=price,
        source=source,
        start=from_micros(found.start_us),
        end=from_micros(found.end_us),
        money=MoneyInterval(low=low, expected=expected, high=high),
        quantity_pico=found.pico,
        us=found.us,
        name=name,
        tags=tags,
        corrected=found.corrected,
    )
