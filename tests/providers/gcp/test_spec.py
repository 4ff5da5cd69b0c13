"""Every kind of answer of the fake is held against Google's own published types (google-cloud-compute): no field they lack."""

from __future__ import annotations

from typing import Any

from costguard_gcp.account import GcpAccount
from costguard_sim.world import Disk, to_us
from google.cloud import compute_v1

from costguard.values.calendar import Period
from tests.fakes.gcp import number_of
from tests.fakes.server import Asked
from tests.providers.gcp.rig import GcpRig, resource

KINDS: dict[str, Any] = {
    "aggregated/instances": compute_v1.InstanceAggregatedList,
    "aggregated/disks": compute_v1.DiskAggregatedList,
    "aggregated/addresses": compute_v1.AddressAggregatedList,
    "zones/us-central1-a/instances": compute_v1.InstanceList,
    "zones/us-central1-a/disks": compute_v1.DiskList,
    "machineTypes/z9-standard-8": compute_v1.MachineType,
    "stop": compute_v1.Operation,
    "instances/a": compute_v1.Operation,
}


def _asked(path: str, method: str, number: str) -> Asked:
    query = {"filter": [f"id = {number}"], "maxResults": ["1"]}
    full = f"/compute/v1/projects/acme-lab/{path}"
    return Asked(method=method, path=full, query=query, headers={}, body=b"", line="")


def test_every_kind_of_answer_is_of_googles_types(rig: GcpRig, account: GcpAccount) -> None:
    now = to_us(rig.clock.now())
    rig.fake.resources = [resource(name, now, disks=(Disk(gb=9, type="pd-ssd"),)) for name in ("a", "b", "c")]
    rig.fake.types["z9-standard-8"] = {"guestCpus": 8, "memoryMb": 32768, "isSharedCpu": False}
    rig.fake.unreachable = ["us-east5-a"]
    rig.fake.extra[number_of("a/0")] = {"provisionedIops": "5000", "provisionedThroughput": "200", "region": "x/regions/y"}
    number, checked = number_of("a"), 0
    for path, kind in KINDS.items():
        where = f"zones/us-central1-a/{path}" if path.startswith(("machineTypes", "instances/")) else path
        where = "zones/us-central1-a/instances/a/stop" if path == "stop" else where
        wanted = number_of("a/0") if path.endswith("a/disks") else number
        answer = rig.fake.answer(_asked(where, {"stop": "POST", "instances/a": "DELETE"}.get(path, "GET"), wanted))
        assert answer.status == 200, (path, answer)
        kind.from_json(answer.body, ignore_unknown_fields=False)
        checked += 1
    assert checked == len(KINDS) == 8
    assert account.fetch_identity() == "acme-lab"


def test_measures_come_in_the_units_of_the_house(rig: GcpRig, account: GcpAccount) -> None:
    (number,) = rig.put(1)
    rig.fake.measures = {
        "compute.googleapis.com/instance/cpu/utilization": {number: 0.5},
        "agent.googleapis.com/gpu/utilization": {number: 87.0},
        "agent.googleapis.com/gpu/memory/bytes_used": {number: 40.0},
        "compute.googleapis.com/instance/network/received_bytes_count": {number: 10.0},
        "compute.googleapis.com/instance/network/sent_bytes_count": {number: 5.0},
        "compute.googleapis.com/instance/disk/read_bytes_count": {number: 7.0},
    }
    inventory = account.poll(account.list_scopes()[0]).inventory
    seen = inventory.items  # type: ignore[union-attr]
    end = rig.clock.now()
    measured = account.fetch_utilization(seen, Period(start=end.replace(hour=end.hour - 1), end=end))
    values = {sample.signal: sample.value for sample in measured.samples}
    assert values == {"cpu_util": 50.0, "gpu_util": 87.0, "gpu_memory_used": 40.0, "network_bytes_s": 15.0}
    assert measured.blind == ()
    assert rig.fake.calls("timeSeries") == 7  # not the GPU duty of another agent: the machine has it


def test_a_gpu_machine_without_an_agent_is_blind_and_says_what_to_do(rig: GcpRig, account: GcpAccount) -> None:
    (number,) = rig.put(1)
    rig.fake.measures = {"compute.googleapis.com/instance/cpu/utilization": {number: 1.02}}
    seen = account.poll(account.list_scopes()[0]).inventory.items  # type: ignore[union-attr]
    end = rig.clock.now()
    measured = account.fetch_utilization(seen, Period(start=end.replace(hour=end.hour - 1), end=end))
    assert {sample.value for sample in measured.samples} == {100.0}
    assert "Ops Agent" in measured.blind[0][1]


def test_offers_are_those_that_have_all_prices(rig: GcpRig, account: GcpAccount) -> None:
    rig.put(1)
    listing = account.list_live_offers(["L4"])
    assert {offer.gpu for offer in listing.offers} == {"L4"}
    assert "g2-standard-8" in {offer.instance_type for offer in listing.offers}
    both = account.list_live_offers(None).offers
    assert {(offer.instance_type, offer.tier) for offer in both if offer.gpu == "B200-SXM"} == {("a4-highgpu-8g", "spot")}


def test_missing_rights_are_named_with_the_fix(rig: GcpRig, account: GcpAccount) -> None:
    rig.put(1)
    rig.fake.missing_rights = {"compute.instances.stop", "compute.disks.list"}
    checks = {check.subject: check for check in account.examine()}
    assert checks["permission: stop (acme-lab)"].outcome == "unsure"
    assert checks["permission: volumes (acme-lab)"].outcome == "bad"
    assert "gcp-reader.yaml" in checks["permission: volumes (acme-lab)"].fix
    assert checks["permission: terminate (acme-lab)"].outcome == "good"
