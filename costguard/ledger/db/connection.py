"""Open a ledger for writing: create it or upgrade it, check it, and write transactions.

    with begin_write(engine) as connection:
        connection.execute(insert(ScopeRow), rows)

is one write transaction: all or nothing, exclusive, and on disk when the block ends. `WriteConnection` is for many of them: its
connection stays open.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, func, select, true
from sqlalchemy.pool import QueuePool

from costguard.errors import LedgerError, OlderLedgerError
from costguard.ledger.db.address import DISK_HINT, LedgerAddress, parse_ledger_address, translate_ledger_errors
from costguard.ledger.db.backup import copy_ledger, format_copy_stamp, remove_unfinished_copies
from costguard.ledger.db.codecs import Query
from costguard.ledger.db.disk import describe_disk_risk
from costguard.ledger.db.new_ledger import create_ledger
from costguard.ledger.db.reader import READ_REVISION, identify_file, identify_server, make_folder_error, require_known_revision
from costguard.ledger.db.schema import HEAD_REVISION, migrate_schema, renew_triggers_and_views
from costguard.ledger.db.session import SqlSession, open_query, open_sql_session
from costguard.system.atomic_file import hold_file_lock, make_folder, sync_to_disk

T = TypeVar("T")

LOCK_PATIENCE_S = 30.0
"""How long another writer is waited for."""

IDLE_TRANSACTION_S = 30.0
"""How long a writer may do nothing within a transaction on a server, which then ends it: a process that was suspended there
would hold its locks until it goes on."""
IDLE_POLL_S, IDLE_MACHINE_S = 3.0, 0.0005
"""The same of a transaction that records polls, beside which others record: in all, and for each machine that is listed.
Between two statements a writer works out what a poll changes: 10 ms for 100 machines, 0.7 s for 10,000, 3.8 s for 50,000 on two
busy cores (2026-11-28): a seventh of this bound or less. One that is suspended for longer records nothing, and polls again."""
FILL_IDLE_S = 600.0
"""The same while a ledger is imported: between two statements a page of rows is read from another ledger."""
CONNECT_TIMEOUT_S = 10
READ_ONLY_SERVER = {"options": "-c default_transaction_read_only=on"}
WRITER_LOCK_ID, GUARD_LOCK_ID = 0x434F5354, 0x434F5355
"""The keys of PostgreSQL's advisory locks: "COST" in ASCII, of all that is written, and the next one, of the guard's tables and
the audit log."""


class WriterLock(Enum):
    """What a write transaction on PostgreSQL excludes. On a SQLite file there is one writer at a time, whichever is asked for.

    WHOLE: every other writer. GUARD: other writers of the guard's tables and of the audit log. ACCOUNTS: nobody by itself; the
    transaction then locks the rows of `account_state` of the accounts that it writes, in their order.
    """

    WHOLE = (("pg_advisory_xact_lock", WRITER_LOCK_ID),)
    GUARD = (("pg_advisory_xact_lock_shared", WRITER_LOCK_ID), ("pg_advisory_xact_lock", GUARD_LOCK_ID))
    ACCOUNTS = (("pg_advisory_xact_lock_shared", WRITER_LOCK_ID),)


PRAGMAS = {
    "journal_mode": "wal",
    "synchronous": 2,  # FULL: a commit is on the disk before it returns
    "foreign_keys": 1,
    "fullfsync": 1,  # only macOS has it: there, fsync alone leaves data in the drive's cache
    "recursive_triggers": 1,  # else REPLACE removes a row without asking the guards
    "journal_size_limit": 16 * 2**20,  # a large import leaves no large log behind
}
"""Set on every connection, and read back."""
NEW_FILE_PRAGMAS = ("auto_vacuum = INCREMENTAL", "journal_mode = wal")
"""Set before a new file has anything in it: later the first would take a VACUUM. See `free_pages`."""


@dataclass(frozen=True, slots=True)
class _EngineOptions:
    """The ledger's options of an engine."""

    where: LedgerAddress
    patience_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """The changes made on opening.

    `before`: the earlier revision, None: there was no ledger. `copy`: made before the upgrade, None: no copy. `rewritten`: the
    bytes of the file before and after it was rewritten so that it can shrink in steps, None: it was not.
    """

    before: str | None
    after: str = HEAD_REVISION
    copy: Path | None = None
    rewritten: tuple[int, int] | None = None


_limits = {"read_only": False}


def refuse_writes() -> None:
    """Have every ledger that this process opens from now on refuse changes: for the process that serves HTTP."""
    _limits["read_only"] = True


