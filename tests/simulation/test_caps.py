"""Fleets under hard caps keep them or say by how much they cannot; the judge sees a guard that does nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from costguard.guard.action_intents import GRACE, VERIFYING
from costguard.guard.alerts import rules
from costguard.services.guarding.act import executor
from tests.due import DuePlayer
from tests.simulation.caps import draw_fleets, play_fleet
from tests.stories import StoryStage, play_story, read_story

QUICK = frozenset((6, 11, 18))
"""Pods, machines that can stop, and a cap that is lowered."""
STORIES = Path(__file__).parents[1] / "scenarios"


def _list_fleets() -> Iterator[object]:
    for fleet in draw_fleets():
        marks = () if fleet.number in QUICK else (pytest.mark.proof,)
        yield pytest.param(fleet.number, id=f"{fleet.number}-{fleet.kind}", marks=marks)


@pytest.mark.parametrize("number", list(_list_fleets()))
def test_a_cap_is_kept_or_people_read_before_by_how_much_it_is_not(number: int) -> None:
    found = play_fleet(draw_fleets()[number - 1])
    assert not found.wrong, str(found)


@pytest.mark.proof
def test_a_guard_that_sends_no_due_stop_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(executor.ActionExecutor, "_execute_due", lambda *_: None)
    monkeypatch.setattr(rules, "list_held_alerts", lambda *_: ())
    assert any("due since 09:30" in one for one in _play("22b-answer-lost", tmp_path).find_unsent())
    assert any("exceeded" in one for one in play_fleet(draw_fleets()[10]).wrong)


@pytest.mark.proof
def test_a_second_announcement_or_intent_of_an_act_in_doubt_is_seen(tmp_path: Path) -> None:
    player = _play("22-stop-not-confirmed", tmp_path)
    assert not list(player.find_doubles())
    told = player.stage.notifier.tries
    number = next(n for n, run in enumerate(player.runs) if any(one.state == VERIFYING for one in run.intents)) + 1
    run = player.runs[number]
    due = next(one for one in told if any(notice.due is not None for notice in one.notices))
    second = replace(run.intents[0], id="second", state=GRACE, sends=0, created_at=run.at)
    told.append(replace(due, at=run.at))
    player.runs[number] = run._replace(intents=(*run.intents, second))
    found = list(player.find_doubles())
    assert len(found) == 2, found


def _play(name: str, folder: Path) -> DuePlayer:
    players = list[DuePlayer]()

    def open_player(stage: StoryStage) -> DuePlayer:
        players.append(DuePlayer(stage))
        return players[-1]

    play_story(read_story(STORIES / f"{name}.story"), open_player, folder)
    return players[0]
