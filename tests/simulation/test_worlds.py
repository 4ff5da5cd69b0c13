"""Worlds full of trouble, played with the real guard and ledger, and judged by who shares no code with them.

COSTGUARD_WORLDS says how many (6 otherwise), COSTGUARD_FIRST_WORLD from which on. A world that fails is named by its seed:
`python -m tests.simulation replay 113` plays it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulation.drawing import crashing, drill_of, plan_of
from tests.simulation.judge import violations
from tests.simulation.mutants import MUTANTS, SEEN_BY, too_sure
from tests.simulation.papers import kept_plan
from tests.simulation.plans import BOOKS, CAP, DRILL, Box, Does, Happens, Plan
from tests.simulation.playing import folder as made
from tests.simulation.playing import played
from tests.simulation.reading import Record
from tests.simulation.world import World

FIRST, WORLDS = int(os.environ.get("COSTGUARD_FIRST_WORLD", "0")), int(os.environ.get("COSTGUARD_WORLDS", "6"))
DRILLS = 4
"""So many short worlds show each mutant."""
LONG = {"a-price-rises-in-a-run-that-a-gap-hides": pytest.mark.proof}
"""Kept plans that take long."""
KEPT = sorted((Path(__file__).parent / "kept").glob("*.json"))


def judged(plan: Plan) -> list[str]:
    with made() as folder:
        return violations(_played(plan, folder))


def _played(plan: Plan, folder: Path) -> Record:
    world = World(plan, folder)
    record = world.play()
    assert not world.broken
    return record


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + WORLDS))
def test_nothing_is_done_in_any_world_that_must_not_be(seed: int) -> None:
    assert judged(plan_of(seed)) == [], f"python -m tests.simulation replay {seed}"


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem, marks=LONG.get(path.stem, ())) for path in KEPT])
def test_what_once_went_wrong_does_not_any_more(path: Path) -> None:
    assert judged(kept_plan(path)) == [], f"python -m tests.simulation replay {path}"


@pytest.mark.proof
def test_a_drill_stops_what_is_idle_and_nothing_else() -> None:
    for seed in range(DRILLS):
        with made() as folder:
            record = _played(drill_of(seed), folder)
            assert violations(record) == []
            assert record.asked


def test_the_first_run_after_a_crash_sends_nothing_again() -> None:
    boxes = tuple(Box(f"b{n}", "runpod", "2.99", (Does(0, "quiet"),)) for n in range(3))
    rails = {"acts_per_10m": 3, "fleet_share_10m": 0.5, "fleet_share_day": 1.0, "breaker_least": 50}
    plan = Plan(163, DRILL, 34, boxes, (Happens(10, "dies", how="before"),), rails)
    with made() as folder:
        record = _played(plan, folder)
        assert violations(record) == []
        assert len(record.asked) > 1


@pytest.mark.proof
def test_a_watchdog_that_ends_after_some_commit_leaves_nothing_wrong() -> None:
    """Some of them, and before its first request; `python -m tests.simulation crashes` ends it after each one."""
    boxes = (Box("b0", "runpod", "2.99", (Does(0, "quiet"),)), Box("b1", "aws", "2.99", (Does(0, "quiet"),)))
    rails = {"acts_per_10m": 2, "fleet_share_10m": 1.0, "fleet_share_day": 1.0, "breaker_least": 50}
    for plan in list(crashing(Plan(1, DRILL, 18, boxes, (), rails), 150))[::24]:
        assert judged(plan) == [], plan.events


def test_a_cap_whose_fleet_shrinks_as_it_stops_finds_room_for_the_last_machine() -> None:
    with made() as folder:
        record = _played(plan_of(35, CAP), folder)
        assert violations(record) == []
        assert len(record.asked) == 4


@pytest.mark.parametrize(("name", "mutant"), SEEN_BY.items(), ids=SEEN_BY)
def test_the_judge_notices_a_ledger_without_what_a_kept_plan_shows(
    name: str, mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    found = judged(kept_plan(next(path for path in KEPT if path.stem == name)))
    assert any("was said" in one for one in found)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_the_judge_notices_a_guard_without(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    assert any(judged(drill_of(seed)) for seed in range(DRILLS))


def fleet(seed: int) -> Plan:
    """The first half day of the books world of `seed`."""
    plan = plan_of(seed, BOOKS)
    return replace(plan, minutes=720, events=tuple(one for one in plan.events if one.at <= 720))


def test_the_books_hold_what_a_fleet_truly_cost_at_every_step() -> None:
    one = played(fleet(5))
    assert one.wrong == (), "python -m tests.simulation replay books:5"
    assert one.effects.total() > 100
    assert one.hours > 200


@pytest.mark.proof
def test_the_judge_notices_books_that_are_too_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    too_sure(monkeypatch)
    assert any("was said" in one for one in played(fleet(5)).wrong)
