"""A process that stops machines is killed at every moment: no life is stopped for which nothing was written, and none is lost.

COSTGUARD_KILLS=5000 makes a campaign of it; `python -m tests.crashes --story acting` has a log, and more to say.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crashes.acting_judge import in_file
from tests.crashes.acting_kills import Stage, play, stage
from tests.crashes.actor import BLIND, EARLY, FORGETFUL
from tests.crashes.campaign import MOST_PER_CHUNK, summed
from tests.crashes.points import AFTER, BEFORE

KILLS, SEED = int(os.environ.get("COSTGUARD_KILLS", "90")), 20


@pytest.fixture(scope="module")
def theatre() -> Iterator[Stage]:
    with stage() as made:
        yield made


@pytest.mark.proof
def test_no_kill_between_call_and_record_stops_a_later_life_or_loses_an_intent(theatre: Stage) -> None:
    found = []
    for number, at in enumerate(range(0, KILLS, MOST_PER_CHUNK)):
        line = play(theatre, SEED, number, min(MOST_PER_CHUNK, KILLS - at))
        assert line["wrong"] == [], f"python -m tests.crashes --story acting --seed {SEED} --chunk {number}"
        found.append(line | {"chunk": number, "cpu_s": 0})
    total = summed(found)
    print(f"\n{total}")  # noqa: T201 - who looks on wants to see it
    assert total["kills"] == KILLS
    assert total["counts"]["calls"] > KILLS / 3
    assert {BEFORE, AFTER} <= set(total["windows"])


@pytest.mark.proof
@pytest.mark.parametrize("task", [BLIND, EARLY, FORGETFUL])
def test_an_actor_that_is_broken_on_purpose_is_caught(theatre: Stage, task: str) -> None:
    assert any(play(theatre, SEED, number, 20, task=task)["wrong"] for number in range(3))


def test_the_judge_sees_a_call_that_nothing_let_go_and_what_is_lost(theatre: Stage, tmp_path: Path) -> None:
    folder = tmp_path / "story"
    assert play(theatre, SEED, 0, 3, keep=folder)["wrong"] == []
    with (folder / "cloud.jsonl").open("a") as log:
        line = {
            "life": 2,
            "at_s": 0,
            "what": "stop",
            "name": "i-0",
            "run": 99,
            "state": "running",
            "kept": True,
            "did": "obeyed",
        }
        log.write(json.dumps(line) + "\n")
    with (folder / "acked").open("a") as acked:
        acked.write("i-0 1793966400.000001 done 1793966400000002\n")
    assert in_file(folder / "ledger.db", folder).faults == [
        "run 99 of i-0 was asked to stop in life 2, and only another run of it was let go",
        "that i-0 1793966400.000001 became done was acknowledged, and is lost",
        "run 99 of i-0 was stopped, and somebody kept it",
    ]
