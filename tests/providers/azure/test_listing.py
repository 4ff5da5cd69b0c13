"""What is listed of a subscription: states, lives, prices, scale sets, disks and addresses."""

from __future__ import annotations

from datetime import timedelta

import pytest
from costguard_azure.account import AzureAccount
from costguard_azure.sizes import SERIES, find_tier, parse_size
from costguard_azure.wire import parse_resource_id
from costguard_public.instance_types import AZURE_SERIES

from costguard.metering.inventory import Complete, Partial
from costguard.metering.observation import Observation
from costguard.values.money import NANO
from tests.contract.rig import poll_of
from tests.fakes.azure import PRICES, SIZE, machine, make_address, make_disk, make_scale_set
from tests.providers.azure.rig import AzureRig


def read_items(account: AzureAccount) -> dict[str, Observation]:
    """The items of a complete poll by id."""
    poll = poll_of(account)
    assert isinstance(poll.inventory, Complete), poll.inventory
    return {one.key.id: one for one in poll.inventory.items}


def dollars(seen: Observation) -> float | None:
    """The present price an hour."""
    rate = seen.prices[-1].rate
    return rate.nano_per_hour / NANO if rate else None


@pytest.mark.parametrize("bare", [False, True], ids=["with sizes", "without sizes"])
def test_each_power_state_has_its_meaning_and_a_stopped_machine_still_bills(
    rig: AzureRig, account: AzureAccount, *, bare: bool
) -> None:
    words = {"starting": "starting", "running": "running", "stopping": "paused", "stopped": "paused"}
    words |= {"deallocating": "stopping", "deallocated": "stopped", "unknown": "unknown"}
    rig.fake.resources += [machine(word, rig.clock, power=word) for word in words]
    rig.fake.resources.append(machine("silent", rig.clock, power=None))
    rig.fake.bare = bare
    seen = read_items(account)
    assert {name: seen[f"lab/{name}"].state for name in words} == words
    assert seen["lab/silent"].state == "unknown"
    stopped = seen["lab/stopped"]
    assert (stopped.why, stopped.handling.stops, stopped.handling.starts) == ("stopped", True, False)
    assert (seen["lab/deallocated"].handling.stops, seen["lab/deallocated"].handling.starts) == (False, True)
    assert (stopped.gpu, stopped.gpu_count, stopped.owner) == ("A100-80GB-PCIe", 1, "alice")
    assert rig.fake.calls(rig.lists) == (2 if bare else 1), "requests for each machine"


def test_ids_are_compared_without_case_and_a_life_is_the_name_with_its_creation(rig: AzureRig, account: AzureAccount) -> None:
    rig.fake.resources.append(machine("Train", rig.clock, group="LAB"))
    first = read_items(account)["lab/train"]
    rig.fake.resources[:] = [machine("TRAIN", rig.clock, group="lab")]
    rig.fake.resources[0].created += timedelta(minutes=30)
    second = read_items(account)["lab/train"]
    assert (first.key, first.created_at) != (second.key, second.created_at)
    assert first.key == second.key


def test_prices_are_of_size_tier_and_system_and_only_the_valid_one_counts(rig: AzureRig, account: AzureAccount) -> None:
    clock = rig.clock
    rig.fake.resources += [
        machine("plain", clock),
        machine("spot", clock, priority="Spot"),
        machine("plus", clock, priority="SpotPlus"),
        machine("windows", clock, windows=True),
        machine("hybrid", clock, windows=True, fields={"licenseType": "Windows_Server"}),
        machine("unlisted", clock, size="Standard_NC9999_v9"),
        machine("image", clock, edits=[("plan", {"name": "paid", "publisher": "acme", "product": "x"})]),
    ]
    seen = read_items(account)
    usd = PRICES[SIZE]
    assert dollars(seen["lab/plain"]) == usd
    assert dollars(seen["lab/spot"]) == pytest.approx(usd * 0.3)
    assert dollars(seen["lab/windows"]) == pytest.approx(usd * 1.5)
    assert dollars(seen["lab/hybrid"]) == usd
    assert dollars(seen["lab/unlisted"]) is None
    assert seen["lab/unlisted"].gpu == "NC9999_v9"
    plus, image = seen["lab/plus"].prices[-1].estimate, seen["lab/image"].prices[-1].estimate
    assert plus is not None
    assert plus.low / NANO == pytest.approx(usd * 0.3)
    assert plus.high / NANO == usd
    assert image is not None
    assert image.high > image.low
    assert [seen[f"lab/{name}"].tier for name in ("plain", "spot", "plus")] == ["on-demand", "spot", "spot"]
    asked = rig.fake.calls("^GET /api/retail/prices")
    rig.clock.at += timedelta(hours=1)
    read_items(account)
    assert rig.fake.calls("^GET /api/retail/prices") == asked, "prices are asked for once a day"


