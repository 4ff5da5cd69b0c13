"""Copy a ledger of an older costguard into a new one: `costguard db import`.

    costguard db import ledger-2025.db      into [ledger] url, where nothing is yet, or a ledger without rows

The source is only read. It is refused if its schema is not one of `IMPORTED_REVISIONS`, if it lacks a table or column, is
damaged, its audit log does not verify, or another process uses it. All rows are copied as they are, a page at a time, in one
transaction of the target: money stays the same to the nano-unit, and each row of the audit keeps its hash. Tables of before
that have no class any more (digests, judgements) stay behind, and `LEFT_OUT`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, delete, func, insert, inspect, select, tuple_
from sqlalchemy.exc import DBAPIError
from sqlmodel import col

from costguard.errors import InputError, LedgerError
from costguard.ledger.db.address import LedgerAddress, parse_ledger_address
from costguard.ledger.db.codecs import Query
from costguard.ledger.db.connection import WRITER_LOCK_ID, fill_ledger
from costguard.ledger.db.maintenance import check_file, check_references
from costguard.ledger.db.new_ledger import FIRST_ROWS, create_tables
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.db.schema import IMPORTED_REVISIONS, create_triggers_and_views, drop_triggers_and_views
from costguard.ledger.db.session import open_query
from costguard.ledger.guard.audit_check import check_audit
from costguard.ledger.guard.guard_state import load_leader_lease
from costguard.ledger.tables import load_metadata
from costguard.ledger.tables.duties import DutyRow
from costguard.system.atomic_file import hold_file_lock
from costguard.values.instant import from_micros

LEFT_OUT = ("duty", "poll_view")
"""Who polls next, and what the last poll saw: the next poll of each account writes both anew."""
ADDED_TABLES = {"cost_entry"}
ADDED_COLUMNS = {"climb": {"announced_us"}, "notice_delivery": {"owner"}, "hold": {"hourly_nano"}}
"""Table -> the columns that came with revisions 0015 and 0019; in older rows they are NULL."""
PAGE_ROWS = 5000
NOTHING_WRITTEN = "nothing was written"
_STOP_HINT = f"stop costguard there (costguard watch, its service), then try again; {NOTHING_WRITTEN}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerImport:
    """What was imported. `source`, `target`: addresses for people. `rows`: table -> rows, of those that have any."""

    source: str
    target: str
    revision: str
    rows: dict[str, int]


def import_ledger(source_url: str, target_url: str) -> LedgerImport:
    """Copy the ledger at `source_url` into the one at `target_url`, and return what was copied.

    Raises InputError if the target has rows, and LedgerError if the source cannot be imported: then nothing was written.
    """
    target = parse_ledger_address(target_url)
    if parse_ledger_address(source_url) == target:
        hint = "name a new ledger in [ledger] url: the old one stays as it is"
        raise InputError("is [ledger] url itself", field=target.shown, hint=hint)
    with LedgerReader(source_url, revisions=IMPORTED_REVISIONS) as reader, _excluding_writers(reader) as ask:
        columns = _check_source(reader, ask)

        def fill(connection: Connection) -> dict[str, int]:
            rows = _copy_rows(ask, connection, columns, reader.where)
            create_triggers_and_views(connection)
            return rows

        def create(connection: Connection) -> dict[str, int]:
            create_tables(connection)
            return fill(connection)

        def refill(connection: Connection) -> dict[str, int]:
            _remove_first_rows(connection, target)
            return fill(connection)

        rows = fill_ledger(target_url, create, refill)
    return LedgerImport(source=reader.where.shown, target=target.shown, revision=reader.revision, rows=rows)


@contextmanager
def _excluding_writers(reader: LedgerReader) -> Iterator[Query]:
    """Open a snapshot of the source, and hold its writers' lock. Raises LedgerError if another process uses it."""
    where = reader.where
    if where.path is None:
        with reader.snapshot() as ask:
            if ask(select(func.pg_try_advisory_xact_lock(WRITER_LOCK_ID))) != [(True,)]:
                raise LedgerError("is held by another process, which writes to it", field=where.shown, hint=_STOP_HINT)
            yield ask
        return
    lock = where.make_sibling_path(".lock")
    if not lock.exists():  # whoever writes makes it
        with reader.snapshot() as ask:
            yield ask
        return
    with hold_file_lock(lock, patience_s=0), reader.snapshot() as ask:
        yield ask


