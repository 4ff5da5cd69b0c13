"""Our reader of EC2's XML agrees with botocore's, field by field on the same bytes; and what is no answer is none."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from xml.etree.ElementTree import Element

import pytest
from botocore.parsers import EC2QueryParser
from costguard_aws.ec2_xml import find_rows, list_tags, parse_tree, read_text, read_whole_number
from costguard_sim.world import make_world, to_us

from costguard.errors import InvalidAnswerError
from costguard.values.instant import parse_instant
from tests.fakes.aws import FakeAws
from tests.fakes.aws_wire import model
from tests.fakes.server import START

FIELDS = {
    "instanceId": ("InstanceId",),
    "instanceType": ("InstanceType",),
    "instanceState/name": ("State", "Name"),
    "reason": ("StateTransitionReason",),
    "instanceLifecycle": ("InstanceLifecycle",),
    "spotInstanceRequestId": ("SpotInstanceRequestId",),
    "placement/availabilityZone": ("Placement", "AvailabilityZone"),
    "placement/tenancy": ("Placement", "Tenancy"),
    "rootDeviceName": ("RootDeviceName",),
    "rootDeviceType": ("RootDeviceType",),
    "platformDetails": ("PlatformDetails",),
    "usageOperation": ("UsageOperation",),
    "keyName": ("KeyName",),
}


def body(action: str, **more: str) -> bytes:
    """What the fake answers of a world."""
    world = make_world(3, start=START - timedelta(days=1), days=2, size=80, clouds=("sim-aws",))
    fake = FakeAws(resources=list(world.resources))
    form = {"Action": action, "MaxResults": "1000", **more}
    return fake.ec2.answer(form, "111122223333", "us-east-1", to_us(START)).body


def theirs(action: str, raw: bytes) -> Mapping[str, Any]:
    shape = model("ec2").operation_model(action).output_shape
    answer: Mapping[str, Any] = EC2QueryParser().parse({"body": raw, "headers": {}, "status_code": 200}, shape)
    return answer


def at(value: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401 - whatever stands there
    for key in path:
        value = value.get(key, {} if key != path[-1] else "")
    return value


def test_instances_are_read_as_botocore_reads_them() -> None:
    raw = body("DescribeInstances")
    known = [one for reservation in theirs("DescribeInstances", raw)["Reservations"] for one in reservation["Instances"]]
    ours = list(parse_tree(raw, "DescribeInstances").iter("instancesSet"))
    read = [item for found in ours for item in found]
    assert len(read) == len(known) > 5
    for item, one in zip(read, known, strict=True):
        assert {path: read_text(item, path) for path in FIELDS} == {path: at(one, keys) for path, keys in FIELDS.items()}
        assert parse_instant(read_text(item, "launchTime")) == one["LaunchTime"]
        assert dict(list_tags(item.find("tagSet"))) == {tag["Key"]: tag["Value"] for tag in one.get("Tags", [])}
        attached = [parse_instant(read_text(device, "ebs/attachTime")) for device in item.iterfind("blockDeviceMapping/item")]
        assert attached == [device["Ebs"]["AttachTime"] for device in one.get("BlockDeviceMappings", [])]


def test_volumes_are_read_as_botocore_reads_them() -> None:
    raw = body("DescribeVolumes")
    known = theirs("DescribeVolumes", raw)["Volumes"]
    read = list(find_rows(parse_tree(raw, "DescribeVolumes"), "volumeSet", "DescribeVolumes"))
    assert len(read) == len(known) > 5
    for item, one in zip(read, known, strict=True):
        assert (read_text(item, "volumeId"), read_whole_number(item, "size")) == (one["VolumeId"], one["Size"])
        assert (read_text(item, "volumeType"), read_text(item, "status")) == (one["VolumeType"], one["State"])
        assert parse_instant(read_text(item, "createTime")) == one["CreateTime"]


def unknown_elements(item: Element, shape: Any, path: str) -> list[str]:  # noqa: ANN401 - botocore has no types
    """Elements that the published shape does not have."""
    found: list[str] = []
    if shape.type_name == "structure":
        names = {(m.serialization.get("name") or name): m for name, m in shape.members.items()}
        for child in item:
            inner = names.get(child.tag)
            found += [f"{path}/{child.tag}"] if inner is None else unknown_elements(child, inner, f"{path}/{child.tag}")
    elif shape.type_name == "list":
        for child in item:
            found += unknown_elements(child, shape.member, f"{path}/{child.tag}")
    return found


LISTS = ("DescribeInstances", "DescribeVolumes", "DescribeAddresses", "DescribeInstanceTypes", "DescribeRegions")


@pytest.mark.parametrize("action", LISTS)
def test_the_fake_says_nothing_that_the_published_model_does_not_have(action: str) -> None:
    more = {"MaxResults": "100"} if action == "DescribeInstanceTypes" else {}
    root = parse_tree(body(action, **more), action)
    found = unknown_elements(root, model("ec2").operation_model(action).output_shape, action)
    assert [path for path in found if path != f"{action}/requestId"] == []


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"<html><body>no</body></html>",
        b"<!DOCTYPE html><html/>",
        b"<DescribeVolumesResponse/>",
        b"<DescribeInstancesResponse><reservationSet>",
        b'<!DOCTYPE x [<!ENTITY a "b">]><DescribeInstancesResponse>&a;</DescribeInstancesResponse>',
        b"\xff\xfe",
        b'<?xml version="1.0" encoding="nothing"?><DescribeInstancesResponse/>',
    ],
)
def test_what_is_no_answer_is_odd(raw: bytes) -> None:
    with pytest.raises(InvalidAnswerError):
        parse_tree(raw, "DescribeInstances")


def test_a_list_that_is_missing_is_not_empty() -> None:
    with pytest.raises(InvalidAnswerError):
        find_rows(parse_tree(b"<DescribeInstancesResponse/>", "DescribeInstances"), "reservationSet", "DescribeInstances")


@pytest.mark.parametrize("written", ["xmlns='http://ec2.example/'", 'xmlns="http://ec2.example/"', ""])
def test_a_namespace_in_either_quotes_or_none_is_the_same_answer(written: str) -> None:
    body = f"<DescribeInstancesResponse {written}><reservationSet/></DescribeInstancesResponse>".encode()
    assert len(find_rows(parse_tree(body, "DescribeInstances"), "reservationSet", "DescribeInstances")) == 0


def test_a_namespace_with_a_prefix_is_taken_off() -> None:
    body = b'<n:DescribeInstancesResponse xmlns:n="http://ec2.example/"><n:reservationSet/></n:DescribeInstancesResponse>'
    assert len(find_rows(parse_tree(body, "DescribeInstances"), "reservationSet", "DescribeInstances")) == 0
