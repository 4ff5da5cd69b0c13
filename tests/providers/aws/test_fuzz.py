"""Mutated real shapes: whatever EC2 answers, nothing breaks, and no time, price, size or count is invented."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from datetime import timedelta
from functools import cache
from typing import Any
from xml.etree.ElementTree import Element, SubElement, fromstring, tostring

from botocore.parsers import EC2QueryParser, ResponseParserError
from costguard_aws.api import Ec2Item
from costguard_aws.instance_types import load_known_types
from costguard_aws.price_list import PriceKey
from costguard_aws.session import read_timestamp
from costguard_aws.translation import (
    ListingScope,
    TypeAndPriceLookup,
    observe_address,
    observe_instance,
    observe_volume,
    parse_left_at,
)
from costguard_sim.world import make_world, to_us
from hypothesis import given
from hypothesis import strategies as st

from costguard.errors import InputError
from costguard.metering.observation import Observation, Price
from costguard.values.instant import parse_instant
from costguard.values.money import Rate
from costguard.values.resource import STATES
from tests.fakes.aws import FakeAws
from tests.fakes.aws_wire import model
from tests.fakes.server import START
from tests.providers.aws.fuzz import FUZZ

PLACE = ListingScope("111122223333", "us-east-1")
PRICE = Price(Rate(nano_per_hour=1_234_567_890), None, "AWS price list")
WORDS = st.one_of(
    st.text(max_size=12),
    st.integers().map(str),
    st.floats().map(str),
    st.datetimes().map(lambda at: f"{at.isoformat()}Z"),
    st.sampled_from(
        ["", "spot", "capacity-block", "scheduled", "host", "terminated", "stopped", "g5.xlarge", "p99.8xlarge", "windows"]
    ),
    st.sampled_from(["2026-11-21T09:30:15Z", "0000-00-00T00:00:00Z", "NaN", "1e999", "-1", "9" * 400, "\0", "\ud800", "true"]),
)


LISTS = {
    "DescribeInstances": ("instancesSet", ("reservationSet", "item", "instancesSet")),
    "DescribeVolumes": ("volumeSet", ("volumeSet",)),
    "DescribeAddresses": ("addressesSet", ("addressesSet",)),
}
"""Action -> the element that holds items, and where it stands."""


@cache
def items(action: str) -> tuple[Element, ...]:
    """Real ones, of a world."""
    world = make_world(7, start=START - timedelta(days=1), days=2, size=60, clouds=("sim-aws",))
    form = {"Action": action, "MaxResults": "1000"}
    raw = FakeAws(resources=list(world.resources)).ec2.answer(form, PLACE.account, PLACE.region, to_us(START)).body
    root = fromstring(raw)  # noqa: S314 - our own fake's
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return tuple(item for found in root.iter(LISTS[action][0]) for item in found)


def mutated(data: st.DataObject, action: str) -> Element:
    """One of them with up to four of its elements overwritten, doubled, emptied or left out."""
    made = copy.deepcopy(data.draw(st.sampled_from(items(action))))
    for _ in range(data.draw(st.integers(0, 4))):
        places = [(parent, child) for parent in made.iter() for child in parent]
        parent, child = data.draw(st.sampled_from(places))
        match data.draw(st.sampled_from(["text", "left out", "empty", "double"])):
            case "text":
                child.text = data.draw(WORDS)
            case "left out":
                parent.remove(child)
            case "empty":
                child.clear()
            case _:
                parent.append(copy.deepcopy(child))
        if not len(made):
            break
    return made


def read(item: Element, action: str) -> Ec2Item | None:
    """The item as boto3 hands it out; None if it refuses the page, which is then lost."""
    root = Element(f"{action}Response")
    parent = root
    for name in LISTS[action][1]:
        parent = SubElement(parent, name)
    parent.append(item)
    parser = EC2QueryParser(timestamp_parser=read_timestamp)
    body = tostring(root, encoding="unicode").encode("utf-8", "replace")
    try:
        shape = model("ec2").operation_model(action).output_shape
        answer: dict[str, Any] = parser.parse({"body": body, "headers": {}, "status_code": 200}, shape)
    except (ResponseParserError, ValueError, TypeError, AttributeError):
        return None
    found: list[Ec2Item] = next(value for name, value in answer.items() if name != "ResponseMetadata")
    return found[0]["Instances"][0] if action == "DescribeInstances" else found[0]


def texts(item: Element) -> set[str]:
    """Every text of it, as it is sent."""
    return {(one.text or "").encode("utf-8", "replace").decode().strip() for one in item.iter()}


def invents_nothing(seen: Observation, item: Element) -> None:
    """Every figure of `seen` stands in `item`, or comes from the tables that were handed over."""
    stated: Iterable[str] = texts(item)
    times = {parse_instant(text) for text in stated} | {parse_left_at(text) for text in stated}
    assert {seen.created_at, seen.started_at, seen.stopped_at} - {None} <= times
    assert seen.state in STATES
    assert all(price.rate is None or price == PRICE for price in seen.prices)
    sizes = {text.lstrip("0") or "0" for text in stated}
    assert all(disk.gb is None or str(disk.gb) in sizes for disk in seen.disks)
    kind = load_known_types().get(seen.instance_type)
    assert seen.gpu_count == (kind.gpu_count if kind and seen.kind == "instance" else 0)


def known(key: PriceKey) -> Price:
    """One price for everything."""
    return PRICE if key.instance_type else Price(None)


@FUZZ
@given(st.data())
def test_no_instance_breaks_the_reader_or_makes_it_invent(data: st.DataObject) -> None:
    item = mutated(data, "DescribeInstances")
    fields = read(item, "DescribeInstances")
    if fields is None:
        return
    try:
        seen = observe_instance(fields, PLACE, TypeAndPriceLookup(load_known_types().get, known), lambda _: None)
    except (InputError, AttributeError, TypeError):
        return  # the listing tracks it by its id alone
    invents_nothing(seen, item)


@FUZZ
@given(st.data())
def test_no_volume_breaks_the_reader_or_makes_it_invent(data: st.DataObject) -> None:
    item = mutated(data, "DescribeVolumes")
    fields = read(item, "DescribeVolumes")
    if fields is None:
        return
    try:
        seen = observe_volume(fields, PLACE, lambda _: None)
    except (InputError, AttributeError, TypeError):
        return
    invents_nothing(seen, item)


@FUZZ
@given(st.data())
def test_no_address_breaks_the_reader_or_makes_it_invent(data: st.DataObject) -> None:
    item = mutated(data, "DescribeAddresses")
    fields = read(item, "DescribeAddresses")
    if fields is None:
        return
    try:
        seen = observe_address(fields, PLACE)
    except (InputError, AttributeError, TypeError):
        return
    assert seen is None or seen.key.id in texts(item)
