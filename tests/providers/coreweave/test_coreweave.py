"""CoreWeave: what a node is here, what breaks, where its token goes, and what a day of nodes costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
import stamina
from costguard_sim.world import SECOND_US, to_us

from costguard.budgets.agreement import Agreement, apply_agreements
from costguard.data import ShippedFacts
from costguard.errors import ProviderError
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Complete, Failed, Partial
from costguard.metering.observation import Observation, Price
from costguard.metering.price_ladder import PriceLadder
from costguard.providers.transport import TokenBucket
from costguard.services.poll.poll import poll_sources
from costguard.values.money import Rate
from costguard.values.resource import ResourceKey
from tests.contract.rig import poll_of
from tests.fakes.coreweave import ZONE, Cluster
from tests.fakes.server import START
from tests.providers.coreweave.rig import HOUR_US, CoreWeaveRig, node

NOW = to_us(START)
MINUTE_US = 60 * SECOND_US


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(TokenBucket, "acquire", lambda *_, **__: True)
    with stamina.set_testing(True, attempts=3, cap=True):
        yield


@pytest.fixture
def rig() -> CoreWeaveRig:
    return CoreWeaveRig()


def list_items(rig: CoreWeaveRig, home: Path) -> dict[str, Observation]:
    with rig.opened(home) as source:
        poll = poll_of(source)
    assert isinstance(poll.inventory, Complete), poll.inventory
    return {item.key.id: item for item in poll.inventory.items}


def test_a_node_is_its_uid_with_gpus_pool_owner_and_creation_and_no_price(rig: CoreWeaveRig, tmp_path: Path) -> None:
    rig.fake.resources = [node("u-1", NOW - HOUR_US), node("u-2", NOW - HOUR_US, kind="gb200-4x", gpus=4, pool="spare")]
    listed = list_items(rig, tmp_path)
    first, second = listed["u-1"], listed["u-2"]
    assert first.key == ResourceKey("coreweave", "default", ZONE, "u-1")
    assert (first.gpu, first.gpu_count, first.instance_type, first.tier) == ("H100-SXM", 8, "gd-8xh100ib-i128", "on-demand")
    assert (first.owner, first.created_at, first.started_at) == ("alice", START - timedelta(hours=1), None)
    assert first.labels == (("cluster", "research"), ("node-pool", "train"), ("owner", "alice"))
    assert first.prices == (Price(None),)
    assert (first.handling.stops, first.handling.terminates) == (False, False)
    assert first.handling.controller == "node pool train"
    assert (second.gpu, second.gpu_count, second.tier) == ("GB200", 4, "spot")
    assert second.handling.controller == "the autoscaler of node pool spare"


def test_a_node_that_is_not_ready_or_is_checked_is_repaired_and_may_bill(rig: CoreWeaveRig, tmp_path: Path) -> None:
    rig.fake.resources = [node("u-1", NOW - HOUR_US), node("u-2", NOW - HOUR_US), node("u-3", NOW - HOUR_US)]
    rig.fake.unready["u-1"], rig.fake.lifecycle["u-2"] = (NOW - 1, NOW + 1), "triage"
    listed = list_items(rig, tmp_path)
    assert {id_: (one.state, one.why) for id_, one in listed.items()} == {
        "u-1": ("repairing", "KubeletNotReady"),
        "u-2": ("repairing", "triage"),
        "u-3": ("running", "Ready"),
    }


def test_a_list_that_expires_twice_is_failed_and_one_that_expires_once_is_read_again(rig: CoreWeaveRig, tmp_path: Path) -> None:
    rig.put(5)
    rig.page(2)
    rig.fake.fault(r"continue=", "status", status=410, times=1)
    assert len(list_items(rig, tmp_path)) == 5
    rig.fake.expired = True
    with rig.opened(tmp_path) as source:
        poll = poll_of(source)
    assert isinstance(poll.inventory, Failed)
    assert "too old" in poll.inventory.why


def test_node_pools_that_may_not_be_read_leave_every_node_on_demand_and_are_named(rig: CoreWeaveRig, tmp_path: Path) -> None:
    rig.fake.resources = [node("u-1", NOW - HOUR_US, pool="spare")]
    with rig.opened(tmp_path) as source:
        rig.fake.pool_status = 500
        assert isinstance(poll_of(source).inventory, Failed)
        rig.fake.pool_status = 403
        poll = poll_of(source)
        assert isinstance(poll.inventory, Complete)
        assert poll.inventory.items[0].tier == "on-demand"
        assert "Spot nodes count as on demand" in poll.notes[0]
        rig.fake.pool_status = 200
        assert not poll_of(source).notes
        rig.fake.pool_status = 500
        poll = poll_of(source)
        assert isinstance(poll.inventory, Complete)
        assert poll.inventory.items[0].tier == "spot"
        assert "of an earlier poll" in poll.notes[0]


def test_the_token_goes_to_no_host_but_coreweaves(rig: CoreWeaveRig, tmp_path: Path) -> None:
    rig.put(1)
    for endpoint in ("https://evil.example", "https://coreweave.com.evil.example", "http://k8s.coreweave.com", "https://a@b"):
        rig.fake.endpoint = endpoint
        with rig.opened(tmp_path) as source:
            poll = poll_of(source)
        assert isinstance(poll.inventory, Failed), endpoint
    assert rig.fake.calls("/nodes") == 0


def test_a_cluster_that_is_made_fails_alone_and_all_go_on_while_the_list_of_clusters_is_down(
    rig: CoreWeaveRig, tmp_path: Path
) -> None:
    rig.put(2)
    rig.fake.clusters.append(Cluster("c-0002", "new", status="STATUS_CREATING"))
    with rig.opened(tmp_path) as source:
        scopes = source.list_scopes()
        assert [type(source.poll(scope).inventory) for scope in scopes] == [Complete, Failed]
        rig.fake.fault("/v1beta1/cks/clusters", "status", status=500)
        assert source.list_scopes() == scopes
        assert isinstance(source.poll(scopes[0]).inventory, Complete)
    with rig.opened(tmp_path) as source, pytest.raises(ProviderError, match="500"):
        source.list_scopes()


def test_a_node_without_a_uid_makes_the_listing_partial_and_one_of_an_odd_shape_is_unknown(
    rig: CoreWeaveRig, tmp_path: Path
) -> None:
    one, two, _ = rig.put(3)
    rig.fake.spoilt = {one: [(("metadata", "uid"), None)], two: [(("metadata", "labels"), "none")]}
    with rig.opened(tmp_path) as source:
        poll = poll_of(source)
    assert isinstance(poll.inventory, Partial)
    states = {item.key.id: item.state for item in poll.inventory.items}
    assert (len(states), states[two]) == (2, "unknown")


RATE = Rate.parse("19.60", "USD")
CONTRACT = Agreement(name="contract", source="order 7", rate=RATE, types=("gd-8xh100ib-i128",))


def test_a_day_of_nodes_is_charged_by_the_agreement_and_holds_the_truth_at_each_step(rig: CoreWeaveRig, tmp_path: Path) -> None:
    """Nodes of a day at $19.60 an hour; billed is what was ready, to the minute.

    `u-1` runs all day, `u-2` is not ready from 6:00 to 8:00, `u-3` joins at 9:00 and is ready at 9:20, `u-4` of the Spot pool
    is reclaimed at 12:00 and `u-5` takes its place.
    """
    start = datetime(2026, 11, 20, tzinfo=UTC)
    zero = to_us(start)
    rig.clock.at = start
    rig.fake.resources = [
        node("u-1", zero),
        node("u-2", zero),
        node("u-3", zero + 9 * HOUR_US, boot_us=20 * MINUTE_US),
        replace(node("u-4", zero, pool="spare"), ended_us=zero + 12 * HOUR_US),
        node("u-5", zero + 12 * HOUR_US, pool="spare"),
    ]
    rig.fake.unready["u-2"] = (zero + 6 * HOUR_US, zero + 8 * HOUR_US)
    hours: dict[str, list[tuple[Fraction, int]]] = {
        "u-1": [(Fraction(0), 24)],
        "u-2": [(Fraction(0), 6), (Fraction(8), 24)],
        "u-3": [(Fraction(28, 3), 24)],
        "u-4": [(Fraction(0), 12)],
        "u-5": [(Fraction(12), 24)],
    }
    rules = ShippedFacts().get_billing_rules()
    ladder = PriceLadder(drift={}, agree=lambda one, at, known: apply_agreements([CONTRACT], one, at, known))
    url = f"sqlite:///{tmp_path}/ledger.db"
    with rig.opened(tmp_path) as source, LedgerWriter(url, rules=rules, ceilings={}, ladder=ladder) as ledger:
        for step in range(97):
            rig.clock.at = start + step * timedelta(minutes=15)
            assert not poll_sources([source], ledger, rig.clock).unseen
            if step % 8:
                continue
            with SpendingReader(url, rules=rules) as books:
                spent = {one.key.id: one.money for one in books.spent(rig.clock.at)}
            for id_, money in spent.items():
                now = Fraction(step, 4)
                run = sum((min(now, Fraction(end)) - begin for begin, end in hours[id_] if begin < now), Fraction(0))
                truth = run * RATE.nano_per_hour
                assert money.low.nano <= truth <= money.high.nano, (step, id_, money, truth)
    assert set(spent) == set(hours)
    assert spent["u-1"].expected.nano == 24 * RATE.nano_per_hour
    assert spent["u-1"].high.nano - spent["u-1"].low.nano <= RATE.nano_per_hour  # of which its first hour is in doubt
    assert spent["u-2"].high.nano - spent["u-2"].low.nano >= 2 * RATE.nano_per_hour


def test_without_an_agreement_the_list_price_of_the_gpus_is_what_is_expected(rig: CoreWeaveRig, tmp_path: Path) -> None:
    """The market's $49.24 for 8 H100: reserved and on-demand nodes cannot be told apart, so the low end is far below it."""
    from costguard.services.poll.market_prices import open_price_ladder, read_price_ceilings
    from costguard.settings import Settings

    settings = Settings()
    rig.put(1)
    url, rules = f"sqlite:///{tmp_path}/ledger.db", ShippedFacts().get_billing_rules()
    most = read_price_ceilings(settings)
    with (
        rig.opened(tmp_path) as source,
        LedgerWriter(url, rules=rules, ceilings=most, ladder=open_price_ladder(settings, most)) as ledger,
    ):
        (scope,) = poll_sources([source], ledger, rig.clock).accrued
    (observation,) = [one.observation for one in scope.logged if one.observation]
    price = observation.prices[-1]
    assert price.rate is not None
    assert price.estimate is not None
    assert price.rate.nano_per_hour == 49_240_000_000
    assert price.estimate.low < 20_000_000_000 < price.estimate.high
