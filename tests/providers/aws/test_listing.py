"""What a poll of a region says of instances, volumes and addresses: every state and quirk of the sheet."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from costguard_aws.account import AwsAccount
from costguard_sim.world import SECOND_US, SIM_ADDRESS, SIM_VOLUME, Disk, Run, to_us

from costguard.metering.inventory import Complete, Partial
from costguard.metering.observation import Disk as SeenDisk
from costguard.metering.observation import Observation
from tests.contract.rig import poll_of
from tests.fakes.aws import ACCOUNT
from tests.fakes.aws_ec2_xml import disk_id, wire_id
from tests.fakes.server import Answer
from tests.providers.aws.rig import HOUR_US, AwsRig, machine

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def add(rig: AwsRig, **more: Any) -> str:  # noqa: ANN401 - fields of Resource
    """One more machine; its id."""
    one = machine(len(rig.fake.resources), start_us=to_us(NOW) - HOUR_US, **more)
    rig.fake.resources.append(one)
    return wire_id(one.id)


def seen(source: AwsAccount, id_: str) -> Observation:
    poll = poll_of(source)
    assert isinstance(poll.inventory, Complete | Partial), poll.inventory
    return next(item for item in poll.inventory.items if item.key.id == id_)


def test_a_running_machine_is_told_in_full(rig: AwsRig, source: AwsAccount) -> None:
    one = seen(source, add(rig))
    assert (one.state, one.instance_type, one.gpu, one.gpu_count, one.tier) == ("running", "g5.xlarge", "A10G", 1, "on-demand")
    assert one.started_at == NOW - timedelta(hours=1)
    assert one.created_at == NOW - timedelta(hours=1, minutes=1)
    assert one.prices[0].rate is not None
    assert one.prices[0].rate.nano_per_hour == 1_006_000_000
    assert (one.owner, one.name, one.key.account, one.key.region) == ("alice", "train-0", ACCOUNT, "us-east-1")
    assert one.handling.stop_loses == ("250 GB of local disk",)
    assert one.handling.terminate_loses == ("250 GB of local disk", "1 EBS volume that end with it")


def test_a_restart_moves_the_start_and_not_the_creation(rig: AwsRig, source: AwsAccount) -> None:
    id_ = add(rig)
    rig.fake.ec2.change(id_, runs=(Run(start_us=to_us(NOW) - 60 * SECOND_US),))
    one = seen(source, id_)
    assert one.started_at == NOW - timedelta(minutes=1)
    assert one.created_at == NOW - timedelta(hours=1, minutes=1)


def test_a_stopped_machine_says_when_it_stopped(rig: AwsRig, source: AwsAccount) -> None:
    id_ = add(rig)
    rig.clock.at = NOW + timedelta(minutes=10)
    rig.let(id_, "stopped")
    one = seen(source, id_)
    assert (one.state, one.stopped_at) == ("stopped", NOW + timedelta(minutes=10))


def test_a_machine_on_its_way_has_not_started(rig: AwsRig, source: AwsAccount) -> None:
    id_ = add(rig)
    rig.fake.ec2.change(id_, runs=())
    one = seen(source, id_)
    assert (one.state, one.started_at) == ("pending", None)


@pytest.mark.parametrize(
    ("reason", "at"),
    [
        ("User initiated (2026-11-21 11:30:00 GMT)", NOW - timedelta(minutes=30)),
        ("User initiated (2026-11-21 11:30:00 UTC)", NOW - timedelta(minutes=30)),
        ("Server.SpotInstanceTermination", None),
        ("User initiated", None),
        (None, None),
        (..., None),
        ("User initiated (2026-99-21 11:30:00 GMT)", None),
    ],
)
def test_the_reason_of_a_stop_is_read_leniently(rig: AwsRig, source: AwsAccount, reason: object, at: datetime | None) -> None:
    id_ = add(rig)
    rig.fake.ec2.more[id_] = {"instanceState": "stopped", "reason": reason}
    assert seen(source, id_).stopped_at == at


@pytest.mark.parametrize(
    ("word", "state"),
    [("shutting-down", "stopping"), ("stopping", "stopping"), ("terminated", "ended"), ("rebooting", "unknown")],
)
def test_every_state_has_its_word(rig: AwsRig, source: AwsAccount, word: str, state: str) -> None:
    id_ = add(rig)
    rig.fake.ec2.more[id_] = {"instanceState": word}
    one = seen(source, id_)
    assert one.state == state
    assert one.why in ("", word)


def test_a_terminated_machine_is_listed_for_an_hour(rig: AwsRig, source: AwsAccount) -> None:
    id_ = add(rig)
    rig.let(id_, "ended")
    assert (seen(source, id_).state, seen(source, id_).stopped_at) == ("ended", NOW)
    rig.clock.at = NOW + timedelta(hours=1)
    poll = poll_of(source)
    assert isinstance(poll.inventory, Complete)
    assert poll.inventory.items == ()


def test_disks_are_volumes_of_their_own_and_not_counted_twice(rig: AwsRig, source: AwsAccount) -> None:
    id_ = add(rig)
    assert seen(source, id_).disks == ()
    volume = seen(source, disk_id(rig.fake.resources[0].id, 0))
    assert (volume.kind, volume.disks, volume.name) == (SIM_VOLUME, (SeenDisk(100, "gp3"),), f"disk of {id_}")
    assert volume.created_at == NOW - timedelta(hours=1, minutes=1)


def test_what_hangs_on_nothing_is_listed_too(rig: AwsRig, source: AwsAccount) -> None:
    bare = machine(0, start_us=to_us(NOW) - HOUR_US)
    rig.fake.resources.append(replace(bare, kind=SIM_VOLUME, id="vol-1", disks=(Disk(gb=2000, type="io2"),), runs=()))
    rig.fake.resources.append(replace(bare, kind=SIM_ADDRESS, id="ip-1", disks=(), runs=()))
    volume, address = seen(source, wire_id("vol-1")), seen(source, wire_id("ip-1"))
    assert (volume.state, volume.disks, volume.owner) == ("running", (SeenDisk(2000, "io2"),), "alice")
    assert (address.kind, address.state, address.why) == (SIM_ADDRESS, "running", "idle")


def test_an_address_that_its_owner_brought_is_free(rig: AwsRig, source: AwsAccount) -> None:
    one = replace(machine(0, start_us=to_us(NOW)), kind=SIM_ADDRESS, id="ip-1", disks=(), runs=())
    rig.fake.resources.append(one)
    rig.fake.ec2.more[wire_id("ip-1")] = {"publicIpv4Pool": "ipv4pool-ec2-012"}
    poll = poll_of(source)
    assert isinstance(poll.inventory, Complete)
    assert poll.inventory.items == ()


def test_a_spot_machine_has_the_prices_that_it_paid(rig: AwsRig, source: AwsAccount) -> None:
    id_ = add(rig, tier="spot")
    market = ("g5.xlarge", rig.fake.resources[0].region + "-00000000000000000-1a", "Linux/UNIX")
    zone = f"<availabilityZone>{market[1]}</availabilityZone><tenancy>default</tenancy>"
    rig.fake.ec2.more[id_] = {"placement": zone}
    rig.fake.spot.markets[market] = [(NOW - timedelta(hours=9), Decimal("0.4")), (NOW - timedelta(minutes=20), Decimal("0.5"))]
    one = seen(source, id_)
    assert one.tier == "spot"
    assert [price.rate.nano_per_hour for price in one.prices if price.rate] == [400_000_000, 500_000_000]
    assert one.handling.stops is None


def test_a_capacity_block_is_paid_and_saves_nothing(rig: AwsRig, source: AwsAccount) -> None:
    id_ = add(rig)
    rig.fake.ec2.more[id_] = {"instanceLifecycle": "capacity-block", "capacityReservationId": "cr-1"}
    one = seen(source, id_)
    assert (one.tier, one.prices[0].rate, one.prices[0].prepaid) == ("reserved", None, True)
    assert "cr-1" in one.handling.committed


def test_on_a_dedicated_host_the_host_is_billed(rig: AwsRig, source: AwsAccount) -> None:
    id_ = add(rig)
    rig.fake.ec2.more[id_] = {"placement": "<availabilityZone>us-east-1a</availabilityZone><tenancy>host</tenancy>"}
    one = seen(source, id_)
    assert one.prices[0].rate is None
    assert "dedicated host" in one.handling.committed


def test_windows_has_its_own_price(rig: AwsRig, source: AwsAccount) -> None:
    id_ = add(rig)
    rig.fake.ec2.more[id_] = {"usageOperation": ..., "platform": "windows", "platformDetails": "Windows"}
    rate = seen(source, id_).prices[0].rate
    assert rate is not None
    assert rate.nano_per_hour == 1_257_500_000


@pytest.mark.parametrize(
    ("kind", "gpu", "count"),
    [
        ("p4d.24xlarge", "A100-40GB-SXM", 8),
        ("p3.2xlarge", "V100-16GB", 1),
        ("p5.48xlarge", "H100-SXM", 8),
        ("g6f.xlarge", "L4", 0.125),
        ("trn2.48xlarge", "Trainium2", 16),
        ("c7i.4xlarge", "", 0),
        ("g9z.xlarge", "Zebra Z9000", 2),
    ],
)
def test_the_type_table_says_which_gpus(rig: AwsRig, source: AwsAccount, kind: str, gpu: str, count: float) -> None:
    id_ = add(rig)
    rig.fake.ec2.more[id_] = {"instanceType": kind}
    one = seen(source, id_)
    assert (one.gpu, one.gpu_count) == (gpu, count)


def test_a_type_of_a_new_family_is_tracked_unpriced_and_said(rig: AwsRig, source: AwsAccount) -> None:
    id_ = add(rig)
    rig.fake.ec2.more[id_] = {"instanceType": "p99.48xlarge"}
    poll = poll_of(source)
    assert isinstance(poll.inventory, Complete)
    one = next(item for item in poll.inventory.items if item.key.id == id_)
    assert one.prices[0].rate is None
    assert any("p99.48xlarge" in note for note in poll.notes)


def test_types_that_may_not_be_asked_for_come_from_the_table(rig: AwsRig, source: AwsAccount) -> None:
    rig.fake.ec2.denied.add("DescribeInstanceTypes")
    id_ = add(rig)
    poll = poll_of(source)
    assert isinstance(poll.inventory, Complete)
    assert seen(source, id_).gpu == "A10G"
    assert any("shipped table" in note for note in poll.notes)


@pytest.mark.parametrize(
    ("tags", "named"),
    [
        ({"aws:autoscaling:groupName": "train"}, "auto-scaling group train"),
        ({"aws:autoscaling:groupName": "x", "eks:nodegroup-name": "gpus"}, "EKS node group gpus"),
        ({"kubernetes.io/cluster/prod": "owned"}, "Kubernetes cluster prod"),
        ({"karpenter.sh/nodepool": "gpu"}, "Karpenter node pool gpu"),
        ({"aws:eks:cluster-name": "auto"}, "EKS cluster auto"),
        ({"aws:batch:compute-environment": "ce"}, "Batch compute environment ce"),
        ({"AWSBatchServiceTag": "batch"}, "Batch compute environment batch"),
        ({"aws:ec2:fleet-id": "fleet-1"}, "EC2 Fleet fleet-1"),
        ({"aws:ec2spot:fleet-request-id": "sfr-1"}, "Spot Fleet sfr-1"),
        ({"parallelcluster:cluster-name": "hpc"}, "ParallelCluster hpc"),
        ({"aws:elasticmapreduce:job-flow-id": "j-1"}, "EMR cluster j-1"),
        ({"AmazonECSManaged": ""}, "ECS capacity provider"),
        ({"aws:cloudformation:stack-name": "s"}, ""),
        ({}, ""),
    ],
)
def test_whoever_would_bring_it_back_is_named(rig: AwsRig, source: AwsAccount, tags: dict[str, str], named: str) -> None:
    id_ = add(rig)
    rig.fake.ec2.tags[id_] = tags
    assert seen(source, id_).handling.controller == named


def test_a_machine_of_another_service_is_asked_for_and_not_acted_on(rig: AwsRig, source: AwsAccount) -> None:
    id_ = add(rig)
    rig.fake.ec2.more[id_] = {"operator": "<managed>true</managed><principal>eks.amazonaws.com</principal>"}
    handling = seen(source, id_).handling
    assert (handling.controller, handling.stops, handling.terminates) == ("AWS service eks.amazonaws.com", False, False)
    assert rig.fake.calls("IncludeManagedResources=true")


def test_an_older_ec2_is_asked_without_the_parameter_that_it_does_not_know(rig: AwsRig, source: AwsAccount) -> None:
    rig.fake.ec2.strict = ("IncludeManagedResources",)
    assert seen(source, add(rig)).state == "running"
    poll_of(source)
    assert rig.fake.calls("IncludeManagedResources") == 1


def test_volumes_that_cannot_be_listed_leave_the_machines(rig: AwsRig, source: AwsAccount) -> None:
    id_ = add(rig)
    rig.fake.ec2.denied.add("DescribeVolumes")
    poll = poll_of(source)
    assert isinstance(poll.inventory, Partial)
    assert "volumes" in poll.inventory.why
    assert [item.key.id for item in poll.inventory.items] == [id_]


def test_a_whole_list_that_lacks_a_machine_on_which_a_disk_hangs_is_not_believed(rig: AwsRig, source: AwsAccount) -> None:
    add(rig)

    def emptied(right: Answer) -> Answer:
        start, end = right.body.index(b"<reservationSet>"), right.body.index(b"</reservationSet>")
        return replace(right, body=right.body[:start] + b"<reservationSet>" + right.body[end:])

    rig.fake.fault(rig.lists, "edit", edit=emptied)
    poll = poll_of(source)
    assert isinstance(poll.inventory, Partial)
    assert "lacks 1 machine" in poll.inventory.why


def test_a_disk_of_a_machine_that_is_gone_raises_no_alarm(rig: AwsRig, source: AwsAccount) -> None:
    id_ = add(rig)
    rig.fake.ec2.more[disk_id(rig.fake.resources[0].id, 0)] = {
        "attachmentSet": "<item><instanceId>i-0000000000000dead</instanceId></item>"
    }
    poll = poll_of(source)
    assert isinstance(poll.inventory, Complete)
    assert id_ in {item.key.id for item in poll.inventory.items}


def test_no_call_is_made_for_a_single_machine(rig: AwsRig, source: AwsAccount) -> None:
    rig.put(250)
    poll_of(source)
    rig.fake.asked.clear()
    poll_of(source)
    assert len(rig.fake.asked) == 3


def test_a_size_that_is_no_number_loses_the_page_and_not_the_machines(rig: AwsRig, source: AwsAccount) -> None:
    id_ = add(rig)
    rig.fake.ec2.more[disk_id(rig.fake.resources[0].id, 0)] = {"size": "many"}
    poll = poll_of(source)
    assert isinstance(poll.inventory, Partial)
    assert "volumes: returned unreadable data" in poll.inventory.why
    assert [item.key.id for item in poll.inventory.items] == [id_]


def test_types_of_a_large_fleet_are_asked_for_together(rig: AwsRig, source: AwsAccount) -> None:
    for number, id_ in enumerate(rig.put(250)):
        rig.fake.ec2.more[id_] = {"instanceType": ("g5.xlarge", "p4d.24xlarge", "g5.xlarge", "c7i.4xlarge")[number // 63]}
    assert isinstance(poll_of(source).inventory, Complete)
    assert rig.fake.calls("DescribeInstanceTypes") == 1
