"""Planned stops, played with the real guard and a simulated cloud: the last second, and what it needs to be told before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costguard.guard.overrides import STOP_AT
from costguard.metering.observation import Observation
from costguard.testing.cloud import SimulatedCloud
from costguard.values.resource import ResourceKey
from tests.stories import play_story
from tests.stories.guard_player import GuardPlayer
from tests.stories.parser import parse_story
from tests.stories.player import StoryOutcome, StoryStage
from tests.stories.story import PERSON, StoryEvent

STORY = """
title: A planned stop
hazard: GUARD 4
start: 2026-11-02 08:04
end: {end}
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, loses "1900 GB of local disk"
events
  08:20  plan-stop box in 30m by ada
{more}
"""
DUE = datetime(2026, 11, 2, 8, 50, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def play(
    tmp_path: Path, more: str = "", opened: Callable[[StoryStage], GuardPlayer] = GuardPlayer, end: str = "08:56"
) -> StoryOutcome:
    return play_story(parse_story(STORY.format(more=more, end=end)), opened, tmp_path)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("what", "looks"), [("cancel-stop", 1), ("cancel-stop", 2), ("keep", 2), ("protect", 2)])
def test_who_objects_in_the_last_second_stops_the_act(
    what: str, looks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first or second look, right before the request."""
    players, seen, look = list[GuardPlayer](), list[datetime](), SimulatedCloud.look_up

    def look_up(cloud: SimulatedCloud, key: ResourceKey) -> Observation | None:
        seen.append(players[0].stage.clock.now())
        if len(seen) == looks:
            event = StoryEvent(at=seen[-1], kind=PERSON, what=what, line=1, name="box", who="bob", length=5 * MINUTE)
            assert players[0].wish(event).done
        return look(cloud, key)

    def opened(stage: StoryStage) -> GuardPlayer:
        players.append(GuardPlayer(stage))
        return players[0]

    monkeypatch.setattr(SimulatedCloud, "look_up", look_up)
    outcome = play(tmp_path, opened=opened)
    assert seen[0] == DUE
    assert outcome.acts == []


def test_without_a_delivered_notice_it_waits_and_is_done_a_whole_grace_after_one(tmp_path: Path) -> None:
    outcome = play(tmp_path, "  08:16-08:55  channel down", end="09:06")
    (act,) = outcome.acts
    first = min(one.at for one in outcome.told)
    assert first >= DUE + 5 * MINUTE
    assert act.at >= first + 5 * MINUTE


def test_where_no_channel_takes_every_warning_who_planned_it_was_the_one_to_tell(tmp_path: Path) -> None:
    class Unrouted(GuardPlayer):
        def _open(self) -> None:
            super()._open()
            self._guard.rules = replace(self._guard.rules, admin_route=False)

    outcome = play(tmp_path, "  08:16-08:56  channel down", Unrouted)
    assert [act.at for act in outcome.acts] == [DUE]


def test_the_consent_of_who_planned_it_covers_its_losses_and_once_done_the_plan_is_lifted(tmp_path: Path) -> None:
    class Reader(GuardPlayer):
        def close(self) -> None:
            found.extend(
                wish.lifted_by for wish in self._book.load_overrides_since(DUE - timedelta(days=1)) if wish.what == STOP_AT
            )
            super().close()

    found = list[str]()
    outcome = play(tmp_path, "  08:55  box starts", Reader, end="09:00")
    assert [(act.act, act.at) for act in outcome.acts] == [("stop", DUE)]
    assert next(one.at for one in outcome.told if "stops at 08:50 UTC" in one.message.title) == DUE - 30 * MINUTE
    assert found == ["watchdog"]
