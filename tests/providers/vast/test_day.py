"""A day on the fake: restarts, stops, frozen machines, disks and traffic, metered through real HTTP into a real ledger.

The truth is the simulated world's own bill, which shares nothing with costguard.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from costguard_sim.bill import charge_resource
from costguard_sim.plan import PlannedListing, WatchPlan
from costguard_sim.view import describe_as_listed, keep_knowable
from costguard_sim.world import CEILING_NANO, DAY_US, Rate, Resource, Run, Shape, World, from_us, make_world, to_us

from costguard.data import ShippedFacts
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.billing import BillingRule
from costguard.metering.inventory import COMPLETE
from costguard.services.poll.poll import poll_sources
from costguard.values.resource import ResourceKey
from tests.fakes.vast import USER, FakeVast, machine, volume
from tests.providers.vast.rig import VastRig

START = datetime(2026, 11, 20, tzinfo=UTC)
SCOPE = ("sim-vast", "main", "contracts")
PACE = timedelta(minutes=5)
SEEDS, MORE_SEEDS = (1, 2, 3), (5, 7)
MICRO = Fraction(1, 10**6)


@dataclass(slots=True)
class Compared:
    """What came of one resource."""

    id: str
    low: Fraction
    high: Fraction
    truth: Fraction
    pending: Fraction
    """What less than a GB of traffic costs: it is written down when it is a GB."""

    @property
    def is_point(self) -> bool:
        return self.low == self.high

    @property
    def is_right(self) -> bool:
        return self.low - MICRO <= self.truth <= self.high + self.pending + MICRO


def day(seed: int, tmp_path: Path, lag_s: int | None = None) -> list[Compared]:
    """Poll the world of `seed` for a day; what was charged against what is true. `lag_s`: in place of the rule's."""
    drawn = make_world(seed, start=START, days=1, size=8, clouds=("sim-vast",))
    drawn = replace(drawn, resources=(*drawn.resources, *steady()))
    times = [drawn.start_us + n * int(PACE / timedelta(microseconds=1)) for n in range(289)]
    plan = WatchPlan(seed=seed, entries=tuple(PlannedListing(scope=SCOPE, at_us=us, asked_us=us, view_us=us) for us in times))
    world = keep_knowable(drawn, plan)
    rig = VastRig()
    rig.fake = FakeVast(rig.clock, drawn.resources)
    shipped = ShippedFacts().get_billing_rules()
    rules = shipped if lag_s is None else {**shipped, "vast": replace(shipped["vast"], lag_s=lag_s)}
    return _compared(world, plan, rig, _watched(rig, times, tmp_path, rules), rules)


def steady() -> tuple[Resource, ...]:
    """What is the same all day long, and known from its first instant: a machine, a frozen and a stopped one, a volume.

    Vast states no start, so what ran before it was first seen is from nothing to all: these three begin when the watch does.
    """
    begun = to_us(START)
    usual: dict[str, Any] = {"created_us": begun, "rates": (Rate(at_us=begun, nano=401_851_853),)}
    shapes = (Shape(at_us=begun, type="1x RTX 4090", gpu="RTX-4090", gpus=1),)
    frozen = ((begun, begun + 10 * DAY_US),)
    runs = Run(start_us=begun), Run(start_us=begun, pauses=frozen), Run(start_us=begun, stop_us=begun)
    machines = (machine(9000 + n, **usual, shapes=shapes, runs=(run,)) for n, run in enumerate(runs))
    return (*machines, volume(8000, gb=333, nano=123_456_789, created_us=begun - 3 * DAY_US))


def _watched(rig: VastRig, times: list[int], tmp_path: Path, rules: Mapping[str, BillingRule]) -> str:
    """The ledger after a poll at each of `times`."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    shapes = {shape.gpu for resource in rig.fake.resources for shape in resource.shapes}
    ceilings = dict.fromkeys((*shapes, "RTX-4090", "A100-80GB-SXM"), CEILING_NANO)
    with LedgerWriter(url, rules=rules, ceilings=ceilings) as ledger, rig.opened(tmp_path, traffic_unit="MB") as source:
        for us in times:
            rig.clock.at = from_us(us)
            (done,) = poll_sources([source], ledger, rig.clock).accrued
            assert done.outcome == COMPLETE, done
    return url


def _compared(world: World, plan: WatchPlan, rig: VastRig, url: str, rules: Mapping[str, BillingRule]) -> list[Compared]:
    with SpendingReader(url, rules=rules) as books:
        spent = {one.key: one.money for one in books.spent(from_us(world.end_us))}
    found = []
    for resource in describe_as_listed(world, plan).resources:
        money = spent.pop(ResourceKey("vast", str(USER), "global", rig.fake.id_of(resource)), None)
        low, high = (Fraction(money.low.nano, 10**9), Fraction(money.high.nano, 10**9)) if money else (Fraction(0), Fraction(0))
        truth = sum((line.amount for line in charge_resource(resource, 0, to_us(from_us(world.end_us)))), Fraction(0))
        found.append(Compared(id=resource.id, low=low, high=high, truth=truth, pending=Fraction(resource.traffic_nano, 10**9)))
    return found


@pytest.mark.proof
@pytest.mark.parametrize("seed", SEEDS)
def test_a_day_on_the_fake_is_charged_as_the_world_charges_it(seed: int, tmp_path: Path) -> None:
    compared = day(seed, tmp_path)
    assert len(compared) >= 8
    assert [one for one in compared if not one.is_right] == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_what_stays_the_same_all_day_is_known_to_the_micro_dollar(seed: int, tmp_path: Path) -> None:
    """Where the listing does not lag: the shipped rule assumes that it may, by a minute."""
    compared = day(seed, tmp_path, lag_s=0)
    points = [one for one in compared if one.is_point]
    assert {one.id for one in points} >= {one.id for one in steady()}
    assert [one for one in points if abs(one.low - one.truth) > MICRO] == []
    assert [one for one in compared if not one.is_right] == []
