"""Offers, the bill and the balance."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from costguard_runpod.account import RunpodAccount
from costguard_sim.bill import charge_resource
from costguard_sim.world import SIM_VOLUME, Disk, to_us

from costguard.errors import ProviderError
from costguard.values.calendar import Period
from costguard.values.money import Money
from tests.fakes.runpod import gpu_type
from tests.providers.runpod.rig import RunpodRig, plain


def test_offers_are_both_clouds_in_every_count(account: RunpodAccount) -> None:
    listing = account.list_live_offers(None)
    found = {(one.gpu, one.tier, one.gpu_count): one.rate.format() if one.rate else None for one in listing.offers}
    assert found["RTX-4090", "secure", 1] == "0.6900"
    assert found["RTX-4090", "secure", 8] == "5.5200"
    assert found["RTX-4090", "community", 4] == "1.3600"
    assert ("RTX-4090", "community", 8) not in found
    assert found["H100-SXM", "secure", 1] == "2.9900"
    assert not any(gpu == "L4" for gpu, _, _ in found), "nothing of it is left"
    assert listing.unnamed == ("NVIDIA H200 MIG 1g.34gb",)
    assert {one.region for one in listing.offers} == {"global"}
    assert {one.note for one in listing.offers if one.gpu == "H100-SXM" and one.gpu_count == 1} == {"stock for one GPU: low"}


@pytest.mark.parametrize("price", [0, None, -1, 10**6])
def test_an_offer_of_no_price_is_unknown_and_never_free(account: RunpodAccount, rig: RunpodRig, price: Any) -> None:  # noqa: ANN401
    rig.fake.catalogue[:] = [gpu_type("NVIDIA L4", 24, 0.4, 0.3, price={"secure": price, "community": 0.3})]
    rates = {one.tier: one.rate for one in account.list_live_offers(None).offers if one.gpu_count == 1}
    assert rates["secure"] is None
    assert rates["community"] is not None


def test_the_bill_is_that_of_the_world(account: RunpodAccount, rig: RunpodRig) -> None:
    now = to_us(rig.clock.now())
    rig.put(2)
    rig.let(rig.fake.resources[1].id, "stopped")
    volume = {"kind": SIM_VOLUME, "runs": (), "rates": (), "disks": (Disk(gb=100, type="network"),)}
    rig.fake.resources.append(plain("volume000001", now, **volume))
    rig.clock.at += timedelta(hours=10)
    period = Period(start=rig.clock.at - timedelta(days=2), end=rig.clock.at)
    billed = account.fetch_bill_lines(period)
    assert billed.why == ""
    for one in rig.fake.resources:
        lines = [line for line in billed.lines if line.resource_id == one.id]
        total = sum((line.amount for line in lines), Money(nano=0))
        owed = sum((line.amount for line in charge_resource(one, 0, to_us(rig.clock.at))), Fraction(0))
        assert abs(total.nano - owed * 10**9) < 1000 * len(lines)
    assert len({line.id for line in billed.lines}) == len(billed.lines)
    assert {line.charge for line in billed.lines} == {"compute", "storage"}
    at_rest = [
        line
        for line in billed.lines
        if line.resource_id == rig.fake.resources[1].id and line.start > rig.clock.at - timedelta(hours=9)
    ]
    assert {line.charge for line in at_rest if line.amount.nano} == {"storage"}, "a stopped pod bills its disk"
    assert any(line.charge == "compute" for line in at_rest), "and that it computed nothing is stated"


def test_a_bucket_that_is_not_over_for_an_hour_is_estimated_and_is_replaced_later(
    account: RunpodAccount, rig: RunpodRig
) -> None:
    rig.put(1)
    period = Period(start=rig.clock.at - timedelta(hours=3), end=rig.clock.at)
    first = {line.id: line for line in account.fetch_bill_lines(period).lines}
    estimated = {line.start for line in first.values() if line.estimated}
    assert estimated == {datetime(2026, 11, 21, 11, tzinfo=UTC)}
    rig.clock.at += timedelta(minutes=30)
    second = account.fetch_bill_lines(Period(start=period.start, end=rig.clock.at)).lines
    assert {line.start for line in second if line.estimated} == {datetime(2026, 11, 21, h, tzinfo=UTC) for h in (11, 12)}
    rig.clock.at += timedelta(hours=3)
    third = {line.id: line for line in account.fetch_bill_lines(Period(start=period.start, end=rig.clock.at)).lines}
    assert {line.id for line in second} <= third.keys()
    assert not any(third[line.id].estimated for line in second)


def test_what_has_no_resource_comes_from_the_totals(account: RunpodAccount, rig: RunpodRig) -> None:
    rig.fake.serverless_hourly = 0.25
    lines = account.fetch_bill_lines(Period(start=rig.clock.at - timedelta(hours=2), end=rig.clock.at)).lines
    assert [(line.resource_id, line.amount.format(), line.description) for line in lines] == [
        ("", "0.25", "serverless compute")
    ] * 2


def test_a_long_period_is_asked_for_in_pieces_and_no_line_comes_twice(account: RunpodAccount, rig: RunpodRig) -> None:
    rig.put(1)
    lines = account.fetch_bill_lines(Period(start=rig.clock.at - timedelta(days=20, minutes=7), end=rig.clock.at)).lines
    assert len({line.id for line in lines}) == len(lines)
    assert rig.fake.calls("/v2/billing/pods") == 3


def test_a_missing_part_of_the_bill_is_said_and_a_missing_whole_is_an_error(account: RunpodAccount, rig: RunpodRig) -> None:
    period = Period(start=rig.clock.at - timedelta(hours=2), end=rig.clock.at)
    fault = rig.fake.fault("billing/network-volumes", "status", status=403)
    assert "network-volumes" in account.fetch_bill_lines(period).why
    rig.fake.faults.remove(fault)
    rig.fake.fault("billing/pods", "status", status=403)
    with pytest.raises(ProviderError):
        account.fetch_bill_lines(period)


def test_a_balance_says_what_is_left_and_how_fast_it_goes(account: RunpodAccount) -> None:
    found = account.fetch_balance()
    assert found.amount == Money(nano=43_580_000_000)
    assert found.burn is not None
    assert found.burn_limit is not None
    assert (found.burn.format(3), found.burn_limit.format(0)) == ("0.541", "80")


@pytest.mark.parametrize(("left", "nano"), [(0, 0), (-1.5, -1_500_000_000), (1.2345678901234, 1_234_567_890)])
def test_a_balance_may_be_nothing_and_less(account: RunpodAccount, rig: RunpodRig, left: float, nano: int) -> None:
    rig.fake.myself["clientBalance"] = left
    assert account.fetch_balance().amount == Money(nano=nano)


@pytest.mark.parametrize("graph", ["errors", "gone", "page"])
def test_a_lost_graphql_is_an_unknown_balance_and_a_whole_poll(account: RunpodAccount, rig: RunpodRig, graph: str) -> None:
    rig.put(1)
    rig.fake.graph = graph
    found = account.fetch_balance()
    assert found.amount is None
    assert found.why
    assert len(account.poll(account.list_scopes()[0]).inventory.items) == 1  # type: ignore[union-attr]


def test_the_identity_is_the_user_behind_the_key(account: RunpodAccount, rig: RunpodRig) -> None:
    assert account.fetch_identity() == "user_x1"
    for graph in ("gone", "errors"):
        rig.fake.graph = graph
        assert account.fetch_identity() is None
    rig.fake.graph = "page"
    with pytest.raises(ProviderError):
        account.fetch_identity()
