"""A process that stops machines is killed at every moment: no life is stopped for which nothing was written, and none is lost.

COSTGUARD_KILLS=500 makes a campaign of it.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from costguard.core.guard.intent import DONE, OPEN, UNCONFIRMED
from costguard.core.instant import micros
from costguard.ledger.guardbook import GuardBook
from tests.crashes.acting_cloud import Cloud, drained, served
from tests.crashes.actor import POINTS, RAILS, begun
from tests.crashes.lives import ROOT

KILLS = int(os.environ.get("COSTGUARD_KILLS", "60"))
APART_S = 45.0
"""Of the story between two lives: more than an intent lives."""
LONGEST_S = 0.25
"""Until a life is killed that dies at no named point."""
SEED = 20
SETTLED = POINTS.index("settled")


@dataclass
class Campaign:
    """One ledger, one cloud, and one life after the other. `points`: the last one that each of them passed."""

    cloud: Cloud
    port: int
    ledger: Path
    process: subprocess.Popen[str]
    base_s: float = 0
    points: Counter[str] = field(default_factory=Counter)

    def life(self, task: str = "act", point: str = "-", nth: int = 1, after_s: float = 2.0) -> int:
        """Let one live and die; its exit code."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.base_s += APART_S
        words = (task, self.ledger, self.port, self.base_s, point, nth, f"{after_s:.4f}")
        self.process.stdin.write("|".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        _, code, passed = self.process.stdout.readline().strip().split(maxsplit=2)
        drained(self.cloud, self.port)
        self.points[passed] += 1
        return int(code)

    def faults(self) -> list[str]:
        """What an outside judge finds in what arrived and in what was written."""
        with closing(sqlite3.connect(f"file:{self.ledger}?mode=ro", uri=True)) as file:
            rows = file.execute("SELECT external_id, life, state, sends, id FROM intent").fetchall()
            let_go = Counter(one for (one,) in file.execute("SELECT intent_id FROM intent_event WHERE moved_to = 'executing'"))
        allowed: Counter[tuple[str, str]] = Counter()
        found: list[str] = []
        for name, life, _, sends, intent in rows:
            allowed[name, life.split("/")[0]] += sends
            if sends != let_go[intent]:
                found.append(f"{name} was sent {sends} times, and let go {let_go[intent]} times")
        met = Counter((arrival.id, arrival.run) for arrival in self.cloud.arrivals)
        for (name, run), times in met.items():
            written = allowed[name, str(micros(begun(run)))]
            if times > written:
                found.append(f"run {run} of {name} was stopped {times} times, and {written} are written")
        kept = [arrival for arrival in self.cloud.arrivals if arrival.kept and arrival.state == "running"]
        return [*found, *(f"run {run} of {name} was stopped, and somebody kept it" for name, run, *_ in kept)]

    def paged(self) -> None:
        """Whoever is told that a stop is not confirmed sees to it."""
        with GuardBook(f"sqlite:///{self.ledger}", rails=RAILS) as book:
            for one in book.open_intents():
                if one.state == UNCONFIRMED and one.life.started_at is not None:
                    run = (one.life.started_at - begun(0)) // timedelta(milliseconds=1)
                    self.cloud.by_hand(one.life.key.id, run)


@contextmanager
def campaign(folder: Path, seed: int) -> Iterator[Campaign]:
    """A cloud, a ledger and a fork server of their own."""
    GuardBook(f"sqlite:///{folder / 'ledger.db'}", rails=RAILS).close()
    cloud = Cloud(random.Random(seed))  # noqa: S311 - moments are drawn, not secret
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "providers")))}
    command = [sys.executable, "-m", "tests.crashes.actor"]
    with (
        served(cloud) as port,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environment, text=True
        ) as process,
    ):
        try:
            yield Campaign(cloud, port, folder / "ledger.db", process)
        finally:
            process.kill()


def test_no_kill_between_call_and_record_stops_a_later_life_or_loses_an_intent(tmp_path: Path) -> None:
    chance = random.Random(SEED)  # noqa: S311 - moments are drawn, not secret
    with campaign(tmp_path, SEED) as one:
        for number in range(KILLS):
            if number % 4 == 3:
                code = one.life(after_s=0.02 + LONGEST_S * chance.random())
            else:
                code = one.life(
                    point=POINTS[number % len(POINTS)], nth=1 + chance.randrange(4) * (number % len(POINTS) != SETTLED)
                )
            assert code == -signal.SIGKILL, f"life {number + 1}"
            assert one.faults() == [], f"life {number + 1}"
            one.paged()
        one.cloud.restless = False
        one.base_s += 600
        assert one.life("finish", after_s=60) == 0
        one.paged()
        one.base_s += 600
        assert one.life("finish", after_s=60) == 0
        assert one.faults() == []
        with GuardBook(f"sqlite:///{one.ledger}", rails=RAILS) as book:
            assert book.open_intents() == []
            ends = Counter(intent.state for intent in book.intents_since(begun(0)))
            assert all(book.history(intent.id)[-1].new == intent.state for intent in book.intents_since(begun(0)))
    assert not ends.keys() & set(OPEN)
    assert ends[DONE] > KILLS / 4
    assert all(box.kept or box.state == "stopped" for box in one.cloud.boxes.values())
    met = Counter(f"{arrival.state} {arrival.did}" for arrival in one.cloud.arrivals)
    print(f"\n{KILLS} kills, {dict(one.points)}; {dict(met)}; {one.cloud.short} cut short; {dict(ends)}")  # noqa: T201 - who looks on wants to see it
    assert one.cloud.short


@pytest.mark.parametrize("task", ["blind", "early"])
def test_an_actor_that_is_broken_on_purpose_is_caught(task: str, tmp_path: Path) -> None:
    with campaign(tmp_path, SEED) as one:
        found: list[str] = []
        for number in range(40):
            one.life(task, point=("committed", "sent", "before commit")[number % 3], nth=1 + number % 2)
            found = one.faults()
            if found:
                break
    assert found


def test_the_judge_knows_how_a_life_is_written(tmp_path: Path) -> None:
    with campaign(tmp_path, SEED) as one:
        one.cloud.restless = False
        assert one.life("finish", after_s=60) == 0
        assert one.faults() == []
        assert len(one.cloud.arrivals) == len(one.cloud.boxes)
        one.cloud.arrivals.append(one.cloud.arrivals[0]._replace(run=99))
        assert one.faults() == ["run 99 of i-0 was stopped 1 times, and 0 are written"]
