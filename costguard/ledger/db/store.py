"""What the stores of the ledger share: each holds one topic, and reads and writes in transactions of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from costguard.ledger.db.address import translate_ledger_errors
from costguard.ledger.db.codecs import Query
from costguard.ledger.db.connection import WriterLock, begin_write, open_engine
from costguard.ledger.db.session import SqlSession, open_query, open_sql_session


class LedgerStore:
    """A store in the ledger at `url`, which is created if missing. Close it, or use it in a `with` statement.

    Its methods may be called from several threads, and raise LedgerError if the ledger cannot be read or written: then nothing
    was written.
    """

    writer_lock = WriterLock.WHOLE
    """What `_begin_write` excludes."""

    def __init__(self, url: str) -> None:
        self._url, self._engine = url, open_engine(url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self._engine.dispose()

    @contextmanager
    def _begin_read(self) -> Iterator[Query]:
        """Read without a lock: what others commit meanwhile may be seen or not."""
        where = self._engine.get_execution_options()["ledger"].where
        with translate_ledger_errors(where), self._engine.connect() as connection, connection.begin():
            yield open_query(connection)

    @contextmanager
    def _begin_write(self) -> Iterator[SqlSession]:
        """Open one transaction: on disk when the block ends, or rolled back if the block raises."""
        with begin_write(self._engine, self.writer_lock) as connection:
            yield open_sql_session(connection)
