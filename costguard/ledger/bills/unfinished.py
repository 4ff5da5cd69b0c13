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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from sqlalchemy import ColumnElement, Engine, Executable, delete, update
from sqlmodel import col, select

from costguard.ledger.bills.reader import UNFINISHED
from costguard.ledger.db.connection import begin_write
from costguard.ledger.db.session import SqlSession, open_query, open_sql_session
from costguard.ledger.tables.bills import BillImportUnfinishedRow, BillLineRow
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

    def ask(self, statement: Executable, values: Mapping[str, object] | None = None) -> Sequence[Any]:
        """Query in the present transaction, which is opened if there is none."""
        return self._get_session()[0](statement, values or {})

    def tell(self, statement: Executable, rows: Sequence[Mapping[str, Any]] | None = None) -> int:
        """Execute `statement` in the present transaction, which is opened if there is none: once, or for each of `rows`."""
        return 0 if rows is not None and not rows else self._get_session()[1](statement, rows)

    def read(self, statement: Executable, values: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """Query what is committed, without the writer's lock: for what takes long. The present transaction is committed."""
        self.commit()
        with self._engine.connect() as connection:
            return open_query(connection)(statement, values or {})

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


def remove_unfinished_imports(engine: Engine, *, hold_s: float = HOLD_S) -> int:
    """Undo what imports that died have written, and return their number. The lock of imports must be held.

    It can be interrupted and repeated: until an import is marked as undone, readers ignore it.
    """
    with ShortTransactions(engine, hold_s=hold_s) as writes:
        left = col(BillImportUnfinishedRow.undone) == 0
        lines_after = writes.read(select(BillImportUnfinishedRow.lines_after).where(left))
        if not lines_after:
            return 0
        for batch in _page_ids(writes, col(BillLineRow.import_id).in_(UNFINISHED), min(lines_after)):
            writes.tell(delete(BillLineRow).where(col(BillLineRow.id).in_(batch)))
            writes.pause()
        given_back = update(BillLineRow).values(replaced_us=None, replaced_by=None, replaced_why=None)
        for batch in _page_ids(writes, col(BillLineRow.replaced_by).in_(UNFINISHED), 0):
            writes.tell(given_back.where(col(BillLineRow.id).in_(batch)))
            writes.pause()
        writes.tell(update(BillImportUnfinishedRow).where(left).values(undone=1))
        return len(lines_after)


def _page_ids(writes: ShortTransactions, condition: ColumnElement[bool], after_id: int) -> Iterator[Sequence[int]]:
    """Yield in batches the ids of lines after `after_id` for which `condition` holds, read without the writer's lock."""
    lines = select(BillLineRow.id).where(condition).order_by(col(BillLineRow.id)).limit(10 * UNDO_LINES)
    while numbers := writes.read(lines.where(col(BillLineRow.id) > after_id)):
        after_id = numbers[-1]
        yield from (numbers[place : place + UNDO_LINES] for place in range(0, len(numbers), UNDO_LINES))
