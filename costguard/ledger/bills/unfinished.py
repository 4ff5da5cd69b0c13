"""Imports of bills in short transactions, so that a large bill does not keep the polls from writing.

A bill of a million lines takes a minute to write, and a poll waits 30 s for the writer's lock. So an import is written in
several transactions, and counts as a whole when the last one removes its row of `bill_import_unfinished`. Until then readers
see the ledger as it was: `reader.STATED` counts a line if its own import is finished, and what replaced it, if anything, is
not. A small bill is one transaction.

Only one import runs at a time, under a lock of its own. Who gets that lock and finds an unfinished import knows that its
process died: `remove_unfinished_imports` removes its lines and gives back those that it replaced, in short transactions too,
and its row stays, marked as undone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from sqlalchemy import Engine

from costguard.ledger.bills.reader import UNFINISHED
from costguard.ledger.db.codecs import SqlRow, format_placeholders
from costguard.ledger.db.connection import begin_write
from costguard.ledger.db.session import SqlSession, open_sql_session
from costguard.system.atomic_file import PAUSE_S_MAX

HOLD_S = 0.4
"""Seconds after which a transaction is committed, of the 2 that others may wait: the commit and a checkpoint are added."""
YIELD_S = 2 * PAUSE_S_MAX
"""Seconds between two transactions: every process that waits for a file's lock tries to get it in that time."""
UNDO_LINES = 2000
"""Lines that are removed or given back at a time."""
IMPORT_LOCK_ID = 0x42494C4C
"""The key of PostgreSQL's advisory lock of imports: "BILL" in ASCII. A file's lock has the suffix `IMPORT_LOCK_SUFFIX`."""
IMPORT_LOCK_SUFFIX = ".bills.lock"


class ShortTransactions:
    """Write transactions of `engine`, one after another, each held for about `hold_s` seconds.

    Use it in a `with` statement; an error rolls back the last of them only. `commits`: how many
    of them are committed.
    """

    def __init__(self, engine: Engine, *, hold_s: float = HOLD_S) -> None:
        self._engine, self._hold_s = engine, hold_s
        self.commits = 0
        self._open: ExitStack | None = None
        self._session: SqlSession | None = None
        self._since = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.commit()
        elif self._open is not None:
            self._open.__exit__(kind, error, trace)

    def ask(self, sql: str, values: Sequence[object]) -> Sequence[SqlRow]:
        """Query in the present transaction, which is opened if there is none."""
        return self._get_session()[0](sql, values)

    def tell(self, sql: str, rows: list[SqlRow]) -> int:
        """Execute `sql` for each of `rows` in the present transaction, which is opened if there is none."""
        return self._get_session()[1](sql, rows) if rows else 0

    def insert(self, table: str, columns: str, rows: list[SqlRow]) -> None:
        """Insert `rows` into the table `table`."""
        if rows:
            self.tell(f"INSERT INTO {table} ({columns}) VALUES ({format_placeholders(rows[0])})", rows)  # noqa: S608 - our own names

    def read(self, sql: str, values: Sequence[object]) -> Sequence[SqlRow]:
        """Query what is committed, without the writer's lock: for what takes long. The present transaction is committed."""
        self.commit()
        with self._engine.connect() as connection:
            return open_sql_session(connection)[0](sql, values)

    def pause(self) -> None:
        """Commit, and let other writers go first, if the present transaction was held for long enough."""
        if self._open is not None and time.monotonic() - self._since >= self._hold_s:
            self.commit()
            time.sleep(YIELD_S)

    def commit(self) -> None:
        """Commit the present transaction, if there is one."""
        if self._open is not None:
            try:
                self._open.close()
                self.commits += 1
            finally:
                self._open, self._session = None, None

    def _get_session(self) -> SqlSession:
        if self._session is None:
            self._open = ExitStack()
            self._session = open_sql_session(self._open.enter_context(begin_write(self._engine)))
            self._since = time.monotonic()
        return self._session


def begin_import(writes: ShortTransactions, number: int, last_line_id: int) -> None:
    """Mark the import `number`, whose row was just written, as unfinished; its lines will have ids above `last_line_id`."""
    writes.insert(_TABLE, "import_id, lines_after, undone", [(number, last_line_id, 0)])


def finish_imports(writes: ShortTransactions, numbers: Sequence[int]) -> None:
    """Make the imports `numbers` count, all at once, when the present transaction commits."""
    writes.tell(_FINISH, [(number,) for number in numbers])


def remove_unfinished_imports(engine: Engine, *, hold_s: float = HOLD_S) -> int:
    """Undo what imports that died have written, and return their number. The lock of imports must be held.

    It can be interrupted and repeated: until an import is marked as undone, readers ignore it.
    """
    with ShortTransactions(engine, hold_s=hold_s) as writes:
        died = writes.read("SELECT import_id, lines_after FROM bill_import_unfinished WHERE undone = 0", ())
        if not died:
            return 0
        first = min(after for _, after in died)
        for lot in _page_ids(writes, f"import_id IN ({UNFINISHED})", first):
            writes.tell(_REMOVE_LINES, lot)
            writes.pause()
        for lot in _page_ids(writes, f"replaced_by IN ({UNFINISHED})", 0):
            writes.tell(_GIVE_BACK, [(None, None, None, number) for (number,) in lot])
            writes.pause()
        writes.tell(_UNDONE, [(1, number) for number, _ in died])
        return len(died)


def _page_ids(writes: ShortTransactions, condition: str, after: int) -> Iterator[list[SqlRow]]:
    """Yield in batches the ids of lines after `after` for which `condition` holds, read without the writer's lock."""
    sql = f"SELECT id FROM bill_line WHERE id > ? AND {condition} ORDER BY id LIMIT {10 * UNDO_LINES}"  # noqa: S608 - our own words
    while rows := writes.read(sql, (after,)):
        after = rows[-1][0]
        yield from (list(rows[number : number + UNDO_LINES]) for number in range(0, len(rows), UNDO_LINES))


_TABLE = "bill_import_unfinished"
_GIVE_BACK = "UPDATE bill_line SET replaced_us = ?, replaced_by = ?, replaced_why = ? WHERE id = ?"
_REMOVE_LINES = "DELETE FROM bill_line WHERE id = ?"
_FINISH = "DELETE FROM bill_import_unfinished WHERE import_id = ?"
_UNDONE = "UPDATE bill_import_unfinished SET undone = ? WHERE import_id = ?"
