"""Old ledgers whose upgrade is killed: at every point that it passes, and at any moment after one.

What must hold then: the ledger is as it was, or it is of the new version and a whole copy of the old one lies beside it; what
looks like such a copy is whole; and the next start makes it good. The judge is plain sqlite3.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from costguard.ledger.db.schema import HEAD_REVISION
from tests.crashes.judge import as_left
from tests.crashes.places import MEMORY, ROOT, environment
from tests.crashes.upgrader import Doom, put

GOLDENS = ("0001", "0001-guard", "0002")
NEW = HEAD_REVISION
"""What an upgrade ends at; a golden ledger's own version is the beginning of its name."""
VERSION = 4
LONGEST_US = 4000
TABLES = (
    "span", "correction", "ledger_state", "scope", "coverage", "resource", "attribution", "observation", "daily",
)  # fmt: skip
"""What an upgrade leaves as it is."""

State = tuple[str, list[Any], dict[str, list[Any]]]
"""(version, the schema, the rows of TABLES)."""


@dataclass
class Upgrader:
    """The fork server. `points`: how many an upgrade of each golden ledger passes; `copies`: which begins the copy."""

    process: subprocess.Popen[str]
    points: dict[str, int]
    copies: dict[str, int]
    old: dict[str, State]
    new: dict[str, State]

    def upgrade(self, doom: Doom) -> tuple[int, int, str]:
        """Exit code, points passed, the last one."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{json.dumps(asdict(doom))}\n")
        self.process.stdin.flush()
        code, count, last = json.loads(self.process.stdout.readline())
        return code, count, last


@contextmanager
def stage() -> Iterator[Upgrader]:
    """It, and what each golden ledger is before and after."""
    command = [sys.executable, "-m", "tests.crashes.upgrader"]
    folder = MEMORY / f"costguard-upgrades-{os.getpid()}"
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environment(), text=True
    ) as process:
        made = Upgrader(process, {}, {}, {}, {})
        try:
            for name in GOLDENS:
                for nth in range(1, 30):
                    with _laid(folder, name) as ledger:
                        _, made.copies[name], last = made.upgrade(Doom(f"sqlite:///{ledger}", nth))
                    if ".before-" in last:
                        break
                with _laid(folder, name) as ledger:
                    made.old[name] = state(ledger)
                    code, made.points[name], _ = made.upgrade(Doom(f"sqlite:///{ledger}"))
                    assert code == 0
                    made.new[name] = state(ledger)
            yield made
        finally:
            process.kill()


@contextmanager
def _laid(folder: Path, name: str) -> Iterator[Path]:
    """A golden ledger in a folder of its own."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        put(f"sqlite:///{folder}/ledger.db", name)
        yield folder / "ledger.db"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def state(path: Path) -> State:
    """What is in a file, log and all."""
    with as_left(path) as file:
        return _state(file)


def _state(file: sqlite3.Connection) -> State:
    (version,) = file.execute("SELECT version_num FROM alembic_version").fetchone()
    schema = file.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY type, name"
    ).fetchall()
    rows = {table: sorted(file.execute(f"SELECT * FROM {table}"), key=repr) for table in TABLES}  # noqa: S608 - ours
    return version, schema, rows


def faults(ledger: Path, old: State, new: State) -> list[str]:
    """What is wrong after a death."""
    with as_left(ledger) as file:
        wrong = [f"the ledger is damaged: {said}" for (said,) in file.execute("PRAGMA integrity_check") if said != "ok"]
        here = _state(file)
    if here not in (old, new):
        wrong.append(f"the ledger is neither what it was nor what it should be: version {here[0]}")
    whole = 0
    for copy in sorted(ledger.parent.glob(f"ledger.db.before-{NEW}-*")):
        if copy.name.endswith((".new", "-journal", "-wal", "-shm")):
            continue
        try:
            with closing(sqlite3.connect(f"file:{copy}?mode=ro&immutable=1", uri=True)) as file:
                sound = file.execute("PRAGMA integrity_check").fetchone() == ("ok",) and _state(file) == old
        except sqlite3.Error:
            sound = False
        whole += sound
        if not sound:
            wrong.append(f"{copy.name.split('-')[0]}-... looks like a copy, and is none: {copy.stat().st_size} bytes")
    if here != old and not whole:
        wrong.append("the ledger was changed, and there is no copy of what it was")
    return wrong


def play(
    upgrader: Upgrader, seed: int, number: int, tries: int, *, task: str = "", keep: Path | None = None, stride: int = 1
) -> dict[str, Any]:
    """Deaths number * tries and on: first one at each point of each golden ledger, then a moment after one that is drawn.

    Of those that are drawn a third fall within the copy. `stride`: only each so many-th point.
    """
    began, chance = time.monotonic(), random.Random(f"{seed}/migrating/{number}")  # noqa: S311 - moments are drawn, not secret
    folder = keep or MEMORY / f"costguard-crashes-{os.getpid()}-{number}"
    every = [(name, nth) for name in GOLDENS for nth in range(1, upgrader.points[name] + 1)][::stride]
    kills, windows, wrong, halves = 0, Counter[str](), list[str](), Counter[str]()
    for at in range(number * tries, (number + 1) * tries):
        name, nth = every[at] if at < len(every) else chance.choice(every)
        if at >= len(every) and at % 3 == 0:
            nth = upgrader.copies[name]
        delay_us = 0 if at < len(every) else round(LONGEST_US * chance.random() ** 2)
        if task:
            name, nth = chance.choice(every)
            nth, delay_us = upgrader.points[name] if at % 2 else nth, 0
        with suppress(FileNotFoundError), _laid(folder, name) as ledger:
            url = f"sqlite:///{ledger}"
            code, _, last = upgrader.upgrade(Doom(url, nth, delay_us, task))
            kills += code == -signal.SIGKILL
            windows[_window(last)] += 1
            found = faults(ledger, upgrader.old[name], upgrader.new[name])
            halves["left old" if state(ledger) == upgrader.old[name] else "left new"] += 1
            if not task:
                again, _, _ = upgrader.upgrade(Doom(url))
                found += [f"the next start ended with {again}"] if again else []
                found += faults(ledger, upgrader.old[name], upgrader.new[name])
                found += [] if state(ledger) == upgrader.new[name] else ["the next start did not make it good"]
            wrong += [f"{name}, point {nth} ({last[:60]}) and {delay_us} us: {one}" for one in found]
    return {
        "kills": kills,
        "windows": dict(windows),
        "counts": {"points": len(every) if number == 0 else 0, **halves},
        "wrong": wrong[:5],
        "took_s": round(time.monotonic() - began, 2),
    }


def _window(last: str) -> str:
    word = last.split(maxsplit=1)[0] if last else "nothing"
    return {
        "open": "files", "os.rename": "files", "os.link": "files", "os.remove": "files", "os.mkdir": "files",
        "fcntl.flock": "files", "PRAGMA": "copy and pragmas", "SELECT": "reading", "BEGIN": "transaction", "COMMIT": "commit",
    }.get(word, "statements")  # fmt: skip
