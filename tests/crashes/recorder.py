"""What a life of the recording story does: it records listings as fast as it can, and notes each that the ledger has taken.

It is a task of the process that `actor` forks. Each acknowledgement is the number of a listing, a line of the file `acked`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sqlalchemy import Executable

from costguard.ledger.db.connection import WriteConnection, WriterLock
from costguard.ledger.db.session import SqlSession, open_sql_session
from costguard.metering.inventory import Poll
from tests.crashes.points import WRITING, Marker, die_after
from tests.crashes.story import Story, open_ledger, reached, read

RECORD, EARLY, TORN, FORGETFUL = "record", "early", "torn", "forgetful"
BROKEN = (EARLY, TORN, FORGETFUL)
"""Writers that are broken on purpose: acknowledges before it records; commits each statement by itself; never commits."""
GROUPS = (1, 1, 2, 1, 3)
"""Listings of one transaction, in turn."""
SOON_US = 4000
"""A life that has recorded as much as it may ends so soon, in the middle of the next."""

Transaction = Callable[[WriteConnection], AbstractContextManager[SqlSession]]


@lru_cache(maxsize=1)
def load(path: str) -> tuple[Story, list[Poll]]:
    """A story and all of its listings: made before a life begins, which so spends its time in the ledger."""
    story = read(Path(path))
    return story, [story.poll(number) for number in range(len(story.entries))]


def record(task: str, path: str, url: str, *, acked: int, mark: Marker, most: int) -> None:
    """Record what the ledger at `url` lacks of the story at `path`; after `most` listings the life ends soon."""
    story, polls = load(path)
    patch.object(WriteConnection, "begin_transaction", _torn if task == TORN else _marked(mark)).start()
    with open_ledger(url) as ledger:
        first = number = reached(url, story)
        turn = 0
        while number < len(polls):
            lot = range(number, min(number + GROUPS[turn % len(GROUPS)], len(polls)))
            if task == EARLY:
                _acknowledge(acked, lot)
            ledger.record_polls(polls[lot.start : lot.stop])
            if task != EARLY:
                _acknowledge(acked, lot)
            if lot.start - first < most <= lot.stop - first:
                die_after(SOON_US)
            number, turn = lot.stop, turn + 1


def _acknowledge(acked: int, lot: range) -> None:
    os.write(acked, "".join(f"{number}\n" for number in lot).encode())


def _marked(mark: Marker) -> Transaction:
    """The ledger's own transaction, with `mark` told what it is doing; of its commit it is told by the engine (`actor`)."""
    plain = WriteConnection.begin_transaction

    @contextmanager
    def transaction(pen: WriteConnection, *lock: WriterLock, **bounds: Any) -> Iterator[SqlSession]:  # noqa: ANN401 - whatever it takes
        with plain(pen, *lock, **bounds) as (ask, tell):

            def write(statement: Executable, rows: list[dict[str, Any]] | None = None) -> int:
                mark("writing rows")
                return tell(statement, rows)

            mark.page.transaction = WRITING
            mark("working it out")
            yield ask, write
        mark.page.transaction = 0
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
