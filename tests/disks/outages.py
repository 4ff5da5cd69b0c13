"""A disk that is full, or read-only, for a while, under a watchdog that is about to stop a machine.

    python -m tests.disks outages       prints what came of both

It must observe only, say so without a disk, and go on by itself when the disk takes writes again; the stop that came due
meanwhile gets its grace anew and is sent once. A full disk is a real one, a small tmpfs. A disk turns read-only under open
files only by the kernel's own doing, so that is the shim's.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from sqlite3 import connect
from tempfile import TemporaryDirectory

from tests.disks.commands import IDLE, Life
from tests.disks.failing import DUE, LONGEST_S, Bench, bench
from tests.disks.trace import ROOT, environment, say

SIZE = "12m"
SPARE = "spare"
OBSERVES = "observing_only"
PAGED = "the ledger cannot be written"
RUNS = 3
"""Of the guard that find the disk as it is; and that are recorded afterwards."""
GRACE = 12
"""Minutes after which a stop that came due meanwhile is sent: whoever was not told has all of its grace again."""


@contextmanager
def small_disk(at: Path) -> Iterator[None]:
    """A file system of SIZE at `at`; OSError where it cannot be mounted."""
    at.mkdir(exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "costguard", at], check=False, capture_output=True)
    if mounted.returncode:
        raise OSError(mounted.stderr.decode().strip())
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", at], check=True)


def why_not() -> str:
    """Why no disk can be mounted here; "" where it can."""
    try:
        with TemporaryDirectory() as at, small_disk(Path(at)):
            return ""
    except OSError as error:
        return f"no file system can be mounted here: {error}"


def fill(disk: Path) -> None:
    """Leave no room on it."""
    with (disk / SPARE).open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


@contextmanager
def watching(place: Path, made: Bench, stuck: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A watchdog that has begun a minute before the stop is due; what it says goes to the file `said`."""
    life = Life(
        words=["--json-log", "watch", "--interval", "3s"],
        folder=str(made.folder),
        log=str(made.log),
        minute=DUE - 1.08,
        nth=0,
        how=0,
        deaf=False,
    )
    with (place / "said").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.disks.commands", json.dumps(asdict(life))],
            cwd=ROOT,
            env=environment(place / "disk", DISKS_STUCK=str(stuck)),
            stdout=said,
            stderr=said,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def until(true: Callable[[], bool], place: Path) -> None:
    """Wait until `true`; AssertionError with the end of what the watchdog said."""
    end = time.monotonic() + LONGEST_S
    while not true():
        assert time.monotonic() < end, (place / "said").read_text()[-4000:]
        threading.Event().wait(0.1)


def runs(made: Bench) -> int:
    """Guard runs that are recorded."""
    with closing(connect(f"file:{made.folder}/data/ledger.db?mode=ro", uri=True)) as file:
        return int(file.execute("SELECT count(*) FROM guard_run").fetchone()[0])


def outage(place: Path, begin: Callable[[], object], end: Callable[[], object], stuck: Path) -> list[str]:
    """What is wrong with a watchdog whose disk is as after `begin` and then as after `end`; a sentence each."""
    found: list[str] = []
    with bench(place) as made:
        made.lay("due")
        assert made.run(("watch", "--once"), minute=DUE - 1.1).code == 0
        assert made.log.read_text() == ""
        with watching(place, made, stuck) as process:

            def count(what: str) -> int:
                return (place / "said").read_text().count(what)

            until(lambda: count(" an hour") > 0, place)
            begin()
            due = time.monotonic() + 10
            until(lambda: count(OBSERVES) >= RUNS and time.monotonic() > due, place)
            if not count(PAGED):
                found.append("nobody was paged")
            if made.log.read_text():
                found.append("a machine was stopped while nothing could be written")
            end()
            there = runs(made)
            until(lambda: runs(made) >= there + RUNS, place)
            process.send_signal(signal.SIGTERM)
            code = process.wait(LONGEST_S)
        if code or made.log.read_text():
            found.append(f"it ended with {code}, and had stopped {made.log.read_text().split()} before its new grace was over")
        for minute in range(DUE + 1, DUE + GRACE):
            made.run(("watch", "--once"), minute=minute)
        if made.log.read_text() != f"{IDLE}\n":
            found.append(f"in the end it had stopped {made.log.read_text().split()}")
        with closing(connect(made.folder / "data" / "ledger.db")) as file:
            said = file.execute("PRAGMA integrity_check").fetchone()
            sends = file.execute("SELECT count(*) FROM intent_event WHERE moved_to = 'executing'").fetchone()
        if (said, sends) != (("ok",), (1,)):
            found.append(f"the ledger says {said} and {sends} sends")
    return found


def full(place: Path) -> list[str]:
    """A disk without room."""
    disk = place / "disk"
    with small_disk(disk):
        return outage(place, lambda: fill(disk), (disk / SPARE).unlink, place / "never")


def read_only(place: Path) -> list[str]:
    """A disk that takes no writes."""
    stuck = place / "stuck"
    return outage(place, stuck.touch, stuck.unlink, stuck)


def figure() -> bool:
    """Print what came of both; whether nothing is wrong."""
    right = True
    for what, go in (("full disk", full), ("read-only disk", read_only)):
        if go is full and why_not():
            say(f"outage: {what}: skipped: {why_not()}")
            continue
        begun = time.monotonic()
        with TemporaryDirectory() as place:
            found = go(Path(place))
        say(f"outage: {what}: {found or 'only observed, paged, and went on by itself'}; {time.monotonic() - begun:.0f} s")
        right = right and not found
    return right
