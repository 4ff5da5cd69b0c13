"""Opening a ledger to write to it: the file or database is made, brought up to this version, and checked before use.

    with writing(engine) as connection:
        connection.execute(insert(SCOPE), rows)

is one write transaction: all or nothing, alone, and on the disk when the block ends.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import QueuePool

from costguard.errors import LedgerError
from costguard.ledger.db.address import Address, address
from costguard.ledger.db.backup import copy, forget_unfinished, stamp
from costguard.ledger.db.faults import ledger_errors
from costguard.ledger.db.found import folder_there, found_file, found_server
from costguard.ledger.db.schema import HEAD, migrate, renew
from costguard.system.atomic_file import locked
from costguard.system.whole import make_folder, synced

PATIENCE_S = 30.0
"""How long another writer is waited for."""

CONNECT_TIMEOUT_S = 10
WRITERS = 0x434F5354
"""The key of PostgreSQL's advisory lock that writers take in turn: "COST" in ASCII."""

PRAGMAS = {
    "journal_mode": "wal",
    "synchronous": 2,  # FULL: a commit is on the disk before it returns
    "foreign_keys": 1,
    "fullfsync": 1,  # only macOS has it: there, fsync alone leaves data in the drive's cache
    "recursive_triggers": 1,  # else REPLACE removes a row without asking the guards
    "journal_size_limit": 16 * 2**20,  # a large import leaves no large log behind
}
"""Set on every connection, and read back."""


@dataclass(frozen=True, slots=True)
class _Opened:
    """What an engine's options carry."""

    where: Address
    patience_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """What opening changed. `before`: the revision that was there, None where there was no ledger. `copy`: made beforehand."""

    before: str | None
    after: str = HEAD
    copy: Path | None = None


def open_engine(url: str, *, patience_s: float = PATIENCE_S) -> Engine:
    """An engine on the ledger at `url`, which is made where there is none and migrated where it is older.

    A SQLite file is 0600, in a folder made 0700; a file that is foreign, damaged, or of a newer version is refused. Another
    writer is waited for `patience_s`. Plain `engine.connect()` reads; write through `writing`.
    """
    where = address(url)
    with ledger_errors(where):
        engine = _server_engine(where, patience_s) if where.path is None else _file_engine(where, patience_s)
        try:
            _make_ready(engine, where, patience_s)
        except BaseException:
            engine.dispose()
            raise
        return engine


def upgrade(url: str, *, patience_s: float = PATIENCE_S) -> Upgrade:
    """What `open_engine` does before it opens, and what that changed. Guards and views are put up anew in any case."""
    where = address(url)
    with ledger_errors(where):
        engine = _server_engine(where, patience_s) if where.path is None else _file_engine(where, patience_s)
        try:
            done = _make_ready(engine, where, patience_s)
            if done.before == HEAD:
                with writing(engine) as connection:
                    renew(connection)
        finally:
            engine.dispose()
        return done


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """One write transaction, alone over all processes; committed when the block ends, rolled back where it raises.

    On SQLite the checkpoint that a commit may bring lies under the same lock. Not to be nested.
    """
    opened: _Opened = engine.get_execution_options()["ledger"]
    path = opened.where.path
    with ledger_errors(opened.where):
        if path is None:
            with engine.begin() as connection:
                _take_turn(connection, opened.patience_s)
                yield connection
        else:
            lock = opened.where.beside(".lock")
            with (
                locked(lock, patience_s=opened.patience_s),
                engine.connect() as connection,
                connection.execution_options(begin="BEGIN IMMEDIATE").begin(),
            ):
                yield connection


def _make_ready(engine: Engine, where: Address, patience_s: float) -> Upgrade:
    """Have a ledger of this version there. It is looked at without the lock first: usually there is one."""
    path = where.path
    if path is None:
        return _make_server_ready(engine, where)
    if path.is_dir():
        raise folder_there(where)
    if path.exists() and found_file(where) == HEAD:
        return Upgrade(before=HEAD)
    make_folder(path.parent)
    with locked(where.beside(".lock"), patience_s=patience_s):
        if not path.exists():
            _create(where, path, patience_s)
            return Upgrade(before=None)
        before = found_file(where)
        return Upgrade(before=before, copy=None if before == HEAD else _upgraded(engine, where))


