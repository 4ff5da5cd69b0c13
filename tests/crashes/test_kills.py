"""A process that records polls is killed at random moments: nothing that it acknowledged is lost, and the books stay true."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from costguard.ledger.db import maintenance
from tests.crashes import recording_kills
from tests.crashes.lives import Recorder, cold, fork_server, forked
from tests.crashes.points import COMMIT, TRANSACTION
from tests.crashes.recording_kills import Calm, calmly

SEED, KILLS = 23, 90


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Calm:
    return calmly(SEED, tmp_path_factory.mktemp("calm"), polls=60, size=20)


@pytest.fixture
def server(calm: Calm, tmp_path: Path) -> Iterator[Recorder]:
    with fork_server(calm.saved, tmp_path / "ledger.db") as one:
        yield one


@pytest.mark.proof
def test_no_kill_while_it_records_loses_what_was_acknowledged_and_writers_that_are_broken_are_caught() -> None:
    """`python -m tests.crashes --story recording` does it at any length."""
    with recording_kills.stage() as recorders:
        line = recording_kills.play(recorders, SEED, 0, KILLS)
        assert line["wrong"] == []
        assert {TRANSACTION, COMMIT} <= set(line["windows"])
        for task in recording_kills.NOTHING_LOST:
            assert any(recording_kills.play(recorders, SEED, n, 20, task=task)["wrong"] for n in range(1, 6)), task


@pytest.mark.proof
@pytest.mark.parametrize("begin", ["a cold start", "a fork"])
def test_a_first_start_that_was_killed_is_made_good_by_the_next(begin: str, calm: Calm, server: Recorder) -> None:
    chance = random.Random(SEED)  # noqa: S311 - moments are drawn, not secret
    folder, halfway = server.ledger.parent, 0
    for number in range(3 if begin == "a cold start" else 20):
        ledger = folder / str(number) / "ledger.db"
        ledger.parent.mkdir()
        one = Recorder(ledger, server.process, server.rest)
        if begin == "a cold start":
            cold(calm.saved, ledger, 1.5 * chance.random(), task="create")
        else:
            forked(one, 0.3 * chance.random() ** 2, task="create")
        halfway += any(path.name.startswith("ledger.db.new") for path in ledger.parent.iterdir())
        assert not ledger.exists() or maintenance.check_ledger(f"sqlite:///{ledger}") == []
        life = forked(one, 30, task="create")
        assert life.code == 0
        assert maintenance.check_ledger(f"sqlite:///{ledger}") == []
        assert not any(path.name.startswith("ledger.db.new") for path in ledger.parent.iterdir())
    assert halfway or begin == "a cold start"
