"""Disks, what is provisioned for them and idle addresses are priced by the catalogue, what it lacks by the shipped table."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from costguard_gcp.account import GcpAccount
from costguard_sim.world import SIM_VOLUME, Disk, to_us

from costguard.data import ShippedFacts
from costguard.metering.billing import list_meters
from costguard.metering.inventory import Failed, Poll
from costguard.metering.meter import Meter
from costguard.metering.observation import Observation
from tests.fakes.gcp import number_of
from tests.providers.aws.services import Kept
from tests.providers.gcp.rig import GcpRig, resource

ZURICH = "europe-west6"
LISTED = {
    ("pd-ssd", ZURICH): 221_000_000,
    ("pd-ssd-regional", ZURICH): 442_000_000,
    ("hyperdisk-balanced", ZURICH): 104_000_000,
    ("hyperdisk-balanced-iops", ZURICH): 6_500_000,
    ("hyperdisk-balanced-mibps", ZURICH): 52_000_000,
    ("address", ZURICH): 13_000_000,
}


def add_disk(rig: GcpRig, type_: str, **wire: Any) -> str:  # noqa: ANN401 - as the wire has them
    name = f"d{len(rig.fake.resources)}"
    one = resource(name, to_us(rig.clock.now()), region=f"{ZURICH}-a", kind=SIM_VOLUME, disks=(Disk(gb=1000, type=type_),))
    rig.fake.resources.append(one)
    rig.fake.extra[number_of(name)] = wire
    return number_of(name)


def add_address(rig: GcpRig, status: str) -> str:
    number = str(len(rig.fake.addresses) + 1)
    told = {"id": number, "name": "ip", "region": f"x/regions/{ZURICH}", "addressType": "EXTERNAL", "status": status}
    rig.fake.addresses.append({"kind": "compute#address", "creationTimestamp": "2026-11-01T00:00:00.000-07:00", **told})
    return number


def poll(account: GcpAccount) -> Poll:
    return account.poll(account.list_scopes()[0])


def seen(polled: Poll, number: str) -> Observation:
    assert not isinstance(polled.inventory, Failed), polled.inventory
    return next(item for item in polled.inventory.items if item.key.id == number)


def meters(one: Observation) -> dict[str, Meter]:
    """The meters of `one` by part, under the shipped rule of Google Cloud."""
    rule = ShippedFacts().get_billing_rules()["gcp"]
    return {meter.part or meter.charge: meter for meter in list_meters(one, rule, {}).values()}


def a_month(one: Observation) -> Fraction:
    """USD of a whole month at the expected prices."""
    return sum((Fraction(m.price.expected * m.quantity, 10**9) for m in meters(one).values()), Fraction(0))


def test_a_project_of_disks_alone_is_priced_by_the_catalogue(rig: GcpRig, account: GcpAccount) -> None:
    rig.fake.storage = dict(LISTED)
    plain, twice = add_disk(rig, "pd-ssd"), add_disk(rig, "pd-ssd", zone=..., region=f"x/regions/{ZURICH}")
    polled = poll(account)
    assert a_month(seen(polled, plain)) == 221
    assert a_month(seen(polled, twice)) == 442
    assert {meter.source for meter in meters(seen(polled, plain)).values()} == {"Cloud Billing Catalog"}


def test_hyperdisk_pays_for_what_is_provisioned_beyond_what_it_includes(rig: GcpRig, account: GcpAccount) -> None:
    rig.fake.storage = dict(LISTED)
    fast = add_disk(rig, "hyperdisk-balanced", provisionedIops="5000", provisionedThroughput="240")
    plain = add_disk(rig, "hyperdisk-balanced", provisionedIops="3000", provisionedThroughput="140")
    polled = poll(account)
    assert a_month(seen(polled, fast)) == 104 + 2000 * Fraction("0.0065") + 100 * Fraction("0.052")
    assert a_month(seen(polled, plain)) == 104
    assert {meter.unit for meter in meters(seen(polled, fast)).values()} == {
        "GB-Months (Los Angeles)",
        "IOPS-Months (Los Angeles)",
        "MiBps-Months (Los Angeles)",
    }


def test_an_idle_address_has_a_price_and_one_in_use_a_range(rig: GcpRig, account: GcpAccount) -> None:
    rig.fake.storage = dict(LISTED)
    idle, used = add_address(rig, "RESERVED"), add_address(rig, "IN_USE")
    polled = poll(account)
    (listed,), (ranged,) = meters(seen(polled, idle)).values(), meters(seen(polled, used)).values()
    assert (listed.price.expected, listed.price.known, listed.source) == (13_000_000, True, "Cloud Billing Catalog")
    assert 0 < ranged.price.low < ranged.price.high
    assert "Compute Engine documentation" in ranged.source


def test_an_address_that_comes_into_use_loses_the_price_of_an_idle_one(rig: GcpRig, account: GcpAccount) -> None:
    rig.fake.storage = dict(LISTED)
    number = add_address(rig, "RESERVED")
    idle = seen(poll(account), number)
    rig.fake.addresses[0]["status"] = "IN_USE"
    used = seen(poll(account), number)
    assert (len(idle.prices), len(used.prices)) == (1, 1), "no price at all would keep the last one"
    assert used.prices[0].rate is None


def test_the_performance_of_a_kind_of_hyperdisk_without_a_price_is_unpriced_and_not_free(
    rig: GcpRig, account: GcpAccount
) -> None:
    rig.fake.storage = dict(LISTED)
    for kind in ("hyperdisk-balanced-high-availability", "hyperdisk-of-next-year"):
        disk = add_disk(rig, kind, provisionedIops="10000", provisionedThroughput="500")
        one = seen(poll(account), disk)
        assert [disk.measure for disk in one.disks] == ["GB", "IOPS", "MiBps"]


def test_an_empty_catalogue_leaves_the_prices_of_an_earlier_day(rig: GcpRig, account: GcpAccount) -> None:
    account.catalogue._cache = Kept(rig.clock)
    rig.fake.storage = dict(LISTED)
    disk = add_disk(rig, "pd-ssd")
    poll(account)
    rig.clock.at += timedelta(days=2)
    rig.fake.fault("/v1/services", "body", body=b'{"skus": []}')
    polled = poll(account)
    assert a_month(seen(polled, disk)) == 221
    assert any("names no machine; prices of" in note for note in polled.notes)


def test_a_catalogue_that_cannot_be_read_leaves_the_shipped_table(rig: GcpRig, account: GcpAccount) -> None:
    rig.fake.fault("/v1/services", "status", status=403)
    disk, twice = add_disk(rig, "pd-ssd"), add_disk(rig, "pd-ssd", zone=..., region=f"x/regions/{ZURICH}")
    polled = poll(account)
    for number, usd in ((disk, 170), (twice, 340)):
        (meter,) = meters(seen(polled, number)).values()
        assert 0 < meter.price.low <= meter.price.expected <= meter.price.high
        assert meter.price.low * 1000 <= usd * 10**9 <= meter.price.high * 1000
        assert not meter.price.known
    assert sum("gcloud services enable cloudbilling" in note for note in polled.notes) == 1


@pytest.mark.parametrize("days", [0, 3])
def test_half_a_catalogue_is_used_and_completed_by_the_last_whole_one(rig: GcpRig, account: GcpAccount, days: int) -> None:
    account.catalogue._cache = Kept(rig.clock)
    fillers = {("pd-balanced", f"r{n}"): 10**8 for n in range(40)}
    rig.fake.storage = {**LISTED, **fillers}
    rig.fake.storage["address", ZURICH] = rig.fake.storage.pop(("address", ZURICH))
    disk, idle = add_disk(rig, "pd-ssd"), add_address(rig, "RESERVED")
    if days:
        assert a_month(seen(poll(account), disk)) == 221
        rig.clock.at += timedelta(days=days)
    rig.fake.storage["pd-ssd", ZURICH] = 231_000_000
    rig.fake.fault(r"/v1/services.*pageToken=[1-9]", "status", status=403)
    polled = poll(account)
    (disk_meter,), (ip_meter,) = meters(seen(polled, disk)).values(), meters(seen(polled, idle)).values()
    assert disk_meter.price.expected == 231_000_000
    assert (ip_meter.source == "Cloud Billing Catalog") == bool(days)
    assert any("prices of 2026-11-21 are used" in note if days else "half of it is used" in note for note in polled.notes)


def test_a_disk_that_is_looked_up_has_the_price_of_its_listing(rig: GcpRig, account: GcpAccount) -> None:
    rig.fake.storage = dict(LISTED)
    numbers = [add_disk(rig, "pd-ssd"), add_address(rig, "RESERVED")]
    for number in numbers:
        listed = seen(poll(account), number)
        assert account.look_up(listed.key) == listed
