"""Encode values as rows and decode rows without loss.

Times are whole microseconds since 1970 UTC, money is whole nano-units, GPUs of a resource are whole thousandths (a g6f has
125). An incarnation is the four columns of its key and a text of its two times in microseconds, "-" for an unknown one:
"1795219200000000/-".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, fields, is_dataclass
from datetime import date, datetime
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from costguard.metering.meter import GB, Line, Meter, PriceRange
from costguard.metering.observation import Disk, Estimate, Observation, Price, TrafficCounter
from costguard.metering.span import Span, apply_bill
from costguard.values.instant import from_micros, to_micros
from costguard.values.money import Rate
from costguard.values.resource import GROUPED_LABELS, Attribution, Incarnation, ResourceKey, make_storable

if TYPE_CHECKING:  # a type and no more: it is known to the type checker's library only
    from _typeshed import DataclassInstance


SqlRow = tuple[Any, ...]
NanoAmounts = tuple[int, int, int]

ABSENT_STATE = "absent"
"""The state of a row of the observation log that says a complete listing lacks the resource."""

SPAN_COLUMNS = (
    "s.charge, s.part, s.unit, s.quantity, s.quantum_s, s.minimum_s, s.price_low, s.price_expected, s.price_high, s.currency, "
    "s.price_known, s.price_source, s.presence, s.anchor_us, s.start_us, s.why, s.end_us, s.ended_by"
)
"""The columns of a span `s`, in the order that `decode_span` reads."""
BILLED_COLUMNS = 18
"""So many columns a span has before those of a bill's amounts, which not every row has."""

CACHED_RESOURCES = 10_000
"""So many rows are remembered as what they were last read as: a watchdog reads the same ones in each run."""

_encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode
_decode = json.JSONDecoder().raw_decode
_PLAIN_FIELDS = ("state", "kind", "tier", "name", "instance_type", "gpu", "gpu_count", "owner", "why", "vcpus", "ram_gb")
_TIME_FIELDS = ("created_at", "started_at", "stopped_at")
_get_plain_fields, _get_time_fields = attrgetter(*_PLAIN_FIELDS), attrgetter(*_TIME_FIELDS)


def encode_observation(observation: Observation, unproven: Iterable[Line] = ()) -> str:
    """Return `observation` without its key as compact JSON: equal values give equal texts.

    Prices, disks and counters are lists of their fields in order. `unproven`: the lines that stopped billing at an unknown
    instant according to this observation; their last span is corrected if they turn out to have gone on.
    """
    fields_by_name: dict[str, object] = {
        name: value for name, value in zip(_PLAIN_FIELDS, _get_plain_fields(observation), strict=True) if value
    }
    for name, at in zip(_TIME_FIELDS, _get_time_fields(observation), strict=True):
        if at is not None:
            fields_by_name[name] = to_micros(at)
    if observation.labels:
        fields_by_name["labels"] = observation.labels
    if observation.prices:
        fields_by_name["prices"] = [_encode_price(price) for price in observation.prices]
    if observation.disks:
        fields_by_name["disks"] = [_encode_disk(disk) for disk in observation.disks]
    if observation.counters:
        fields_by_name["counters"] = [(counter.charge, counter.mb, counter.nano_per_gb) for counter in observation.counters]
    if lines := sorted(unproven):
        fields_by_name["unproven_ends"] = lines
    return _encode(fields_by_name)


@lru_cache(maxsize=CACHED_RESOURCES)
def decode_observation(key: ResourceKey, text: str) -> tuple[Observation, tuple[Line, ...]]:
    """Return the observation of `key` in a text of `encode_observation`, and its unproven lines.

    Results are cached, because most resources do not change between two reads.
    """
    fields_by_name: dict[str, Any] = json.loads(text)
    unproven = tuple((charge, part) for charge, part in fields_by_name.pop("unproven_ends", ()))
    for name in _TIME_FIELDS:
        if name in fields_by_name:
            fields_by_name[name] = from_micros(fields_by_name[name])
    fields_by_name["labels"] = tuple((name, value) for name, value in fields_by_name.get("labels", ()))
    fields_by_name["prices"] = tuple(_decode_price(*row) for row in fields_by_name.get("prices", ()))
    fields_by_name["disks"] = tuple(Disk(*row) for row in fields_by_name.get("disks", ()))
    fields_by_name["counters"] = tuple(TrafficCounter(*row) for row in fields_by_name.get("counters", ()))
    return Observation(key=key, **fields_by_name), unproven


