"""A day on the fake, polled every quarter of an hour over real HTTP into a real ledger, held against the world's own bill."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from costguard_sim.bill import charge_resource
from costguard_sim.plan import PlannedListing, WatchPlan
from costguard_sim.view import describe_as_listed, keep_knowable
from costguard_sim.world import SECOND_US, SIM_INSTANCE, SIM_VOLUME, Resource, World, make_world

from costguard.data import ShippedFacts
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.providers.transport import TokenBucket
from costguard.services.poll.poll import poll_sources
from tests.fakes.aws import FakeAws
from tests.fakes.aws_ec2_xml import disk_id, wire_id
from tests.providers.aws.rig import AwsRig

START = datetime(2026, 11, 20, tzinfo=UTC)
PACE = timedelta(minutes=15)
MICRO = Fraction(1, 10**6)
REGIONS = ["us-east-1", "eu-west-1"]


def planned(world: World) -> WatchPlan:
    """A clean listing of every scope every quarter of an hour."""
    instants = range(world.start_us, world.end_us + 1, int(PACE.total_seconds()) * SECOND_US)
    scopes = [("sim-aws", "111122223333", region) for region in REGIONS]
    entries = [PlannedListing(scope=scope, at_us=us, asked_us=us, view_us=us) for us in instants for scope in scopes]
    return WatchPlan(seed=world.seed, entries=tuple(entries))


def listed(one: Resource, world: World) -> bool:
    """Whether some poll found its disks: those of a machine that came and went between two polls stand in no listing."""
    step = int(PACE.total_seconds()) * SECOND_US
    first = world.start_us + max(0, -(-(one.created_us - world.start_us) // step)) * step
    return first <= world.end_us and (one.ended_us is None or first < one.ended_us)


def keys_of(one: Resource) -> dict[str, set[str]]:
    """The ids under which the ledger holds what a resource costs, by kind of charge."""
    if one.kind != SIM_INSTANCE:
        return {"storage" if one.kind == SIM_VOLUME else "address": {wire_id(one.id)}}
    return {"compute": {wire_id(one.id)}, "storage": {disk_id(one.id, n) for n, _ in enumerate(one.disks)}}


def watched(rig: AwsRig, world: World, tmp_path: Path) -> list[Any]:
    """What the ledger says of every resource at the end of the day."""
    rules, url = ShippedFacts().get_billing_rules(), f"sqlite:///{tmp_path}/ledger.db"
    ceilings = {shape.gpu: 16 * 10**9 for one in world.resources for shape in one.shapes if shape.gpu}
    end = START + timedelta(days=1)
    with rig.opened(tmp_path, regions=REGIONS) as source, LedgerWriter(url, rules=rules, ceilings=ceilings) as ledger:
        rig.clock.at = START
        while rig.clock.at <= end:
            poll_sources([source], ledger, rig.clock)
            rig.clock.at += PACE
    with SpendingReader(url, rules=rules) as books:
        return list(books.spent(end))


@pytest.mark.sampled(3, first=2)
@pytest.mark.parametrize("seed", [1, 2, 5])
def test_a_day_costs_what_it_costs(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        TokenBucket, "acquire", lambda *_, **__: True
    )  # a day in seconds: the pace is the world's, not this machine's
    drawn = make_world(seed, start=START, days=1, size=8, clouds=("sim-aws",))
    plan = planned(drawn)
    world = keep_knowable(drawn, plan)
    rig = AwsRig()
    rig.fake = FakeAws(rig.clock, list(world.resources))
    for kind, rate in {
        "g5.xlarge": "1.006",
        "p4d.24xlarge": "21.957642",
        "p5.48xlarge": "55.04",
        "c7i.4xlarge": "0.714",
    }.items():
        for region in REGIONS:
            rig.fake.pricing.rates.setdefault((kind, region), Decimal(rate))
    spent = {one.key.id: one.money for one in watched(rig, world, tmp_path)}
    exact = checked = 0
    for one in describe_as_listed(world, plan).resources:
        for charge, ids in keys_of(one).items():
            truth = sum((line.amount for line in charge_resource(one, 0, world.end_us) if line.charge == charge), Fraction(0))
            ours = [spent[id_] for id_ in ids if id_ in spent]
            if (not ours and not truth) or (charge == "storage" and not listed(one, world)):
                continue
            low, high = sum(Fraction(m.low.nano, 10**9) for m in ours), sum(Fraction(m.high.nano, 10**9) for m in ours)
            checked += 1
            assert low - MICRO <= truth <= high + MICRO, (one.name, charge, float(low), float(truth), float(high))
            if low == high:
                exact += 1
                assert abs(low - truth) <= MICRO
    assert checked >= 8
    assert exact
