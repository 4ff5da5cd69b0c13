"""Insert and overwrite rows of the classes of `ledger.tables`: statements that several topics share.

PostgreSQL's construct makes ON CONFLICT for SQLite, too: both databases write it alike, and the tests run on both. It is
imported where something is written: its dialect takes 30 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import BindParameter, Executable, Table, Update, bindparam, delete, inspect, select, update

from costguard.ledger.db.codecs import Execute, Query, SqlRow, split_batches
from costguard.ledger.types import LedgerRow

if TYPE_CHECKING:
    from sqlalchemy.dialects.postgresql import Insert

Write = Callable[[Any, list[dict[str, Any]]], object]
"""Execute a statement for the values of each row; `Execute` is one."""
IDS: BindParameter[Any] = bindparam("ids", expanding=True)
"""The values of an IN list of `read_batches`."""


def make_insert(row: type[LedgerRow]) -> Insert:
    """Return the statement that inserts rows, to which what is done on a conflict can be added."""
    from sqlalchemy.dialects.postgresql import insert

    return insert(_get_table(row))


def read_batches(ask: Query, statement: Executable, ids: Sequence[Any], **values: object) -> Iterator[Any]:
    """Yield the rows of `statement`, which has the parameter `IDS`, for so many of `ids` at a time as fit one IN list."""
    for batch in split_batches(ids):
        yield from ask(statement, {"ids": batch, **values})


def insert_tuples(tell: Write, row: type[LedgerRow], rows: Sequence[SqlRow]) -> None:
    """Insert `rows`, which have the columns of `row` in their order."""
    tell(make_insert(row), [dict(zip(row.model_fields, values, strict=True)) for values in rows])


class RowSums:
    """What one transaction adds to the rows of a table of sums, by primary key.

    `can_be_row`: whether sums that are added to no row may be one. A correction can lower one amount and not another: such sums
    could not be inserted, but the row that they change exists.
    """

    def __init__(self, row: type[LedgerRow], can_be_row: Callable[[Sequence[int]], bool] = bool) -> None:
        self._row, self._can_be_row = row, can_be_row
        self.raw: dict[SqlRow, list[int]] = {}

    def add(self, place: SqlRow, amounts: Sequence[int], sign: int = 1) -> None:
        """Add `amounts` to the row with the key `place`; subtract them if `sign` is -1."""
        sums = self.raw.get(place)
        if sums is None:
            self.raw[place] = [sign * amount for amount in amounts]
            return
        for index, amount in enumerate(amounts):
            sums[index] += sign * amount

    def write(self, tell: Write) -> None:
        """Write the sums by `tell`, which takes a statement and the values of each row."""
        names, added, changed = list(self._row.model_fields), list[dict[str, Any]](), list[dict[str, Any]]()
        for place, sums in sorted(self.raw.items()):
            if self._can_be_row(sums):
                added.append(dict(zip(names, (*place, *sums), strict=True)))
            else:
                changed.append({f"new_{name}": value for name, value in zip(names, (*place, *sums), strict=True)})
        tell(_add_to_row(self._row), added)
        tell(_change_row(self._row), changed)
        self.raw.clear()


@cache
def _add_to_row(row: type[LedgerRow]) -> Insert:
    """Return the statement that inserts sums, or adds them to those of the row with the same key."""
    table, statement = _get_table(row), make_insert(row)
    sums = {column.name: column + statement.excluded[column.name] for column in table.columns if not column.primary_key}
    return statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=sums)


@cache
def _change_row(row: type[LedgerRow]) -> Update:
    columns = _get_table(row).columns
    place = (column == bindparam(f"new_{column.name}") for column in columns if column.primary_key)
    sums = {column.name: column + bindparam(f"new_{column.name}") for column in columns if not column.primary_key}
    return update(_get_table(row)).where(*place).values(sums)


def insert_new(row: type[LedgerRow]) -> Insert:
    """Return the statement that inserts rows, and leaves those alone whose key is there."""
    return make_insert(row).on_conflict_do_nothing()


def insert_rows(tell: Write, rows: Sequence[LedgerRow]) -> None:
    """Insert `rows`, which are of one table."""
    if rows:
        tell(make_insert(type(rows[0])), [row.model_dump() for row in rows])


def replace_rows(ask: Query, tell: Execute, row: type[LedgerRow], rows: Mapping[SqlRow, SqlRow]) -> None:
    """Replace the content of the table by `rows` (primary key -> the other columns), writing only those that changed."""
    table = _get_table(row)
    width = len(table.primary_key)
    stored = {stored_row[:width]: stored_row[width:] for stored_row in ask(select(*table.columns))}
    delete_rows(tell, row, [key for key in stored if key not in rows])
    upsert_rows(tell, row, {key: values for key, values in rows.items() if stored.get(key) != values})


def delete_rows(tell: Execute, row: type[LedgerRow], keys: Sequence[SqlRow]) -> None:
    """Delete the rows with these primary keys."""
    columns = list(_get_table(row).primary_key)
    if keys:
        statement = delete(_get_table(row)).where(*(column == bindparam(f"key_{column.name}") for column in columns))
        tell(statement, [{f"key_{column.name}": value for column, value in zip(columns, key, strict=True)} for key in keys])


def upsert_rows(tell: Execute, row: type[LedgerRow], rows: Mapping[SqlRow, SqlRow]) -> None:
    """Insert `rows` (primary key -> the other columns), or overwrite those with the same key."""
    table = _get_table(row)
    names, keys = [column.name for column in table.columns], [column.name for column in table.primary_key]
    statement = make_insert(row)
    over: dict[str, Any] = {name: statement.excluded[name] for name in names if name not in keys}
    if rows:
        statement = statement.on_conflict_do_update(index_elements=keys, set_=over)
        tell(statement, [dict(zip(names, (*key, *values), strict=True)) for key, values in rows.items()])


def _get_table(row: type[LedgerRow]) -> Table:
    table = inspect(row).local_table
    assert isinstance(table, Table)  # noqa: S101 - for the type checker: every class has one
    return table
