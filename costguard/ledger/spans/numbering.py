"""Ids of new rows of the tables that polls write.

On PostgreSQL they come from the sequences of the tables, as many at once as a statement needs: writers of two accounts number
their rows at the same time, in any order. Within an account ids rise with time, because a transaction takes them after it has
locked the account's row; queries that take the highest id as the newest row look at one resource or scope only.

On SQLite they are counted up from the highest one: there is one writer at a time, and a transaction that fails leaves no gap.
"""

from __future__ import annotations

from sqlalchemy import func, inspect
from sqlmodel import select

from costguard.ledger.db.codecs import Query
from costguard.ledger.types import LedgerRow


class RowNumbers:
    """Ids for the rows of one write transaction.

    `ask`: reads in it. `on_server`: whether the ledger is on PostgreSQL.
    """

    def __init__(self, ask: Query, *, on_server: bool) -> None:
        self._ask, self._on_server = ask, on_server
        self._last: dict[type[LedgerRow], int] = {}

    def take(self, row: type[LedgerRow]) -> int:
        """Return a new id of a `row`."""
        return self.take_many(row, 1)[0]

    def take_many(self, row: type[LedgerRow], count: int) -> list[int]:
        """Return `count` new ids of `row`, rising."""
        if count == 0:
            return []
        if self._on_server:
            numbers = select(func.nextval(f"{row.__tablename__}_id_seq")).select_from(func.generate_series(1, count))
            return sorted(self._ask(numbers))
        last = self._last.get(row)
        if last is None:
            (last,) = self._ask(select(func.coalesce(func.max(inspect(row).columns.id), 0)))
        self._last[row] = last + count
        return list(range(last + 1, last + count + 1))
