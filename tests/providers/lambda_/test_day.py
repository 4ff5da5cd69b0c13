"""A day of a simulated Lambda over real HTTP, adapter, poll and ledger, held against the cloud's own bill.

Left out is only what no listing could tell of: a machine that came and went, or was only seen booting. Where the key may not
read the audit log, what was there at the first poll counts from then on.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from costguard_sim.bill import charge_resource
from costguard_sim.view import clip_before
from costguard_sim.world import CEILING_NANO, SIM_INSTANCE, Resource, World, make_world, to_us

from costguard.data import ShippedFacts
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.spending import LifetimeCost
from costguard.services.poll.poll import poll_sources
from costguard.values.money import NANO
from costguard.values.resource import ResourceKey
from tests.fakes.lambda_ import FakeLambda, wire_id
from tests.providers.lambda_.rig import LambdaRig

START = datetime(2026, 11, 20, 6, 30, tzinfo=UTC)
END = START + timedelta(days=1)
EVERY = timedelta(minutes=5)
SEEDS = (1, 2, 15, 58)
MICRO = 1000
"""Nano-dollars in a micro-dollar."""
SETTLED = timedelta(minutes=10)
"""Before the end everything is settled that still runs then: the listing may lag by a minute, so the last one never is."""


@dataclass
class Day:
    """What a day came to."""

    rig: LambdaRig
    world: World
    sights: dict[str, list[str]]
    spent: dict[ResourceKey, LifetimeCost]
    earlier: dict[ResourceKey, LifetimeCost]
    polls: int = 0


def watched(seed: int, tmp_path: Path, *, log: bool) -> Day:
    """The world of `seed`, polled every five minutes into a ledger on SQLite."""
    world = make_world(seed, start=START, days=1, size=8, clouds=("sim-lambda",))
    rig = LambdaRig()
    rig.fake.resources, rig.fake.log = list(world.resources), log
    day = Day(rig=rig, world=world, sights={one.id: [] for one in world.resources}, spent={}, earlier={})
    rules, url = ShippedFacts().get_billing_rules(), f"sqlite:///{tmp_path}/ledger.db"
    ceilings = {"A10": CEILING_NANO, "H100-SXM": CEILING_NANO}
    with rig.opened(tmp_path) as source, LedgerWriter(url, rules=rules, ceilings=ceilings) as ledger:
        at = START
        while at <= END:
            rig.clock.at = at
            for one in world.resources:
                day.sights[one.id] += [_word(rig.fake, one)]
            polled = poll_sources([source], ledger, rig.clock)
            assert not polled.unseen, polled
            day.polls, at = day.polls + 1, at + EVERY
    with SpendingReader(url, rules=rules) as books:
        day.spent = {one.key: one for one in books.spent(END)}
        day.earlier = {one.key: one for one in books.spent(END - SETTLED)}
    return day


def _word(fake: FakeLambda, one: Resource) -> str:
    """What the listing shows now of `one`; "" for nothing."""
    if one.kind == SIM_INSTANCE:
        return (fake.status(one) or "").replace("terminated", "")
    now = to_us(fake.clock.now())
    return "there" if one.created_us <= now and (one.ended_us is None or now < one.ended_us) else ""


def truth(day: Day, one: Resource, until: datetime) -> Fraction | None:
    """Nano-dollars truly owed before `until`, as far as the listings could tell; None: they told of nothing that bills."""
    words = set(day.sights[one.id]) - {"", "booting"}
    if not words:
        return None
    if one.kind == SIM_INSTANCE and not day.rig.fake.log:
        first = day.sights[one.id][0]
        one = clip_before(one, day.world.start_us if first else None)
    return NANO * sum((line.amount for line in charge_resource(one, 0, to_us(until))), Fraction(0))


def key_of(one: Resource) -> ResourceKey:
    return ResourceKey("lambda", "default", one.region, wire_id(one.id))


def outside(ours: LifetimeCost, true: Fraction) -> bool:
    """Whether the truth lies outside of the interval, or beside it where that is a point."""
    low, high, half = ours.money.low.nano, ours.money.high.nano, Fraction(3 * ours.spans, 2)
    return not low - half <= true <= high + half or (low == high and abs(true - low) > MICRO)


@pytest.mark.proof
@pytest.mark.parametrize("log", [True, False], ids=["with the audit log", "without it"])
def test_every_truth_of_a_day_lies_in_its_interval_and_is_met_where_that_is_a_point(tmp_path: Path, *, log: bool) -> None:
    checked, points, polls, calls = 0, 0, 0, 0
    for seed in SEEDS:
        folder = tmp_path / str(seed)
        folder.mkdir()
        day = watched(seed, folder, log=log)
        polls, calls = polls + day.polls, calls + len(day.rig.fake.asked)
        for one in day.world.resources:
            true, ours = truth(day, one, END), day.spent.get(key_of(one))
            if true is None:
                assert ours is None or not ours.money.low.nano
                continue
            assert ours is not None, one
            assert not outside(ours, true), (seed, one, ours, float(true))
            checked += 1
            if day.sights[one.id][-1] in ("active", "there"):
                before, settled = day.earlier[key_of(one)], truth(day, one, END - SETTLED)
                assert settled is not None
                assert not outside(before, settled), (seed, one, before, float(settled))
                checked, points = checked + 1, points + (before.money.low == before.money.high)
    assert checked > 5 * len(SEEDS)
    assert points > 0 or log, "with a bound from the log, every start is an interval"
    assert calls < 2.2 * polls
