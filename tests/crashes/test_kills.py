"""A process that records polls is killed at random moments: nothing that it acknowledged is lost, and the books stay true."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from costguard.ledger.db import maintenance
from tests.crashes import judge
from tests.crashes.lives import Recorder, cold, fork_server, forked, shown
from tests.crashes.owed import Bill
from tests.crashes.recording_kills import Calm, Deaths, calmly
from tests.crashes.story import record_rest

KILLS, COLD, BILLED_EACH = 200, 5, 20
SEED = 23
LONGEST_S = 0.3
"""After the start of recording: many transactions, at any moment of the last of which the process dies."""

RESERVE = 2000
"""Listings that no life may count on, so that each of them is killed, and none comes to an end."""
INSIDE = ("working it out", "writing rows", "committing")
"""Phases within a transaction."""


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Calm:
    return calmly(SEED, tmp_path_factory.mktemp("calm"), polls=1500, size=80)


@pytest.fixture
def server(calm: Calm, tmp_path: Path) -> Iterator[Recorder]:
    with fork_server(calm.saved, tmp_path / "ledger.db") as one:
        yield one


@pytest.mark.proof
def test_two_hundred_kills_lose_nothing_that_was_acknowledged(calm: Calm, server: Recorder) -> None:
    chance, listings = random.Random(SEED), len(calm.story.entries)  # noqa: S311 - moments are drawn, not secret
    deaths, bill = Deaths(calm, server.ledger), Bill(calm.story)
    for number in range(KILLS):
        after_s = LONGEST_S * chance.random() ** 2
        if number % (KILLS // COLD) == 1:
            life = cold(calm.saved, server.ledger, after_s)
        elif number % 10 == 9:
            life = forked(server, after_s / 6, from_birth=True)
        else:
            ration = max(0, listings - RESERVE - deaths.done) // (KILLS - number)
            life = forked(server, after_s, most=1 + chance.randrange(1 + 2 * ration))
        assert life.code == -signal.SIGKILL
        assert deaths.faults(life) == [], f"kill {number + 1}, {life.phase}"
        if number % BILLED_EACH == 0:
            assert bill.faults(server.ledger) == [], f"kill {number + 1}, {life.phase}"
    print(f"\n{KILLS} kills over {deaths.done:,} listings: {shown(deaths.phases)}")  # noqa: T201 - who looks on wants to see it
    assert sum(deaths.phases[phase] for phase in INSIDE) >= KILLS / 4
    record_rest(f"sqlite:///{server.ledger}", calm.story)
    assert bill.faults(server.ledger) == []
    assert maintenance.check_ledger(f"sqlite:///{server.ledger}") == []
    assert judge.rows(server.ledger) == calm.rows


@pytest.mark.proof
@pytest.mark.parametrize("task", ["early", "torn", "forgetful"])
def test_a_writer_that_is_broken_on_purpose_is_caught(task: str, calm: Calm, server: Recorder) -> None:
    chance = random.Random(SEED)  # noqa: S311 - moments are drawn, not secret
    deaths = Deaths(calm, server.ledger)
    found: list[str] = []
    for _ in range(60):
        found = deaths.faults(forked(server, 0.1 * chance.random(), task=task))
        if found:
            break
    assert found


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
