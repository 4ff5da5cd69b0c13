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

from costguard.ledger.db.asking import Ask, Tell, placed
from costguard.ledger.db.codecs import Row
from costguard.ledger.db.connection import writing
from costguard.ledger.db.faults import ledger_errors
from costguard.system.atomic_file import locked

Voices = tuple[Ask, Tell]


def voices(connection: Connection) -> Voices:
    """How to ask and how to tell in the transaction of `connection`."""
    server = connection.dialect.name != "sqlite"

    def ask(sql: str, values: Sequence[Any]) -> Sequence[Row]:
        return [tuple(row) for row in connection.exec_driver_sql(placed(sql, server=server), tuple(values))]

    def tell(sql: str, rows: list[Row]) -> int:
        return connection.exec_driver_sql(placed(sql, server=server), rows).rowcount

    return ask, tell


class Pen:
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
    def transaction(self) -> Iterator[Voices]:
        """What `opening.writing` promises: all or nothing, alone, and on the disk when the block ends. Not to be nested."""
        if self._lock is None:
            with writing(self._engine) as connection:
                yield voices(connection)
            return
        with ledger_errors(self._where), locked(self._lock, patience_s=self._patience_s):
            file = self._file()
            file.execute("BEGIN IMMEDIATE")
            try:
                yield _plain(file)
                file.execute("COMMIT")
            except BaseException:
                file.rollback()
                raise

    def _file(self) -> sqlite3.Connection:
        """The connection to the file, which the pool has made ready."""
        if self._held is None:
            self._held = self._engine.raw_connection()
        file = self._held.driver_connection
        assert isinstance(file, sqlite3.Connection)  # noqa: S101 - for the type checker: a file has no other driver
        return file


def _plain(file: sqlite3.Connection) -> Voices:
    def ask(sql: str, values: Sequence[Any]) -> Sequence[Row]:
        return file.execute(sql, values).fetchall()

    def tell(sql: str, rows: list[Row]) -> int:
        return file.executemany(sql, rows).rowcount

    return ask, tell
