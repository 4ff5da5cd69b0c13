"""Mutated real shapes: whatever EC2 answers, nothing breaks, and no time, price, size or count is invented."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from datetime import timedelta
from functools import cache
from xml.etree.ElementTree import Element

from costguard_aws.ec2_xml import parse_tree
from costguard_aws.instance_types import load_known_types
from costguard_aws.price_list import PriceKey
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


@cache
def items(action: str, name: str) -> tuple[Element, ...]:
    """Real ones, of a world."""
    world = make_world(7, start=START - timedelta(days=1), days=2, size=60, clouds=("sim-aws",))
    form = {"Action": action, "MaxResults": "1000"}
    raw = FakeAws(resources=list(world.resources)).ec2.answer(form, PLACE.account, PLACE.region, to_us(START)).body
    return tuple(item for found in parse_tree(raw, action).iter(name) for item in found)


def mutated(data: st.DataObject, action: str, name: str) -> Element:
    """One of them with up to four of its elements overwritten, doubled, emptied or left out."""
    made = copy.deepcopy(data.draw(st.sampled_from(items(action, name))))
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


def texts(item: Element) -> set[str]:
    """Every text of it."""
    return {(one.text or "").strip() for one in item.iter()}


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
    item = mutated(data, "DescribeInstances", "instancesSet")
    try:
        seen = observe_instance(item, PLACE, TypeAndPriceLookup(load_known_types().get, known), lambda _: None)
    except InputError:
        return  # the listing tracks it by its id alone
    invents_nothing(seen, item)


@FUZZ
@given(st.data())
def test_no_volume_breaks_the_reader_or_makes_it_invent(data: st.DataObject) -> None:
    item = mutated(data, "DescribeVolumes", "volumeSet")
    try:
        seen = observe_volume(item, PLACE, lambda _: None)
    except InputError:
        return
    invents_nothing(seen, item)


@FUZZ
@given(st.data())
def test_no_address_breaks_the_reader_or_makes_it_invent(data: st.DataObject) -> None:
    item = mutated(data, "DescribeAddresses", "addressesSet")
    try:
        seen = observe_address(item, PLACE)
    except InputError:
        return
    assert seen is None or seen.key.id in texts(item)