def strip_identity(text: str) -> str:
    """Return what a text of `encode_observation` says beside the name, the times and the labels that group no spending.

    Machines at one place with equal remainders cost the same, and their spending is grouped alike.
    """
    fields_by_name: dict[str, Any] = _decode(text)[0]
    for name in ("name", "unproven_ends", *_TIME_FIELDS):
        fields_by_name.pop(name, None)
    labels = fields_by_name.pop("labels", ())
    return f"{fields_by_name}{[label for label in labels if label[0].lower() in GROUPED_LABELS]}"


def decode_labels(detail: str | None) -> tuple[tuple[str, str], ...]:
    """Return the labels in a text written by `encode_observation`, "" or None for none."""
    values: dict[str, Any] = json.loads(detail) if detail else {}
    return tuple((name, value) for name, value in values.get("labels", ()))


def _encode_disk(disk: Disk) -> tuple[object, ...]:
    """Return the fields of `disk` in order; the last ones only where they say something, as ledgers of before 2026-11-27."""
    more = (disk.measure, disk.source) if disk.source or disk.measure != GB else ()
    return (disk.gb, disk.type, disk.nano_per_gb_month, *more)


def encode_attribution(attribution: Attribution) -> SqlRow:
    """Return `attribution` as the columns of `ATTRIBUTION_KEY`."""
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
    """Return the attribution in a row of `ATTRIBUTION_KEY`."""
    provider, account, region, kind, gpu, milli, tier, owner, instance_type, labels = row
    pairs = tuple((name, value) for name, value in json.loads(labels))
    count = milli / 1000 if milli % 1000 else milli // 1000
    return Attribution(provider, account, region, kind, gpu, count, tier, owner, instance_type, pairs)


def encode_labels(labels: tuple[tuple[str, str], ...]) -> str:
    """Return sorted pairs as JSON."""
    return _encode(labels) if labels else "[]"


def encode_span(span: Span, resource_id: int, attribution_id: int, amounts: NanoAmounts | None) -> SqlRow:
    """Return `span` as its columns after the id.

    They are resource, attribution, those of a meter, those of its period, and the amounts (None: an open span).
    """
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
    """Return the span of `key` in the columns of `SPAN_COLUMNS`.

    Further columns: a bill's three amounts (None: no bill), and the presence as observed.
    """
    presence, anchor_us, start_us, why, end_us, ended_by = row[12:18]
    start = from_micros(start_us)
    span = Span(
        key=key,
        attribution=attribution,
        meter=decode_meter(tuple(row[:12])),
        start=start,
        anchor=start if anchor_us == start_us else from_micros(anchor_us),
        end=decode_optional_instant(end_us),
        presence=presence,
        why=why,
        ended_by=ended_by or "",
    )
    if len(row) <= BILLED_COLUMNS or row[BILLED_COLUMNS] is None:
        return span
    low, expected, high, observed = row[BILLED_COLUMNS:]
    return apply_bill(span, (low, expected, high), observed)


decode_open_span = lru_cache(maxsize=2 * CACHED_RESOURCES)(decode_span)
"""The same of an open span, whose row does not change from run to run. `row`: a tuple."""


@lru_cache(maxsize=4096)
def decode_meter(row: SqlRow) -> Meter:
    """Return the meter in the first twelve columns of `SPAN_COLUMNS`.

    Results are cached, because a fleet has few different meters.
    """
    charge, part, unit, quantity, quantum_s, minimum_s, low, expected, high, currency, price_known, source = row
    price = PriceRange(low, expected, high, currency, bool(price_known))
    return Meter(charge, price, unit, quantity, quantum_s, minimum_s, part, source)


def decode_optional_instant(us: int | None) -> datetime | None:
    """Return the instant, or None for None."""
    return None if us is None else from_micros(us)


def _encode_price(price: Price) -> SqlRow:
    rate, since = price.rate, price.since
    amount = (None, "") if rate is None else (rate.nano_per_hour, rate.currency)
    row = (*amount, None if since is None else to_micros(since), price.source)
    if price.estimate is None:
        return (*row, 1) if price.prepaid else row
    low, high, step, on = astuple(price.estimate)
    return (*row, int(price.prepaid), low, high, step, on.isoformat() if on else None)


