"""Chunks of the recording story: simulated days, a ledger that one life after the other dies over, and the rest in peace."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.crashes import judge
from tests.crashes.judge import Row, Scope, Sizes, Truth
from tests.crashes.lives import At, Life, Recorder, fork_server, forked
from tests.crashes.owed import Bill
from tests.crashes.places import MEMORY
from tests.crashes.story import Story, make_story, open_ledger, record_rest

POLLS, SIZE = 150, 40
LONGEST_US, LONGEST_S = 2500, 0.05
AIMED = (("working it out", 4), ("writing rows", 8), ("committing", 8), ("between", 4), ("committing", 8), ("writing rows", 8))
SMALL_LOG, USUAL_LOG = 16, 1000
NOTHING_LOST = ("early", "torn", "forgetful")
"""Writers that are broken on purpose."""


@dataclass(frozen=True, slots=True)
class Calm:
    """A story, where it is kept, and what it leaves where nobody dies."""

    story: Story
    saved: Path
    truth: Truth
    rows: dict[str, list[Row]]


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


def calmly(seed: int, folder: Path, *, polls: int, size: int) -> Calm:
    """The story of `seed`, told in peace."""
    story, ledger = make_story(seed, polls=polls, size=size), folder / "calm.db"
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


@contextmanager
def stage() -> Iterator[Recorder]:
    """A fork server of recorders."""
    folder = MEMORY / f"costguard-recorders-{os.getpid()}"
    folder.mkdir(exist_ok=True)
    try:
        saved = make_story(0, polls=4, size=8).save(folder / "story")
        with fork_server(saved, folder / "ledger.db") as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fate(chance: random.Random, number: int) -> tuple[float, At]:
    """When the life of this number is to end at the latest, and where."""
    pages = SMALL_LOG if chance.random() < 0.75 else USUAL_LOG
    point, most = AIMED[number % len(AIMED)]
    how = chance.random()
    if how < 0.25:
        return 0.002 + LONGEST_S * chance.random(), At(pages=pages)
    delay_us = 0 if how < 0.5 else round(LONGEST_US * chance.random() ** 3)
    return 4 * LONGEST_S, At(point, 1 + chance.randrange(most), delay_us, pages)


def play(
    server: Recorder, seed: int, number: int, kills: int, *, task: str = "record", keep: Path | None = None
) -> dict[str, Any]:
    """A chunk of so many kills, as a line of the log."""
    began, chance = time.monotonic(), random.Random(f"{seed}/recording/{number}")  # noqa: S311 - moments are drawn, not secret
    folder = keep or MEMORY / f"costguard-crashes-{os.getpid()}-{number}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        calm = calmly(chance.randrange(10**6), folder, polls=POLLS, size=SIZE)
        assert server.process.stdin is not None
        server.process.stdin.write(f"story|{calm.saved}\n".encode())
        server.ledger = folder / "ledger.db"
        deaths, windows, wrong, done = Deaths(calm, server.ledger), Counter[str](), list[str](), 0
        for life in range(kills):
            after_s, at = fate(chance, life)
            ration = (len(calm.story.entries) - deaths.done) // (kills - life)
            died = forked(server, after_s, task=task, from_birth=True, most=max(1, 2 * ration), at=at)
            windows.update(died.windows)
            done += died.code == -signal.SIGKILL
            found = deaths.faults(died)
            wrong += [f"kill {life}, {died.phase}: {one}" for one in found]
            if died.code not in (-signal.SIGKILL, 0):
                wrong.append(f"kill {life}: it ended with {died.code}")
            if found or (died.code == 0 and task != "record"):
                break
        lost = [one for one in wrong if "acknowledged" in one]
        missing = 0
        if not wrong and task == "record":
            wrong += _peace(server.ledger, calm)
            missing = judge.charged(folder / "calm.db") - judge.charged(server.ledger)
        return {
            "kills": done,
            "windows": dict(windows),
            "counts": {"acknowledged": deaths.done, "acknowledged and lost": len(lost), "nano-dollars lost": missing},
            "wrong": wrong[:5],
            "took_s": round(time.monotonic() - began, 2),
        }
    finally:
        if keep is None:
            with suppress(OSError):
                shutil.rmtree(folder)


def _peace(ledger: Path, calm: Calm) -> list[str]:
    """The rest is recorded in peace: every row, and so every nano-dollar, is what it is where nobody dies."""
    record_rest(f"sqlite:///{ledger}", calm.story)
    wrong = [f"the world's bill: {one}" for one in Bill(calm.story).faults(ledger)]
    here = judge.rows(ledger)
    return wrong + [f"{table} is not what it is where nobody dies" for table, rows in calm.rows.items() if here[table] != rows]