def open_engine(url: str, *, patience_s: float = LOCK_PATIENCE_S) -> Engine:
    """Return an engine on the ledger at `url`, which is created if missing and migrated if older.

    A SQLite file gets mode 0600, and its folder 0700 if it is created; a file that is foreign, damaged, or of a newer version
    is refused. `patience_s`: seconds to wait for another writer. Plain `engine.connect()` reads; write through `begin_write`.
    """
    where = parse_ledger_address(url)
    with translate_ledger_errors(where):
        engine = _create_server_engine(where, patience_s) if where.path is None else _create_file_engine(where, patience_s)
        try:
            _prepare_ledger(engine, where, patience_s)
        except BaseException:
            engine.dispose()
            raise
        return engine


def upgrade_schema(url: str, *, patience_s: float = LOCK_PATIENCE_S) -> Upgrade:
    """Create or migrate the ledger as `open_engine` does, and return the changes.

    Triggers and views are always renewed.
    """
    where = parse_ledger_address(url)
    with translate_ledger_errors(where):
        engine = _create_server_engine(where, patience_s) if where.path is None else _create_file_engine(where, patience_s)
        try:
            upgrade = _prepare_ledger(engine, where, patience_s)
            if upgrade.before == HEAD_REVISION:
                with begin_write(engine) as connection:
                    renew_triggers_and_views(connection)
        finally:
            engine.dispose()
        return upgrade


def fill_ledger(url: str, create: Callable[[Connection], T], refill: Callable[[Connection], T]) -> T:
    """Create the ledger at `url` by `create`, or fill the one there by `refill`, in one transaction; return what it returns.

    Nothing is there, or all is as it was, if that raises.
    """
    where = parse_ledger_address(url)
    results = list[T]()
    with translate_ledger_errors(where):
        make = _create_server_engine if where.path is None else _create_file_engine
        engine = make(where, LOCK_PATIENCE_S)
        try:
            if where.path is not None and where.path.is_dir():
                raise make_folder_error(where)
            if where.path is not None and not where.path.exists():
                make_folder(where.path.parent)
                with hold_file_lock(where.make_sibling_path(".lock"), patience_s=LOCK_PATIENCE_S):
                    _create_file(where, where.path, LOCK_PATIENCE_S, lambda connection: results.append(create(connection)))
                return results[0]
            with _begin_locked(engine, idle_s=FILL_IDLE_S) as connection:
                revision = identify_file(where) if where.path else identify_server(connection, where)
                if revision is None:
                    return create(connection)
                require_own_schema([revision], where)
                return refill(connection)
        finally:
            engine.dispose()


@contextmanager
def begin_write(
    engine: Engine, lock: WriterLock = WriterLock.WHOLE, *, idle_s: float = IDLE_TRANSACTION_S
) -> Iterator[Connection]:
    """Open one write transaction, which excludes those that `lock` names; commit when the block ends, roll back if it raises.

    `idle_s`: after which a server ends it if nothing is asked within it. On SQLite a checkpoint after the commit runs under the
    same lock. Not to be nested. Raises LedgerError if the ledger no longer has this version's schema.
    """
    where: LedgerAddress = engine.get_execution_options()["ledger"].where
    with _begin_locked(engine, lock, idle_s) as connection:
        require_own_schema(connection.execute(READ_REVISION).scalars(), where)
        yield connection


@contextmanager
def _begin_locked(
    engine: Engine, lock: WriterLock = WriterLock.WHOLE, idle_s: float = IDLE_TRANSACTION_S
) -> Iterator[Connection]:
    """Open a write transaction whatever the schema's revision."""
    opened: _EngineOptions = engine.get_execution_options()["ledger"]
    path = opened.where.path
    with translate_ledger_errors(opened.where):
        if path is None:
            with engine.begin() as connection:
                _lock_server(connection, lock, opened.patience_s, idle_s)
                yield connection
        else:
            lock_path = opened.where.make_sibling_path(".lock")
            with (
                hold_file_lock(lock_path, patience_s=opened.patience_s),
                engine.connect() as connection,
                connection.execution_options(begin="BEGIN IMMEDIATE").begin(),
            ):
                yield connection


@contextmanager
def hold_named_lock(engine: Engine, *, suffix: str, number: int) -> Iterator[None]:
    """Hold a lock that is not the writer's, exclusive among all processes, which ends with its process.

    It is on the file beside the ledger with `suffix`, or PostgreSQL's advisory lock `number`. Writers take it first, and
    `begin_write` within it.
    """
    opened: _EngineOptions = engine.get_execution_options()["ledger"]
    with translate_ledger_errors(opened.where):
        if opened.where.path is not None:
            with hold_file_lock(opened.where.make_sibling_path(suffix), patience_s=opened.patience_s):
                yield
            return
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"SET lock_timeout = {max(1, int(opened.patience_s * 1000))}")
            try:
                connection.execute(select(func.pg_advisory_lock(number)))
                yield
            finally:
                connection.invalidate()  # the lock ends with its connection


