"""Stories played: the ledger against the truth, and expectations against what happened."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from costguard.ledger.spans.books import SpendingReader
from tests.stories import PollPlayer, parse_story, play_story, read_story

STORIES = sorted((Path(__file__).parents[1] / "scenarios").glob("*.story"))
WEEKEND = next(path for path in STORIES if path.name.startswith("01-"))


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


def test_a_stop_that_nobody_made_is_missed(tmp_path: Path) -> None:
    head = "title: a\nhazard: b\nstart: 2026-11-06 18:55\nend: 19:10\nmachines\n  box aws $1\n"
    outcome = play_story(parse_story(f"{head}expect\n  19:05 stop box\n"), PollPlayer, tmp_path)
    assert [fault.split(":")[0] for fault in outcome.faults] == ["line 8"]


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
