"""Worlds and plans: the same for the same seed, within their declared limits, and as varied as they claim."""

from __future__ import annotations

import ast
import hashlib
import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import costguard_sim
import pytest
from costguard_sim.bill import list_owed, make_bill, sum_lines
from costguard_sim.plan import LIES_MOST, make_plan
from costguard_sim.world import (
    APART_S,
    CEILING_NANO,
    CLOUDS,
    LAG_S,
    LIVES,
    OFF_LEAST_S,
    RUN_LEAST_S,
    SECOND_US,
    World,
    from_us,
    make_world,
)

START = datetime(2026, 11, 20, tzinfo=UTC)
FOLDER = Path(costguard_sim.__file__).parent
SEEDS = range(60)


def fortnight(seed: int) -> World:
    return make_world(seed, start=START, days=14, size=20)


WORLDS = [fortnight(seed) for seed in SEEDS]
PLANS = [
    make_plan(seed, world, polls=60, pace_s=(300, 7200), longest_s=20_000) for seed, world in zip(SEEDS, WORLDS, strict=True)
]
DIGEST = """
import hashlib
from datetime import UTC, datetime
from costguard_sim.bill import list_owed
from costguard_sim.plan import make_plan
from costguard_sim.world import make_world
world = make_world(7, start=datetime(2026, 11, 20, tzinfo=UTC), days=14, size=20)
said = repr((world, make_plan(7, world), list_owed(world, datetime(2027, 1, 1, tzinfo=UTC))))
print(hashlib.sha256(said.encode()).hexdigest())
"""


@pytest.mark.parametrize("hash_seed", ["1", "4242"])
def test_a_seed_gives_the_same_world_plan_and_bill_in_every_process(hash_seed: str) -> None:
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run([sys.executable, "-c", DIGEST], env=env, capture_output=True, text=True, check=True).stdout.strip()
    here = repr((fortnight(7), make_plan(7, fortnight(7)), list_owed(fortnight(7), datetime(2027, 1, 1, tzinfo=UTC))))
    assert told == hashlib.sha256(here.encode()).hexdigest()


@pytest.mark.parametrize("module", ["world.py", "bill.py", "plan.py"])
def test_the_truth_imports_nothing_of_costguard(module: str) -> None:
    names = [
        name
        for node in ast.walk(ast.parse((FOLDER / module).read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    ]
    assert names
    assert not [name for name in names if name.split(".")[0] == "costguard"]
    assert module != "bill.py" or not [name for name in names if "view" in name or "plan" in name]


def test_bills_of_adjoining_periods_add_up_to_the_truth() -> None:
    cuts = [
        datetime(2000, 1, 1, tzinfo=UTC),
        START,
        START + timedelta(days=3, microseconds=1),
        datetime(2026, 12, 1, tzinfo=UTC),
    ]
    for world in WORLDS[:20]:
        parts = sum(sum_lines(make_bill(world, a, b)) for a, b in pairwise(cuts))
        assert parts == sum_lines(list_owed(world, cuts[-1])) > 0


def test_worlds_keep_their_declared_limits() -> None:
    for resource in (resource for world in WORLDS for resource in world.resources):
        cloud, runs = resource.cloud, resource.runs
        for run in runs:
            assert run.stop_us is None or run.stop_us - run.start_us >= RUN_LEAST_S[cloud] * SECOND_US
            assert resource.created_us <= run.start_us - run.boot_us
            assert resource.ended_us is None or (run.stop_us is not None and run.stop_us <= resource.ended_us)
        for before, following in pairwise(runs):
            assert before.stop_us is not None
            assert following.start_us - before.stop_us >= OFF_LEAST_S[cloud] * SECOND_US
        if cloud == "sim-lambda":
            assert len(runs) <= 1
        if cloud == "sim-aws":
            times = [resource.created_us, *(r.start_us for r in runs), *(r.at_us for r in resource.rates)]
            assert all(us % SECOND_US == 0 for us in times)
        if cloud in {"sim-gcp", "sim-vast"}:
            assert all(b.at_us - a.at_us >= APART_S * SECOND_US for a, b in pairwise(resource.rates))
        dearest = max((rate.nano for rate in resource.rates), default=0)
        assert dearest <= CEILING_NANO * max(1, *(shape.gpus for shape in resource.shapes), 1)


def test_every_kind_of_life_happens_sometimes() -> None:
    met: Counter[str] = Counter()
    for world in WORLDS:
        for r in world.resources:
            met[r.cloud] += 1
            met[r.life] += 1
            met[r.kind] += 1
            lengths = [run.stop_us - run.start_us for run in r.runs if run.stop_us is not None]
            offs = [b.start_us - a.stop_us for a, b in pairwise(r.runs) if a.stop_us is not None]
            met["run under a minute"] += any(length < 60 * SECOND_US for length in lengths)
            met["restart within a minute"] += any(off < 60 * SECOND_US for off in offs)
            met["off for days"] += any(off > 2 * 86_400 * SECOND_US for off in offs)
            met["resized"] += len(r.shapes) > 1
            met["spot price moves in a run"] += r.tier == "spot" and any(
                run.start_us < rate.at_us < (run.stop_us or world.end_us) for run in r.runs for rate in r.rates
            )
            met["host raises its price"] += r.cloud == "sim-vast" and any(b.nano > a.nano for a, b in pairwise(r.rates))
            met["changes hands"] += len({tag.owner for tag in r.tags}) > 1
            met["older than the world"] += r.created_us < world.start_us
            met["runs over a month's end"] += any(
                from_us(run.start_us).month != from_us(run.stop_us or world.end_us).month for run in r.runs
            )
            met["traffic"] += bool(r.traffic)
            met["paused"] += any(run.pauses for run in r.runs)
            met["irregular microseconds"] += any(run.start_us % SECOND_US for run in r.runs)
            met["deleted while off"] += bool(r.runs and r.ended_us and (r.runs[-1].stop_us or 0) < r.ended_us)
            met["deleted while running"] += bool(r.runs and r.ended_us and r.runs[-1].stop_us == r.ended_us)
        last = max((r.ended_us or world.end_us for r in world.resources if r.kind == "instance"), default=0)
        met["volume outlives machines"] += any(r.kind == "volume" and (r.ended_us or 10**18) > last for r in world.resources)
    wanted = {*CLOUDS, *LIVES, "instance", "volume", "address", *met}
    assert {what: met[what] for what in wanted if met[what] < 5} == {}


def test_plans_keep_their_declared_limits() -> None:
    for world, plan in zip(WORLDS, PLANS, strict=True):
        for scope in {entry.scope for entry in plan.entries}:
            here = [r for r in world.resources if (r.cloud, r.account, r.scope) == scope]
            entries = [entry for entry in plan.entries if entry.scope == scope]
            clean_us, lies = entries[0].at_us, 0
            for before, entry in pairwise([entries[0], *entries]):
                oldest = entry.asked_us - LAG_S[scope[0]] * SECOND_US
                assert oldest <= entry.view_us <= entry.at_us
                assert all(oldest <= us <= entry.at_us for _, us in entry.late)
                assert before.at_us <= entry.asked_us or before is entry
                lies = lies + 1 if entry.fault == "empty" else 0
                assert lies <= LIES_MOST
                assert entry.fault != "empty" or sum(r.created_us <= entry.at_us for r in here) > 2
                if entry.clean:
                    assert entry.at_us - clean_us <= 20_000 * SECOND_US
                    clean_us = entry.at_us
