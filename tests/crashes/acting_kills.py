"""Chunks of the acting story: a ledger and a cloud, lives that die over them, and a last one that is left in peace."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from costguard.ledger.guard.store import GuardStore
from tests.crashes.acting_cloud import ask, served
from tests.crashes.acting_judge import BEGAN_US, LAST, LIFE_US, Ask, Found, in_file, judged
from tests.crashes.actor import ACT, FINISH, RAILS, Death, Fate
from tests.crashes.judge import as_left
from tests.crashes.places import MEMORY, ROOT, environment

AIMED = (
    ("polling", 4), ("planned", 3), ("settled", 1), ("before a look", 4), ("looked", 4), ("before commit", 4),
    ("committing", 8), ("committed", 4), ("before send", 4), ("checked", 4), ("half sent", 4), ("sent", 4), ("answered", 4),
    ("before record", 4), ("recorded", 3),
)  # fmt: skip
"""(point, up to which time of it)."""
LONGEST_US, LONGEST_S = 1500, 0.12
"""After a point, and after a birth: so long that a death may fall anywhere until nothing is left to do."""
PATIENCE_S = 0.5
PAGED_EACH = 10
SMALL_LOG, USUAL_LOG = 8, 1000
"""Pages of log after which SQLite moves it into the file: often, so that many deaths fall into that; and as it is."""


@dataclass
class Stage:
    """A fork server of actors, and clouds, each a process of its own that serves one chunk after the other."""

    port: int
    process: subprocess.Popen[str]

    def asked(self, what: str, told: object) -> dict[str, Any]:
        """Ask the fork server."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{json.dumps({what: told})}\n")
        self.process.stdin.flush()
        said: dict[str, Any] = json.loads(self.process.stdout.readline())
        return said


