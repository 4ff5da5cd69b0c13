"""Acts: what is refused before anything is sent, and who is asked in place of EC2."""

from __future__ import annotations

from datetime import timedelta

import pytest
from costguard_aws.account import AwsAccount

from costguard.values.provider import ACCEPTED, POSTPONED, REFUSED
from costguard.values.resource import ResourceKey
from tests.fakes.aws import ACCOUNT
from tests.providers.aws.rig import AwsRig

ALL = frozenset(("250 GB of local disk",))


def key(rig: AwsRig) -> ResourceKey:
    """A new machine."""
    return ResourceKey("aws", ACCOUNT, "us-east-1", rig.put(1)[0])


def sent(rig: AwsRig) -> int:
    return rig.fake.calls(rig.stops or "") + rig.fake.calls(rig.terminates) + rig.fake.calls("/autoscaling/")


@pytest.mark.parametrize("attribute", ["disableApiStop", "disableApiTermination"])
def test_a_protected_machine_is_left_alone(rig: AwsRig, source: AwsAccount, attribute: str) -> None:
    one = key(rig)
    rig.fake.ec2.protected.add((one.id, attribute))
    assert "protected" in source.terminate(one).why
    stop = source.stop(one, lose=ALL)
    assert (stop.said == REFUSED) == (attribute == "disableApiStop")
    seen = source.look_up(one)
    assert seen is not None
    assert seen.handling.protected == (("stop", "terminate") if attribute == "disableApiStop" else ("terminate",))


def test_protection_that_may_not_be_asked_for_is_honoured_by_ec2(rig: AwsRig, source: AwsAccount) -> None:
    one = key(rig)
    rig.fake.ec2.denied.add("DescribeInstanceAttribute")
    rig.fake.ec2.protected.add((one.id, "disableApiStop"))
    assert "OperationNotPermitted" in source.stop(one, lose=ALL).why
    seen = source.look_up(one)
    assert seen is not None
    assert seen.handling.protected == ()


def test_a_member_of_a_group_is_not_stopped_and_ends_by_its_group(rig: AwsRig, source: AwsAccount) -> None:
    one = key(rig)
    rig.fake.ec2.tags[one.id] = {"aws:autoscaling:groupName": "train"}
    rig.fake.groups["train"] = (0, 3)
    assert "auto-scaling group train" in source.stop(one, lose=ALL).why
    assert sent(rig) == 0
    assert source.terminate(one).said == ACCEPTED
    assert rig.fake.groups["train"] == (0, 2)
    assert rig.fake.calls(rig.terminates) == 0 or rig.fake.calls("/ec2/.*TerminateInstances") == 0
    assert rig.state_of(one.id) == "ended"


def test_a_group_at_its_least_size_refuses(rig: AwsRig, source: AwsAccount) -> None:
    one = key(rig)
    rig.fake.ec2.tags[one.id] = {"aws:autoscaling:groupName": "train"}
    rig.fake.groups["train"] = (3, 3)
    reception = source.terminate(one)
    assert (reception.said, rig.state_of(one.id)) == (REFUSED, "running")
    assert "minSize" in reception.why


@pytest.mark.parametrize("tag", ["eks:nodegroup-name", "karpenter.sh/nodeclaim", "aws:batch:compute-environment"])
def test_a_node_that_would_be_replaced_is_left_alone(rig: AwsRig, source: AwsAccount, tag: str) -> None:
    one = key(rig)
    rig.fake.ec2.tags[one.id] = {tag: "gpus", "aws:autoscaling:groupName": "inner"}
    for reception in (source.stop(one, lose=ALL), source.terminate(one)):
        assert reception.said == REFUSED
        assert "gpus" in reception.why
    assert sent(rig) == 0


def test_a_machine_of_another_service_is_left_alone(rig: AwsRig, source: AwsAccount) -> None:
    one = key(rig)
    rig.fake.ec2.more[one.id] = {"operator": "<managed>true</managed><principal>eks.amazonaws.com</principal>"}
    assert source.terminate(one).said == source.stop(one, lose=ALL).said == REFUSED
    assert sent(rig) == 0


def _spot(rig: AwsRig, kind: str) -> ResourceKey:
    one = key(rig)
    rig.fake.ec2.more[one.id] = {"instanceLifecycle": "spot", "spotInstanceRequestId": "sir-1"}
    rig.fake.ec2.requests["sir-1"] = kind
    return one


def test_a_one_time_spot_machine_ends_and_does_not_stop(rig: AwsRig, source: AwsAccount) -> None:
    one = _spot(rig, "one-time")
    assert "one-time" in source.stop(one, lose=ALL).why
    assert sent(rig) == 0
    assert source.terminate(one).said == ACCEPTED


def test_a_persistent_spot_machine_stops_and_does_not_end(rig: AwsRig, source: AwsAccount) -> None:
    one = _spot(rig, "persistent")
    assert "cancel-spot-instance-requests" in source.terminate(one).why
    assert sent(rig) == 0
    assert source.stop(one, lose=ALL).said == ACCEPTED


def test_a_machine_that_could_not_be_looked_at_first_is_not_acted_on(rig: AwsRig, source: AwsAccount) -> None:
    one = key(rig)
    rig.fake.fault(rig.one, "status", status=500)
    for reception in (source.stop(one, lose=ALL), source.terminate(one)):
        assert reception.said == POSTPONED
        assert "nothing was sent" in reception.why
    assert sent(rig) == 0


def test_nothing_is_ever_forced(rig: AwsRig, source: AwsAccount) -> None:
    one = key(rig)
    source.stop(one, lose=ALL)
    source.terminate(one)
    assert sent(rig) == 2
    assert not rig.fake.calls("Force|SkipOsShutdown|ModifyInstanceAttribute|Hibernate")


def test_a_volume_is_not_stopped(rig: AwsRig, source: AwsAccount) -> None:
    assert source.terminate(key(rig)._replace(id="vol-1")).said == REFUSED


def test_no_capacity_is_a_clear_no_although_it_comes_as_a_server_error(rig: AwsRig, source: AwsAccount) -> None:
    one = key(rig)
    rig.let(one.id, "stopped")
    rig.clock.at += timedelta(minutes=10)
    rig.fake.ec2.no_capacity.add(one.id)
    said = source.start_instance(one)
    assert (said.said, "InsufficientInstanceCapacity" in said.why) == (REFUSED, True)
    assert rig.fake.calls(rig.starts or "") == 1