@lru_cache(maxsize=1024)  # a fleet of 10,000 has a handful of prices
def _decode_price(  # noqa: PLR0917 - the fields of a row, in their order
    nano: int | None,
    currency: str,
    since_us: int | None,
    source: str,
    prepaid: int = 0,
    low: int | None = None,
    high: int | None = None,
    step: str = "",
    observed_on: str | None = None,
) -> Price:
    rate = None if nano is None else Rate(nano_per_hour=nano, currency=currency)
    estimate = None
    if low is not None and high is not None:
        estimate = Estimate(low, high, step, date.fromisoformat(observed_on) if observed_on else None)
    return Price(rate=rate, since=decode_optional_instant(since_us), source=source, prepaid=bool(prepaid), estimate=estimate)


T = TypeVar("T")


Query = Callable[..., Sequence[Any]]
"""The rows of a statement made of the classes of `ledger.tables`, for the values of its parameters by name; or of a PRAGMA.

`select(AgentRow)` gives objects, `select(AgentRow.id)` values, and `select(AgentRow.id, AgentRow.life)` rows.
"""

Execute = Callable[..., int]
"""Execute a statement once for each dict of its parameters, or once where it says all itself; return how many rows changed."""

BATCH_VALUES_MAX = 500
"""Values in one IN list."""


def split_batches(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield `values` in batches that fit one IN list."""
    for first in range(0, len(values), BATCH_VALUES_MAX):
        yield values[first : first + BATCH_VALUES_MAX]


_UNKNOWN = "-"
_INSTANT_KEY = "us"
"""The one name of a JSON object that stands for an instant."""


def encode_life_columns(life: Incarnation) -> SqlRow:
    """Return the columns of an incarnation: `RESOURCE_KEY` and life."""
    return (*life.key, encode_life(life))


def encode_life(life: Incarnation) -> str:
    """Return the times of `life` as text."""
    return "/".join(_UNKNOWN if at is None else str(to_micros(at)) for at in (life.started_at, life.created_at))


def decode_life(columns: Sequence[Any]) -> Incarnation:
    """Return the incarnation in columns of `encode_life_columns`."""
    *key, text = columns
    started, created = (None if us == _UNKNOWN else from_micros(int(us)) for us in text.split("/"))
    return Incarnation(ResourceKey(*key), started, created)


def pick_fields(value: object, names: Sequence[str]) -> dict[str, Any]:
    """Return the fields `names` of a row or of a value, its texts in the form that a database stores."""
    fields_of = {name: getattr(value, name) for name in names}
    return {name: make_storable(one) if isinstance(one, str) else one for name, one in fields_of.items()}


def encode_optional_instant(at: datetime | None) -> int | None:
    """Return `at` in microseconds, or None for None."""
    return None if at is None else to_micros(at)


def encode_list(values: Sequence[object]) -> str:
    """Return a list of texts and numbers, or of pairs of them, as JSON."""
    return json.dumps(values, separators=(",", ":"))


def decode_list(text: str) -> tuple[Any, ...]:
    """Return the values in a text of `encode_list`."""
    return tuple(tuple(value) if isinstance(value, list) else value for value in json.loads(text))


def encode_fields(value: DataclassInstance, without: Sequence[str] = ()) -> str:
    """Return a dataclass of plain fields, instants, and tuples of these or of such values, as JSON.

    `without`: fields that are left out.
    """
    return json.dumps(_encode_value(value, without), separators=(",", ":"))


def decode_fields(text: str) -> dict[str, Any]:
    """Return the fields in a text of `encode_fields`; a nested value is a dict of its fields."""
    values: dict[str, Any] = _decode_value(json.loads(text))
    return values


def _encode_value(value: object, without: Sequence[str] = ()) -> object:
    if isinstance(value, datetime):
        return {_INSTANT_KEY: to_micros(value)}
    if isinstance(value, tuple):
        return [_encode_value(one) for one in value]
    if isinstance(value, str):
        return make_storable(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _encode_value(getattr(value, field.name)) for field in fields(value) if field.name not in without}
    return value


def _decode_value(value: object) -> Any:  # noqa: ANN401 - whatever JSON holds
    if isinstance(value, list):
        return tuple(_decode_value(one) for one in value)
    if isinstance(value, dict):
        return (
            from_micros(value[_INSTANT_KEY])
            if value.keys() == {_INSTANT_KEY}
            else {name: _decode_value(one) for name, one in value.items()}
        )
    return value
