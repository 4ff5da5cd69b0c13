"""A page that is cut into items says what the same page says as one tree; and a page that is broken anywhere is lost."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from xml.etree.ElementTree import Element, tostring

import pytest
from costguard_aws.ec2_pages import CutShortError, ItemPage, read_page
from costguard_aws.ec2_xml import parse_tree, read_text
from costguard_sim.world import make_world, to_us
from hypothesis import given, settings
from hypothesis import strategies as st

from costguard.errors import InvalidAnswerError
from tests.fakes.aws import FakeAws
from tests.fakes.server import START

INSTANCES, VOLUMES = "DescribeInstances", "DescribeVolumes"
WITHIN = {INSTANCES: ("reservationSet", "instancesSet"), VOLUMES: ("volumeSet", "volumeSet")}


@cache
def body(action: str) -> bytes:
    """What the fake answers of a world."""
    world = make_world(3, start=START - timedelta(days=1), days=2, size=80, clouds=("sim-aws",))
    form = {"Action": action, "MaxResults": "1000"}
    return FakeAws(resources=list(world.resources)).ec2.answer(form, "111122223333", "us-east-1", to_us(START)).body


def unpack(rows: Element, action: str) -> list[Element]:
    if action == VOLUMES:
        return list(rows)
    return [item for one in rows for item in (list(one.find("instancesSet") or ()) or [one])]


def read(raw: bytes, action: str, number: int = 1) -> tuple[Element, ItemPage]:
    name, within = WITHIN[action]
    return read_page(raw, action, name, number, within=within, unpack=lambda rows: unpack(rows, action))


def text_of(item: Element) -> bytes:
    """Its canonical text, without what stands behind it."""
    item.tail = None
    return tostring(item)


def items(raw: bytes, action: str) -> list[bytes]:
    """Every item of a page, however it was read, as canonical text; nothing if the page is refused."""
    _, page = read(raw, action)
    found = [item for lot in page.parse_pieces(page.pieces) for item in lot]
    return [text_of(one) for one in (*found, *page.elements)]


def whole(raw: bytes, action: str) -> list[bytes] | None:
    """The same of one tree; None if it is no answer."""
    try:
        rows = parse_tree(raw, action).find(WITHIN[action][0])
    except InvalidAnswerError:
        return None
    return None if rows is None else [text_of(one) for one in unpack(rows, action)]


@pytest.mark.parametrize("action", [INSTANCES, VOLUMES])
def test_a_real_page_is_cut_into_the_items_of_its_tree(action: str) -> None:
    raw = body(action)
    root, page = read(raw, action)
    assert len(page.pieces) > 5
    assert not page.elements
    assert items(raw, action) == whole(raw, action)
    assert read_text(root, "requestId") == read_text(parse_tree(raw, action), "requestId")
    assert all(piece in raw for piece in page.pieces)


ODD = (
    b"<!-- <item>x</item> -->",
    b"<![CDATA[<item>]]>",
    b"<?pi <item> ?>",
    b"<item/>",
    b"<item a='1'>",
    b"</item >",
    b"<item>",
    b"</item>",
    b"<instancesSet>",
    b"</instancesSet>",
    b"<instancesSet/>",
    b"<volumeSet>",
    b"</volumeSet>",
    b"<cut/>",
    b"<x xmlns='y'/>",
    b"<n:x xmlns:n='y'/>",
    b"&lt;item&gt;",
    b"&amp;",
    b"&#60;item>",
    b"&nothing;",
    b"<a b='<item>'/>",
    b"<a b='>'/>",
    b"\n\t ",
    b"\xc3\xa9",
    b"\xff",
    b"\x00",
    b"<",
    b"",
)


def agrees(raw: bytes, action: str) -> None:
    """The page as pieces says the same as its tree, or it is refused; what the tree refuses is refused."""
    known = whole(raw, action)
    try:
        found = items(raw, action)
    except InvalidAnswerError:
        found = None
    if known is None:
        assert found is None
    else:
        assert found in (known, None) if b"<item a" in raw or b"</item >" in raw else found == known


@pytest.mark.parametrize("action", [INSTANCES, VOLUMES])
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_whatever_stands_in_a_page_the_pieces_say_what_the_tree_says(action: str, data: st.DataObject) -> None:
    raw = body(action)
    for _ in range(data.draw(st.integers(1, 3))):
        borders = [0, len(raw), *(i + 1 for i, c in enumerate(raw) if c == ord(">"))]
        at = data.draw(st.sampled_from(borders) | st.integers(0, len(raw)))
        cut = data.draw(st.sampled_from([0, 0, 1, 6, 40]))
        raw = raw[:at] + data.draw(st.sampled_from(ODD)) + raw[at + cut :]
    agrees(raw, action)


SMALL = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<DescribeInstancesResponse xmlns="http://ec2.example/"><reservationSet>'
    b"<item><groupSet><item><groupId>g</groupId></item></groupSet><instancesSet>"
    b"<item><instanceId>i-1</instanceId><tagSet><item><key>a</key><value>x &lt;item&gt; \xc3\xa9</value></item></tagSet></item>"
    b"\n  <item><instanceId>i-2</instanceId><groupSet/></item></instancesSet></item>"
    b"<item><instancesSet><item><instanceId>i-3</instanceId></item></instancesSet></item>"
    b"</reservationSet><nextToken>t</nextToken></DescribeInstancesResponse>"
)


def test_a_page_that_is_truncated_at_any_byte_is_no_answer() -> None:
    assert [b"i-1" in items(SMALL, INSTANCES)[0], len(items(SMALL, INSTANCES))] == [True, 3]
    for at in range(len(SMALL)):
        with pytest.raises(InvalidAnswerError):
            items(SMALL[:at], INSTANCES)


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_thing_at_any_byte_changes_pieces_as_it_changes_the_tree(odd: bytes) -> None:
    for at in range(len(SMALL)):
        agrees(SMALL[:at] + odd + SMALL[at:], INSTANCES)


def test_a_later_page_with_a_broken_item_is_lost_and_says_which() -> None:
    raw = SMALL.replace(b"<instanceId>i-2</instanceId>", b"<instanceId>i-2<instanceId>")
    _, page = read(raw, INSTANCES, number=3)
    with pytest.raises(CutShortError, match="page 3 of DescribeInstances was lost"):
        list(page.parse_pieces(page.pieces))


def test_a_list_without_items_is_an_empty_page_and_a_reservation_without_instances_an_item() -> None:
    head, tail = b"<DescribeInstancesResponse><reservationSet>", b"</reservationSet></DescribeInstancesResponse>"
    assert items(head + tail, INSTANCES) == []
    bare = b"<item><reservationId>r-1</reservationId><instancesSet/></item>"
    full = b"<item><instancesSet><item><instanceId>i-1</instanceId></item></instancesSet></item>"
    assert [b"r-1" in one for one in items(head + full + bare + tail, INSTANCES)] == [False, True]
    with pytest.raises(InvalidAnswerError):
        items(b"<DescribeInstancesResponse><instancesSet><item>a</item></instancesSet></DescribeInstancesResponse>", INSTANCES)