def require_own_schema(revisions: Iterable[str], where: LedgerAddress) -> None:
    """Raise LedgerError unless `revisions`, read in a write transaction, are this version's."""
    stored_revisions = list(revisions)
    if stored_revisions != [HEAD_REVISION]:
        older = require_known_revision(stored_revisions, where)
        hint = "restart this costguard: it upgrades the ledger when it opens it"
        raise OlderLedgerError(
            f"was replaced by one of an older costguard (its schema is {older})", field=where.shown, hint=hint
        )


def _prepare_ledger(engine: Engine, where: LedgerAddress, patience_s: float) -> Upgrade:
    """Create or upgrade the ledger.

    It is checked without the lock first, because usually there is nothing to do.
    """
    path = where.path
    if _limits["read_only"]:
        return _require_ready_ledger(engine, where)
    if path is None:
        return _prepare_server(engine, where)
    if path.is_dir():
        raise make_folder_error(where)
    if path.exists() and identify_file(where) == HEAD_REVISION:
        return Upgrade(before=HEAD_REVISION)
    make_folder(path.parent)
    with hold_file_lock(where.make_sibling_path(".lock"), patience_s=patience_s):
        if not path.exists():
            _create_file(where, path, patience_s, create_ledger)
            return Upgrade(before=None)
        revision = identify_file(where)
        return Upgrade(before=revision, copy=None if revision == HEAD_REVISION else _upgrade_file(engine, where))


def _require_ready_ledger(engine: Engine, where: LedgerAddress) -> Upgrade:
    """Raise LedgerError unless the ledger is there, and of this version: this process may not create or upgrade it."""
    hint = "start costguard watch first: it creates and upgrades the ledger"
    if where.path is not None and not where.path.exists():
        raise LedgerError("does not exist, and this process only reads", field=where.shown, hint=hint)
    with nullcontext() if where.path is not None else engine.connect() as connection:
        revision = identify_file(where) if connection is None else identify_server(connection, where)
    if revision != HEAD_REVISION:
        raise OlderLedgerError("is not of this version, and this process only reads", field=where.shown, hint=hint)
    return Upgrade(before=revision)


def _create_file(where: LedgerAddress, path: Path, patience_s: float, fill: Callable[[Connection], object]) -> None:
    """Create the ledger, of what `fill` writes, under a temporary name and rename it when it is complete.

    So no incomplete file has its name.
    """
    fresh = LedgerAddress(shown=where.shown, path=where.make_sibling_path(".new"))
    try:
        for suffix in ("", "-wal", "-shm", "-journal"):
            fresh.make_sibling_path(suffix).unlink(missing_ok=True)
        os.close(os.open(fresh.make_sibling_path(""), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with closing(sqlite3.connect(fresh.format_writable_uri(), uri=True)) as empty:
            for pragma in NEW_FILE_PRAGMAS:
                empty.execute(f"PRAGMA {pragma}").fetchall()
        engine = _create_file_engine(fresh, patience_s)
        try:
            with _begin_immediately(engine) as connection:
                fill(connection)
            _checkpoint_log(engine)
        finally:
            engine.dispose()
        sync_to_disk(fresh.make_sibling_path(""))
        fresh.make_sibling_path("").rename(path)
        sync_to_disk(path.parent)
    except BaseException:
        for suffix in ("", "-wal", "-shm", "-journal"):
            fresh.make_sibling_path(suffix).unlink(missing_ok=True)
        raise


def _upgrade_file(engine: Engine, where: LedgerAddress) -> Path:
    """Copy an older ledger, upgrade it, and return the path of the copy."""
    remove_unfinished_copies(where.make_sibling_path(".before-"))
    copy = where.make_sibling_path(f".before-{HEAD_REVISION}-{format_copy_stamp()}")
    copy_ledger(where, copy)
    with _begin_immediately(engine) as connection:
        migrate_schema(connection)
    return copy


@contextmanager
def _begin_immediately(engine: Engine) -> Iterator[Connection]:
    with engine.connect() as connection, connection.execution_options(begin="BEGIN IMMEDIATE").begin():
        yield connection


def _checkpoint_log(engine: Engine) -> None:
    """Write the log into the file.

    Closing does so, too, but reports no failure and then leaves the log behind.
    """
    with closing(engine.raw_connection()) as connection:
        connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _prepare_server(engine: Engine, where: LedgerAddress) -> Upgrade:
    with engine.connect() as connection:
        revision = identify_server(connection, where)
    if revision != HEAD_REVISION:
        with _begin_locked(engine) as connection:
            revision = identify_server(connection, where)
            if revision is None:
                create_ledger(connection)
            elif revision != HEAD_REVISION:
                migrate_schema(connection)
    return Upgrade(before=revision)


def _lock_server(connection: Connection, lock: WriterLock, patience_s: float, idle_s: float) -> None:
    limits = {
        "lock_timeout": max(1, int(patience_s * 1000)),
        "idle_in_transaction_session_timeout": int(idle_s * 1000),
    }
    connection.execute(select(*(func.set_config(name, str(ms), true()) for name, ms in limits.items())))
    connection.execute(select(*(getattr(func, name)(number) for name, number in lock.value)))


def _create_server_engine(where: LedgerAddress, patience_s: float) -> Engine:
    engine = create_engine(
        where.sqlalchemy_url,
        connect_args={"connect_timeout": CONNECT_TIMEOUT_S, **(READ_ONLY_SERVER if _limits["read_only"] else {})},
        pool_pre_ping=True,
        execution_options={"ledger": _EngineOptions(where, patience_s)},
        hide_parameters=True,
    )

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: Any, _record: Any, words: list[str], options: dict[str, Any]) -> Any:  # noqa: ANN401 - SQLAlchemy's own
        from costguard.ledger.db.postgresql import ImpatientConnection

        return ImpatientConnection.connect(*words, **options)

    return engine


def _create_file_engine(where: LedgerAddress, patience_s: float) -> Engine:
    """Return an engine that begins transactions explicitly: sqlite3's implicit transactions do not include DDL."""
    risk, hint, is_refused = describe_disk_risk(where)
    if is_refused:
        raise LedgerError(f"cannot be written: {risk}", field=where.shown, hint=hint)

    def connected() -> sqlite3.Connection:
        uri = where.format_writable_uri()
        return sqlite3.connect(uri, uri=True, timeout=patience_s, isolation_level=None, check_same_thread=False)

    engine = create_engine(
        "sqlite://",
        creator=connected,
        poolclass=QueuePool,
        execution_options={"ledger": _EngineOptions(where, patience_s)},
        hide_parameters=True,
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, _record: Any) -> None:  # noqa: ANN401 - SQLAlchemy's own record
        set_pragmas(connection, where)
        if _limits["read_only"]:
            connection.execute("PRAGMA query_only = 1")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))

    return engine