def _check_source(reader: LedgerReader, ask: Query) -> dict[str, list[str]]:
    """Return the columns to copy of each table. Raises LedgerError if the source is in use, incomplete or edited."""
    columns, where = _find_columns(reader), reader.where
    lease, now_us = load_leader_lease(ask), time.time_ns() // 1000
    if lease is not None and lease.is_held(from_micros(now_us)):
        what = f"is held by another process: {lease.holder} guards by it until {lease.until:%Y-%m-%d %H:%M:%S} UTC"
        raise LedgerError(what, field=where.shown, hint=_STOP_HINT)
    for (holder,) in ask(select(col(DutyRow.holder)).where(col(DutyRow.holder) != "", col(DutyRow.until_us) > now_us).limit(1)):
        raise LedgerError(f"is held by another process: {holder} polls into it", field=where.shown, hint=_STOP_HINT)
    damage = [] if where.path is None else [*check_file(ask), *check_references(ask)]
    if damage:
        hint = f"restore a backup of it, and import that; {NOTHING_WRITTEN}"
        raise LedgerError(f"is damaged: {damage[0]}", field=where.shown, hint=hint)
    findings = check_audit(ask)[1]
    if findings:
        hint = f"find out which program wrote to it, restore a backup, and import that; {NOTHING_WRITTEN}"
        raise LedgerError(f"has an audit log that does not verify: {findings[0].what}", field=where.shown, hint=hint)
    return columns


def _find_columns(reader: LedgerReader) -> dict[str, list[str]]:
    """Return the columns that are copied of each table, in the order of creation. Raises LedgerError if one is missing."""
    inspector, columns = inspect(reader.connection), dict[str, list[str]]()
    tables = set(inspector.get_table_names())
    for table in load_metadata().sorted_tables:
        if table.name in ADDED_TABLES - tables:
            continue
        column_names = {column["name"] for column in inspector.get_columns(table.name)} if table.name in tables else set()
        missing = {column.name for column in table.columns} - column_names - ADDED_COLUMNS.get(table.name, set())
        if missing:
            lacks = f"the columns {', '.join(sorted(missing))} of {table.name}" if column_names else f"the table {table.name}"
            hint = f"restore a backup of it, and import that; {NOTHING_WRITTEN}"
            raise LedgerError(f"is incomplete: it lacks {lacks}", field=reader.where.shown, hint=hint)
        if table.name not in LEFT_OUT:
            columns[table.name] = [column.name for column in table.columns if column.name in column_names]
    return columns


def _remove_first_rows(connection: Connection, target: LedgerAddress) -> None:
    """Take down the triggers and first rows of the target. Raises InputError if it has any others."""
    for table in load_metadata().sorted_tables:
        rows = connection.execute(select(func.count()).select_from(table)).scalar_one()
        if rows > FIRST_ROWS.get(table.name, 0):
            hint = f"name a new ledger in [ledger] url: ledgers are not mixed; {NOTHING_WRITTEN}"
            raise InputError(f"is not empty: {table.name} has {rows} rows", field=target.shown, hint=hint)
    drop_triggers_and_views(connection)
    for name in FIRST_ROWS:
        connection.execute(delete(load_metadata().tables[name]))


def _copy_rows(ask: Query, connection: Connection, columns: dict[str, list[str]], source: LedgerAddress) -> dict[str, int]:
    """Copy all rows; return how many by table. Raises LedgerError if the target refuses one."""
    copied = dict[str, int]()
    for name, names in columns.items():
        table = load_metadata().tables[name]
        count = 0
        for page in _page_rows(ask, table, names):
            try:
                connection.execute(insert(table), [dict(zip(names, row, strict=True)) for row in page])
            except DBAPIError as error:
                if not isinstance(error.orig, Exception) or "constraint" not in str(error.orig).lower():
                    raise
                what = f"has a row of {name} that the schema refuses: {str(error.orig).splitlines()[0]}"
                hint = f"run costguard db check of the older version on it; {NOTHING_WRITTEN}"
                raise LedgerError(what, field=source.shown, hint=hint) from None
            count += len(page)
        if count:
            copied[name] = count
            _advance_sequence(connection, table)
    findings = check_audit(open_query(connection))[1]
    if findings:
        raise LedgerError(f"was not copied completely: {findings[0].what}", field=source.shown, hint=NOTHING_WRITTEN)
    return copied


def _page_rows(ask: Query, table: Table, names: Sequence[str]) -> Iterator[Sequence[Any]]:
    """Yield the rows of `table` in the order of their keys, `PAGE_ROWS` at a time."""
    keys = list(table.primary_key.columns)
    places = [names.index(key.name) for key in keys]
    statement = select(*(table.columns[name] for name in names)).order_by(*keys).limit(PAGE_ROWS)
    page = ask(statement)
    while page:
        yield page
        last = [page[-1][place] for place in places]
        page = ask(statement.where(tuple_(*keys) > tuple_(*last) if len(keys) > 1 else keys[0] > last[0]))


def _advance_sequence(connection: Connection, table: Table) -> None:
    """On PostgreSQL, set the sequence of the table's ids, if it has one, behind the highest id."""
    counted = table.autoincrement_column
    if connection.dialect.name == "postgresql" and counted is not None:
        sequence = func.pg_get_serial_sequence(table.name, counted.name)
        connection.execute(select(func.setval(sequence, func.max(counted))))
