"""Until labels, played with the real guard and a simulated cloud: the last second before the stop, and a start after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costguard.guard.overrides import UNTIL
from costguard.metering.observation import Observation
from costguard.testing.cloud import SimulatedCloud
from costguard.values.resource import ResourceKey
from tests.stories import play_story
from tests.stories.guard_player import GuardPlayer
from tests.stories.parser import parse_story
from tests.stories.player import StoryOutcome, StoryStage
from tests.stories.story import PERSON, StoryEvent

STORY = """
title: A date that ends a machine
hazard: End by label
start: 2026-11-02 08:00
end: {end}
machines
  box  aws 8xA100-80GB-SXM $32.77, owner ada, labels costguard:until=2026-11-02T08:30Z
config
  [[policy]]
  name = "end-date"
  arm = "stop"
  match = {{ until_label = "passed" }}
  then = [{{ do = "notify" }}, {{ after = "10m", do = "stop" }}]
events
  08:00  box busy
{more}
"""
PASSED = datetime(2026, 11, 2, 8, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)


def play(
    tmp_path: Path, more: str = "", opened: Callable[[StoryStage], GuardPlayer] = GuardPlayer, end: str = "08:35"
) -> StoryOutcome:
    return play_story(parse_story(STORY.format(more=more, end=end)), opened, tmp_path)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("looks", [1, 2])
@pytest.mark.parametrize("text", ["2026-11-02T09:30Z", "tomorrow", "a person"])
def test_who_changes_the_date_in_the_last_second_stops_the_act(
    text: str, looks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first or second look, right before the request."""
    players, seen, look = list[GuardPlayer](), list[ResourceKey](), SimulatedCloud.look_up

    def look_up(cloud: SimulatedCloud, key: ResourceKey) -> Observation | None:
        seen.append(key)
        found = look(cloud, key)
        if text == "a person":
            if len(seen) == looks:
                now = players[0].stage.clock.now()
                event = StoryEvent(at=now, kind=PERSON, what="set-until", line=1, name="box", who="bob", length=HOUR)
                assert players[0].wish(event).done
            return found
        return replace(found, labels=(("costguard:until", text),)) if found and len(seen) >= looks else found

    monkeypatch.setattr(SimulatedCloud, "look_up", look_up)

    def opened(stage: StoryStage) -> GuardPlayer:
        players.append(GuardPlayer(stage))
        return players[0]

    outcome = play(tmp_path, opened=opened, end="08:31")
    assert len(seen) >= looks
    assert outcome.acts == []


def test_a_machine_that_a_person_starts_after_its_date_is_kept_for_two_hours(tmp_path: Path) -> None:
    outcome = play(tmp_path, more="  08:40  box starts", end="11:00")
    first, second = outcome.acts
    assert first.at == PASSED
    assert f"{second.at:%H:%M}" == "10:50"


def test_a_date_that_a_person_records_replaces_the_label_and_is_lifted_with_the_end_of_the_run(tmp_path: Path) -> None:
    class Reader(GuardPlayer):
        def close(self) -> None:
            found.extend(one.lifted_by for one in self._book.load_overrides_since(PASSED - HOUR) if one.what == UNTIL)
            super().close()

    found = list[str]()
    outcome = play(tmp_path, "  08:10  set-until box in 40m by ada\n  08:55  box starts", Reader, end="09:05")
    assert [act.at for act in outcome.acts] == [PASSED + HOUR / 3]
    assert found == ["watchdog"]
