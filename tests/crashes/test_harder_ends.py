"""What acts is suspended, gets no more memory, or loses its server: no call without its row, none after it expired, none lost.

`python -m tests.crashes --story freezing|starving|serving` does it at any length.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.crashes import freezing, serving, starving
from tests.crashes.acting_cloud import ask
from tests.crashes.acting_judge import START_US, in_file
from tests.crashes.acting_kills import play, stage
from tests.crashes.actor import BLIND

SEED = 7


@pytest.mark.proof
def test_a_watchdog_that_was_suspended_while_it_acts_sends_nothing_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """For up to 8 s: longer than a look is good and than the shortest turn; the command goes on to two minutes."""
    monkeypatch.setattr(freezing, "LATEST_S", 8.0)
    with freezing.stage() as theatre:
        line = freezing.play(theatre, SEED, 0, 8)
    assert line["wrong"] == []
    assert line["kills"] == 8
    assert line["counts"]["longer than a look is good"]
    assert line["counts"]["with a second watchdog"]


@pytest.mark.proof
def test_out_of_memory_it_dies_or_goes_on_and_never_acts_without_its_row() -> None:
    with starving.stage() as theatre:
        line = starving.play(theatre, SEED, 0, 30)
    assert line["wrong"] == []
    assert line["counts"]["ended with 1"] > 5
    assert len(line["windows"]) >= 4, "where memory ends is the machine's own; that it ends in many places is asked"


@pytest.mark.proof
def test_a_server_whose_processes_are_killed_while_it_acts_loses_nothing() -> None:
    with serving.stage() as server:
        line = serving.play(server, SEED, 0, 12)
        assert line["wrong"] == []
        assert line["counts"]["postmasters killed"] == 1
        assert any(serving.play(server, SEED, number, 6, task=serving.UNSYNCED)["wrong"] for number in (1, 2, 3))
        assert any(serving.play(server, SEED, number, 12, task=BLIND)["wrong"] for number in (4, 5, 6))


def test_the_judge_knows_when_what_lets_go_has_expired(tmp_path: Path) -> None:
    folder = tmp_path / "story"
    with stage() as theatre:
        assert play(theatre, SEED, 0, 2, keep=folder)["wrong"] == []
        boxes = ask(theatre.port, "/a/calm")
    assert boxes
    lines = [json.loads(line) for line in (folder / "cloud.jsonl").read_text().splitlines()]
    first = next(line for line in lines if line["what"] == "stop" and line["life"] == 0)
    origin_s = first["at_s"] - (_let_go_us(folder, first["name"]) - START_US) / 10**6

    def late(by_s: float) -> int:
        moved = [line | {"at_s": line["at_s"] + by_s} for line in lines if line is first]
        (folder / "cloud.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in moved))
        return in_file(folder / "ledger.db", folder, origin_s).late

    assert [late(by_s) for by_s in (0.0, 29.9, 30.0, 3600.0)] == [0, 0, 1, 1]


def _let_go_us(folder: Path, name: str) -> int:
    from tests.crashes.judge import as_left

    with as_left(folder / "ledger.db") as file:
        sql = """
SELECT min(e.at_us) FROM intent_event AS e JOIN intent AS i ON i.id = e.intent_id
WHERE e.moved_to = 'executing' AND i.external_id = ?
"""
        return int(file.execute(sql, (name,)).fetchone()[0])
