"""The message of a stop says of what goes on billing what `costguard status` says then, on clouds with other rules of disks."""

from __future__ import annotations

from datetime import UTC
from functools import partial
from pathlib import Path

import pytest

from costguard.ledger.spans.books import SpendingReader
from costguard.services.guarding.status import build_status
from tests.stories import play_story
from tests.stories.guard_player import GuardPlayer
from tests.stories.parser import parse_story

STORY = """
title: A machine with a disk is stopped
hazard: GUARD 9.17
start: 2026-11-02 08:00
end: 09:40
machines
  box  {machine}, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
events
  08:00  box busy
  08:20  box quiet
expect
  once stop box
"""


@pytest.mark.parametrize(
    ("machine", "rate"),
    [
        ("aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08", "$0.0548"),
        ("runpod H100-80GB-SXM $2.99, disk 200 GB $0.10/$0.20 volume", "$0.0548"),
        ("aws 8xA100-80GB-SXM $32.77", "nothing"),
    ],
    ids=["a disk", "a disk that costs twice as much at rest", "no disk"],
)
def test_a_stop_is_told_with_the_rate_of_the_status(tmp_path: Path, machine: str, rate: str) -> None:
    outcome = play_story(parse_story(STORY.format(machine=machine)), partial(GuardPlayer, folder=tmp_path), tmp_path)
    assert not outcome.faults, outcome.report()
    stopped = [one for message in outcome.stage.notifier.messages for one in message.notices if " was stopped at " in one.what]
    assert [dict(one.facts)["still per hour"] for one in stopped] == [rate]
    with SpendingReader(outcome.stage.ledger_url, rules=outcome.stage.rules) as books:
        status = build_status(books=books, now=outcome.end, zone=UTC)
    assert f"${status.usd.burn.stated.format(4)}" == (rate if rate != "nothing" else "$0.0000")
