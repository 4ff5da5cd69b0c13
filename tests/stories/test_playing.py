"""Stories played: the ledger against the truth, and expectations against what happened."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costguard.guard.action_intents import DONE, VERIFYING, Intent
from costguard.guard.alerts.alert import FIRST, WARNING, Alert, Notification
from costguard.guard.signals import IDLE, Activity
from costguard.ledger.spans.books import SpendingReader
from costguard.metering.observation import identify_incarnation
from costguard.testing import SimulatedCloud
from costguard.values.resource import STOPPED
from tests.stories import GuardResult, PollPlayer, StoryReply, StoryStage, parse_story, play_story, read_story
from tests.stories.story import StoryEvent

STORIES = sorted((Path(__file__).parents[1] / "scenarios").glob("*.story"))
WEEKEND = next(path for path in STORIES if path.name.startswith("01-"))


class Scripted(PollPlayer):
    """A guard that does what the story of the weekend says, by the clock."""

    def __init__(self, stage: StoryStage) -> None:
        super().__init__(stage)
        self.intent: Intent | None = None
        cloud = stage.clouds["aws"]
        assert isinstance(cloud, SimulatedCloud)
        self.cloud, self.box = cloud, cloud.machines["box"]

    def guard(self) -> None:
        now = self.stage.clock.now()
        subject = "/".join(self.box.key)
        if now == datetime(2026, 11, 6, 18, 50, tzinfo=UTC):
            notice = Alert(
                topic="policy:idle-gpu",
                subject=subject,
                owner="ada",
                severity=WARNING,
                what="it idles at $32.77 an hour: $24.58 so far",
                at=now,
            )
            self.stage.notifier(
                Notification(id="1", channel="test", why_now=FIRST, severity=WARNING, title="idle", notices=(notice,), at=now)
            )
        if now == datetime(2026, 11, 6, 19, 5, tzinfo=UTC):
            seen = self.cloud.look_up(self.box.key)
            assert seen is not None
            self.cloud.stop(self.box.key)
            self.intent = Intent(
                id="1",
                life=identify_incarnation(seen),
                act="stop",
                policy="idle-gpu",
                rule="idle",
                why="",
                evidence="{}",
                state=VERIFYING,
                created_at=now,
                moved_at=now,
            )
        here = self.box.now(now)
        if self.intent and here and here.state == STOPPED:
            self.intent = replace(self.intent, state=DONE)

    def seen(self) -> GuardResult:
        quiet = self.stage.clock.now() >= datetime(2026, 11, 6, 18, 5, tzinfo=UTC)
        works = {self.box.key: Activity(state=IDLE if quiet else "active")}
        return GuardResult(works=works, intents=(self.intent,) if self.intent else ())

    def wish(self, event: StoryEvent) -> StoryReply:
        return StoryReply(done=True, text=event.text)


@pytest.mark.proof
def test_the_forgotten_weekend_comes_out_to_the_cent_where_the_guard_does_as_told(tmp_path: Path) -> None:
    outcome = play_story(read_story(WEEKEND), Scripted, tmp_path)
    assert not outcome.faults, outcome.report()


@pytest.mark.proof
def test_the_same_weekend_without_a_guard_names_every_line_that_failed(tmp_path: Path) -> None:
    outcome = play_story(read_story(WEEKEND), PollPlayer, tmp_path)
    assert any("notice idle-gpu box saying" in fault and "never" in fault for fault in outcome.faults)
    assert any("box spent $33.86 idle" in fault and "it was $2,061.78" in fault for fault in outcome.faults)
    assert not any("ledger" in fault for fault in outcome.faults)
    assert "what happened" in outcome.report()


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_every_story_is_readable_and_names_its_hazard(path: Path) -> None:
    story = read_story(path)
    assert story.hazard.startswith(("H", "GUARD"))
    assert story.expectations


LEDGERS = [
    path for path in STORIES if not path.name.startswith(("01-", "17-", "26d-"))
]  # 26d: where nobody stops it, it is started while it runs


@pytest.mark.sampled(4)
@pytest.mark.parametrize("path", LEDGERS, ids=lambda path: path.stem)
def test_the_ledger_holds_the_truth_of_every_story_that_nobody_guards(path: Path, tmp_path: Path) -> None:
    story = replace(read_story(path), expectations=(), poll=timedelta(minutes=10))
    outcome = play_story(story, PollPlayer, tmp_path)
    assert not outcome.faults, outcome.report()


def test_the_ledger_is_exact_to_the_nano_dollar_where_nothing_is_hidden(tmp_path: Path) -> None:
    text = """
title: Two boxes
hazard: H15
start: 2026-11-06 16:00
end: 20:00
machines
  a  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
  b  aws H100-80GB-SXM $2.99, disk 200 GB $0.10/$0.20 volume, owner bob, age 30m
events
  17:00:07  a stops
  18:00:13  a starts
  19:00:29  b ends
expect
  never act
"""
    outcome = play_story(parse_story(text), PollPlayer, tmp_path)
    assert not outcome.faults, outcome.report()
    stage = outcome.stage
    with SpendingReader(stage.ledger_url, rules=stage.rules) as books:
        spent = {one.key.id: one.money for one in books.spent(stage.clock.now())}
    for name in ("a", "b"):
        machine = stage.clouds["aws"].machines[name]
        truth = machine.spent(machine.created_at, stage.story.end)
        money = spent[machine.key.id]
        assert money.low == money.high
        assert abs(money.expected.nano - truth) <= 2, name


def test_a_liar_of_a_guard_is_found_out(tmp_path: Path) -> None:
    story = parse_story(
        "title: a\nhazard: b\nstart: 2026-11-06 18:55\nend: 19:10\nmachines\n  box aws $1\nexpect\n  never act\n"
    )
    outcome = play_story(story, Scripted, tmp_path)
    assert [fault.split(":")[0] for fault in outcome.faults] == ["line 8"]


def test_acts_take_random_times_within_what_was_stated_and_the_same_by_seed(tmp_path: Path) -> None:
    text = "title: a\nhazard: b\nstart: 2026-11-06 18:55\nend: 19:10\nmachines\n  box aws $1\nclouds\n  aws acts take 30s/2m\n"
    took = list[timedelta]()
    for seed in (1, 1, 2, 3, 4, 5):
        folder = tmp_path / str(len(took))
        folder.mkdir()
        box = play_story(parse_story(text), Scripted, folder, seed=seed).stage.clouds["aws"].machines["box"]
        took.append(box.turns[-1].at - box.turns[-2].at)
    assert took[0] == took[1]
    assert len(set(took)) > 2
    assert max(took) <= timedelta(minutes=2)
