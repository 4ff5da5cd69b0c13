"""What is no answer of EC2 is none, whatever boto3 would make of it; and the fake answers in EC2's published form."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import pytest
from costguard_sim.world import make_world, to_us

from costguard.metering.inventory import Complete, Failed
from tests.contract.rig import poll_of
from tests.fakes.aws import FakeAws
from tests.fakes.aws_wire import model
from tests.fakes.server import START
from tests.providers.aws.rig import AwsRig


def unknown_elements(item: Element, shape: Any, path: str) -> list[str]:  # noqa: ANN401 - botocore has no types
    """Elements that the published shape does not have."""
    found: list[str] = []
    if shape.type_name == "structure":
        names = {(m.serialization.get("name") or name): m for name, m in shape.members.items()}
        for child in item:
            tag = child.tag.rpartition("}")[2]
            inner = names.get(tag)
            found += [f"{path}/{tag}"] if inner is None else unknown_elements(child, inner, f"{path}/{tag}")
    elif shape.type_name == "list":
        for child in item:
            found += unknown_elements(child, shape.member, f"{path}/item")
    return found


LISTS = ("DescribeInstances", "DescribeVolumes", "DescribeAddresses", "DescribeInstanceTypes", "DescribeRegions")


@pytest.mark.parametrize("action", LISTS)
def test_the_fake_says_nothing_that_the_published_model_does_not_have(action: str) -> None:
    world = make_world(3, start=START - timedelta(days=1), days=2, size=80, clouds=("sim-aws",))
    form = {"Action": action, "MaxResults": "100"}
    body = FakeAws(resources=list(world.resources)).ec2.answer(form, "111122223333", "us-east-1", to_us(START)).body
    found = unknown_elements(fromstring(body), model("ec2").operation_model(action).output_shape, action)  # noqa: S314 - our own fake's
    assert [path for path in found if path != f"{action}/requestId"] == []


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"<html><body>no</body></html>",
        b"<!DOCTYPE html><html/>",
        b"<DescribeVolumesResponse/>",
        b"<DescribeVolumesResponse><volumeSet/></DescribeVolumesResponse>",
        b"<DescribeInstancesResponse/>",
        b"<DescribeInstancesResponse><reservationSet>",
        b'<!DOCTYPE x [<!ENTITY a "b">]><DescribeInstancesResponse><reservationSet/>&a;</DescribeInstancesResponse>',
        b"\xff\xfe",
        b'<?xml version="1.0" encoding="nothing"?><DescribeInstancesResponse/>',
    ],
)
def test_what_is_no_answer_is_odd(raw: bytes, tmp_path: Path) -> None:
    rig = AwsRig()
    rig.put(1)
    rig.fake.fault(rig.lists, "status", status=200, body=raw)
    with rig.opened(tmp_path) as source:
        assert isinstance(poll_of(source).inventory, Failed)


@pytest.mark.parametrize("written", ["xmlns='http://ec2.example/'", ""])
def test_a_list_that_is_empty_is_an_answer(written: str, tmp_path: Path) -> None:
    rig = AwsRig()
    body = f"<DescribeInstancesResponse {written}><reservationSet/></DescribeInstancesResponse>".encode()
    rig.fake.fault(rig.lists, "status", status=200, body=body)
    with rig.opened(tmp_path) as source:
        assert poll_of(source).inventory == Complete(())
