"""A process that records polls is killed at random moments: nothing that it acknowledged is lost, and the books stay true.

`python -m tests.crashes --story recording` does it at any length.
"""

from __future__ import annotations

import pytest

from tests.crashes.points import COMMIT, TRANSACTION
from tests.crashes.recorder import BROKEN
from tests.crashes.recording_kills import play, stage

SEED, KILLS = 23, 90


@pytest.mark.proof
def test_no_kill_while_it_records_loses_what_was_acknowledged_and_writers_that_are_broken_are_caught() -> None:
    with stage() as theatre:
        line = play(theatre, SEED, 0, KILLS)
        assert line["wrong"] == []
        assert line["counts"]["acknowledged"] > KILLS
        assert {TRANSACTION, COMMIT} <= set(line["windows"])
        for task in BROKEN:
            assert any(play(theatre, SEED, number, 20, task=task)["wrong"] for number in range(1, 6)), task
