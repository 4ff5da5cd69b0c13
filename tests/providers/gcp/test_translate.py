"""Machines, as Google words them and as costguard does."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from costguard_gcp.machine_types import find_shape
from costguard_gcp.translation import (
    ListingContext,
    PriceQuestion,
    find_controller,
    find_sku_tier,
    observe_disk,
    observe_instance,
)
from google.cloud.compute_v1 import Disk, Instance

from costguard.data import ShippedFacts
from costguard.metering.billing import list_meters
from costguard.metering.observation import Observation, Price, find_list_price
from costguard.values.money import Rate
from tests.contract.rig import NAMES

ZONE = "https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-a"
AT = datetime(2026, 11, 24, 12, tzinfo=UTC)
RATE = Rate(nano_per_hour=1_000_000_000)


def _price(_: PriceQuestion) -> tuple[Price, str]:
    return Price(RATE), ""


READING = ListingContext(project="p", gpus=NAMES, machines=lambda _zone, name: find_shape(name), price=_price, at=AT)


def instance(**more: Any) -> Instance:  # noqa: ANN401 - fields as the wire has them
    """A running a2-highgpu-1g, with fields over it."""
    plain = {
        "id": "4610212943271111111",
        "name": "trainer",
        "zone": ZONE,
        "machineType": f"{ZONE}/machineTypes/a2-highgpu-1g",
        "status": "RUNNING",
        "creationTimestamp": "2026-11-20T01:02:03.004-08:00",
        "lastStartTimestamp": "2026-11-20T01:02:13.500-08:00",
        "lastStopTimestamp": "",
        "guestAccelerators": [{"acceleratorType": f"{ZONE}/acceleratorTypes/nvidia-tesla-a100", "acceleratorCount": 1}],
        "scheduling": {"provisioningModel": "STANDARD"},
    }
    made: Instance = Instance.from_json(json.dumps({**plain, **more}), ignore_unknown_fields=True)
    return made


def seen(**more: Any) -> Observation:  # noqa: ANN401 - fields as the wire has them
    """The same as it is observed."""
    return observe_instance(instance(**more), "us-central1-a", READING)[0]


def notes(**more: Any) -> tuple[str, ...]:  # noqa: ANN401 - fields as the wire has them
    """What is noted of it."""
    return observe_instance(instance(**more), "us-central1-a", READING)[1]


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("PENDING", "pending"),
        ("PROVISIONING", "starting"),
        ("STAGING", "starting"),
        ("RUNNING", "running"),
        ("PENDING_STOP", "running"),
        ("STOPPING", "stopping"),
        ("TERMINATED", "stopped"),
        ("STOPPED", "stopped"),
        ("SUSPENDING", "stopping"),
        ("SUSPENDED", "suspended"),
        ("REPAIRING", "repairing"),
        ("DEPROVISIONING", "stopped"),
        ("HIBERNATING", "unknown"),
        (None, "unknown"),
    ],
)
def test_every_status_has_its_state_and_terminated_means_stopped(status: str | None, state: str) -> None:
    one = seen(status=status)
    assert (one.state, one.why) == (state, status or "")


def test_a_stop_of_an_earlier_run_does_not_end_the_present_one() -> None:
    assert seen(lastStopTimestamp="2026-11-19T00:00:00.000-08:00").stopped_at is None
    stopped = seen(status="TERMINATED", lastStopTimestamp="2026-11-20T05:00:00.000-08:00")
    assert stopped.stopped_at == datetime(2026, 11, 20, 13, tzinfo=UTC)


def test_a_time_that_cannot_be_read_is_none_and_noted() -> None:
    assert seen(lastStartTimestamp="yesterday").started_at is None
    assert any("lastStartTimestamp" in note for note in notes(lastStartTimestamp="yesterday"))


def test_gpus_of_the_type_and_of_the_machine_are_not_added_up() -> None:
    eight = f"{ZONE}/machineTypes/a3-highgpu-8g"
    listed = [{"acceleratorType": "x/nvidia-h100-80gb", "acceleratorCount": 8}]
    for accelerators in (listed, None, []):
        one = seen(machineType=eight, guestAccelerators=accelerators)
        assert (one.gpu, one.gpu_count) == ("H100-SXM", 8)


def test_gpus_that_are_attached_to_n1_are_counted() -> None:
    four = [{"acceleratorType": "x/nvidia-tesla-t4", "acceleratorCount": 4}]
    one = seen(machineType=f"{ZONE}/machineTypes/n1-standard-16", guestAccelerators=four)
    assert (one.gpu, one.gpu_count) == ("T4", 4)
    assert seen(machineType=f"{ZONE}/machineTypes/n1-standard-16", guestAccelerators=[]).gpu_count == 0


def test_a_workstation_licence_is_the_same_gpu() -> None:
    vws = [{"acceleratorType": "x/nvidia-tesla-t4-vws", "acceleratorCount": 1}]
    assert seen(machineType=f"{ZONE}/machineTypes/n1-standard-8", guestAccelerators=vws).gpu == "T4"


@pytest.mark.parametrize(("size", "share"), [(6, 0.125), (12, 0.25), (24, 0.5), (48, 1), (384, 8)])
def test_a_slice_of_a_g4_gpu_is_a_fraction(size: int, share: float) -> None:
    count = max(1, int(share))
    listed = [{"acceleratorType": "x/nvidia-rtx-pro-6000", "acceleratorCount": count}]
    one = seen(machineType=f"{ZONE}/machineTypes/g4-standard-{size}", guestAccelerators=listed)
    assert (one.gpu, one.gpu_count) == ("RTX-PRO-6000-Blackwell-Server", share)


def test_a_tpu_is_no_gpu() -> None:
    listed = [{"acceleratorType": "x/ct5lp", "acceleratorCount": 4}]
    assert seen(machineType=f"{ZONE}/machineTypes/n1-standard-8", guestAccelerators=listed).gpu_count == 0


@pytest.mark.parametrize(
    ("scheduling", "tier", "paid"),
    [
        ({"provisioningModel": "SPOT", "preemptible": True}, "spot", "spot"),
        ({"provisioningModel": "STANDARD", "preemptible": True}, "spot", "spot"),
        ({"provisioningModel": "STANDARD"}, "on-demand", "on-demand"),
        ({"provisioningModel": "FLEX_START"}, "on-demand", "flex"),
        ({"provisioningModel": "RESERVATION_BOUND"}, "reserved", "reservation"),
        ({"provisioningModel": "LUNAR"}, "on-demand", "unknown"),
        (None, "on-demand", "on-demand"),
    ],
)
def test_tiers(scheduling: dict[str, Any] | None, tier: str, paid: str) -> None:
    assert seen(scheduling=scheduling).tier == tier
    assert find_sku_tier(instance(scheduling=scheduling)) == paid


@pytest.mark.parametrize(
    ("more", "controller"),
    [
        (
            {"metadata": {"items": [{"key": "created-by", "value": "projects/1/zones/z/instanceGroupManagers/train"}]}},
            "managed instance group train",
        ),
        ({"labels": {"goog-gke-node": "", "goog-k8s-node-pool-name": "gpu-pool"}}, "GKE node pool gpu-pool"),
        ({"labels": {"goog-dataproc-cluster-name": "etl"}}, "Dataproc cluster etl"),
        ({"labels": {"goog-vertex-ai-x": "1"}}, "Vertex AI Workbench"),
        ({"labels": {"goog-caip-notebook": ""}}, "Vertex AI Workbench"),
        ({"labels": {"goog-batch-worker": "true", "batch-job-id": "j1"}}, "Batch job j1"),
        ({"labels": {"ghpc_deployment": "hpc", "slurm_instance_role": "compute"}}, "Slurm cluster hpc"),
        ({"labels": {"goog-dataflow-job-id": "d1"}}, "Dataflow job d1"),
        ({"resourcePolicies": ["x/resourcePolicies/mornings"]}, "an instance schedule, which may start it again"),
        ({"labels": {"team": "ml"}}, ""),
    ],
)
def test_who_would_bring_it_back(more: dict[str, Any], controller: str) -> None:
    assert find_controller(instance(**more)) == controller


def test_gke_owns_the_machines_of_its_instance_groups() -> None:
    maker = {"items": [{"key": "created-by", "value": "projects/1/zones/z/instanceGroupManagers/gke-x"}]}
    labels = {"goog-gke-node": "", "goog-k8s-cluster-name": "c"}
    assert find_controller(instance(metadata=maker, labels=labels)) == "GKE node pool c"


def test_protection_forbids_deleting_and_not_stopping() -> None:
    handling = seen(deletionProtection=True).handling
    assert (handling.protected, handling.stops) == (("terminate",), True)


def test_local_ssd_is_lost_by_a_stop_and_bills_with_the_machine() -> None:
    one = seen(disks=[{"type": "SCRATCH", "diskSizeGb": "375"}] * 2)
    assert one.handling.stop_loses == ("750 GB of local SSD",)
    assert [(disk.gb, disk.type) for disk in one.disks] == [(375, "local-ssd")] * 2


def test_bundled_local_ssd_is_lost_too_and_is_in_the_machines_price() -> None:
    one = seen(machineType=f"{ZONE}/machineTypes/a3-highgpu-8g", guestAccelerators=None)
    assert one.handling.stop_loses == ("6000 GB of local SSD",)
    assert one.disks == ()


def test_a_delete_takes_the_disks_that_are_set_to_go() -> None:
    boot = {"type": "PERSISTENT", "boot": True, "autoDelete": True, "diskSizeGb": "100", "source": "x/disks/root"}
    data = {"type": "PERSISTENT", "boot": False, "autoDelete": False, "diskSizeGb": "900", "source": "x/disks/data"}
    assert seen(disks=[boot, data]).handling.terminate_loses == ("boot disk root (100 GB)",)


def test_a_machine_that_ends_by_itself_says_when() -> None:
    stated = seen(scheduling={"terminationTime": "2026-11-21T00:00:00Z"}).handling.ends_at
    reckoned = seen(scheduling={"maxRunDuration": {"seconds": "3600"}}).handling.ends_at
    assert stated == datetime(2026, 11, 21, tzinfo=UTC)
    assert reckoned == datetime(2026, 11, 20, 10, 2, 13, 500_000, tzinfo=UTC)


def test_a_reservation_is_paid_for_whether_it_runs_or_not() -> None:
    affinity = {"consumeReservationType": "SPECIFIC_RESERVATION", "values": ["june"]}
    assert "june" in seen(reservationAffinity=affinity).handling.committed
    assert seen(scheduling={"provisioningModel": "RESERVATION_BOUND"}).handling.committed
    assert not seen(reservationAffinity={"consumeReservationType": "ANY_RESERVATION"}).handling.committed


def test_on_a_sole_tenant_node_the_node_is_billed() -> None:
    affinity = {"key": "compute.googleapis.com/node-group-name", "operator": "IN", "values": ["nodes"]}
    price = seen(scheduling={"provisioningModel": "STANDARD", "nodeAffinities": [affinity]}).prices[-1]
    assert (price.rate, price.special, price.source) == (None, True, "sole-tenant node, billed in its place")


@pytest.mark.parametrize(
    ("project", "most"),
    [("debian-cloud", 0), ("ubuntu-os-cloud", 0), ("windows-cloud", 12), ("rhel-cloud", 12), ("somebodys-public", 12)],
)
def test_paid_software_is_a_surcharge_on_the_price_of_the_machine(project: str, most: int) -> None:
    licence = f"https://www.googleapis.com/compute/v1/projects/{project}/global/licenses/one"
    price = seen(disks=[{"licenses": [licence]}]).prices[-1]
    assert price.rate == RATE
    assert (price.estimate.high if price.estimate else RATE.nano_per_hour) == RATE.nano_per_hour + most * 450_000_000
    assert bool(price.estimate) == bool(most)


def test_a_disk_in_an_ai_zone_has_no_price_of_its_region() -> None:
    item = {"id": "1", "sizeGb": "100", "status": "READY", "type": "t/pd-ssd", "zone": "z/us-central1-ai1a"}
    disk = Disk.from_json(json.dumps(item))
    observation, _ = observe_disk(disk, "us-central1-ai1a", "p")
    (meter,) = list_meters(observation, ShippedFacts().get_billing_rules()["gcp"], {}).values()
    assert not meter.price.known
    assert meter.price.low < meter.price.high


def test_an_n1_costs_less_with_each_quarter_of_the_month_it_runs_and_an_a2_does_not() -> None:
    attached = {"guestAccelerators": [{"acceleratorType": f"{ZONE}/acceleratorTypes/nvidia-tesla-t4", "acceleratorCount": 1}]}
    n1 = seen(machineType=f"{ZONE}/machineTypes/n1-standard-8", lastStartTimestamp="2026-10-20T01:02:13.500-08:00", **attached)
    listed = [
        (one.since, one.rate.nano_per_hour, one.estimate.low, one.estimate.high)
        for one in n1.prices
        if one.estimate and one.rate
    ]
    month, quarter = datetime(2026, 11, 1, 7, tzinfo=UTC), timedelta(hours=721) / 4  # in Los Angeles, where summer time ends
    assert listed == [
        (None, 10**9, 7 * 10**8, 10**9),
        (month, 10**9, 7 * 10**8, 10**9),
        (month + quarter, 8 * 10**8, 7 * 10**8, 10**9),
        (month + 2 * quarter, 6 * 10**8, 6 * 10**8, 10**9),
        (month + 3 * quarter, 4 * 10**8, 4 * 10**8, 10**9),
    ]
    assert find_list_price(n1.prices[-1].source) == 1
    young = seen(machineType=f"{ZONE}/machineTypes/n1-standard-8", lastStartTimestamp="2026-11-16T04:00:00.000-08:00")
    assert [one.rate.nano_per_hour for one in young.prices if one.rate] == [10**9, 8 * 10**8], "eight days of its own month"
    for plain in (seen(), seen(machineType=f"{ZONE}/machineTypes/n1-standard-8", scheduling={"provisioningModel": "SPOT"})):
        assert [(one.rate, one.estimate) for one in plain.prices] == [(RATE, None)]