def set_pragmas(connection: sqlite3.Connection, where: LedgerAddress) -> None:
    """Set `PRAGMAS` and read each back, because SQLite reports no error for a pragma that has no effect."""
    for name, value in PRAGMAS.items():
        connection.execute(f"PRAGMA {name} = {value}").fetchall()
        (current,) = connection.execute(f"PRAGMA {name}").fetchone()
        if current != value:
            raise LedgerError(f"SQLite uses {name} = {current} here, not {value}", field=where.shown, hint=DISK_HINT)


class WriteConnection:
    """Write transactions of `engine` (from `open_engine`), one after another."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        opened = engine.get_execution_options()["ledger"]
        self._where, self._patience_s = opened.where, opened.patience_s
        self._lock = opened.where.path and opened.where.make_sibling_path(".lock")
        self._held: Connection | None = None

    def close(self) -> None:
        """Close the database."""
        if self._held is not None:
            self._held.close()
        self._held = None
        self._engine.dispose()

    @property
    def on_server(self) -> bool:
        """Whether the ledger is on a PostgreSQL server, where writers of other accounts write at the same time."""
        return self._lock is None

    @contextmanager
    def begin_transaction(
        self, lock: WriterLock = WriterLock.WHOLE, *, idle_s: float = IDLE_TRANSACTION_S
    ) -> Iterator[SqlSession]:
        """Open a transaction as `begin_write` does: all or nothing, excluding what `lock` names, on disk when the block ends.

        Not to be nested.
        """
        if self._lock is None:
            with begin_write(self._engine, lock, idle_s=idle_s) as connection:
                yield open_sql_session(connection)
            return
        with translate_ledger_errors(self._where), hold_file_lock(self._lock, patience_s=self._patience_s):
            connection = self._open_file_connection()
            with connection.execution_options(begin="BEGIN IMMEDIATE").begin():
                require_own_schema(connection.execute(READ_REVISION).scalars(), self._where)
                yield open_sql_session(connection)

    @contextmanager
    def begin_read(self) -> Iterator[Query]:
        """Read without a lock: what others commit meanwhile may be seen or not."""
        with translate_ledger_errors(self._where):
            if self._lock is None:
                with self._engine.connect() as connection, connection.begin():
                    yield open_query(connection)
            else:
                connection = self._open_file_connection()
                with connection.execution_options(begin="BEGIN").begin():
                    yield open_query(connection)

    def _open_file_connection(self) -> Connection:
        if self._held is None:
            self._held = self._engine.connect()
        return self._held