@contextmanager
def stage() -> Iterator[Stage]:
    """Both, started."""
    with (
        served() as port,
        subprocess.Popen(
            [sys.executable, "-m", "tests.crashes.actor", str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=environment(),
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield Stage(port, process)
        finally:
            process.kill()


@dataclass
class Chunk:
    """One ledger, one cloud, and one life after the other. `url`: of a ledger on a server, "" for a file in `folder`."""

    stage: Stage
    folder: Path
    url: str = ""

    def life(self, fate: Fate, number: int) -> Death:
        """The life of this number, and all of it that was heard."""
        ask(self.stage.port, f"/a/life/{number}")
        base_s, url = number * LIFE_US / 10**6, self.url or f"sqlite:///{self.folder}/ledger.db"
        whole = replace(fate, url=url, folder=str(self.folder), port=self.stage.port, base_s=base_s)
        died = Death(**self.stage.asked("live", asdict(whole)))
        ask(self.stage.port, "/barrier")
        return died

    @contextmanager
    def reading(self) -> Iterator[Ask]:
        """The ledger as it is."""
        if not self.url:
            with as_left(self.folder / "ledger.db") as file:
                yield lambda sql: file.execute(sql).fetchall()
            return
        import psycopg

        with psycopg.connect(self.url.replace("+psycopg", ""), autocommit=True) as server:
            yield lambda sql: server.execute(sql.encode()).fetchall()

    def paged(self) -> None:
        """Whoever is told that a stop is not confirmed sees to it."""
        with self.reading() as ask_ledger:
            rows = ask_ledger("SELECT external_id, life FROM intent WHERE state = 'unconfirmed'")
        for name, life in rows:
            ask(self.stage.port, f"/a/by-hand/{name}/{(int(life.split('/', maxsplit=1)[0]) - BEGAN_US) // 1000}")

    def ends(self) -> list[str]:
        """Let one finish whatever is left, twice; what is not as it must be then."""
        boxes = ask(self.stage.port, "/a/calm")
        for number in (LAST, 2 * LAST):
            died = self.life(Fate(FINISH, "", "", 0, after_s=60), number)
            if died.code:
                return [f"the life that was left in peace ended with {died.code}"]
            self.paged()
            boxes = ask(self.stage.port, "/a/calm")
        with self.reading() as ask_ledger:
            states = Counter(state for (state,) in ask_ledger("SELECT state FROM intent"))
        left = set(states) - {"done", "cancelled", "failed"}
        running = [name for name, box in boxes.items() if not box["kept"] and box["state"] != "stopped"]
        return [f"{state} is left" for state in sorted(left)] + [f"{name} runs for ever" for name in running]

    def judged(self) -> Found:
        """What the judge says of all of it."""
        if not self.url:
            return in_file(self.folder / "ledger.db", self.folder)
        with self.reading() as ask_ledger:
            return judged(self.folder, ask_ledger)


def fate(chance: random.Random, number: int, task: str = ACT) -> Fate:
    """How the life of this number is to end: at a point, a moment after it, or whenever somebody else says."""
    pages = SMALL_LOG if chance.random() < 0.75 else USUAL_LOG
    point, most = AIMED[number % len(AIMED)]
    how = chance.random()
    if how < 0.25:
        return Fate(task, "", "", 0, after_s=0.01 + LONGEST_S * chance.random(), pages=pages)
    delay_us = 0 if how < 0.6 else round(LONGEST_US * chance.random() ** 3)
    nth = 1 + chance.randrange(most)
    patience_s = LONGEST_S if point == "settled" else PATIENCE_S  # not every life finds something to settle
    return Fate(task, "", "", 0, point=point, nth=nth, amount=delay_us, after_s=8 * patience_s, pages=pages)


@contextmanager
def folder_of(number: int, keep: Path | None) -> Iterator[Path]:
    """An empty folder in memory; or `keep`, which stays."""
    folder = keep or MEMORY / f"costguard-crashes-{os.getpid()}-{number}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def play(
    stage: Stage,
    seed: int,
    number: int,
    tries: int,
    *,
    task: str = ACT,
    keep: Path | None = None,
    draw: Callable[[random.Random, int, str], Fate] = fate,
    name: str = "acting",
    codes: frozenset[int] = frozenset((-signal.SIGKILL,)),
) -> dict[str, Any]:
    """A chunk of so many lives, as a line of the log. `codes`: how a life may end."""
    began, chance = time.monotonic(), random.Random(f"{seed}/{name}/{number}")  # noqa: S311 - moments are drawn, not secret
    with folder_of(number, keep) as folder:
        ask(stage.port, f"/a/new{folder}/{chance.randrange(10**9)}")
        chunk, deaths = Chunk(stage, folder), list[Death]()
        GuardStore(f"sqlite:///{folder}/ledger.db", rails=RAILS).close()
        for life in range(tries):
            deaths.append(chunk.life(draw(chance, life, task), life))
            if life % PAGED_EACH == PAGED_EACH - 1:
                chunk.paged()
        faults = [f"a life ended with {died.code} after {died.point}" for died in deaths if died.code not in codes]
        faults += chunk.ends() if task == ACT else []
        return line(chunk.judged(), faults, deaths, took_s=time.monotonic() - began)


def line(found: Found, faults: list[str], deaths: Sequence[Death], *, took_s: float) -> dict[str, Any]:
    """What a chunk came to."""
    windows, codes = Counter(window for died in deaths for window in died.windows), Counter(died.code for died in deaths)
    return {
        "kills": len(deaths),
        "windows": dict(windows),
        "counts": {
            "calls": found.calls,
            "calls without intent": found.without_intent,
            "later lives hit": found.later_lives,
            "calls after expiry": found.late,
            "let go, and no call": found.uncalled,
            "cut short": found.cut_short,
            "acknowledged": found.acknowledged,
            "acknowledged and lost": found.lost,
            **{f"ended with {code}": count for code, count in codes.items()},
        },
        "wrong": [*faults, *found.faults][:5],
        "took_s": round(took_s, 2),
    }
