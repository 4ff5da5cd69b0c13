"""Volumes and addresses are asked of the Price List, by type and region; the shipped table prices what it does not say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import pytest
from costguard_aws.account import AwsAccount
from costguard_aws.storage_prices import StoragePrices, _parse_nano, parse_storage_prices
from costguard_sim.world import SIM_ADDRESS, SIM_VOLUME, Disk
from hypothesis import given
from hypothesis import strategies as st

from costguard.data import ShippedFacts
from costguard.metering.billing import list_meters, list_unpriced_parts
from costguard.metering.meter import Meter
from costguard.metering.observation import Observation
from tests.fakes.aws_ec2_xml import wire_id
from tests.fakes.aws_pricing import FakePricing
from tests.fakes.server import START
from tests.providers.aws.fuzz import FUZZ, mutated
from tests.providers.aws.rig import HOUR_US, AwsRig, machine
from tests.providers.aws.services import Services

TOKYO, DUBLIN = "ap-northeast-1", "eu-west-1"
GP3_IN_TOKYO = {
    ("gp3", TOKYO): "0.096",
    ("gp3-iops", TOKYO): "0.006",
    ("gp3-mibps", TOKYO): "49.152",
    ("address-in-use", TOKYO): "0.005",
    ("address-idle", TOKYO): "0.006",
}
IO2 = {("io2", DUBLIN): "0.138", ("io2-iops", DUBLIN): "0.072", ("io2-iops-tier2", DUBLIN): "0.0504"}


@pytest.fixture
def source(rig: AwsRig, tmp_path: Path) -> Iterator[AwsAccount]:
    with rig.opened(tmp_path, regions=[TOKYO, DUBLIN]) as opened:
        yield cast("AwsAccount", opened)


def add_volume(rig: AwsRig, region: str, type_: str, gb: int = 100, **more: str) -> str:
    return _add(rig, region, SIM_VOLUME, disks=(Disk(gb=gb, type=type_),), wire={"volumeType": type_, **more})


def _add(rig: AwsRig, region: str, kind: str, *, wire: dict[str, str], disks: tuple[Disk, ...] = ()) -> str:
    number = len(rig.fake.resources)
    one = machine(number, start_us=_hour_ago(), disks=disks, runs=(), shapes=(), rates=())
    one = type(one)(**{f: getattr(one, f) for f in one.__slots__} | {"kind": kind, "region": region, "scope": region})
    rig.fake.resources.append(one)
    rig.fake.ec2.more[wire_id(one.id)] = wire
    return wire_id(one.id)


def _hour_ago() -> int:
    return int(START.timestamp()) * 1_000_000 - HOUR_US


def seen(source: AwsAccount, id_: str) -> Observation:
    polls = [source.poll(scope) for scope in source.list_scopes()]
    items = [item for poll in polls for item in getattr(poll.inventory, "items", ())]
    return cast("Observation", next(item for item in items if item.key.id == id_))


def meters(one: Observation) -> dict[str, Meter]:
    """The meters of `one` by part, under the shipped rule of AWS."""
    rule = ShippedFacts().get_billing_rules()["aws"]
    return {meter.part or meter.charge: meter for meter in list_meters(one, rule, {}).values()}


def a_month(one: Observation) -> Fraction:
    """USD of a whole month at the expected prices."""
    return sum((Fraction(m.price.expected * m.quantity, 10**9) for m in meters(one).values()), Fraction(0))


def test_a_volume_costs_what_the_list_says_for_size_iops_and_throughput(rig: AwsRig, source: AwsAccount) -> None:
    rig.fake.pricing.storage |= GP3_IN_TOKYO
    one = seen(source, add_volume(rig, TOKYO, "gp3", 1000, iops="6000", throughput="500"))
    assert a_month(one) == 96 + 3000 * Fraction("0.006") + 375 * Fraction("0.048") == 132
    assert {meter.source for meter in meters(one).values()} == {"AWS price list"}
    assert {meter.unit for meter in meters(one).values()} == {"GB-Months", "IOPS-Months", "MiBps-Months"}
    assert all(meter.price.known for meter in meters(one).values())


def test_a_volume_of_a_local_zone_or_an_outpost_has_no_price_of_its_region(rig: AwsRig, source: AwsAccount) -> None:
    rig.fake.pricing.storage |= GP3_IN_TOKYO
    usual = add_volume(rig, TOKYO, "gp3", availabilityZone=f"{TOKYO}a")
    others = [
        add_volume(rig, TOKYO, "gp3", availabilityZone=f"{TOKYO}-tpe-1a"),
        add_volume(rig, TOKYO, "gp3", outpostArn="arn:aws:outposts:x"),
    ]
    assert seen(source, usual).disks[0].nano_per_gb_month is not None
    assert [seen(source, one).disks[0].nano_per_gb_month for one in others] == [None, None]


@pytest.mark.parametrize("text", ["1e999999", "-1e999999", "NaN", "x", ""])
def test_an_odd_price_is_none_and_breaks_nothing(text: str) -> None:
    assert _parse_nano(text, 1) is None


def test_what_a_volume_includes_costs_nothing_more(rig: AwsRig, source: AwsAccount) -> None:
    rig.fake.pricing.storage |= GP3_IN_TOKYO
    plain, old = add_volume(rig, TOKYO, "gp3", iops="3000", throughput="125"), add_volume(rig, TOKYO, "gp2", iops="300")
    assert [disk.type for disk in seen(source, plain).disks] == ["gp3"]
    assert [disk.type for disk in seen(source, old).disks] == ["gp2"]


def test_io2_pays_less_for_each_step_of_iops_and_what_the_list_lacks_is_priced_by_the_table(
    rig: AwsRig, source: AwsAccount
) -> None:
    rig.fake.pricing.storage |= IO2
    one = seen(source, add_volume(rig, DUBLIN, "io2", iops="70000"))
    assert [(disk.type, disk.gb) for disk in one.disks][1:] == [
        ("io2-iops", 32_000),
        ("io2-iops-tier2", 32_000),
        ("io2-iops-tier3", 6_000),
    ]
    told = meters(one)
    assert told["io2-iops-tier2"].price.expected == 50_400_000
    third = told["io2-iops-tier3"]
    assert "EBS io2 IOPS tier 3" in third.source
    assert 0 < third.price.low <= third.price.expected < third.price.high
    assert not third.price.known


def test_an_address_costs_what_the_list_says_in_use_and_idle(rig: AwsRig, source: AwsAccount) -> None:
    rig.fake.pricing.storage |= GP3_IN_TOKYO
    used = _add(rig, TOKYO, SIM_ADDRESS, wire={"associationId": "eipassoc-1"})
    idle = _add(rig, TOKYO, SIM_ADDRESS, wire={})
    for id_, nano in ((used, 5_000_000), (idle, 6_000_000)):
        (meter,) = meters(seen(source, id_)).values()
        assert (meter.price.expected, meter.price.known, meter.source) == (nano, True, "AWS price list")


@pytest.mark.parametrize("service", ["AmazonEC2", "AmazonVPC"])
def test_a_list_that_answers_half_is_used_by_half(rig: AwsRig, source: AwsAccount, service: str) -> None:
    rig.fake.pricing.storage |= GP3_IN_TOKYO
    rig.fake.pricing.broken = service
    volume, address = add_volume(rig, TOKYO, "gp3"), _add(rig, TOKYO, SIM_ADDRESS, wire={})
    polls = [source.poll(scope) for scope in source.list_scopes()]
    found = {item.key.id: item for poll in polls for item in getattr(poll.inventory, "items", ())}
    (disk,), (ip,) = meters(found[volume]).values(), meters(found[address]).values()
    asked, lacking = (ip, disk) if service == "AmazonEC2" else (disk, ip)
    assert asked.source == "AWS price list"
    assert lacking.source != "AWS price list"
    assert 0 < lacking.price.low <= lacking.price.expected <= lacking.price.high
    assert any("the price list cannot be queried for storage" in note for poll in polls for note in poll.notes)
    assert not list_unpriced_parts(found[volume], ShippedFacts().get_billing_rules()["aws"])


def test_a_type_is_asked_for_once_a_day_and_kept_for_a_month(services: Services, prices: StoragePrices) -> None:
    services.pricing.storage = dict(GP3_IN_TOKYO)
    for _ in range(3):
        assert prices.learn(TOKYO, {"gp3"}) == ()
    assert services.asked_for("GetProducts") == 1
    services.later(hours=25)
    services.fault("POST /", "status", status=500)
    (why,) = prices.learn(TOKYO, {"gp3"})
    assert "the price list cannot be queried for storage" in why
    assert prices.find_price(TOKYO, "gp3", "gp3-iops") == 6_000_000
    asked = services.asked_for("GetProducts") + len(services.asked)
    prices.learn(TOKYO, {"gp3", "gp2"})
    assert services.asked_for("GetProducts") + len(services.asked) == asked
    services.later(days=30)
    assert prices.find_price(TOKYO, "gp3", "gp3-iops") is None


@pytest.fixture
def services() -> Services:
    return Services()


@pytest.fixture
def prices(services: Services, tmp_path: Path) -> Iterator[StoragePrices]:
    with services.session(tmp_path) as session:
        yield StoragePrices(session, services.cache, services.clock)


def _parse(*products: dict[str, Any]) -> dict[str, int]:
    return parse_storage_prices([json.dumps(one) for one in products], DUBLIN, START)


def test_only_one_price_of_this_region_in_force_is_a_price() -> None:
    fake = FakePricing()
    gp3 = fake.storage_product("gp3", DUBLIN, "0.088")
    assert _parse(gp3, fake.storage_product("gp3", TOKYO, "0.096")) == {"gp3": 88_000_000}
    assert _parse(gp3, fake.storage_product("gp3", DUBLIN, "0.088", operation="x")) == {"gp3": 88_000_000}
    assert _parse(gp3, fake.storage_product("gp3", DUBLIN, "0.99")) == {}
    assert _parse(gp3, fake.storage_product("gp3", DUBLIN, "0.99", locationType="AWS Outposts")) == {"gp3": 88_000_000}
    assert _parse(gp3, fake.storage_product("gp3", DUBLIN, "9", usagetype="EU-EBS:VolumeUsage.gp3.outposts")) == {
        "gp3": 88_000_000
    }
    assert _parse(fake.storage_product("gp3-iops", DUBLIN, "0"), fake.storage_product("gp3-iops", DUBLIN, "0.0055")) == {
        "gp3-iops": 5_500_000
    }
    assert _parse(fake.storage_product("gp3", DUBLIN, "0"), fake.storage_product("gp2", DUBLIN, "12")) == {}
    assert parse_storage_prices([json.dumps(gp3)], DUBLIN, datetime(2026, 10, 1, tzinfo=UTC)) == {}


@FUZZ
@given(st.data())
def test_whatever_a_storage_product_says_no_price_is_invented(data: st.DataObject) -> None:
    product: Any = mutated(data, FakePricing().storage_product("gp3", DUBLIN, "0.088"))
    for line, nano in parse_storage_prices([json.dumps(product)], DUBLIN, START).items():
        assert line in ("gp3", "standard", "gp2")
        assert str(Decimal(nano).scaleb(-9).normalize()) in json.dumps(product) or nano == 88_000_000
