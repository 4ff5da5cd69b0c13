"""Open a ledger for reading only, in snapshots.

A snapshot is one read transaction: all its answers are of one instant, whatever is written meanwhile. On opening, the ledger is
identified: of this version, of an older one, or not a ledger.
"""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from itertools import compress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sqlalchemy import Select, String, column, func, select, table

from costguard.errors import InputError, LedgerError, NoLedgerError, OlderLedgerError
from costguard.ledger.db.address import LedgerAddress, parse_ledger_address, translate_ledger_errors
from costguard.ledger.db.codecs import Query
from costguard.ledger.db.disk import connect_read_only, require_writable_file
from costguard.ledger.db.schema import APPLICATION_ID, EARLIER_REVISIONS, HEAD_REVISION, IMPORTED_REVISIONS, REVISIONS
from costguard.ledger.db.session import open_query, wrap_driver
from costguard.system.file_security import describe_foreign_writers

if TYPE_CHECKING:  # a type and no more: whoever only reads a ledger does not pay for importing it
    from sqlalchemy import Connection

CHECK_BYTES_MAX = 32 * 2**20
"""Bytes. A ledger up to this size is checked for damage (0.1 s) where its last writer left a log behind."""

RESTORE_HINT = "copy it, then restore a backup (costguard db backup makes them)"
PAGE_BYTES_MIN = 512
"""Bytes: a SQLite file that holds anything is not smaller."""

LEDGER_TABLES = ("alembic_version", "ledger_state", "span")
"""By which a ledger is known on a server."""
_HAS_TABLES = select(*(func.to_regclass(name).is_not(None) for name in LEDGER_TABLES))

UPGRADE_HINT = (
    "upgrade costguard: git pull and pip install . in its clone; then restart what is running, such as costguard watch"
)
READ_REVISION: Select[str] = select(column("version_num", String)).select_from(table("alembic_version"))
OTHER_FILE_HINT = "name another file in [ledger] url"


def make_folder_error(where: LedgerAddress) -> LedgerError:
    """Return the error for a folder in the place of the ledger file."""
    return LedgerError(
        "is a folder, not a ledger", field=where.shown, hint=f"name a file in it: sqlite:///{where.path}/ledger.db"
    )


def require_trusted_file(where: LedgerAddress) -> None:
    """Raise LedgerError if other users can have written the file: its content arms policies and lifts overrides."""
    why = describe_foreign_writers(where.path) if where.path else ""
    if why:
        hint = "chmod go-w it and its folder, or name a file in a folder of its own: sqlite:///.../costguard/ledger.db"
        raise LedgerError(f"cannot be trusted: {why}", field=where.shown, hint=hint)


def identify_file(where: LedgerAddress) -> str:
    """Return the revision of the ledger file at `where`, opened read-only.

    Raises LedgerError if it is not a ledger, or if this user cannot write it.
    """
    path = where.path or Path()
    if path.stat().st_size < PAGE_BYTES_MIN:
        what = "is not a ledger: it is empty or truncated"
        raise LedgerError(what, field=where.shown, hint="restore a backup, or remove the file to start again")
    require_writable_file(where)
    require_trusted_file(where)
    log = where.make_sibling_path("-wal")
    unsure = log.exists() and log.stat().st_size > 0 and path.stat().st_size <= CHECK_BYTES_MAX
    with (
        closing(sqlite3.connect(where.format_read_only_uri(), uri=True)) as file,
        wrap_driver("sqlite", file) as connection,
    ):
        (mark,) = file.execute("PRAGMA application_id").fetchone()
        if mark != APPLICATION_ID:
            raise LedgerError("is a SQLite file, but not a costguard ledger", field=where.shown, hint=OTHER_FILE_HINT)
        names = {row[1] for row in file.execute("PRAGMA table_list")}
        if not {"alembic_version", "ledger_state"} <= names:
            raise LedgerError("is damaged: it is marked as a ledger but lacks its tables", field=where.shown, hint=RESTORE_HINT)
        revisions = list(connection.execute(READ_REVISION).scalars())
        if unsure:
            _check_pages(file, where)
    return require_known_revision(revisions, where)


