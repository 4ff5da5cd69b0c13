"""Insert and overwrite rows of the classes of `ledger.tables`: statements that several topics share.

PostgreSQL's construct makes ON CONFLICT for SQLite, too: both databases write it alike, and the tests run on both. It is
imported where something is written: its dialect takes 30 ms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table, bindparam, delete, inspect, select

from costguard.ledger.db.codecs import Execute, Query, SqlRow
from costguard.ledger.types import LedgerRow

if TYPE_CHECKING:
    from sqlalchemy.dialects.postgresql import Insert


def make_insert(row: type[LedgerRow]) -> Insert:
    """Return the statement that inserts rows, to which what is done on a conflict can be added."""
    from sqlalchemy.dialects.postgresql import insert

    return insert(_get_table(row))


def insert_new(row: type[LedgerRow]) -> Insert:
    """Return the statement that inserts rows, and leaves those alone whose key is there."""
    return make_insert(row).on_conflict_do_nothing()


def insert_rows(tell: Execute, rows: Sequence[LedgerRow]) -> None:
    """Insert `rows`, which are of one table."""
    if rows:
        tell(make_insert(type(rows[0])), [row.model_dump() for row in rows])


def replace_rows(ask: Query, tell: Execute, row: type[LedgerRow], rows: Mapping[SqlRow, SqlRow]) -> None:
    """Replace the content of the table by `rows` (primary key -> the other columns), writing only those that changed."""
    table = _get_table(row)
    width = len(table.primary_key)
    there = {found[:width]: found[width:] for found in ask(select(*table.columns))}
    delete_rows(tell, row, [key for key in there if key not in rows])
    upsert_rows(tell, row, {key: values for key, values in rows.items() if there.get(key) != values})


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
