"""The process that brings an old ledger up and is killed there: at each statement, each change to a file, or a moment later.

    python -m tests.crashes.upgrader       an upgrade for each line of JSON (the fields of Doom) on stdin, by fork

On stdout, a line of JSON for each: its exit code, how many points it passed, and what the last one was. A point is the begin of
a statement, as the database's own trace tells it, or what Python is about to do to a file (sys.addaudithook).
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import shutil
import sqlite3
import sys
import tempfile
import traceback
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sqlalchemy import event
from sqlalchemy.engine import Engine

from costguard.ledger.db import connection as opening
from costguard.ledger.db.address import parse_ledger_address
from costguard.ledger.db.connection import upgrade_schema
from tests.crashes.points import die_after

GOLDEN = Path(__file__).parents[1] / "ledger" / "golden"
FILES = ("open", "os.rename", "os.remove", "os.link", "os.mkdir", "fcntl.flock", "shutil.copyfile")
UNCOPIED, TORN = "uncopied", "torn"
CONTROLS = (UNCOPIED, TORN)
"""Upgrades that are broken on purpose: without a copy first; each statement committed by itself."""


@dataclass(frozen=True, slots=True)
class Doom:
    """An upgrade to come: of the ledger at `url`, killed `delay_us` after its `nth` point; 0: it is left in peace."""

    url: str
    nth: int = 0
    delay_us: int = 0
    task: str = ""


class Counter:
    """Points that were passed, in memory that outlives who passes them."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, mmap.PAGESIZE)

    def clear(self) -> None:
        self.memory[:] = bytes(len(self.memory))

    @property
    def count(self) -> int:
        return int.from_bytes(self.memory[:4], "little")

    @property
    def last(self) -> str:
        return self.memory[4:204].rstrip(b"\0").decode(errors="replace")

    def passes(self, what: str, doom: Doom) -> None:
        """One more."""
        number = self.count + 1
        self.memory[:204] = number.to_bytes(4, "little") + what.encode()[:200].ljust(200, b"\0")
        if number == doom.nth:
            die_after(doom.delay_us)


def watched(counter: Counter, doom: Doom) -> None:
    """Have every point of this process counted. For good: in a process that dies."""
    folder = str(parse_ledger_address(doom.url).path.parent) if doom.url.startswith("sqlite") else "\0"  # type: ignore[union-attr]

    def audited(name: str, values: tuple[Any, ...]) -> None:
        if name in FILES and (name == "fcntl.flock" or folder in str(values[0])):
            counter.passes(f"{name} {Path(str(values[0])).name}", doom)

    def connected(*words: Any, **named: Any) -> sqlite3.Connection:  # noqa: ANN401 - as sqlite3.connect's own
        file: sqlite3.Connection = connect(*words, **named)
        file.set_trace_callback(lambda sql: counter.passes(" ".join(sql.split()), doom))
        return file

    connect = sqlite3.connect
    patch.object(sqlite3, "connect", connected).start()
    sys.addaudithook(audited)
    if not doom.url.startswith("sqlite"):
        for moment in ("before_cursor_execute", "after_cursor_execute"):
            event.listen(Engine, moment, lambda _c, _r, sql, *_: counter.passes(" ".join(sql.split()), doom))
        event.listen(Engine, "commit", lambda _: counter.passes("COMMIT", doom))


def upgraded(doom: Doom) -> None:
    """Bring it up, as it should be or as `task` has it."""
    if doom.task == UNCOPIED:
        patch.object(opening, "copy_ledger", lambda *_: None).start()
    if doom.task == TORN:
        event.listen(Engine, "after_cursor_execute", _committed)
    upgrade_schema(doom.url)


def _committed(connection: Any, _cursor: Any, sql: str, *_: Any) -> None:  # noqa: ANN401 - SQLAlchemy's own
    file = connection.connection.driver_connection
    if isinstance(file, sqlite3.Connection) and file.in_transaction and not sql.startswith("BEGIN"):
        file.execute("COMMIT")
        file.execute("BEGIN IMMEDIATE")


def put(url: str, name: str) -> None:
    """The golden ledger `name` at `url`, as its last writer left it: with a log, where it is a file."""
    where = parse_ledger_address(url)
    if where.path is None:
        import psycopg

        with psycopg.connect(where.conninfo, autocommit=True) as server:
            server.execute((GOLDEN / f"{name}.postgresql.sql").read_bytes())
        return
    with closing(sqlite3.connect(where.path)) as file:
        file.executescript((GOLDEN / f"{name}.sqlite.sql").read_text())
        file.execute("PRAGMA journal_mode = wal")
        file.execute("PRAGMA wal_autocheckpoint = 0")
        file.execute("UPDATE ledger_state SET revision = revision + 1")
        for suffix in ("", "-wal"):  # closing would move the log into the file
            shutil.copy(f"{where.path}{suffix}", f"{where.path}.as-left{suffix}")
    for suffix in ("", "-wal"):
        Path(f"{where.path}.as-left{suffix}").rename(f"{where.path}{suffix}")
    where.path.chmod(0o600)


def main() -> None:
    """Serve upgrades."""
    counter = Counter()
    with tempfile.TemporaryDirectory() as folder:  # what is done once is done here: imports, Alembic's above all
        put(f"sqlite:///{folder}/ledger.db", "0001")
        upgrade_schema(f"sqlite:///{folder}/ledger.db")
    gc.freeze()
    for line in sys.stdin:
        doom = Doom(**json.loads(line))
        counter.clear()
        child = os.fork()
        if not child:
            status = 1
            try:
                watched(counter, doom)
                upgraded(doom)
                status = 0
            except BaseException:  # noqa: BLE001 - it is said, and the process ends
                traceback.print_exc()
            finally:
                os._exit(status)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.write(1, f"{json.dumps([code, counter.count, counter.last])}\n".encode())


if __name__ == "__main__":
    main()
