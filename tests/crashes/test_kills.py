"""A process that records polls is killed at random moments: nothing that it acknowledged is lost, and the books stay true."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from costguard.ledger import care
from tests.crashes import judge
from tests.crashes.judge import Row, Scope, Sizes, Truth
from tests.crashes.lives import Life, Recorder, cold, fork_server, forked, shown
from tests.crashes.owed import Bill
from tests.crashes.story import Story, make_story, open_ledger, record_rest

KILLS, COLD, BILLED_EACH = 200, 5, 20
SEED = 23
LONGEST_S = 0.3
"""After the start of recording: many transactions, at any moment of the last of which the process dies."""

RESERVE = 2000
"""Listings that no life may count on, so that each of them is killed, and none comes to an end."""
INSIDE = ("working it out", "writing rows", "committing")
"""Phases within a transaction."""


@dataclass(slots=True)
class Deaths:
    """A ledger that one process after the other dies over. `done`: listings that were acknowledged."""

    calm: Calm
    ledger: Path
    acknowledged: dict[Scope, int] = field(default_factory=dict)
    phases: Counter[str] = field(default_factory=Counter)
    done: int = 0

    def faults(self, life: Life) -> list[str]:
        """What the judge finds once one more has died."""
        self.phases[life.phase] += 1
        for number in life.acknowledged:
            entry = self.calm.story.entries[number]
            self.acknowledged[entry.scope] = max(self.acknowledged.get(entry.scope, 0), entry.asked_us)
            self.done = max(self.done, number + 1)
        return judge.faults(self.ledger, self.calm.truth, self.acknowledged) if self.ledger.exists() else []


@dataclass(frozen=True, slots=True)
class Calm:
    """A story, where it is kept, and what it leaves where nobody dies."""

    story: Story
    saved: Path
    truth: Truth
    rows: dict[str, list[Row]]


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Calm:
    folder = tmp_path_factory.mktemp("calm")
    story, ledger = make_story(SEED, polls=1500, size=80), folder / "ledger.db"
    open_ledger(f"sqlite:///{ledger}").close()
    sizes = [Sizes()]
    for change in record_rest(f"sqlite:///{ledger}", story):
        assert change.fresh
        still_open = sum(span.end is None for span in change.opened) - len(change.closed)
        last = sizes[-1]
        sizes.append(
            Sizes(
                observations=last.observations + len(change.logged),
                spans=last.spans + len(change.opened),
                open=last.open + still_open,
                corrections=last.corrections + len(change.corrected),
            )
        )
    asked_us: dict[Scope, list[int]] = {}
    for entry in story.entries:
        asked_us.setdefault(entry.scope, []).append(entry.asked_us)
    return Calm(story, story.save(folder / "story"), Truth(asked_us, sizes), judge.rows(ledger))


@pytest.fixture
def server(calm: Calm, tmp_path: Path) -> Iterator[Recorder]:
    with fork_server(calm.saved, tmp_path / "ledger.db") as one:
        yield one


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
    assert care.check(f"sqlite:///{server.ledger}") == []
    assert judge.rows(server.ledger) == calm.rows


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
        assert not ledger.exists() or care.check(f"sqlite:///{ledger}") == []
        life = forked(one, 30, task="create")
        assert life.code == 0
        assert care.check(f"sqlite:///{ledger}") == []
        assert not any(path.name.startswith("ledger.db.new") for path in ledger.parent.iterdir())
    assert halfway or begin == "a cold start"
