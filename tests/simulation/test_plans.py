"""A world is its plan and nothing else: written as JSON, played twice, made small, and played in chunks that go on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.__main__ import main
from tests.simulation.campaign import campaign, lines, summed
from tests.simulation.drawing import drill_of, plan_of
from tests.simulation.papers import plan_from, text_of
from tests.simulation.plans import DRILL, MONTHS_END, Box, Does, Happens, Plan
from tests.simulation.playing import played
from tests.simulation.sometimes import SOMETIMES

ROOT = Path(__file__).parents[2]
RAILS = {"acts_per_10m": 2, "fleet_share_10m": 1.0, "fleet_share_day": 1.0, "breaker_least": 50}
SHORT = Plan(5, DRILL, 18, (Box("b0", "runpod", "2.99", (Does(0, "quiet"),)),), (Happens(4, "price", "b0", how="1.99"),), RAILS)


def test_every_plan_is_the_same_after_it_was_written_as_json() -> None:
    plans = [*(plan_of(seed) for seed in range(300)), *(drill_of(seed) for seed in range(20))]
    assert [plan_from(text_of(plan)) for plan in plans] == plans


@pytest.mark.proof
def test_a_plan_plays_the_same_whatever_order_python_hashes_in(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text_of(SHORT))
    command = [sys.executable, "-m", "tests.simulation", "replay", str(path)]
    hashes = set()
    for seed in ("1", "4711"):
        found = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        hashes.add(found.stdout.split()[-1])
    assert hashes == {played(SHORT).hash}


def test_a_campaign_goes_on_where_it_was_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.simulation.campaign.played_chunk", lambda *_: pytest.fail("it was played again"))
    log = tmp_path / "campaign.jsonl"
    log.write_text('{"commit": "abc", "first": 4, "worl')
    monkeypatch.setattr("tests.simulation.campaign.commit_now", lambda: "abc")
    assert lines(log) == []
    nothing = {"sometimes": {}, "faults": {}, "violations": {}, "ticks": 7, "acts": 0, "faults_total": 0, "cpu_s": 1.0}
    made = [{"commit": "abc", "first": first, "worlds": 2, "machine_hours": 1.5, "hash": "", **nothing} for first in (0, 2)]
    log.write_text("".join(f"{line}\n".replace("'", '"') for line in made))
    found = list(campaign(4, 0, 1, log, chunk=2))
    assert found == made
    assert summed(found)["ticks"] == 14


def test_a_campaign_that_hardly_met_what_it_was_for_fails() -> None:
    line = {"worlds": 40, "ticks": 7, "machine_hours": 1.5, "acts": 0, "faults": {}, "faults_total": 0, "cpu_s": 1.0}
    met = dict.fromkeys(SOMETIMES, 4)
    assert summed([{**line, "sometimes": met, "violations": {}}])["rare"] == {}
    short = {**met, SOMETIMES[3]: 3}
    assert summed([{**line, "sometimes": short, "violations": {}}])["rare"] == {SOMETIMES[3]: 3}


@pytest.mark.proof
def test_a_campaign_writes_a_line_for_each_chunk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "campaign.jsonl"
    assert main(["campaign", "--worlds", "1", "--from", "56", "--jobs", "1", "--chunk", "1", "--log", str(log)]) == 0
    (line,) = lines(log)
    assert (line["first"], line["worlds"], line["violations"]) == (56, 1, {})
    assert line["ticks"] > 60
    assert "rare: " in capsys.readouterr().out


def scene(*events: Happens, minutes: int = 20, **more: Any) -> Plan:  # noqa: ANN401 - fields of a Plan
    quiet, busy = (Does(0, "quiet"),), (Does(0, "busy"),)
    idle = tuple(Box(name, "runpod", "2.99", quiet) for name in ("b0", "b1"))
    boxes = (*idle, Box("b2", "runpod", "2.99", busy, "label"))
    return Plan(seed=0, kind=DRILL, minutes=minutes, boxes=boxes, events=events, rails={**RAILS, "acts_per_10m": 1}, **more)


SCENES = (
    scene(
        Happens(2, "bounce", "b2"),
        Happens(4, "forgets", "runpod", 1, "b2"),
        Happens(6, "down", "runpod", 5),
        Happens(8, "price", "b2", how="12.29"),
        Happens(12, "dies", how="commit 3"),
        minutes=14,
    ),
    scene(Happens(9, "dies", how="told"), Happens(14, "dies", how="after")),
    scene(
        Happens(3, "answers", "b0", 33, "lost"),
        Happens(3, "answers", "b1", 33, "lost"),
        minutes=36,
        meddles={2: "lease"},
    ),
    scene(Happens(4, "sleeps", minutes=60), minutes=70, start=MONTHS_END),
    scene(meddles={1: "paused"}, twin=True),
)


@pytest.mark.proof
def test_what_must_happen_sometimes_can_happen() -> None:
    """Each in a world of a few minutes that is made for it."""
    met: Counter[str] = Counter()
    for plan in SCENES:
        found = played(plan)
        assert found.wrong == ()
        met.update(found.sometimes)
    assert [what for what in SOMETIMES if not met[what]] == []
