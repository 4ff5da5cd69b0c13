"""Two planners on one PostgreSQL ledger, of which one is suspended in the middle of a hard cap's stop: the stop is not lost.

08:21:00  a commits EXECUTING and looks again; it is suspended in that look, longer than its lease lasts
08:22:05  b takes the lead and plans, while the intent of a is in doubt; then a goes on: it is late, and sends nothing
08:23     whoever leads sends the stop once, or somebody is told that it is not done
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from tests.due import DuePlayer
from tests.stories import StoryStage, parse_story, play_story

STORY = """
title: A planner is suspended inside an act
hazard: issue 36
start: 2026-11-02 08:00
end: 08:30
poll: 15s
machines
  box  aws 8xA100-80GB-SXM $32.77, owner ada, age 1m, stops-in 30s
budgets
  all  $15 month, hard
events
  08:00  box busy
  08:10  box look 2 takes 65s
expect
  once stop box
  08:21-08:26  stop box
  08:29  box is stopped
"""
STEP = timedelta(seconds=13)


class SecondPlayer(DuePlayer):
    """The other planner: of another name, on the same ledger."""

    def _open(self) -> None:
        self._starts += 10
        super()._open()


class TwoPlayers(DuePlayer):
    """Both. While the first is suspended in a look, the second polls and plans."""

    def __init__(self, stage: StoryStage) -> None:
        super().__init__(stage)
        self.second, self.suspended = SecondPlayer(stage), 0
        for cloud in stage.clouds.values():
            cloud.pass_time = partial(self._suspend, cloud.pass_time)

    def _suspend(self, pass_time: Callable[[timedelta], object], by: timedelta) -> None:
        self.suspended += 1
        for _ in range(by // STEP):
            pass_time(STEP)
            self.second.poll()
            self.second.guard()

    def poll(self) -> None:
        """Both poll."""
        super().poll()
        self.second.poll()

    def guard(self) -> None:
        """Both run; the one that leads acts."""
        super().guard()
        self.second.guard()

    def close(self) -> None:
        """Both end."""
        self.second.close()
        super().close()


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgres", marks=pytest.mark.proof)])
def test_a_planner_that_is_suspended_inside_an_act_loses_no_stop(
    database: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = "" if database == "sqlite" else str(request.getfixturevalue("postgres_url"))
    players = list[TwoPlayers]()

    def open_players(stage: StoryStage) -> TwoPlayers:
        players.append(TwoPlayers(stage))
        return players[-1]

    outcome = play_story(parse_story(STORY), open_players, tmp_path, ledger_url=url)
    assert players[0].suspended == 1
    for player in (players[0], players[0].second):
        outcome.faults += [*player.find_unsent(), *player.find_doubles()]
    assert not outcome.faults, outcome.report()
