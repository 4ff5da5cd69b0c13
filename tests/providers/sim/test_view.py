"""Listings: each cloud states what its vendor would, and no more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from costguard_sim.clouds import SimClouds
from costguard_sim.plan import PlannedListing, WatchPlan
from costguard_sim.view import make_poll, observe_resource
from costguard_sim.world import (
    CLOUDS,
    SCOPES,
    SECOND_US,
    Rate,
    Resource,
    Run,
    Shape,
    Tag,
    World,
)

from costguard.metering.inventory import Complete, Failed, Partial
from costguard.metering.observation import Observation
from costguard.values.resource import ScopeKey

START = datetime(2026, 11, 20, tzinfo=UTC)
ZERO = 1_795_132_800 * SECOND_US
HOUR = 3600 * SECOND_US


def machine(cloud: str, **changes: object) -> Resource:
    """Created at 0 h, on from 1 h to 2 h and from 4 h to 6 h, deleted at 8 h; its price moves at 3 h."""
    account, scope = SCOPES[cloud][0]
    facts: dict[str, object] = {
        "cloud": cloud,
        "account": account,
        "scope": scope,
        "region": scope,
        "id": "x",
        "name": "x",
        "kind": "instance",
        "created_us": ZERO,
        "ended_us": ZERO + 8 * HOUR,
        "runs": (Run(start_us=ZERO + HOUR, stop_us=ZERO + 2 * HOUR), Run(start_us=ZERO + 4 * HOUR, stop_us=ZERO + 6 * HOUR)),
        "rates": (Rate(at_us=ZERO, nano=10**9), Rate(at_us=ZERO + 3 * HOUR, nano=2 * 10**9)),
        "shapes": (Shape(at_us=ZERO, type="big", gpu="H100-SXM", gpus=8),),
        "tags": (Tag(at_us=ZERO, owner="ana"), Tag(at_us=ZERO + 5 * HOUR, owner="ben")),
    }
    return Resource(**{**facts, **changes})  # type: ignore[arg-type]  # facts by name, checked when it runs


def seen(resource: Resource, hours: float) -> Observation | None:
    return observe_resource(resource, ZERO + round(hours * HOUR))


def at(hours: float) -> datetime:
    return START + timedelta(hours=hours)


@pytest.mark.parametrize(
    ("cloud", "created", "started", "stopped"),
    [
        ("sim-aws", at(0), at(4), None),
        ("sim-gcp", at(0), at(4), at(2)),
        ("sim-runpod", at(0), at(4), None),
        ("sim-lambda", None, None, None),
        ("sim-vast", at(0), None, None),
    ],
)
def test_a_running_machine_states_what_its_cloud_states(
    cloud: str, created: datetime | None, started: datetime | None, stopped: datetime | None
) -> None:
    running = seen(machine(cloud), 5)
    assert running is not None
    assert (running.state, running.owner, running.gpu, running.gpu_count) == ("running", "ben", "H100-SXM", 8)
    assert (running.created_at, running.started_at, running.stopped_at) == (created, started, stopped)


@pytest.mark.parametrize(
    ("cloud", "stopped"),
    [("sim-aws", at(6)), ("sim-gcp", at(6)), ("sim-runpod", None), ("sim-lambda", None), ("sim-vast", None)],
)
def test_a_stopped_machine_states_its_end_where_its_cloud_does(cloud: str, stopped: datetime | None) -> None:
    off = seen(machine(cloud), 7)
    assert off is not None
    assert (off.state, off.stopped_at) == ("stopped", stopped)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_only_aws_lists_a_machine_that_is_gone_and_for_an_hour(cloud: str) -> None:
    gone = seen(machine(cloud), 8.5)
    assert (gone is not None) == (cloud == "sim-aws")
    assert gone is None or (gone.state, gone.stopped_at) == ("ended", at(8))
    assert seen(machine(cloud), 9) is None
    assert observe_resource(machine(cloud), ZERO - 1) is None


def test_a_spot_machine_of_aws_dates_its_prices_and_nobody_else_does() -> None:
    spot = seen(machine("sim-aws", tier="spot"), 5)
    assert spot is not None
    assert [(p.rate and p.rate.nano_per_hour, p.since) for p in spot.prices] == [(10**9, at(0)), (2 * 10**9, at(3))]
    for cloud in CLOUDS:
        plain = seen(machine(cloud), 5)
        assert plain is not None
        assert [(p.rate and p.rate.nano_per_hour, p.since) for p in plain.prices] == [(2 * 10**9, None)]


def world_of(*resources: Resource) -> World:
    return World(seed=0, start_us=ZERO, end_us=ZERO + 9 * HOUR, resources=resources)


def entry(**changes: object) -> PlannedListing:
    us = ZERO + 5 * HOUR
    facts: dict[str, object] = {"scope": ("sim-gcp", "acme", "lab"), "at_us": us, "asked_us": us, "view_us": us}
    return PlannedListing(**{**facts, **changes})  # type: ignore[arg-type]  # facts by name, checked when it runs


THREE = world_of(*(machine("sim-gcp", id=name) for name in "abc"))


def ids(world: World, one: PlannedListing) -> list[str]:
    inventory = make_poll(world, one).inventory
    assert isinstance(inventory, Complete | Partial)
    return [item.key.id for item in inventory.items]


def test_a_clean_listing_holds_all_of_its_scope_and_nothing_else() -> None:
    assert ids(world_of(*THREE.resources, machine("sim-aws")), entry()) == ["a", "b", "c"]
    assert ids(THREE, entry(scope=("sim-gcp", "acme", "prod"))) == []


def test_items_come_shuffled_doubled_and_late_as_planned() -> None:
    assert sorted(ids(THREE, entry(salt=5))) == ["a", "b", "c"]
    assert any(ids(THREE, entry(salt=salt)) != ["a", "b", "c"] for salt in range(1, 9))
    assert ids(THREE, entry(twice=("b",))) == ["a", "b", "b", "c"]
    inventory = make_poll(THREE, entry(late=(("b", ZERO + 3 * HOUR),))).inventory
    assert isinstance(inventory, Complete)
    assert [item.state for item in inventory.items] == ["running", "stopped", "running"]


class Still:
    """A clock that shows what it was set to."""

    def __init__(self, now: datetime) -> None:
        self.time = now

    def now(self) -> datetime:
        return self.time


def test_the_provider_lists_its_scopes_at_the_time_of_its_clock() -> None:
    clock = Still(START + timedelta(days=3))
    sim = SimClouds(clock=clock, seed=3)
    scopes = sim.list_scopes()
    assert len(scopes) > 3
    polls = [sim.poll(scope) for scope in scopes]
    assert all(poll.at == clock.time and isinstance(poll.inventory, Complete) for poll in polls)
    assert sum(len(p.inventory.items) for p in polls if isinstance(p.inventory, Complete)) > 3


def test_the_provider_follows_its_plan() -> None:
    sim = SimClouds(clock=Still(at(5)), world=THREE, plan=WatchPlan(seed=0, entries=(entry(fault="500"),), hidden=("a",)))
    scope = ScopeKey("sim-gcp", "acme", "lab")
    assert isinstance(sim.poll(scope).inventory, Failed)
    sim.clock = Still(at(5.5))
    inventory = sim.poll(scope).inventory
    assert isinstance(inventory, Complete)
    assert [bool(item.prices) for item in inventory.items] == [False, True, True]
