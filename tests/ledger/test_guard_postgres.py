"""The whole guard over PostgreSQL: a story that another test plays over SQLite comes out there as it is told."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from costguard.ledger.db import maintenance
from tests.stories import play_story, read_story
from tests.stories.guard_player import GuardPlayer

STORIES = Path(__file__).parents[1] / "scenarios"


@pytest.mark.proof
def test_a_stop_that_is_not_confirmed_comes_out_over_postgres_as_it_is_told(postgres_url: str, tmp_path: Path) -> None:
    """Of all stories one with tries, the gate before each, messages, a page, and hours of polls."""
    opened = partial(GuardPlayer, folder=STORIES)
    outcome = play_story(read_story(STORIES / "22-stop-not-confirmed.story"), opened, tmp_path, ledger_url=postgres_url)
    assert not outcome.faults, outcome.report()
    assert maintenance.check_ledger(postgres_url) == []
