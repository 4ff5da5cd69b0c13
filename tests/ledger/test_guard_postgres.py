"""The whole guard over PostgreSQL: stories that other tests play over SQLite come out there as they are told."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from costguard.ledger import care
from costguard.testing import play, read_file
from costguard.testing.guarding import GuardPlay

STORIES = Path(__file__).parents[1] / "scenarios"


@pytest.mark.parametrize("name", ["22-stop-not-confirmed", "g4-freeze"])
def test_a_story_comes_out_over_postgres_as_it_is_told(name: str, postgres_url: str, tmp_path: Path) -> None:
    opened = partial(GuardPlay, folder=STORIES)
    outcome = play(read_file(STORIES / f"{name}.story"), opened, tmp_path, ledger_url=postgres_url)
    assert not outcome.faults, outcome.report()
    assert care.check(postgres_url) == []
