"""An EC2 that speaks the same protocol and less of it: filters that nobody keeps, parameters and lists that are missing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from costguard_aws import api
from costguard_aws.account import AwsAccount
from costguard_sim.world import Shape, to_us

from costguard.errors import ProviderError
from costguard.metering.inventory import Partial
from costguard.values.provider import ACCEPTED, REFUSED
from costguard.values.resource import ResourceKey
from tests.contract.rig import poll_of
from tests.fakes.aws import ACCOUNT
from tests.fakes.aws_ec2_xml import wire_id
from tests.fakes.server import Answer
from tests.providers.aws.rig import HOUR_US, AwsRig, machine

NAMES = 'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"'


def key(name: str) -> ResourceKey:
    return ResourceKey("aws", ACCOUNT, "us-east-1", name)


def test_what_a_filter_finds_may_stand_on_a_later_page(rig: AwsRig, source: AwsAccount) -> None:
    one = key(rig.put(1)[0])
    empty = f"<DescribeInstancesResponse {NAMES}><reservationSet/><nextToken>MA==</nextToken></DescribeInstancesResponse>"
    rig.fake.fault(f"{rig.one}(?!.*NextToken)", "edit", edit=lambda right: replace(right, body=empty.encode()))
    assert source.look_up(one) is not None


def test_an_answer_that_speaks_of_other_things_is_not_about_this_one(rig: AwsRig, source: AwsAccount) -> None:
    rig.put(1)
    rig.fake.fault(
        "DescribeAddresses", "edit", edit=_with("<publicIp>1.2.3.4</publicIp><allocationId>eipalloc-1</allocationId>")
    )
    assert source.look_up(key("eipalloc-2")) is None
    assert source.look_up(key("eipalloc-1")) is not None


def _with(item: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 - an edit of an answer
    body = f"<DescribeAddressesResponse {NAMES}><addressesSet><item>{item}</item></addressesSet></DescribeAddressesResponse>"
    return lambda right: replace(right, body=body.encode())


def test_the_spot_request_of_another_machine_says_nothing(rig: AwsRig, source: AwsAccount) -> None:
    one = key(rig.put(1)[0])
    rig.fake.ec2.more[one.id] = {"instanceLifecycle": "spot", "spotInstanceRequestId": "sir-1"}
    rig.fake.ec2.requests["sir-1"] = "persistent"
    rig.fake.fault("DescribeSpotInstanceRequests", "edit", edit=_another_first)
    assert "would launch another" in source.terminate(one).why
    assert rig.fake.calls(rig.terminates) == 0


def _another_first(right: Answer) -> Answer:
    item = b"<item><spotInstanceRequestId>sir-0</spotInstanceRequestId><type>one-time</type><state>active</state></item>"
    return replace(right, body=right.body.replace(b"<spotInstanceRequestSet>", b"<spotInstanceRequestSet>" + item))


def test_a_region_that_is_not_opted_in_is_not_polled(rig: AwsRig, tmp_path: Path) -> None:
    more = b"<item><regionName>me-south-1</regionName><optInStatus>not-opted-in</optInStatus></item>"
    where = b"<regionInfo>"
    rig.fake.fault("DescribeRegions", "edit", edit=lambda right: replace(right, body=right.body.replace(where, where + more)))
    with rig.opened(tmp_path, regions=[]) as opened:
        assert "me-south-1" not in [scope.name for scope in opened.list_scopes()]


@pytest.mark.parametrize("kind", ["p9.48xlarge", "p5.99xlarge", "m9d.large"])
def test_a_type_that_nobody_knows_may_have_disks_that_a_stop_wipes(rig: AwsRig, source: AwsAccount, kind: str) -> None:
    start = to_us(rig.clock.now()) - HOUR_US
    made = machine(1, start_us=start, shapes=(Shape(at_us=start, type=kind),))
    rig.fake.resources.append(made)
    rig.fake.fault("DescribeInstanceTypes", "status", status=403)
    one = key(wire_id(made.id))
    assert (source.stop(one).said, rig.fake.calls(rig.stops or "")) == (REFUSED, 0)
    seen = source.look_up(one)
    assert seen is not None
    assert seen.handling.stop_loses == ("local disk of unknown size",)
    assert source.stop(one, lose=frozenset(seen.handling.stop_loses)).said == ACCEPTED


@pytest.mark.parametrize("odd", [b"{}", b'{"PriceList": null}', b"<html><body>fine</body></html>", b""])
def test_offers_of_an_aws_without_lists_are_an_error_and_not_none(rig: AwsRig, source: AwsAccount, odd: bytes) -> None:
    empty = f"<DescribeSpotPriceHistoryResponse {NAMES}/>".encode()
    rig.fake.fault("DescribeSpotPriceHistory", "status", status=200, body=empty if odd[:1] == b"{" else odd)
    rig.fake.fault("GetProducts", "status", status=200, headers={"Content-Type": "application/json"}, body=odd)
    with pytest.raises(ProviderError):
        source.list_live_offers(None)


def test_a_price_list_without_its_list_is_doubted_and_said(rig: AwsRig, source: AwsAccount) -> None:
    rig.fake.fault("GetProducts", "status", status=200, headers={"Content-Type": "application/json"}, body=b"{}")
    assert "PriceList" in source.list_live_offers(None).why


def test_more_machines_than_the_cap_are_partial(rig: AwsRig, source: AwsAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    assert api.MOST_ITEMS == 50_000
    monkeypatch.setattr(api, "MOST_ITEMS", 4)
    monkeypatch.setattr(api.Ec2Api._read_pages, "__kwdefaults__", {"size": 1000, "most": 4})
    rig.put(7)
    rig.page(2)
    poll = poll_of(source)
    assert isinstance(poll.inventory, Partial)
    assert re.search("more than 4 items", poll.inventory.why)
