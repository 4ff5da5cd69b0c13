"""The process that is killed. It records listings as fast as it can, and says of each when the ledger has taken it.

    python -m tests.crashes.recorder once TASK STORY LEDGER      one life, from a cold start
    python -m tests.crashes.recorder serve STORY                 a life for each line on stdin, by fork: "TASK|LEDGER|POINT|
                                                                 NTH|DELAY_US|PAGES"; "story|STORY" for another story

On stdout, a line each: "life PID"; "ready" where recording begins; "ack NUMBER" for each listing that was recorded; and from
the fork server "ended CODE WINDOWS" once the life is over, however. What it is just doing stands in the first byte of the file
"phase" beside the ledger, which outlives it. It is killed by its own hand DELAY_US microseconds after it came to POINT for the
NTH time ("-": by somebody else's), and SQLite moves the log into the file after so many PAGES of it.

Tasks: "record", "create" (make an empty ledger), and writers that are broken on purpose: "early" (acknowledges before it
records), "torn" (commits each statement by itself), "forgetful" (never commits).
"""

from __future__ import annotations

import gc
import mmap
import os
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sqlalchemy import Executable, event
from sqlalchemy.engine import Engine

from costguard.ledger.db.connection import WriteConnection, WriterLock, open_engine
from costguard.ledger.db.session import SqlSession, open_sql_session
from costguard.metering.inventory import Poll
from tests.crashes.points import COMMITTING, WRITING, Marker, Page, die_after
from tests.crashes.story import Story, open_ledger, reached, read

PHASES = ("opening", "between", "working it out", "writing rows", "committing")
"""between: the commit is done, and the acknowledgement goes out, or the next listing is made."""
WITHIN = {"working it out": WRITING, "writing rows": WRITING, "committing": COMMITTING}
PHASE_FILE, PHASE_BYTES = "phase", mmap.PAGESIZE

GROUPS = (1, 1, 2, 1, 3)
"""Listings of one transaction, in turn."""

Mark = Callable[[str], None]
Transaction = Callable[[WriteConnection], AbstractContextManager[SqlSession]]


def main(words: list[str]) -> None:
    """Run one life, or serve them."""
    page = Page()
    if words[0] == "once":
        _live(words[1], read(Path(words[2])), [], Path(words[3]), Marker(page))
        return
    story, made = _told(Path(words[1]))
    _warmed(story, made)
    gc.freeze()  # nor in looking through what all lives share
    for line in sys.stdin:
        task, *rest = line.rstrip("\n").split("|")
        if task == "story":
            story, made = _told(Path(rest[0]))
            continue
        ledger, point, nth, delay_us, pages = rest
        page.clear()
        assert threading.active_count() == 1
        child = os.fork()
        if not child:
            status = 1
            try:
                listens(int(pages))
                mark = Marker(page, point, int(nth), partial(die_after, int(delay_us)))
                _live(task, story, made, Path(ledger), mark)
                status = 0
            finally:
                os._exit(status)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        _say(f"ended {code} {','.join(page.windows(Path(ledger)))}")


def _told(path: Path) -> tuple[Story, list[Poll]]:
    """A story, and all of its listings, so that a life spends its time in the ledger."""
    story = read(path)
    return story, [story.poll(number) for number in range(len(story.entries))]


def _warmed(story: Story, made: list[Poll]) -> None:
    """Do in this process what is done once: imports, above all Alembic's."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/ledger.db"
        with open_ledger(url) as ledger:
            ledger.record_polls(made[:1])
        reached(url, story)


def listens(pages: int) -> None:
    """Have each connection that is opened from now on move its log into the file after so many pages."""

    def connected(file: sqlite3.Connection, _record: object) -> None:
        file.execute(f"PRAGMA wal_autocheckpoint = {pages}")

    event.listen(Engine, "connect", connected)


def _live(task: str, story: Story, made: list[Poll], path: Path, marker: Marker) -> None:
    _say(f"life {os.getpid()}")
    mark = _marker(path.with_name(PHASE_FILE), marker)
    mark("opening")
    if task == "create":
        _create(f"sqlite:///{path}")
    else:
        _record(task, story, made, f"sqlite:///{path}", mark)


def _create(url: str) -> None:
    _say("ready")
    open_engine(url).dispose()


def _record(task: str, story: Story, made: list[Poll], url: str, mark: Mark) -> None:
    patch.object(WriteConnection, "begin_transaction", BROKEN.get(task) or _watched(mark)).start()
    with open_ledger(url) as ledger:
        number, turn = reached(url, story), 0
        _say("ready")
        while number < len(story.entries):
            lot = range(number, min(number + GROUPS[turn % len(GROUPS)], len(story.entries)))
            polls = [made[n] if made else story.poll(n) for n in lot]
            if task == "early":
                _acknowledge(lot)
            ledger.record_polls(polls)
            if task != "early":
                _acknowledge(lot)
            number, turn = lot.stop, turn + 1


def _acknowledge(lot: range) -> None:
    _say("\n".join(f"ack {n}" for n in lot))


def _watched(mark: Mark) -> Transaction:
    """The ledger's own transaction, with `mark` told what it is doing."""
    plain = WriteConnection.begin_transaction

    @contextmanager
    def transaction(pen: WriteConnection, *lock: WriterLock, **bounds: Any) -> Iterator[SqlSession]:  # noqa: ANN401 - whatever it takes
        with plain(pen, *lock, **bounds) as (ask, tell):

            def marked(statement: Executable, rows: list[dict[str, Any]] | None = None) -> int:
                mark("writing rows")
                return tell(statement, rows)

            mark("working it out")
            yield ask, marked
            mark("committing")
        mark("between")

    return transaction


@contextmanager
def _torn(pen: WriteConnection, *_: WriterLock, **_bounds: float) -> Iterator[SqlSession]:
    """A transaction that is none: each row is written for good, as it comes."""
    connection = pen._open_file_connection()
    ask, tell = open_sql_session(connection)

    def write(statement: Executable, rows: list[dict[str, Any]] | None = None) -> int:
        count = 0
        for row in [None] if rows is None else rows:
            count += tell(statement, None if row is None else [row])
            connection.commit()
        return count

    yield ask, write
    connection.rollback()


@contextmanager
def _forgetful(pen: WriteConnection, *_: WriterLock, **_bounds: float) -> Iterator[SqlSession]:
    """A transaction that looks like one, and is thrown away."""
    connection = pen._open_file_connection()
    connection.execution_options(begin="BEGIN IMMEDIATE").begin()
    yield open_sql_session(connection)
    connection.rollback()


BROKEN: dict[str, Transaction] = {"torn": _torn, "forgetful": _forgetful}


def _marker(path: Path, marker: Marker) -> Mark:
    """How to say which phase it is: one byte of a file in memory, which the kernel keeps when the process is gone."""
    with path.open("r+b") as file:
        page = mmap.mmap(file.fileno(), PHASE_BYTES)

    def mark(phase: str) -> None:
        page[0] = PHASES.index(phase)
        marker.page.transaction = WITHIN.get(phase, 0)
        marker("born" if phase == "opening" else phase)

    return mark


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1:])
