"""Values as rows and rows as values, without loss: what is read equals what was written.

Times are whole microseconds since 1970 UTC, money whole nano-units, GPUs of a resource whole thousandths (a g6f has 125).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any

from costguard.metering.meter import Line, Meter, PriceRange
from costguard.metering.observation import Disk, Observation, Price, TrafficCounter
from costguard.metering.span import Span
from costguard.values.instant import from_micros, to_micros
from costguard.values.money import Rate
from costguard.values.resource import Attribution, ResourceKey, make_storable

Row = tuple[Any, ...]
Amounts = tuple[int, int, int]

ABSENT = "absent"
"""The state of a row of the observation log that says a complete listing lacks the resource."""

ATTRIBUTION = "provider, account, region, kind, gpu, gpu_count_milli, tier, owner, instance_type, labels"
"""The columns of an attribution, in the order of `attribution_row`."""

METER = (
    "charge, part, unit, quantity, quantum_s, minimum_s, "
    "price_low, price_expected, price_high, currency, price_known, price_source"
)
PERIOD = "presence, anchor_us, start_us, why, end_us, ended_by"
SPAN = ", ".join(f"s.{column}" for column in f"{METER}, {PERIOD}".split(", "))
"""The columns of a span `s`, in the order that `span_of` reads."""

FLEET = 10_000
"""So many rows are remembered as what they were last read as: a watchdog reads the same ones in each run."""

_encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode
_PLAIN = ("state", "kind", "tier", "name", "instance_type", "gpu", "gpu_count", "owner", "why")
_TIMES = ("created_at", "started_at", "stopped_at")
_plain, _times = attrgetter(*_PLAIN), attrgetter(*_TIMES)


def observation_text(seen: Observation, unproven: Iterable[Line] = ()) -> str:
    """`seen` without its key as compact JSON: the same value gives the same text.

    Prices, disks and counters are lists of their fields in order. `unproven`: the lines that billed until some moment that
    nobody saw, in this observation's opinion; what they left behind is corrected should it turn out that they went on.
    """
    said: dict[str, object] = {name: value for name, value in zip(_PLAIN, _plain(seen), strict=True) if value}
    for name, at in zip(_TIMES, _times(seen), strict=True):
        if at is not None:
            said[name] = to_micros(at)
    if seen.labels:
        said["labels"] = seen.labels
    if seen.prices:
        said["prices"] = [_price_row(price) for price in seen.prices]
    if seen.disks:
        said["disks"] = [(disk.gb, disk.type, disk.nano_per_gb_month) for disk in seen.disks]
    if seen.counters:
        said["counters"] = [(counter.charge, counter.mb, counter.nano_per_gb) for counter in seen.counters]
    if lines := sorted(unproven):
        said["unproven_ends"] = lines
    return _encode(said)


@lru_cache(maxsize=FLEET)
def observation_of(key: ResourceKey, text: str) -> tuple[Observation, tuple[Line, ...]]:
    """What `observation_text` wrote of the resource `key`; most resources are as they were when they were last asked about."""
    said: dict[str, Any] = json.loads(text)
    unproven = tuple((charge, part) for charge, part in said.pop("unproven_ends", ()))
    for name in _TIMES:
        if name in said:
            said[name] = from_micros(said[name])
    said["labels"] = tuple((name, value) for name, value in said.get("labels", ()))
    said["prices"] = tuple(_price_of(*row) for row in said.get("prices", ()))
    said["disks"] = tuple(Disk(*row) for row in said.get("disks", ()))
    said["counters"] = tuple(TrafficCounter(*row) for row in said.get("counters", ()))
    return Observation(key=key, **said), unproven


def attribution_row(attribution: Attribution) -> Row:
    """`attribution` as the columns of ATTRIBUTION."""
    return (
        attribution.provider,
        attribution.account,
        attribution.region,
        attribution.kind,
        attribution.gpu,
        round(attribution.gpu_count * 1000),
        attribution.tier,
        make_storable(attribution.owner),
        make_storable(attribution.instance_type),
        labels_text(attribution.labels),
    )


def attribution_of(row: Row) -> Attribution:
    """What `attribution_row` wrote."""
    provider, account, region, kind, gpu, milli, tier, owner, instance_type, labels = row
    pairs = tuple((name, value) for name, value in json.loads(labels))
    count = milli / 1000 if milli % 1000 else milli // 1000
    return Attribution(provider, account, region, kind, gpu, count, tier, owner, instance_type, pairs)


def labels_text(labels: tuple[tuple[str, str], ...]) -> str:
    """Sorted pairs as JSON."""
    return _encode(labels) if labels else "[]"


def span_row(span: Span, resource_id: int, attribution_id: int, amounts: Amounts | None) -> Row:
    """`span` as its columns after the id: whose it is, METER, PERIOD, and the amounts of a closed one."""
    meter = span.meter
    price = meter.price
    start_us = to_micros(span.start)
    end = span.end
    return (
        resource_id,
        attribution_id,
        meter.charge,
        meter.part,
        meter.unit,
        meter.quantity,
        meter.quantum_s,
        meter.minimum_s,
        price.low,
        price.expected,
        price.high,
        price.currency,
        int(price.known),
        meter.source,
        span.presence,
        start_us if span.anchor is span.start else to_micros(span.anchor),
        start_us,
        span.why,
        None if end is None else to_micros(end),
        None if end is None else span.ended_by,
        *(amounts or (None, None, None)),
    )


def span_of(key: ResourceKey, attribution: Attribution, row: Sequence[Any]) -> Span:
    """The span of `key` that the columns SPAN describe."""
    presence, anchor_us, start_us, why, end_us, ended_by = row[12:18]
    start = from_micros(start_us)
    return Span(
        key=key,
        attribution=attribution,
        meter=meter_of(*row[:12]),
        start=start,
        anchor=start if anchor_us == start_us else from_micros(anchor_us),
        end=moment(end_us),
        presence=presence,
        why=why,
        ended_by=ended_by or "",
    )


open_span_of = lru_cache(maxsize=2 * FLEET)(span_of)
"""The same of an open span, whose row does not change from run to run. `row`: a tuple."""


@lru_cache(maxsize=4096)
def meter_of(  # noqa: PLR0917 - the columns METER in their order
    charge: str,
    part: str,
    unit: str,
    quantity: int,
    quantum_s: int,
    minimum_s: int,
    low: int,
    expected: int,
    high: int,
    currency: str,
    known: int,
    source: str,
) -> Meter:
    """The meter of a row; a fleet has few, so they are made once."""
    price = PriceRange(low, expected, high, currency, bool(known))
    return Meter(charge, price, unit, quantity, quantum_s, minimum_s, part, source)


def moment(us: int | None) -> datetime | None:
    """The instant, or None for none."""
    return None if us is None else from_micros(us)


def _price_row(price: Price) -> Row:
    rate, since = price.rate, price.since
    if rate is None:
        row = (None, "", None if since is None else to_micros(since), price.source)
        return (*row, 1) if price.prepaid else row
    return (rate.nano_per_hour, rate.currency, None if since is None else to_micros(since), price.source)


def _price_of(nano: int | None, currency: str, since_us: int | None, source: str, prepaid: int = 0) -> Price:
    rate = None if nano is None else Rate(nano_per_hour=nano, currency=currency)
    return Price(rate=rate, since=moment(since_us), source=source, prepaid=bool(prepaid))
