"""Chunks of the recording story: simulated days, a ledger that one life after the other dies over, and the rest in peace."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.crashes import judge
from tests.crashes.acting_kills import Stage, folder_of, stage
from tests.crashes.actor import Death, Fate
from tests.crashes.judge import Row, Scope, Sizes, Truth
from tests.crashes.recorder import RECORD
from tests.crashes.story import Story, make_story, open_ledger, record_rest

POLLS, SIZE = 150, 40
LONGEST_US, LONGEST_S, PATIENCE_S = 2500, 0.12, 4.0
AIMED = (("working it out", 4), ("writing rows", 8), ("committing", 8), ("between", 4), ("committing", 8), ("writing rows", 8))
SMALL_LOG, USUAL_LOG = 16, 1000


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
    folder: Path
    acknowledged: dict[Scope, int] = field(default_factory=dict)
    done: int = 0

    def faults(self) -> list[str]:
        """What the judge finds once one more has died."""
        acked, ledger = self.folder / "acked", self.folder / "ledger.db"
        for number in map(int, acked.read_text(encoding="utf-8").split() if acked.exists() else ()):
            entry = self.calm.story.entries[number]
            self.acknowledged[entry.scope] = max(self.acknowledged.get(entry.scope, 0), entry.asked_us)
            self.done = max(self.done, number + 1)
        return judge.faults(ledger, self.calm.truth, self.acknowledged) if ledger.exists() else []


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


def fate(chance: random.Random, number: int, task: str) -> Fate:
    """When the life of this number is to end at the latest, and where."""
    pages = SMALL_LOG if chance.random() < 0.75 else USUAL_LOG
    point, most = AIMED[number % len(AIMED)]
    how = chance.random()
    if how < 0.25:
        return Fate(task, "", "", 0, after_s=0.01 + LONGEST_S * chance.random(), pages=pages)
    delay_us = 0 if how < 0.5 else round(LONGEST_US * chance.random() ** 3)
    nth = 1 + chance.randrange(most)
    return Fate(task, "", "", 0, point=point, nth=nth, amount=delay_us, after_s=PATIENCE_S, pages=pages)


def play(theatre: Stage, seed: int, number: int, tries: int, *, task: str = RECORD, keep: Path | None = None) -> dict[str, Any]:
    """A chunk of so many kills, as a line of the log."""
    began, chance = time.monotonic(), random.Random(f"{seed}/recording/{number}")  # noqa: S311 - moments are drawn, not secret
    with folder_of(number, keep) as folder:
        calm = calmly(chance.randrange(10**6), folder, polls=POLLS, size=SIZE)
        deaths, windows, wrong, done = Deaths(calm, folder), Counter[str](), list[str](), 0
        url, ledger = f"sqlite:///{folder}/ledger.db", folder / "ledger.db"
        open_ledger(url).close()
        for life in range(tries):
            ration = max(1, 2 * ((len(calm.story.entries) - deaths.done) // (tries - life)))
            drawn = replace(fate(chance, life, task), url=url, folder=str(folder), story=str(calm.saved), most=ration)
            died = Death(**theatre.asked("live", asdict(drawn)))
            windows.update(died.windows)
            done += died.code == -signal.SIGKILL
            found = deaths.faults()
            wrong += [f"kill {life}, {died.point}: {one}" for one in found]
            if died.code not in (-signal.SIGKILL, 0):
                wrong.append(f"kill {life}: it ended with {died.code}")
            if found or (died.code == 0 and task != RECORD):
                break
        lost = [one for one in wrong if "acknowledged" in one]
        missing = 0
        if not wrong and task == RECORD:
            wrong += _peace(ledger, calm)
            missing = judge.charged(folder / "calm.db") - judge.charged(ledger)
        return {
            "kills": done,
            "windows": dict(windows),
            "counts": {"acknowledged": deaths.done, "acknowledged and lost": len(lost), "nano-dollars lost": missing},
            "wrong": wrong[:5],
            "took_s": round(time.monotonic() - began, 2),
        }


def _peace(ledger: Path, calm: Calm) -> list[str]:
    """The rest is recorded in peace: every row, and so every nano-dollar, is what it is where nobody dies.

    That such a ledger holds the world's own bill is asked of ten thousand worlds (tests/providers/sim).
    """
    record_rest(f"sqlite:///{ledger}", calm.story)
    here = judge.rows(ledger)
    return [f"{table} is not what it is where nobody dies" for table, rows in calm.rows.items() if here[table] != rows]


__all__ = ["play", "stage"]
