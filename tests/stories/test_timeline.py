"""The language of stories: what it reads, and how it says what it cannot."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from costguard.errors import InputError
from tests.stories import parse_story
from tests.stories.story import Story, StoryEvent

STORY = """
title: A box
hazard: H10
start: 2026-11-06 16:00     # a Friday
end: Mon 09:00
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, labels team=vision
  pod  runpod H100-80GB-SXM $2.99, measures duty cpu, disk 200 GB $0.10/$0.20 volume
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop, +7d ask terminate
budgets
  all  $12,000 month, hard
config
  [rails]
  first_seen = "15m"  # TOML as it is
events
  16:00        box busy
  18:05        box io 6.1 MB/s
  +45m         keep box for 2h why "one, two # three" by bob
  19:55-20:40  watchdog down
  22:00-02:00  aws stale 3 polls
  Sun 10:00    box deaf 2 times
expect
  18:50      notice idle-gpu box saying "$32.77, or more"
  never stop pod
  Sat 19:05  stop box
  box spent $2,027.92 idle from Fri 18:05 to Sun 09:00
  all spent at most $500.00
"""


@pytest.fixture
def story() -> Story:
    return parse_story(STORY)


def friday(hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 11, 6, hour, minute, tzinfo=UTC)


def only(story: Story, line: str) -> StoryEvent:
    number = STORY.splitlines().index(next(one for one in STORY.splitlines() if line in one)) + 1
    return next(one for one in story.events if one.line == number)


def test_times_are_of_the_day_of_the_line_before(story: Story) -> None:
    assert (story.start, story.end) == (friday(16), datetime(2026, 11, 9, 9, tzinfo=UTC))
    keep = only(story, "keep box")
    assert (keep.at, keep.length, keep.text, keep.who) == (friday(18, 50), timedelta(hours=2), "one, two # three", "bob")
    assert only(story, "watchdog down").until == friday(20, 40)
    assert only(story, "aws stale").until == datetime(2026, 11, 7, 2, tzinfo=UTC)
    assert only(story, "box deaf").at == datetime(2026, 11, 8, 10, tzinfo=UTC)


def test_expectations_are_read(story: Story) -> None:
    notice, never, stop, spent, most = story.expectations
    assert (notice.what, notice.topic, notice.name, notice.text) == ("notice", "idle-gpu", "box", "$32.77, or more")
    assert (never.what, never.name, never.times) == ("stop", "pod", 0)
    assert stop.at == datetime(2026, 11, 7, 19, 5, tzinfo=UTC)
    assert spent.money is not None
    assert (spent.money.format(), spent.topic, spent.at) == ("2027.92", "idle", friday(18, 5))
    assert (most.name, most.most) == ("", True)


@pytest.mark.parametrize(
    ("wrong", "line", "what"),
    [
        ("machines\n  box", 5, "needs a name and a provider"),
        ("machines\n  box aws, dick 500 GB", 5, "did you mean disk"),
        ("machines\n  box aws, disk big", 5, "'big' is not a disk"),
        ("machines\n  box aws, measures dooty", 5, "not a family"),
        ("machines\n  box aws\n  box gcp", 6, "two machines"),
        ("machine\n  box aws", 4, "did you mean machines"),
        ("  box aws", 4, "stands in no section"),
        ("titel: x", 4, "did you mean title"),
        ("policies\n  idle arm stop", 5, "does nothing"),
        ("policies\n  idle arm stop, +15 stop", 5, "not a duration"),
        ("budgets\n  all 500 month", 5, "not an amount"),
        ("events\n  box busy", 5, "has no time"),
        ("events\n  25:00 box busy", 5, "no time of day"),
        ("events\n  15:00 freeze", 5, "outside the story"),
        ("events\n  17:00- freeze", 5, "has no end"),
        ("events\n  17:00 watchdog down", 5, "needs an end"),
        ("events\n  17:00-18:00 freeze", 5, "happens at one moment"),
        ("events\n  17:00 keep nobody for 2h", 5, "nobody can"),
        ("machines\n  box aws\nevents\n  17:00 box io 6.1", 7, "amount or unit"),
        ("machines\n  box aws\nevents\n  17:00 box bussy", 7, "nothing is known of 'bussy'"),
        ("machines\n  box aws\nevents\n  17:00 box replaced by other", 7, "not cast"),
        ("expect\n  stop box", 5, "has no time"),
        ("expect\n  17:00 stop nobody", 5, "nothing is known"),
        ("expect\n  nobody spent $1.00", 5, "no machine 'nobody'"),
        ("machines\n  box aws\nexpect\n  17:00 box is asleep", 7, "nothing is ever 'asleep'"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(wrong: str, line: int, what: str) -> None:
    with pytest.raises(InputError) as found:
        parse_story(f"title: a\nhazard: b\nstart: 2026-11-06 16:00\n{wrong}\nend: 20:00\n")
    assert f"line {line}:" in str(found.value)
    assert what in str(found.value)
