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

SqlRow = tuple[Any, ...]
NanoAmounts = tuple[int, int, int]

ABSENT_STATE = "absent"
"""The state of a row of the observation log that says a complete listing lacks the resource."""

ATTRIBUTION_COLUMNS = "provider, account, region, kind, gpu, gpu_count_milli, tier, owner, instance_type, labels"
"""The columns of an attribution, in the order of `attribution_row`."""

METER_COLUMNS = (
    "charge, part, unit, quantity, quantum_s, minimum_s, "
    "price_low, price_expected, price_high, currency, price_known, price_source"
)
PERIOD_COLUMNS = "presence, anchor_us, start_us, why, end_us, ended_by"
SPAN_COLUMNS = ", ".join(f"s.{column}" for column in f"{METER_COLUMNS}, {PERIOD_COLUMNS}".split(", "))
"""The columns of a span `s`, in the order that `span_of` reads."""

CACHED_RESOURCES = 10_000
"""So many rows are remembered as what they were last read as: a watchdog reads the same ones in each run."""

_encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode
_PLAIN_FIELDS = ("state", "kind", "tier", "name", "instance_type", "gpu", "gpu_count", "owner", "why")
_TIME_FIELDS = ("created_at", "started_at", "stopped_at")
_get_plain_fields, _get_time_fields = attrgetter(*_PLAIN_FIELDS), attrgetter(*_TIME_FIELDS)


def encode_observation(seen: Observation, unproven: Iterable[Line] = ()) -> str:
    """`seen` without its key as compact JSON: the same value gives the same text.

    Prices, disks and counters are lists of their fields in order. `unproven`: the lines that billed until some moment that
    nobody saw, in this observation's opinion; what they left behind is corrected should it turn out that they went on.
    """
    said: dict[str, object] = {name: value for name, value in zip(_PLAIN_FIELDS, _get_plain_fields(seen), strict=True) if value}
    for name, at in zip(_TIME_FIELDS, _get_time_fields(seen), strict=True):
        if at is not None:
            said[name] = to_micros(at)
    if seen.labels:
        said["labels"] = seen.labels
    if seen.prices:
        said["prices"] = [_encode_price(price) for price in seen.prices]
    if seen.disks:
        said["disks"] = [(disk.gb, disk.type, disk.nano_per_gb_month) for disk in seen.disks]
    if seen.counters:
        said["counters"] = [(counter.charge, counter.mb, counter.nano_per_gb) for counter in seen.counters]
    if lines := sorted(unproven):
        said["unproven_ends"] = lines
    return _encode(said)


@lru_cache(maxsize=CACHED_RESOURCES)
def decode_observation(key: ResourceKey, text: str) -> tuple[Observation, tuple[Line, ...]]:
    """What `observation_text` wrote of the resource `key`; most resources are as they were when they were last asked about."""
    said: dict[str, Any] = json.loads(text)
    unproven = tuple((charge, part) for charge, part in said.pop("unproven_ends", ()))
    for name in _TIME_FIELDS:
        if name in said:
            said[name] = from_micros(said[name])
    said["labels"] = tuple((name, value) for name, value in said.get("labels", ()))
    said["prices"] = tuple(_decode_price(*row) for row in said.get("prices", ()))
    said["disks"] = tuple(Disk(*row) for row in said.get("disks", ()))
    said["counters"] = tuple(TrafficCounter(*row) for row in said.get("counters", ()))
    return Observation(key=key, **said), unproven


def encode_attribution(attribution: Attribution) -> SqlRow:
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
        encode_labels(attribution.labels),
    )


def decode_attribution(row: SqlRow) -> Attribution:
    """What `attribution_row` wrote."""
    provider, account, region, kind, gpu, milli, tier, owner, instance_type, labels = row
    pairs = tuple((name, value) for name, value in json.loads(labels))
    count = milli / 1000 if milli % 1000 else milli // 1000
    return Attribution(provider, account, region, kind, gpu, count, tier, owner, instance_type, pairs)


def encode_labels(labels: tuple[tuple[str, str], ...]) -> str:
    """Sorted pairs as JSON."""
    return _encode(labels) if labels else "[]"


def encode_span(span: Span, resource_id: int, attribution_id: int, amounts: NanoAmounts | None) -> SqlRow:
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


def decode_span(key: ResourceKey, attribution: Attribution, row: Sequence[Any]) -> Span:
    """The span of `key` that the columns SPAN describe."""
    presence, anchor_us, start_us, why, end_us, ended_by = row[12:18]
    start = from_micros(start_us)
    return Span(
        key=key,
        attribution=attribution,
        meter=decode_meter(*row[:12]),
        start=start,
        anchor=start if anchor_us == start_us else from_micros(anchor_us),
        end=decode_optional_instant(end_us),
        presence=presence,
        why=why,
        ended_by=ended_by or "",
    )


decode_open_span = lru_cache(maxsize=2 * CACHED_RESOURCES)(decode_span)
"""The same of an open span, whose row does not change from run to run. `row`: a tuple."""


@lru_cache(maxsize=4096)
def decode_meter(  # noqa: PLR0917 - the columns METER in their order
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


def decode_optional_instant(us: int | None) -> datetime | None:
    """The instant, or None for none."""
    return None if us is None else from_micros(us)


def _encode_price(price: Price) -> SqlRow:
    rate, since = price.rate, price.since
    if rate is None:
        row = (None, "", None if since is None else to_micros(since), price.source)
        return (*row, 1) if price.prepaid else row
    return (rate.nano_per_hour, rate.currency, None if since is None else to_micros(since), price.source)


def _decode_price(nano: int | None, currency: str, since_us: int | None, source: str, prepaid: int = 0) -> Price:
    rate = None if nano is None else Rate(nano_per_hour=nano, currency=currency)
    return Price(rate=rate, since=decode_optional_instant(since_us), source=source, prepaid=bool(prepaid))