def test_without_prices_the_listing_is_whole_and_says_so(rig: AzureRig, account: AzureAccount) -> None:
    rig.fake.priced = False
    rig.put(1)
    poll = poll_of(account)
    assert isinstance(poll.inventory, Complete)
    assert dollars(poll.inventory.items[0]) is None
    assert any("list prices of westeurope cannot be fetched" in note for note in poll.notes)


def test_members_of_scale_sets_are_listed_with_their_controller_and_never_acted_on(
    rig: AzureRig, account: AzureAccount
) -> None:
    rig.fake.sets = [make_scale_set("aks-gpupool-1", priority="Spot")]
    rig.fake.members["aks-gpupool-1"] = [machine("m0", rig.clock, group="MC_ml_cluster_westeurope")]
    rig.fake.resources.append(machine("flex0", rig.clock, scale_set="flex"))
    seen = read_items(account)
    member, flexible = seen["mc_ml_cluster_westeurope/sets/aks-gpupool-1/0"], seen["lab/flex0"]
    assert (member.gpu_count, member.tier, member.handling.controller) == (1, "spot", "AKS node pool gpupool")
    assert dollars(member) == pytest.approx(PRICES[SIZE] * 0.3)
    assert flexible.handling.controller == "scale set flex"
    for key in (member.key, flexible.key):
        assert account.stop(key, lose=frozenset(flexible.handling.stop_loses)).said == "refused"
        assert account.terminate(key).said == "refused"
    assert rig.fake.calls("^(POST|DELETE) /subscriptions/") == 0
    assert account.look_up(member.key) == member


def test_disks_bill_by_their_tier_and_addresses_where_they_are_allocated(rig: AzureRig, account: AzureAccount) -> None:
    now = rig.clock.now()
    rig.fake.disks = [make_disk("a", "Premium_LRS", 100, now), make_disk("b", "Standard_LRS", 10, now)]
    rig.fake.disks.append(make_disk("c", "UltraSSD_LRS", 100, now))
    rig.fake.addresses = [make_address("one", ipConfiguration={"id": "x"}), make_address("six", publicIPAddressVersion="IPv6")]
    rig.fake.addresses.append(make_address("none", publicIPAllocationMethod="Dynamic", ipAddress=None))
    seen = read_items(account)
    assert set(seen) == {"lab/disks/a", "lab/disks/b", "lab/disks/c", "lab/addresses/one"}
    (disk,) = seen["lab/disks/a"].disks
    assert (disk.gb, disk.type, disk.nano_per_gb_month) == (128, "premium_lrs", round(19.71 * NANO / 128))
    assert [(one.disks[0].gb, one.disks[0].nano_per_gb_month) for one in (seen["lab/disks/b"], seen["lab/disks/c"])] == [
        (32, None),
        (100, None),
    ]
    for key in ("lab/disks/a", "lab/addresses/one"):
        assert account.look_up(seen[key].key) == seen[key]
    assert account.look_up(seen["lab/disks/a"].key._replace(id="lab/disks/z")) is None


@pytest.mark.parametrize("what", ["disks", "virtualMachineScaleSets", "publicIPAddresses"])
def test_a_list_beside_that_cannot_be_read_leaves_the_machines(rig: AzureRig, account: AzureAccount, what: str) -> None:
    there = rig.put(2)
    rig.fake.fault(f"^GET /subscriptions/[^/]+/providers/Microsoft.[A-Za-z]+/{what}", "status", status=403)
    poll = poll_of(account)
    assert isinstance(poll.inventory, Partial)
    assert what in poll.inventory.why
    assert {one.key.id for one in poll.inventory.items} == set(there)


def test_a_next_page_elsewhere_is_not_asked_for(rig: AzureRig, account: AzureAccount) -> None:
    rig.put(3)
    rig.fake.size, rig.fake.scheme = 1, "ftp"
    poll = poll_of(account)
    assert isinstance(poll.inventory, Partial)
    assert "another address" in poll.inventory.why


def test_names_of_sizes_are_those_of_the_market_and_tiers_those_of_the_pages() -> None:
    shared = {pattern: (gpu, {n: count for n, count in counts.items() if count >= 1}) for pattern, gpu, counts in SERIES}
    assert shared == {pattern: (gpu, dict(counts)) for pattern, gpu, counts in AZURE_SERIES}
    assert parse_size("standard_nd96ISR_H100_v5").gpu_count == 8
    assert parse_size("Standard_NV6ads_A10_v5").gpu_count == pytest.approx(1 / 6)
    assert [parse_size(f"Standard_{name}").scratch for name in ("D8s_v5", "D8ds_v5", "DS3_v2")] == [False, True, True]
    assert [find_tier("Premium_LRS", gb) for gb in (1, 128, 129, 32767, 32768)] == [
        ("P1", 4), ("P10", 128), ("P15", 256), ("P80", 32767), None,
    ]  # fmt: skip
    assert find_tier("Standard_ZRS", 4) == ("S4", 32)
    assert find_tier("PremiumV2_LRS", 4) is None
    assert parse_resource_id("train") == "train"