_kept_open = list[sqlite3.Connection]()


def keep_log_open(where: LedgerAddress) -> Path | None:
    """Keep a connection to the file at `where` open as long as this process lives; return the shared memory of its log.

    While one is open, no process replaces that file: who may write to nothing else can go on reading. None: it is a server.
    """
    if where.path is None:
        return None
    with translate_ledger_errors(where):
        connection = sqlite3.connect(where.format_read_only_uri(), uri=True, check_same_thread=False)
        connection.execute("PRAGMA table_list").fetchall()
    _kept_open.append(connection)
    return where.make_sibling_path("-shm")


def identify_server(connection: Connection, where: LedgerAddress) -> str | None:
    """Return the revision of the ledger behind `connection`; None if there is none yet.

    Raises LedgerError if the database belongs to another program.
    """
    tables = _find_tables(connection.execute(_HAS_TABLES))
    if not tables:
        return None
    if not {"alembic_version", "ledger_state"} <= tables:
        hint = "create a separate database (createdb costguard), and name it in [ledger] url"
        raise LedgerError("is the database of another program", field=where.shown, hint=hint)
    return require_known_revision(list(connection.execute(READ_REVISION).scalars()), where)


def _find_tables(rows: Iterable[Sequence[bool]]) -> set[str]:
    """Return which of `LEDGER_TABLES` are there, by the one row of `_HAS_TABLES`."""
    (flags,) = rows
    return set(compress(LEDGER_TABLES, flags))


def require_known_revision(revisions: list[str], where: LedgerAddress) -> str:
    """Return the single revision.

    Raises LedgerError if this version does not know it.
    """
    if len(revisions) == 1 and revisions[0] in REVISIONS:
        return revisions[0]
    if not revisions:
        raise LedgerError("is damaged: its version is missing", field=where.shown, hint=RESTORE_HINT)
    if len(revisions) == 1 and revisions[0] in EARLIER_REVISIONS:
        raise make_earlier_error(revisions[0], where)
    what = f"was written by a newer costguard (its schema is {', '.join(revisions)}, this one knows {HEAD_REVISION})"
    raise LedgerError(what, field=where.shown, hint=UPGRADE_HINT)


def make_earlier_error(revision: str, where: LedgerAddress) -> OlderLedgerError:
    """Return the error for a ledger of before the base revision, with what to do."""
    hint = f"name a new ledger in [ledger] url, then run: costguard db import {shlex.quote(where.shown)}"
    if revision not in IMPORTED_REVISIONS:
        hint = f"bring it to schema {IMPORTED_REVISIONS[-1]} by the last costguard that can (costguard db upgrade), then {hint}"
    return OlderLedgerError(f"was written by an older costguard (its schema is {revision})", field=where.shown, hint=hint)


def _check_pages(connection: sqlite3.Connection, where: LedgerAddress) -> None:
    ((answer,),) = connection.execute("PRAGMA quick_check(1)")
    if answer != "ok":
        raise LedgerError(f"is damaged: {answer}", field=where.shown, hint=RESTORE_HINT)


CONNECT_TIMEOUT_S = 10
PATIENCE_S = 30
"""How long a checkpoint that locks the file is waited for; it takes milliseconds."""


