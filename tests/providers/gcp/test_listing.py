"""Listing a project over real HTTP: zones that do not answer, refusals, volumes, prices, and how often is asked."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from costguard_gcp.account import GcpAccount
from costguard_sim.world import Disk, Shape, to_us

from costguard.metering.inventory import Complete, Failed, Partial, Poll
from costguard.metering.observation import Observation
from tests.fakes.gcp import number_of, refusal
from tests.fakes.server import Answer
from tests.providers.gcp.rig import GcpRig, resource


def _poll(account: GcpAccount) -> Poll:
    return account.poll(account.list_scopes()[0])


def _items(poll: Poll) -> dict[str, Observation]:
    assert not isinstance(poll.inventory, Failed), poll.inventory
    return {item.key.id: item for item in poll.inventory.items}


def _put(rig: GcpRig, name: str, **more: Any) -> str:  # noqa: ANN401 - fields of Resource
    rig.fake.resources.append(resource(name, to_us(rig.clock.now()), **more))
    return number_of(name)


def test_a_zone_that_is_not_reached_is_named_and_makes_the_listing_partial(rig: GcpRig, account: GcpAccount) -> None:
    there, dark = _put(rig, "a"), _put(rig, "b", region="europe-west4-b")
    rig.fake.unreachable = ["europe-west4-b"]
    poll = _poll(account)
    assert isinstance(poll.inventory, Partial)
    assert "europe-west4-b" in poll.inventory.why
    assert there in _items(poll)
    assert dark not in _items(poll)


def test_one_dead_zone_is_asked_not_to_fail_the_call(rig: GcpRig, account: GcpAccount) -> None:
    _poll(account)
    assert rig.fake.calls("aggregated/instances.*returnPartialSuccess=true") == 1


@pytest.mark.parametrize("reason", ["accessNotConfigured", "billingNotEnabled", "accountDisabled"])
def test_a_project_without_the_api_or_billing_has_no_machines(rig: GcpRig, account: GcpAccount, reason: str) -> None:
    right = refusal(403, reason, "Compute Engine API has not been used in project 1")
    rig.fake.fault(rig.lists, "status", status=403, headers=right.headers, body=right.body)
    poll = _poll(account)
    assert poll.inventory == Complete(())
    assert reason in poll.notes[0]


def test_a_disabled_api_may_stand_in_the_details_alone(rig: GcpRig, account: GcpAccount) -> None:
    right = refusal(403, "forbidden", "disabled", info="SERVICE_DISABLED", service="compute.googleapis.com")
    rig.fake.fault(rig.lists, "status", status=403, headers=right.headers, body=right.body)
    assert _poll(account).inventory == Complete(())


def test_a_403_of_a_rate_limit_is_asked_again(rig: GcpRig, account: GcpAccount) -> None:
    _put(rig, "a")
    right = refusal(403, "rateLimitExceeded")
    rig.fake.fault(rig.lists, "status", status=403, headers=right.headers, body=right.body, times=1)
    assert isinstance(_poll(account).inventory, Complete)
    assert rig.fake.calls(rig.lists) == 2


@pytest.mark.parametrize("what", ["disks", "addresses"])
def test_volumes_that_cannot_be_listed_leave_it_partial(rig: GcpRig, account: GcpAccount, what: str) -> None:
    machine = _put(rig, "a")
    rig.fake.fault(f"aggregated/{what}", "status", status=403)
    poll = _poll(account)
    assert isinstance(poll.inventory, Partial)
    assert poll.inventory.why.startswith(what)
    assert machine in _items(poll)


def test_disks_of_stopped_machines_and_static_addresses_are_listed(rig: GcpRig, account: GcpAccount) -> None:
    machine = _put(rig, "a", disks=(Disk(gb=200, type="pd-balanced"),))
    rig.let(machine, "stopped")
    plain = {"kind": "compute#address", "creationTimestamp": "2026-11-01T00:00:00.000-07:00", "status": "RESERVED"}
    rig.fake.addresses = [
        {**plain, "id": "1", "name": "ip", "region": "x/regions/us-central1", "addressType": "EXTERNAL"},
        {**plain, "id": "2", "name": "inner", "region": "x/regions/us-central1", "addressType": "INTERNAL"},
        {**plain, "id": "3", "name": "six", "addressType": "EXTERNAL", "ipVersion": "IPV6"},
    ]
    items = _items(_poll(account))
    assert items[machine].state == "stopped"
    disk = items[number_of("a/0")]
    assert (disk.kind, disk.state, disk.disks[0].gb, disk.disks[0].type) == ("volume", "running", 200, "pd-balanced")
    assert (items["1"].kind, items["1"].key.region) == ("address", "us-central1")
    assert not {"2", "3"} & set(items)


def test_a_running_machine_has_the_sum_of_its_parts_as_its_price(rig: GcpRig, account: GcpAccount) -> None:
    rate = _items(_poll(account)).get(_put(rig, "a"))
    assert rate is None
    (price,) = _items(_poll(account))[number_of("a")].prices
    assert price.rate is not None
    assert abs(price.rate.nano_per_hour - 853_624_000) <= 32


def test_a_price_list_that_cannot_be_had_is_said_once_and_prices_are_unknown(rig: GcpRig, account: GcpAccount) -> None:
    for name in ("a", "b"):
        _put(rig, name)
    rig.fake.fault("/v1/services", "status", status=500)
    poll = _poll(account)
    assert isinstance(poll.inventory, Complete)
    assert all(item.prices[0].rate is None for item in poll.inventory.items)
    assert sum("price list" in note for note in poll.notes) == 1


def test_a_poll_asks_three_times_and_for_prices_once_a_day(rig: GcpRig, account: GcpAccount) -> None:
    for n in range(400):
        _put(rig, f"m{n}")
    for _ in range(3):
        _poll(account)
    assert rig.fake.calls("GET /compute/v1/") == 9
    assert rig.fake.calls("/v1/services") == 2
    assert rig.fake.calls("/token") == 1


def test_a_type_that_is_not_known_by_heart_is_asked_for_once(rig: GcpRig, account: GcpAccount) -> None:
    number = _put(rig, "a", shapes=(Shape(at_us=0, type="z9-standard-8"),))
    rig.fake.types["z9-standard-8"] = {"guestCpus": 8, "memoryMb": 32768, "isSharedCpu": False}
    for _ in range(2):
        assert "no single on-demand price for core:z9" in str(_poll(account).notes)
    assert rig.fake.calls("machineTypes/z9") == 1
    assert _items(_poll(account))[number].prices[0].rate is None


def test_one_item_that_cannot_be_read_sinks_no_other(rig: GcpRig, account: GcpAccount) -> None:
    good, bad = _put(rig, "a"), _put(rig, "b")
    rig.fake.extra[bad] = {"name": 5, "scheduling": "often"}
    poll = _poll(account)
    items = _items(poll)
    assert isinstance(poll.inventory, Partial)
    assert items[good].state == "running"
    assert (items[bad].state, items[bad].prices) == ("unknown", ())


def test_a_scope_that_cannot_be_read_is_named(rig: GcpRig, account: GcpAccount) -> None:
    good = _put(rig, "a")

    def edit(right: Answer) -> Answer:
        body = json.loads(right.body)
        body["items"]["zones/us-east5-a"] = ["?"]
        return replace(right, body=json.dumps(body).encode())

    rig.fake.fault(rig.lists, "edit", edit=edit)
    poll = _poll(account)
    assert isinstance(poll.inventory, Partial)
    assert "us-east5-a" in poll.inventory.why
    assert good in _items(poll)


def test_a_disk_is_looked_up_by_its_number(rig: GcpRig, account: GcpAccount) -> None:
    _put(rig, "a", disks=(Disk(gb=200, type="pd-balanced"),))
    disk = _items(_poll(account))[number_of("a/0")]
    assert account.look_up(disk.key) == disk
    assert account.look_up(disk.key._replace(id="77")) is None
