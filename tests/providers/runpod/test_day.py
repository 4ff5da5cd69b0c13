"""A day on the fake: the real adapter over HTTP into a real ledger, held against the world's own bill."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from costguard_sim.bill import NANO, charge_resource
from costguard_sim.plan import PlannedListing, WatchPlan
from costguard_sim.view import describe_as_listed, find_state, keep_knowable, list_shown_instants
from costguard_sim.world import SECOND_US, SIM_INSTANCE, Resource, World, from_us, make_world, to_us

from costguard.data import ShippedFacts
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.services.poll.poll import poll_sources
from costguard.values.money import MoneyInterval
from tests.fakes.runpod import FakeRunpod, wire_id
from tests.providers.runpod.rig import RunpodRig

START = datetime(2026, 11, 20, tzinfo=UTC)
EVERY = timedelta(minutes=5)
SCOPE = ("sim-runpod", "main", "pods")
MICRO = Fraction(1, 10**6)
SEEDS = (3, 5, 6, 8)


@dataclass(slots=True)
class Compared:
    """What was compared, and how."""

    resources: int = 0
    points: int = 0
    restarts: int = 0
    volumes: int = 0
    stops: int = 0


def plan_of(world: World) -> WatchPlan:
    """A look every five minutes."""
    step = int(EVERY.total_seconds()) * SECOND_US
    looks = range(world.start_us, world.end_us + 1, step)
    return WatchPlan(
        seed=world.seed, entries=tuple(PlannedListing(scope=SCOPE, at_us=us, asked_us=us, view_us=us) for us in looks)
    )


def as_runpod(resource: Resource) -> Resource:
    """Where RunPod's rule is not the simulated cloud's: network volumes above 1 TB cost less there, so none is larger."""
    return replace(resource, disks=tuple(replace(disk, gb=min(disk.gb, 1000)) for disk in resource.disks))


def as_stated(resource: Resource, since_us: int) -> Resource:
    """RunPod never says when a network volume was made: one that is there at the first look counts from then."""
    if resource.kind == SIM_INSTANCE:
        return resource
    return replace(resource, created_us=max(resource.created_us, since_us))


def played(seed: int, tmp_path: Path) -> Compared:
    drawn = make_world(seed, start=START, days=1, size=8, clouds=("sim-runpod",))
    plan = plan_of(drawn)
    world = keep_knowable(replace(drawn, resources=tuple(map(as_runpod, drawn.resources))), plan)
    rig, rules = RunpodRig(), ShippedFacts().get_billing_rules()
    rig.fake = FakeRunpod(rig.clock, resources=world.resources)
    url = f"sqlite:///{tmp_path}/ledger-{seed}.db"
    with rig.opened(tmp_path) as source, LedgerWriter(url, rules=rules, ceilings={}) as ledger:
        for entry in plan.entries:
            rig.clock.at = from_us(entry.at_us)
            polled = poll_sources([source], ledger, rig.clock)
            assert not polled.unseen
            assert not polled.refused
    return held(describe_as_listed(world, plan), plan, url)


def held(told: World, plan: WatchPlan, url: str) -> Compared:
    """Hold what the ledger says of each resource against its bill: at the end, and as of the last look but one."""
    before = told.end_us - int(EVERY.total_seconds()) * SECOND_US
    with SpendingReader(url, rules=ShippedFacts().get_billing_rules()) as books:
        at_end = {one.key.id: one.money for one in books.spent(from_us(told.end_us))}
        earlier = {one.key.id: one.money for one in books.spent(from_us(before))}
    found = Compared()
    for one in (as_stated(one, told.start_us) for one in told.resources if list_shown_instants(one, plan)):
        found.points += agrees(at_end[wire_id(one)], one, told.end_us)
        if not any(before < us <= told.end_us for us in moments(one)):
            found.points += agrees(earlier[wire_id(one)], one, before)
        found.resources += 1
        found.volumes += one.kind != SIM_INSTANCE
        found.restarts += max(0, len([run for run in one.runs if run.start_us < told.end_us]) - 1)
        found.stops += find_state(one, told.end_us) == "stopped"
    return found


def agrees(ours: MoneyInterval, resource: Resource, until_us: int) -> bool:
    """Whether the interval is a point; its truth lies in it, and is that point to the micro-dollar."""
    bill = sum((line.amount for line in charge_resource(resource, 0, until_us)), Fraction(0))
    low, high = Fraction(ours.low.nano, NANO), Fraction(ours.high.nano, NANO)
    assert low - MICRO <= bill <= high + MICRO, (resource.id, resource.life, float(low), float(bill), float(high))
    return low == high


def moments(one: Resource) -> list[int]:
    """When anything happened to it."""
    edges = [us for run in one.runs for us in (run.start_us, run.stop_us)]
    return [us for us in (one.created_us, one.ended_us, *edges) if us is not None]


@pytest.mark.proof
def test_a_day_of_pods_and_volumes_costs_what_runpod_charges(tmp_path: Path) -> None:
    found = [played(seed, tmp_path) for seed in SEEDS]
    assert sum(one.resources for one in found) >= 30
    assert sum(one.points for one in found) >= 10
    assert sum(one.restarts for one in found) >= 3
    assert sum(one.volumes for one in found) >= 3
    assert sum(one.stops for one in found) >= 2


@pytest.mark.parametrize("seed", [101])
def test_a_day_takes_two_requests_a_poll(seed: int, tmp_path: Path) -> None:
    world = make_world(seed, start=START, days=1, size=4, clouds=("sim-runpod",))
    rig = RunpodRig()
    rig.fake = FakeRunpod(rig.clock, resources=world.resources)
    rig.clock.at = START
    with rig.opened(tmp_path) as source:
        source.poll(source.list_scopes()[0])
    assert to_us(rig.clock.at) == world.start_us
    assert len(rig.fake.asked) == 2