class LedgerReader:
    """The ledger at `url`, which must exist and have this version's schema. Use it in a `with` statement, or call `close`.

    `any_thread`: several threads use it, one at a time. `revisions`: of the schemas that are read; others are refused.
    `connection`: for statements within a snapshot.
    """

    def __init__(self, url: str, *, any_thread: bool = False, revisions: Collection[str] = ()) -> None:
        self.where = where = parse_ledger_address(url)
        with translate_ledger_errors(where):
            self.connection, self._begin, self._end, self._ask, self.close = (
                _open_file(where, any_thread=any_thread) if where.path else _open_server(where)
            )
        try:
            with self.snapshot() as ask:
                self.revision = _require_schema(ask, where, revisions or (HEAD_REVISION,))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def snapshot(self) -> Iterator[Query]:
        """Yield a query function on the ledger as it is now.

        Not to be nested.
        """
        with translate_ledger_errors(self.where):
            self._begin()
            try:
                yield self._ask
            finally:
                self._end()


class OpenSnapshot:
    """What is asked of a reader, where a snapshot or a transaction is open already."""

    def __init__(self, ask: Query) -> None:
        self._ask = ask

    def snapshot(self) -> nullcontext[Query]:
        """Return the query function of what is open."""
        return nullcontext(self._ask)


_Session = tuple["Connection", Callable[[], object], Callable[[], object], Query, Callable[[], None]]
"""The connection; begin a snapshot, end it, ask within it, and close."""


def _open_file(where: LedgerAddress, *, any_thread: bool) -> _Session:
    assert where.path is not None  # noqa: S101 - for the type checker; asked before
    if not where.path.exists():
        raise _make_missing_error(where)
    if where.path.is_dir():
        raise make_folder_error(where)
    require_trusted_file(where)
    file, check = connect_read_only(where, isolation_level=None, timeout=PATIENCE_S, check_same_thread=not any_thread)
    connection = wrap_driver("sqlite", file)

    def begin() -> None:
        check()
        connection.begin()
        file.execute("BEGIN")

    def end() -> None:
        connection.rollback()
        check()

    def close() -> None:
        connection.close()
        file.close()

    return connection, begin, end, open_query(connection), close


def _open_server(where: LedgerAddress) -> _Session:
    from costguard.ledger.db.postgresql import connect_for_reading

    server = connect_for_reading(where.conninfo, CONNECT_TIMEOUT_S)
    connection = wrap_driver("postgresql+psycopg", server)

    def begin() -> None:
        if not connection.in_transaction():
            connection.begin()

    def end() -> None:
        if not server.closed:  # else that would be said, and not why
            connection.rollback()

    return connection, begin, end, open_query(connection), server.close


def _require_schema(ask: Query, where: LedgerAddress, revisions: Collection[str]) -> str:
    """Return the revision. Raises LedgerError or NoLedgerError unless there is a ledger of one of `revisions`."""
    if where.path is not None:
        ((mark,),) = ask("PRAGMA application_id")
        tables = {row[1] for row in ask("PRAGMA table_list")}
    else:
        mark, tables = APPLICATION_ID, _find_tables(ask(_HAS_TABLES))
    if where.path is None and not tables:
        raise _make_missing_error(where)
    if mark != APPLICATION_ID or not {"alembic_version", "ledger_state"} <= tables:
        raise LedgerError("is not a costguard ledger", field=where.shown, hint=OTHER_FILE_HINT)
    stored = [revision for (revision,) in ask(READ_REVISION)]
    if len(stored) == 1 and stored[0] in revisions:
        return str(stored[0])
    known_revision = require_known_revision(stored, where)
    if known_revision != HEAD_REVISION:
        hint = "costguard db upgrade upgrades it after making a copy"
        raise OlderLedgerError(
            f"was written by an older costguard (its schema is {known_revision})", field=where.shown, hint=hint
        )
    hint = "it needs no import: name it in [ledger] url"
    raise InputError(f"was written by this version of costguard (its schema is {known_revision})", field=where.shown, hint=hint)


def _make_missing_error(where: LedgerAddress) -> NoLedgerError:
    hint = (
        "run costguard init, then costguard status or watch, whose first poll creates it; "
        "costguard demo --ledger FILE creates a sample; [ledger] url names another"
    )
    return NoLedgerError("there is no ledger here yet", field=where.shown, hint=hint)
