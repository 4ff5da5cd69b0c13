"""How to ask and to tell within a write transaction: plain statements, and tuples in bulk.

`Pen` writes to a file through sqlite3 itself, on a connection that stays open: what SQLAlchemy does around a transaction of
three small statements costs six times as much as SQLite does (0.4 ms against 0.07, 2026-11), and a poll is mostly that.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, PoolProxiedConnection

from costguard.ledger.db.asking import Execute, Query, adapt_placeholders
from costguard.ledger.db.codecs import SqlRow
from costguard.ledger.db.connection import begin_write
from costguard.ledger.db.faults import translate_ledger_errors
from costguard.system.atomic_file import hold_file_lock

SqlSession = tuple[Query, Execute]


def open_sql_session(connection: Connection) -> SqlSession:
    """How to ask and how to tell in the transaction of `connection`."""
    server = connection.dialect.name != "sqlite"

    def ask(sql: str, values: Sequence[Any]) -> Sequence[SqlRow]:
        return [tuple(row) for row in connection.exec_driver_sql(adapt_placeholders(sql, server=server), tuple(values))]

    def tell(sql: str, rows: list[SqlRow]) -> int:
        return connection.exec_driver_sql(adapt_placeholders(sql, server=server), rows).rowcount

    return ask, tell


class WriteConnection:
    """Write transactions of `engine` (from `open_engine`), one after another."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        opened = engine.get_execution_options()["ledger"]
        self._where, self._patience_s = opened.where, opened.patience_s
        self._lock = opened.where.path and opened.where.beside(".lock")
        self._held: PoolProxiedConnection | None = None

    def close(self) -> None:
        """Let go of the database."""
        if self._held is not None:
            self._held.close()
        self._held = None
        self._engine.dispose()

    @contextmanager
    def begin_transaction(self) -> Iterator[SqlSession]:
        """What `opening.writing` promises: all or nothing, alone, and on the disk when the block ends. Not to be nested."""
        if self._lock is None:
            with begin_write(self._engine) as connection:
                yield open_sql_session(connection)
            return
        with translate_ledger_errors(self._where), hold_file_lock(self._lock, patience_s=self._patience_s):
            file = self._open_file_connection()
            file.execute("BEGIN IMMEDIATE")
            try:
                yield _open_file_session(file)
                file.execute("COMMIT")
            except BaseException:
                file.rollback()
                raise

    def _open_file_connection(self) -> sqlite3.Connection:
        """The connection to the file, which the pool has made ready."""
        if self._held is None:
            self._held = self._engine.raw_connection()
        file = self._held.driver_connection
        assert isinstance(file, sqlite3.Connection)  # noqa: S101 - for the type checker: a file has no other driver
        return file


def _open_file_session(file: sqlite3.Connection) -> SqlSession:
    def ask(sql: str, values: Sequence[Any]) -> Sequence[SqlRow]:
        return file.execute(sql, values).fetchall()

    def tell(sql: str, rows: list[SqlRow]) -> int:
        return file.executemany(sql, rows).rowcount

    return ask, tell