def _create(where: Address, path: Path, patience_s: float) -> None:
    """Make the ledger under another name and give it its own when it is whole: what has the name is never half a ledger."""
    fresh = Address(shown=where.shown, path=where.beside(".new"))
    try:
        for suffix in ("", "-wal", "-shm", "-journal"):
            fresh.beside(suffix).unlink(missing_ok=True)
        os.close(os.open(fresh.beside(""), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        engine = _file_engine(fresh, patience_s)
        try:
            _migrate_file(engine)
            _move_log(engine)
        finally:
            engine.dispose()
        synced(fresh.beside(""))
        fresh.beside("").rename(path)
        synced(path.parent)
    except BaseException:
        for suffix in ("", "-wal", "-shm", "-journal"):
            fresh.beside(suffix).unlink(missing_ok=True)
        raise


def _upgraded(engine: Engine, where: Address) -> Path:
    """Bring an older ledger up, with a copy beside it first."""
    forget_unfinished(where.beside(".before-"))
    kept = where.beside(f".before-{HEAD}-{stamp()}")
    copy(where, kept)
    _migrate_file(engine)
    return kept


def _migrate_file(engine: Engine) -> None:
    with engine.connect() as connection, connection.execution_options(begin="BEGIN IMMEDIATE").begin():
        migrate(connection)


def _move_log(engine: Engine) -> None:
    """Have all of it in the file itself. Closing does that too, but says nothing where it fails, and the log stays behind."""
    with closing(engine.raw_connection()) as connection:
        connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _make_server_ready(engine: Engine, where: Address) -> Upgrade:
    with engine.connect() as connection:
        before = found_server(connection, where)
    if before != HEAD:
        with writing(engine) as connection:
            before = found_server(connection, where)
            if before != HEAD:
                migrate(connection)
    return Upgrade(before=before)


def _take_turn(connection: Connection, patience_s: float) -> None:
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {max(1, int(patience_s * 1000))}")
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITERS})")


def _server_engine(where: Address, patience_s: float) -> Engine:
    engine = create_engine(
        where.sqlalchemy_url,
        connect_args={"connect_timeout": CONNECT_TIMEOUT_S},
        pool_pre_ping=True,
        execution_options={"ledger": _Opened(where, patience_s)},
        hide_parameters=True,
    )

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: Any, _record: Any, words: list[str], options: dict[str, Any]) -> Any:  # noqa: ANN401 - SQLAlchemy's own
        from costguard.ledger.db.postgresql import Impatient

        return Impatient.connect(*words, **options)

    return engine


def _file_engine(where: Address, patience_s: float) -> Engine:
    """An engine whose transactions are SQLite's own: sqlite3's habit of starting them by itself leaves DDL outside."""

    def connected() -> sqlite3.Connection:
        uri = where.writable_uri()
        return sqlite3.connect(uri, uri=True, timeout=patience_s, isolation_level=None, check_same_thread=False)

    engine = create_engine(
        "sqlite://",
        creator=connected,
        poolclass=QueuePool,
        execution_options={"ledger": _Opened(where, patience_s)},
        hide_parameters=True,
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, _record: Any) -> None:  # noqa: ANN401 - SQLAlchemy's own record
        set_pragmas(connection, where)

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))

    return engine


def set_pragmas(connection: sqlite3.Connection, where: Address) -> None:
    """Set what PRAGMAS says and read each back: a pragma that does not take says nothing."""
    for name, wanted in PRAGMAS.items():
        connection.execute(f"PRAGMA {name} = {wanted}").fetchall()
        (found,) = connection.execute(f"PRAGMA {name}").fetchone()
        if found != wanted:
            hint = "keep it on a local disk: a network folder cannot hold a ledger"
            raise LedgerError(f"SQLite does not take {name} = {wanted} here, but {found}", field=where.shown, hint=hint)
