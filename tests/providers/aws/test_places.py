"""Local Zones, Wavelength Zones and Outposts are places with prices of their own; what a list leaves out is a surcharge."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from costguard_aws.instance_types import GpuInstanceType, load_known_types
from costguard_aws.price_list import PriceKey, parse_prices
from costguard_aws.storage_prices import parse_storage_prices
from costguard_aws.translation import (
    OUTPOST,
    ListingScope,
    TypeAndPriceLookup,
    make_price_key,
    observe_address,
    observe_instance,
    observe_volume,
)

from costguard.data import ShippedFacts
from costguard.metering.billing import list_meters
from costguard.metering.observation import Observation, Price
from costguard.values.money import Rate

NOW = datetime(2026, 11, 30, tzinfo=UTC)
RATE = Rate(nano_per_hour=1_006_000_000)
LIST = {"us-west-2": RATE, "us-west-2-lax-1": Rate(nano_per_hour=1_208_000_000)}
PLACE = ListingScope("111122223333", "us-west-2")


def find_type(name: str) -> GpuInstanceType | None:
    return load_known_types().get(name)


def see(zone: str = "us-west-2a", kind: str = "g5.xlarge", tenancy: str = "default", **more: Any) -> Observation:  # noqa: ANN401 - as EC2 has them
    """A running machine, priced by a list of the region and of Los Angeles."""
    placement = {"AvailabilityZone": zone, "Tenancy": tenancy}
    item = {"InstanceId": "i-0a", "InstanceType": kind, "State": {"Name": "running"}, "Placement": placement, **more}
    lookup = TypeAndPriceLookup(find_type, lambda key: Price(LIST.get(key.region), None, "AWS price list"))
    return observe_instance({"LaunchTime": NOW, **item}, PLACE, lookup, lambda _: None)


def bounds(seen: Observation) -> tuple[int, int, int, bool]:
    """Low, expected and high nano-dollars of its compute or storage, and whether they are stated."""
    rules = ShippedFacts().get_billing_rules()
    (price,) = [meter.price for meter in list_meters(seen, rules["aws"], {}).values()]
    return price.low, price.expected, price.high, price.known


@pytest.mark.parametrize(
    ("zone", "region"),
    [
        ("us-west-2a", "us-west-2"),
        ("", "us-west-2"),
        ("us-west-2-lax-1a", "us-west-2-lax-1"),
        ("us-west-2-wl1-las-wlz-1", "us-west-2-wl1-las-wlz-1"),
    ],
)
def test_the_place_of_a_machine_is_part_of_the_key_of_its_price(zone: str, region: str) -> None:
    item = {"InstanceType": "g5.xlarge", "Placement": {"AvailabilityZone": zone}}
    assert make_price_key(item, "us-west-2") == PriceKey("g5.xlarge", region)


def test_a_local_zone_costs_what_its_list_states_and_other_places_are_unknown() -> None:
    assert see("us-west-2-lax-1a").prices[-1].rate == LIST["us-west-2-lax-1"]
    wavelength = see("us-west-2-wl1-las-wlz-1").prices[-1]
    assert (wavelength.rate, wavelength.surcharged) == (None, True)  # the ladder bounds it
    outpost = see(OutpostArn="arn:aws:outposts:us-west-2:1:outpost/op-0a").prices[-1]
    assert (outpost.rate, outpost.special, outpost.source) == (None, True, OUTPOST)


@pytest.mark.parametrize(
    ("more", "left_out", "most"),
    [
        ({"ProductCodes": [{"ProductCodeId": "a", "ProductCodeType": "marketplace"}]}, "Marketplace software", 4 * 450_000_000),
        ({"tenancy": "dedicated"}, "the region's fee for dedicated instances", 2_000_000_000),
    ],
)
def test_what_a_list_price_leaves_out_is_a_surcharge(more: dict[str, Any], left_out: str, most: int) -> None:
    seen = see(**more)
    assert seen.prices[-1].source == f"AWS price list, without {left_out}"
    assert bounds(seen) == (RATE.nano_per_hour, RATE.nano_per_hour, RATE.nano_per_hour + most, True)


def test_a_t_machine_may_pay_for_credits_and_other_machines_are_exact() -> None:
    low, expected, high, known = bounds(see(kind="t3.large"))
    assert low == expected < high
    assert known
    assert bounds(see(ProductCodes=[{"ProductCodeType": "devpay"}])) == (*[RATE.nano_per_hour] * 3, True)


def test_a_disk_in_a_place_without_a_list_price_is_never_exact() -> None:
    zones = ({"AvailabilityZone": "us-east-1-bos-1a"}, {"AvailabilityZone": "us-east-1a", "OutpostArn": "arn:aws:outposts"})
    for zone in zones:
        item = {"VolumeId": "vol-1", "VolumeType": "gp3", "Size": 100, "State": "in-use", "CreateTime": NOW, **zone}
        low, expected, high, known = bounds(observe_volume(item, ListingScope("1", "us-east-1"), lambda _: None))
        assert low <= expected < high
        assert not known
    listed = observe_volume(
        item | zones[0] | {"OutpostArn": ""}, ListingScope("1", "us-east-1"), lambda _: None, lambda _: 9 * 10**7
    )
    assert bounds(listed) == (*[9 * 10**7] * 3, True)


def test_an_address_in_a_place_without_a_list_price_is_bounded() -> None:
    for group, known in (("us-west-2", True), ("us-west-2-lax-1", False)):
        seen = observe_address({"AllocationId": "eipalloc-1", "NetworkBorderGroup": group}, PLACE)
        assert seen is not None
        assert bounds(seen)[3] is known


def product(location_type: str, region: str, price: str, **attributes: str) -> str:
    """An entry of the price list."""
    common = {"regionCode": region, "locationType": location_type, "capacitystatus": "Used", "tenancy": "Shared"}
    unit = {"unit": "GB-Mo" if "usagetype" in attributes else "Hrs", "pricePerUnit": {"USD": price}}
    terms = {"OnDemand": {"a": {"priceDimensions": {"b": unit}}}}
    return json.dumps({"product": {"attributes": common | {"operation": "RunInstances"} | attributes}, "terms": terms})


def test_the_list_of_a_region_is_not_that_of_its_outposts_and_a_local_zone_has_its_own() -> None:
    machines = [
        product("AWS Region", "us-west-2", "1.006", instanceType="g5.xlarge"),
        product("AWS Outposts", "us-west-2", "0.5", instanceType="g5.xlarge"),
        product("AWS Local Zone", "us-west-2-lax-1", "1.208", instanceType="g5.xlarge"),
    ]
    for region, rate in LIST.items():
        priced = parse_prices(machines, {"g5.xlarge": 1}, region=region, operation="RunInstances", tenancy="default", now=NOW)
        assert priced["g5.xlarge"].rate == rate
    disks = [
        product("AWS Outposts", "us-west-2", "0.5", usagetype="USW2-EBS:VolumeUsage.gp3"),
        product("AWS Local Zone", "us-west-2-lax-1", "0.096", usagetype="LAX1-EBS:VolumeUsage.gp3"),
    ]
    assert parse_storage_prices(disks, "us-west-2-lax-1", NOW) == {"gp3": 96_000_000}
    assert parse_storage_prices(disks, "us-west-2", NOW) == {}
