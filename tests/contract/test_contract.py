"""The contract: what every adapter keeps, whatever its cloud answers. This file: listings, pages and broken answers.

Run it for one adapter with `-k vast`.
"""

from __future__ import annotations

import time
import tracemalloc

import pytest

from costguard.metering.inventory import Complete, Failed, Partial
from tests.contract import edits
from tests.contract.case import QUICK_S, Case, ids, instances, is_complete, items, said
from tests.fakes.server import Answer, FakeCloud, serving

MIB = 2**20
BREAKS = {
    "500": ("status", {"status": 500}),
    "429": ("status", {"status": 429}),
    "reset": ("reset", {}),
    "truncated": ("truncated", {}),
    "short": ("short", {}),
    "html": ("html", {"status": 200}),
}
ODD_BODIES = {
    "array": b"[]",
    "object": b"{}",
    "null": b"null",
    "text": b'""',
    "zero": b"0",
    "cut JSON": b'{"items": [{"id": "a',
    "cut XML": b'<?xml version="1.0"?><DescribeInstancesResponse><reservationSet><item>',
    "empty": b"",
    "blank": b" \n",
    "NUL": b"\0\0\0\0",
    "not UTF-8": b'{"items": ["\xff\xfe"]}',
    "error with 200": b'{"error": {"code": 500, "message": "internal"}}',
}


def test_a_listing_holds_every_machine_once(case: Case) -> None:
    there = case.rig.put(3)
    poll = case.poll()
    assert isinstance(poll.inventory, Complete), poll.inventory
    assert ids(poll) == set(there)
    assert all(item.state == "running" for item in instances(poll)), instances(poll)


def test_a_cloud_without_machines_is_complete_and_empty(case: Case) -> None:
    poll = case.poll()
    assert isinstance(poll.inventory, Complete), poll.inventory
    assert not instances(poll)


def test_asked_twice_gives_the_same(case: Case) -> None:
    case.rig.put(3)
    first, second = case.poll(), case.poll()
    assert set(items(first)) == set(items(second))
    assert first.notes == second.notes


def test_scopes_are_the_same_before_and_after_a_poll_and_from_a_second_account_object(case: Case) -> None:
    before = list(case.source.list_scopes())
    case.poll()
    assert list(case.source.list_scopes()) == before
    assert list(case.open().list_scopes()) == before


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_pages_in_any_split_give_every_machine_once(case: Case, size: int) -> None:
    there = case.rig.put(9)
    case.rig.page(size)
    poll = case.poll()
    assert isinstance(poll.inventory, Complete), poll.inventory
    assert ids(poll) == set(there)
    assert len(items(poll)) == len({item.key for item in items(poll)})


@pytest.mark.sampled(6)
@pytest.mark.parametrize("how", BREAKS)
def test_a_broken_first_page_is_failed(case: Case, how: str) -> None:
    case.rig.put(3)
    kind, more = BREAKS[how]
    case.rig.fake.fault(case.rig.lists, kind, **more)
    assert isinstance(case.poll().inventory, Failed)
    assert case.rig.fake.calls(case.rig.lists), "Rig.lists matches no request"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("how", BREAKS)
def test_a_broken_later_page_is_partial_and_keeps_what_came_before(case: Case, how: str) -> None:
    there = _paged(case, 6, 2)
    kind, more = BREAKS[how]
    for page in (1, 2):
        case.rig.fake.faults.clear()
        case.rig.fake.fault(case.rig.lists, kind, skip=page, **more)
        poll = case.poll()
        assert isinstance(poll.inventory, Partial), poll.inventory
        assert ids(poll) <= set(there)
        assert len(ids(poll)) == 2 * page


def _paged(case: Case, count: int, size: int) -> list[str]:
    if not case.rig.paged:
        pytest.skip(f"{case.rig.provider} has no pages")
    case.rig.page(size)
    return case.rig.put(count)


def test_a_page_that_fails_once_is_asked_again_and_the_listing_is_whole(case: Case) -> None:
    there = case.rig.put(3)
    case.rig.fake.fault(case.rig.lists, "status", status=503, times=1)
    poll = case.poll()
    assert isinstance(poll.inventory, Complete), poll.inventory
    assert ids(poll) == set(there)


@pytest.mark.sampled(3)
def test_a_page_that_never_comes_is_partial_within_the_deadline(case: Case) -> None:
    _paged(case, 6, 2)
    case.rig.fake.fault(case.rig.lists, "delay", seconds=60, skip=1)
    source = case.open(timeout_s=QUICK_S)
    began = time.monotonic()
    poll = case.poll(source)
    assert time.monotonic() - began < _patience(case)
    assert isinstance(poll.inventory, Partial), poll.inventory
    assert len(ids(poll)) == 2


def _patience(case: Case) -> float:
    """Seconds after which a poll with QUICK_S has broken its word, however busy the machine: the fakes hang for 60."""
    return case.rig.slow_s * 15


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "status", [400, 401, 402, 403, 404, 405, 409, 410, 418, 422, 429, 500, 501, 502, 503, 504, 520, 204, 206]
)
def test_an_error_is_failed_and_never_empty(case: Case, status: int) -> None:
    case.rig.put(2)
    case.rig.fake.fault(case.rig.lists, "status", status=status)
    assert isinstance(case.poll().inventory, Failed)


