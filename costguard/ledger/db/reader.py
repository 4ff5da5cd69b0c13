"""A ledger opened for reading only, through the database's own driver: `status` and `report` start without SQLAlchemy.

A snapshot is one read transaction: everything asked within it is answered as of one instant, whatever is written meanwhile.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from costguard.errors import InputError, LedgerError, OlderLedgerError
from costguard.ledger.db.address import LedgerAddress, parse_ledger_address
from costguard.ledger.db.asking import Query, adapt_placeholders
from costguard.ledger.db.codecs import SqlRow
from costguard.ledger.db.faults import translate_ledger_errors
from costguard.ledger.db.found import OTHER_FILE_HINT, make_folder_error, require_known_revision, require_trusted_file
from costguard.ledger.db.schema import APPLICATION_ID, HEAD_REVISION

CONNECT_TIMEOUT_S = 10
PATIENCE_S = 30
"""How long a checkpoint that locks the file is waited for; it takes milliseconds."""


class LedgerReader:
    """The ledger at `url`, which must exist and have this version's schema. Use it in a `with` statement, or call `close`."""

    def __init__(self, url: str) -> None:
        self.where = where = parse_ledger_address(url)
        with translate_ledger_errors(where):
            self._begin, self._end, self._ask, self.close = _open_file(where) if where.path else _open_server(where)
        try:
            with self.snapshot() as ask:
                _require_current_schema(ask, where)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def snapshot(self) -> Iterator[Query]:
        """How to ask, of the ledger as it is now. Not to be nested."""
        with translate_ledger_errors(self.where):
            self._begin()
            try:
                yield self._ask
            finally:
                self._end()


_Session = tuple[Callable[[], object], Callable[[], object], Query, Callable[[], None]]
"""Begin a snapshot, end it, ask within it, and close."""


def _open_file(where: LedgerAddress) -> _Session:
    assert where.path is not None  # noqa: S101 - for the type checker; asked before
    if not where.path.exists():
        raise _make_missing_error(where)
    if where.path.is_dir():
        raise make_folder_error(where)
    require_trusted_file(where)
    connection = sqlite3.connect(where.format_read_only_uri(), uri=True, isolation_level=None, timeout=PATIENCE_S)

    def ask(sql: str, values: Sequence[Any]) -> Sequence[SqlRow]:
        return connection.execute(sql, values).fetchall()

    return lambda: connection.execute("BEGIN"), connection.rollback, ask, connection.close


def _open_server(where: LedgerAddress) -> _Session:
    import psycopg

    from costguard.ledger.db.postgresql import ImpatientConnection

    connection = ImpatientConnection.connect(where.conninfo, connect_timeout=CONNECT_TIMEOUT_S, application_name="costguard")
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.read_only = True  # its transactions begin by themselves, with the first question

    def ask(sql: str, values: Sequence[Any]) -> Sequence[SqlRow]:
        return connection.execute(adapt_placeholders(sql, server=True).encode(), values).fetchall()

    def end() -> None:
        if not connection.closed:  # else that would be said, and not why
            connection.rollback()

    return lambda: None, end, ask, connection.close


def _require_current_schema(ask: Query, where: LedgerAddress) -> None:
    """LedgerError or InputError unless there is a ledger of this version."""
    if where.path is not None:
        ((mark,),) = ask("PRAGMA application_id", ())
        there = {name for (name,) in ask("SELECT name FROM sqlite_master WHERE type = 'table'", ())}
    else:
        mark, there = APPLICATION_ID, {name for (name,) in ask(_SERVER_TABLES, ())}
    if where.path is None and not there:
        raise _make_missing_error(where)
    if mark != APPLICATION_ID or not {"alembic_version", "ledger_state"} <= there:
        raise LedgerError("is no costguard ledger", field=where.shown, hint=OTHER_FILE_HINT)
    found = require_known_revision([revision for (revision,) in ask("SELECT version_num FROM alembic_version", ())], where)
    if found != HEAD_REVISION:
        hint = "costguard db upgrade brings it up, with a copy beside it first"
        raise OlderLedgerError(f"was written by an older costguard (its schema is {found})", field=where.shown, hint=hint)


def _make_missing_error(where: LedgerAddress) -> InputError:
    hint = "the first poll makes it; costguard demo --ledger FILE makes one to look at; [ledger] url names another"
    return InputError("there is no ledger here yet", field=where.shown, hint=hint)


_SERVER_TABLES = """
SELECT name FROM unnest(ARRAY['alembic_version', 'ledger_state', 'span']) AS name WHERE to_regclass(name) IS NOT NULL
"""
