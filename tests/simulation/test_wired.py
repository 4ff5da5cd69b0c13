"""Worlds in which costguard's own adapters, transport and client speak to the five fakes, in this process and in no time.

COSTGUARD_WIRED_WORLDS says how many (3 otherwise), COSTGUARD_FIRST_WIRED from which on. One that fails is played again by
`python -m tests.simulation replay wired:7`.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.simulation.drawing import plan_of
from tests.simulation.judge import violations
from tests.simulation.papers import plan_from, text_of
from tests.simulation.plans import DRILL, WIRED, Box, Does, Happens, Plan
from tests.simulation.playing import folder, played, world_of, wrong_with
from tests.simulation.reading import Record
from tests.simulation.wired_mutants import WIRED_MUTANTS
from tests.simulation.wired_plans import CLOUDS, RAILS, wired_drill_of

FIRST, WORLDS = int(os.environ.get("COSTGUARD_FIRST_WIRED", "1")), int(os.environ.get("COSTGUARD_WIRED_WORLDS", "3"))


def record_of(plan: Plan) -> Record:
    with folder() as made:
        world = world_of(plan, made)
        record = world.play()
        assert not world.broken
        assert violations(record) == []
        return record


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + WORLDS))
def test_nothing_is_done_over_the_wire_that_must_not_be(seed: int) -> None:
    assert played(plan_of(seed, WIRED)).wrong == (), f"python -m tests.simulation replay wired:{seed}"


def test_a_wired_plan_is_the_same_after_it_was_written_as_json() -> None:
    plans = [plan_of(seed, WIRED) for seed in range(100)]
    assert [plan_from(text_of(plan)) for plan in plans] == plans


@pytest.mark.proof
def test_a_drill_stops_what_idles_at_each_vendor_that_can_stop() -> None:
    """It is the world in which each mutant below must be noticed; they are played in the part of it that they break."""
    record = record_of(wired_drill_of(0))
    clouds = {one["name"]: one["cloud"] for one in record.of("machine")}
    assert {clouds[one.name] for one in record.asked if one.done} == {*CLOUDS} - {"lambda"}
    assert {one.said for one in record.asked} >= {"accepted", "unclear"}


def tiny(*events: Happens, cloud: str = "runpod", minutes: int = 5, boxes: int = 4) -> Plan:
    """A few busy machines of one vendor."""
    made = tuple(Box(f"b{n}", cloud, "2.99", (Does(0, "busy"),)) for n in range(boxes))
    rails = {"acts_per_10m": 2, "fleet_share_10m": 0.5, "fleet_share_day": 1.0, "breaker_least": 50}
    return Plan(0, DRILL, minutes, made, events, rails | RAILS, wired=True)


def test_the_same_wired_plan_gives_the_same_world() -> None:
    plan = tiny(Happens(1, "wire", "vast", 3, "429 any 3"), Happens(2, "wire", "vast", 1, "timeout list 2"), cloud="vast")
    assert played(plan).hash == played(plan).hash


def test_waiting_takes_no_time() -> None:
    """Vast is asked at its own pace, and a black hole takes three times fifteen seconds: minutes of this world."""
    one = played(tiny(Happens(1, "wire", "vast", 3, "timeout any 1"), cloud="vast"))
    assert one.wrong == ()
    assert one.effects["wire timeout list"] > 5
    assert one.took < 60


def test_a_fake_that_breaks_is_no_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fakes.runpod.FakeRunpod.pod", lambda *_: 1 / 0)
    assert any("ZeroDivisionError" in one for one in wrong_with(tiny()))


def part(*clouds: str, minutes: int) -> Plan:
    """The drill with the machines of some vendors alone, and its first minutes."""
    whole = wired_drill_of(0)
    boxes = tuple(one for one in whole.boxes if one.cloud in clouds)
    there = {*clouds, *(one.name for one in boxes)}
    events = tuple(one for one in whole.events if one.at <= minutes and one.name in there)
    return replace(whole, boxes=boxes, events=events, minutes=minutes)


def turning(what: str, *events: Happens) -> Plan:
    """One machine of four turns at once."""
    plan = tiny(*events, minutes=30)
    return replace(plan, boxes=(replace(plan.boxes[0], does=(Does(0, "busy"), Does(1, what))), *plan.boxes[1:]))


PARTS = {
    "next_page_ignored": part("runpod", minutes=2),
    "lost_page_is_the_end": part("runpod", minutes=12),
    "acts_are_tried_again": part("runpod", minutes=34),
    "not_found_is_done": turning(
        "quiet", Happens(1, "wire", "runpod", 40, "reset act 1"), Happens(26, "hides", "runpod", 4, "b0")
    ),
    "looks_are_old": part("runpod", minutes=34),
    "unmeasured_is_rest": turning("silent"),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", WIRED_MUTANTS)
def test_the_judge_notices_an_adapter_with(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong_with(PARTS[name]) == ()
    WIRED_MUTANTS[name](monkeypatch)
    assert wrong_with(PARTS[name])
