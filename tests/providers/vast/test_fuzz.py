"""Mutated real shapes: no crash, and no number that the input does not hold."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
from costguard_vast import charges, offers
from costguard_vast.translation import ItemReader, PollNotes, VastGpuNames, build_samples
from costguard_vast.wire import HostOffer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costguard.metering.observation import Observation
from tests.campaign import examples
from tests.contract.rig import NAMES
from tests.fakes.vast import SECRETS, FakeVast, machine

CASES = settings(
    max_examples=int(os.environ.get("COSTGUARD_FUZZ") or examples(200)), deadline=None, suppress_health_check=list(HealthCheck)
)
AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = datetime(2026, 11, 20, tzinfo=UTC)
NAMING = VastGpuNames(NAMES)
RIGHT: dict[str, Any] = {
    **FakeVast(resources=(machine(1),)).wire(machine(1)),
    "inet_down_billed": 12.5,
    "inet_up_billed": 3,
    "credit_balance": 12.0,
    "credit_discount": 0.2,
}
VOLUME = {
    "id": 5,
    "status": "x",
    "disk_space": 50.0,
    "storage_total_cost": 0.0104,
    "start_date": 1747341046.4,
    "instances": [1],
}
ASK = {
    "id": 9, "gpu_name": "RTX 4090", "num_gpus": 2, "gpu_ram": 24564, "dph_base": 0.7, "dph_total": 0.71,
    "storage_total_cost": 0.01, "min_bid": 0.3, "cpu_cores": 32, "cpu_cores_effective": 16.0, "cpu_ram": 128576,
    "disk_space": 300.5, "geolocation": "Sweden, SE", "verification": "verified",
    "hosting_type": 1, "machine_id": 4, "rentable": True,
}  # fmt: skip
ITEM = {"start": 1795132800, "end": 1795219200, "type": "gpu", "description": "x", "amount": 9.25, "items": []}
CHARGE = {
    **ITEM,
    "type": "instance",
    "source": "instance-7",
    "metadata": {"label": "owner=a"},
    "items": [ITEM, {**ITEM, "type": "bwd"}],
}

NUMBERS = st.one_of(
    st.integers(-5, 200),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        [10**400, 1e300, 5e-324, 0, -0.0, "NaN", "-1", "1e999999999", "1e-999999999", "0.5", "Infinity", "9" * 5000]
    ),
)
WORDS = st.one_of(
    st.sampled_from(
        ["running", "stopped", "frozen", "exited", "offline", "loading", "unknown", "unloaded", "", "\0", "\ud800", "H100 SXM"]
    ),
    st.text(max_size=30),
)
VALUES = st.one_of(st.none(), st.booleans(), NUMBERS, WORDS, st.just([]), st.just({}), st.lists(NUMBERS, max_size=2))


def mutated(right: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """`right` with some fields of other values, and some left out."""
    changed = st.dictionaries(st.sampled_from(sorted(right)), VALUES, max_size=6)
    gone = st.sets(st.sampled_from(sorted(right)), max_size=3)
    return st.builds(lambda new, out: {k: v for k, v in {**right, **new}.items() if k not in out}, changed, gone)


INNER = st.one_of(st.just(RIGHT["instance"]), st.none(), mutated(RIGHT["instance"]))
INSTANCES = st.builds(lambda one, inner: {**one, "instance": inner} if "instance" in one else one, mutated(RIGHT), INNER)


def raw(wire: object) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(wire).encode())


def number(value: object) -> Decimal:
    """A value of the wire as the number that it may be; NaN where it is none."""
    try:
        found = Decimal(str(value)) if isinstance(value, int | float | str) and not isinstance(value, bool) else Decimal("NaN")
    except (ArithmeticError, ValueError):
        return Decimal("NaN")
    return found if found.is_finite() and -400 < found.adjusted() < 400 else Decimal("NaN")


def prices_of(wire: dict[str, Any]) -> set[Fraction]:
    """Every hourly price of the GPUs that the input holds: stated, or a total less a disk."""
    inner = wire.get("instance") if isinstance(wire.get("instance"), dict) else {}
    assert isinstance(inner, dict)
    stated = [wire.get("dph_base"), inner.get("gpuCostPerHour")]
    totals = [wire.get("dph_total"), inner.get("discountedTotalPerHour")]
    sized = number(wire.get("disk_space")) * number(wire.get("storage_cost")) / 720
    disks = [sized, number(wire.get("storage_total_cost")), number(inner.get("diskHour")), Decimal(0)]
    less = [number(total) - disk for total in totals for disk in disks]
    return {Fraction(value) for value in (*map(number, stated), *less) if value.is_finite()}


def check(one: Observation, wire: dict[str, Any]) -> None:
    """No number of `one` that `wire` does not hold."""
    for price in one.prices:
        if price.rate is not None:
            nano = Fraction(price.rate.nano_per_hour, 10**9)
            assert any(abs(nano - held) <= Fraction(1, 10**9) for held in prices_of(wire)), price
    assert one.gpu_count in (0, wire.get("num_gpus"))
    for counter in one.counters:
        stated = [number(wire.get(name)) for name in ("inet_down_billed", "inet_up_billed")]
        held = {int(value * 1000) for value in stated if value.is_finite()}
        assert counter.mb in held
    for at in (one.created_at, one.handling.ends_at):
        assert at is None or any(_is_time(at, wire.get(name)) for name in ("start_date", "end_date")), at
    for disk in one.disks:
        assert disk.gb is None or abs(disk.gb - number(wire.get("disk_space"))) <= 1
    assert not any(secret in repr(one) for secret in SECRETS)


def _is_time(at: datetime, value: object) -> bool:
    stated = number(value)
    if not stated.is_finite():
        return isinstance(value, str)
    epoch = Decimal((at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)) / 10**6
    return abs(epoch - stated) < 1 or abs(epoch * 1000 - stated) < 1000


@CASES
@given(INSTANCES)
def test_no_contract_breaks_the_reading_and_no_number_is_invented(wire: dict[str, Any]) -> None:
    telling = PollNotes()
    one, decoded = ItemReader(account="1", naming=NAMING, traffic_unit="GB").read_instance(raw(wire), telling)
    assert one is not None or telling.lost
    if one is None:
        return
    check(one, wire)
    if decoded is not None:
        for sample in build_samples(decoded, one.key, AT, set(), lambda _: None):
            held = {number(wire.get(name)) for name in ("gpu_util", "gpu_temp", "cpu_util")}
            assert sample.signal == "memory_used" or any(
                abs(Decimal(sample.value) - h) < Decimal("1e-9") for h in held if h.is_finite()
            )
            assert 0 <= sample.value <= 150


@CASES
@given(mutated(VOLUME))
def test_no_volume_breaks_the_reading(wire: dict[str, Any]) -> None:
    telling = PollNotes()
    one = ItemReader(account="1", naming=NAMING).read_volume(raw(wire), telling)
    assert one is not None or telling.lost
    for disk in one.disks if one else ():
        assert disk.gb is None or abs(disk.gb - number(wire.get("disk_space"))) <= 1
        if disk.gb is not None and disk.nano_per_gb_month is not None:
            hourly = Fraction(number(wire.get("storage_total_cost")))
            assert abs(Fraction(disk.nano_per_gb_month * disk.gb, 720 * 10**9) - hourly) <= Fraction(disk.gb, 720 * 10**9)


@CASES
@given(st.lists(mutated(ASK), max_size=3))
def test_no_offer_breaks_the_reading_and_no_price_is_invented(wires: list[dict[str, Any]]) -> None:
    asks = [found for wire in wires if (found := _decoded(wire)) is not None]
    listing = offers.parse_offers(asks, NAMING, None, AT.date(), ())
    held = {Fraction(number(w.get(name))) for w in wires for name in ("dph_base", "min_bid") if number(w.get(name)).is_finite()}
    held |= {
        Fraction(number(w.get("dph_total")) - number(w.get("storage_total_cost")))
        for w in wires
        if number(w.get("dph_total")).is_finite() and number(w.get("storage_total_cost")).is_finite()
    }
    for offer in listing.offers:
        nano = Fraction(offer.rate.nano_per_hour, 10**9) if offer.rate else None
        assert nano is None or any(abs(nano - one) <= Fraction(1, 10**9) for one in held)
        assert offer.gpu_count in [wire.get("num_gpus") for wire in wires]


def _decoded(wire: dict[str, Any]) -> HostOffer | None:
    try:
        return msgspec.json.decode(json.dumps(wire).encode(), type=HostOffer)
    except msgspec.DecodeError:
        return None


ITEMS = st.one_of(st.none(), st.lists(mutated(ITEM), max_size=3), VALUES)
CHARGES = st.builds(lambda one, items: {**one, "items": items}, mutated(CHARGE), ITEMS)


@CASES
@given(st.lists(CHARGES, max_size=3))
def test_no_charge_breaks_the_reading_and_no_amount_is_invented(wires: list[dict[str, Any]]) -> None:
    whys: dict[str, None] = {}
    lines = charges.parse_charges([raw(wire) for wire in wires], "1", DAY, AT, whys)
    amounts = [number(one.get("amount")) for wire in wires for one in (wire, *_items(wire))]
    for line in lines:
        said = [held for held in amounts if held.is_finite()]
        said += [Decimal(0)] if line.description == "no gpu item" else []  # of a contract whose items add up without one
        assert any(abs(line.amount.to_decimal() - held) <= Decimal("1e-9") for held in said), line
        assert DAY <= line.start < line.end <= DAY + timedelta(days=1)
    assert len({line.id for line in lines}) == len(lines)


def _items(wire: dict[str, Any]) -> list[dict[str, Any]]:
    found = wire.get("items")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
