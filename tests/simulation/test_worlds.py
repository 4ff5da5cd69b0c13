"""Worlds full of trouble, played with the real guard and ledger, and judged by who shares no code with them.

COSTGUARD_WORLDS says how many (12 otherwise), COSTGUARD_FIRST_WORLD from which on. A world that fails is named by its seed:
`COSTGUARD_FIRST_WORLD=113 COSTGUARD_WORLDS=1 pytest -n0 tests/simulation` plays it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.simulation.judge import Record, violations
from tests.simulation.mutants import MUTANTS
from tests.simulation.plans import CAP, DRILL, Box, Does, Happens, Plan, drill_of, plan_of
from tests.simulation.world import World

FIRST, WORLDS = int(os.environ.get("COSTGUARD_FIRST_WORLD", "0")), int(os.environ.get("COSTGUARD_WORLDS", "12"))
DRILLS = 4
"""So many short worlds show each mutant."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is such a place: a world commits some thousand times."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there
    with TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as made:
        yield Path(made)


def played(plan: Plan, folder: Path) -> Record:
    world = World(plan, folder)
    record = world.play()
    assert not world.broken
    return record


@pytest.mark.parametrize("seed", range(FIRST, FIRST + WORLDS))
def test_nothing_is_done_in_any_world_that_must_not_be(seed: int, folder: Path) -> None:
    assert violations(played(plan_of(seed), folder)) == []


def test_a_drill_stops_what_is_idle_and_nothing_else(folder: Path) -> None:
    records = [played(drill_of(seed), folder) for seed in range(DRILLS)]
    assert [violations(record) for record in records] == [[]] * DRILLS
    assert all(record.asked for record in records)


def test_the_first_run_after_a_crash_sends_nothing_again(folder: Path) -> None:
    boxes = tuple(Box(f"b{n}", "runpod", "2.99", (Does(0, "quiet"),)) for n in range(3))
    rails = {"acts_per_10m": 3, "fleet_share_10m": 0.5, "fleet_share_day": 1.0, "breaker_least": 50}
    plan = Plan(163, DRILL, 34, boxes, (Happens(10, "dies", how="before"),), rails)
    record = played(plan, folder)
    assert violations(record) == []
    assert len(record.asked) > 1


def test_a_cap_whose_fleet_shrinks_as_it_stops_finds_room_for_the_last_machine(folder: Path) -> None:
    record = played(plan_of(35, CAP), folder)
    assert violations(record) == []
    assert len(record.asked) == 4


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_the_judge_notices_a_guard_without(
    mutant: Callable[[pytest.MonkeyPatch], None], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    assert any(violations(played(drill_of(seed), folder)) for seed in range(DRILLS))