@pytest.mark.parametrize("status", [200, 401, 403, 404, 500, 503])
def test_a_web_page_is_failed(case: Case, status: int) -> None:
    case.rig.put(2)
    case.rig.fake.fault(case.rig.lists, "html", status=status)
    assert isinstance(case.poll().inventory, Failed)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("body", ODD_BODIES)
def test_an_odd_body_is_failed_and_never_empty(case: Case, body: str) -> None:
    case.rig.put(2)
    case.rig.fake.fault(case.rig.lists, "body", body=ODD_BODIES[body])
    assert isinstance(case.poll().inventory, Failed)


def test_a_listing_under_another_name_is_failed(case: Case) -> None:
    case.rig.put(2)
    case.rig.fake.fault(case.rig.lists, "edit", edit=edits.renamed)
    assert isinstance(case.poll().inventory, Failed)


def test_a_failing_cloud_is_asked_a_few_times_and_no_more(case: Case) -> None:
    case.rig.fake.fault(case.rig.lists, "status", status=503)
    case.poll()
    assert 1 <= case.rig.fake.calls(case.rig.lists) <= 4


def test_a_retry_after_of_a_day_is_not_waited_for(case: Case) -> None:
    case.rig.fake.fault(case.rig.lists, "status", status=429, headers={"Retry-After": "86400"})
    source = case.open(timeout_s=QUICK_S)
    began = time.monotonic()
    assert isinstance(case.poll(source).inventory, Failed)
    assert time.monotonic() - began < _patience(case)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", ["drip", "delay"])
def test_a_slow_drip_and_a_black_hole_end_within_the_deadline(case: Case, kind: str) -> None:
    case.rig.put(1)
    case.rig.fake.fault(case.rig.lists, kind, seconds=60)
    source = case.open(timeout_s=QUICK_S)
    began = time.monotonic()
    assert isinstance(case.poll(source).inventory, Failed)
    assert time.monotonic() - began < _patience(case)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["bomb", "deep"])
def test_a_gzip_bomb_and_deep_json_are_refused_in_little_memory(case: Case, kind: str) -> None:
    case.rig.put(1)
    case.poll()
    case.rig.fake.fault(case.rig.lists, kind)
    tracemalloc.start()
    try:
        poll = case.poll()
        assert tracemalloc.get_traced_memory()[1] < 64 * MIB
    finally:
        tracemalloc.stop()
    assert isinstance(poll.inventory, Failed)


class Bystander(FakeCloud):
    """A host that nobody should ask."""

    def answer(self, asked: object) -> Answer:  # noqa: ARG002 - the fake's signature
        return Answer.of({})


@pytest.mark.sampled(6)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(case: Case, status: int) -> None:
    other = Bystander()
    case.rig.put(1)
    with serving(other) as base:
        case.rig.fake.fault(case.rig.lists, "status", status=status, headers={"Location": f"{base}/x"})
        assert isinstance(case.poll().inventory, Failed)
    assert other.asked == []


@pytest.mark.sampled(6)
def test_more_machines_than_the_cap_are_partial(case: Case) -> None:
    if case.rig.cap is None:
        pytest.skip("its own tests lower the cap, and try it")
    case.rig.put(case.rig.cap + 50)
    case.rig.page(1000)
    poll = case.poll()
    assert not is_complete(poll)
    assert len(instances(poll)) <= case.rig.cap


def test_a_page_token_that_leads_in_a_circle_ends_and_is_partial(case: Case) -> None:
    _paged(case, 6, 2)
    case.rig.fake.fault(case.rig.lists, "edit", edit=edits.replaying(2))
    poll = case.poll()
    assert isinstance(poll.inventory, Partial), poll.inventory
    assert case.rig.fake.calls(case.rig.lists) <= 5


def test_the_order_of_a_listing_means_nothing(case: Case) -> None:
    case.rig.put(5)
    first = case.poll()
    if not case.rig.shuffle():
        case.rig.fake.fault(case.rig.lists, "edit", edit=edits.shuffled)
    assert set(items(case.poll())) == set(items(first))


def test_a_machine_on_two_pages_is_there_once(case: Case) -> None:
    _paged(case, 6, 2)
    given = list[object]()

    def twice(right: Answer) -> Answer:
        value = edits.parsed(right)
        found = value is not None and edits.machine_list(value)
        if not found:
            return right
        path, machines = found
        given[:] = given or machines[:1]
        return edits.with_body(right, edits.put(value, path, [*given, *machines[len(given) if machines[:1] == given else 0 :]]))

    case.rig.fake.fault(case.rig.lists, "edit", edit=twice)
    poll = case.poll()
    assert len(ids(poll)) == 6
    assert isinstance(poll.inventory, Complete), said(poll)


def test_one_scope_that_fails_does_not_touch_another(case: Case) -> None:
    two = case.rig.two_scopes()
    if two is None:
        pytest.skip(f"an account of {case.rig.provider} is one scope")
    settings, first = two
    source = case.open(**settings)
    case.rig.fake.fault(first, "status", status=500)
    outcomes = [is_complete(case.poll(source, scope)) for scope in source.list_scopes()]
    assert sorted(outcomes) == [False, *[True] * (len(outcomes) - 1)]
    assert len(outcomes) > 1
