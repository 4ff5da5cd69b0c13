"""Ids of new rows of the tables that polls write.

On PostgreSQL they come from the sequences of the tables, as many at once as a statement needs: writers of two accounts number
their rows at the same time, in any order. Within an account ids rise with time, because a transaction takes them after it has
locked the account's row; queries that take the highest id as the newest row look at one resource or scope only.

On SQLite they are counted up from the highest one: there is one writer at a time, and a transaction that fails leaves no gap.
"""

from __future__ import annotations

from costguard.ledger.db.codecs import Query

NUMBERED_TABLES = ("scope", "coverage", "resource", "attribution", "observation", "span", "correction", "account_state")
"""The tables whose ids are given here."""


class RowNumbers:
    """Ids for the rows of one write transaction.

    `ask`: reads in it. `on_server`: whether the ledger is on PostgreSQL.
    """

    def __init__(self, ask: Query, *, on_server: bool) -> None:
        self._ask, self._on_server = ask, on_server
        self._last: dict[str, int] = {}

    def take(self, table: str) -> int:
        """Return a new id of `table`."""
        return self.take_many(table, 1)[0]

    def take_many(self, table: str, count: int) -> list[int]:
        """Return `count` new ids of `table`, rising."""
        if count == 0:
            return []
        if self._on_server:
            return sorted(number for (number,) in self._ask(_NEXT.format(table=table), (count,)))
        last = self._last.get(table)
        if last is None:
            ((last,),) = self._ask(f"SELECT coalesce(max(id), 0) FROM {table}", ())  # noqa: S608 - our own names
        self._last[table] = last + count
        return list(range(last + 1, last + count + 1))


_NEXT = "SELECT nextval('{table}_id_seq') FROM generate_series(1, ?)"
