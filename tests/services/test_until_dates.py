"""Until labels, played with the real guard and a simulated cloud: the last second before the stop, and a start after it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from costguard.metering.observation import Observation
from costguard.testing.cloud import SimulatedCloud
from costguard.values.resource import ResourceKey
from tests.stories import play_story
from tests.stories.guard_player import GuardPlayer
from tests.stories.parser import parse_story
from tests.stories.player import StoryOutcome

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


def play(tmp_path: Path, more: str = "", end: str = "08:35") -> StoryOutcome:
    return play_story(parse_story(STORY.format(more=more, end=end)), GuardPlayer, tmp_path)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("looks", [1, 2])
@pytest.mark.parametrize("text", ["2026-11-02T09:30Z", "tomorrow"])
def test_who_changes_the_date_in_the_last_second_stops_the_act(
    text: str, looks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first or second look, right before the request."""
    seen, look = list[ResourceKey](), SimulatedCloud.look_up

    def look_up(cloud: SimulatedCloud, key: ResourceKey) -> Observation | None:
        seen.append(key)
        found = look(cloud, key)
        return replace(found, labels=(("costguard:until", text),)) if found and len(seen) >= looks else found

    monkeypatch.setattr(SimulatedCloud, "look_up", look_up)
    outcome = play(tmp_path, end="08:31")
    assert len(seen) >= looks
    assert outcome.acts == []


def test_a_machine_that_a_person_starts_after_its_date_is_kept_for_two_hours(tmp_path: Path) -> None:
    outcome = play(tmp_path, more="  08:40  box starts", end="11:00")
    first, second = outcome.acts
    assert first.at == PASSED
    assert f"{second.at:%H:%M}" == "10:50"
