"""The yardstick of `bench.ledger`: the very rows that the ledger wrote, written again by Python's sqlite3 alone.

What one transaction changed is found by comparing the file before and after it, table by table.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = tuple[Any, ...]

TABLES = ("scope", "resource", "attribution", "observation", "span", "correction", "coverage", "daily", "ledger_state")
CLOSING = ("end_us", "ended_by", "low", "expected", "high")
DAILY_KEY = 5
"""The first columns of `daily` are its key."""
SPAN_COLUMNS = (
    "id resource_id attribution_id charge part unit quantity quantum_s minimum_s price_low price_expected price_high currency "  # noqa: SIM905
    "price_known price_source presence anchor_us start_us why end_us ended_by low expected high".split()
)


@dataclass(frozen=True, slots=True)
class Changes:
    """Table -> its new rows, whole; and table -> its changed rows, whole, as they are now."""

    inserted: dict[str, list[Row]]
    updated: dict[str, list[Row]]

    @property
    def count(self) -> int:
        """Rows."""
        return sum(map(len, (*self.inserted.values(), *self.updated.values())))


def copied(source: Path, target: Path) -> Path:
    """`target` as a copy of the ledger `source`, whose writer may go on holding it."""
    for path in target.parent.glob(f"{target.name}*"):
        path.unlink()
    with closing(sqlite3.connect(source)) as original, closing(sqlite3.connect(target)) as copy:
        original.backup(copy)
    return target


def difference(before: Path, after: Path) -> Changes:
    """What changed between two states of one ledger."""
    inserted: dict[str, list[Row]] = {}
    updated: dict[str, list[Row]] = {}
    with closing(sqlite3.connect(before)) as old, closing(sqlite3.connect(after)) as new:
        for table in TABLES:
            width = DAILY_KEY if table == "daily" else 1
            was = {row[:width]: row for row in old.execute(f"SELECT * FROM {table}")}  # noqa: S608 - our own names
            now = new.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 - our own names
            inserted[table] = [row for row in now if row[:width] not in was]
            updated[table] = [row for row in now if was.get(row[:width], row) != row]
    return Changes(inserted, updated)


def replayed(path: Path, changes: Changes) -> None:
    """Write `changes` to the ledger at `path` in one transaction that is on the disk when it ends."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        statements = [_closing(changes), *_inserting(changes), *_replacing(changes)]
        connection.execute("BEGIN IMMEDIATE")
        for sql, rows in statements:
            if rows:
                connection.executemany(sql, rows)
        connection.execute("COMMIT")


def _closing(changes: Changes) -> tuple[str, list[Row]]:
    """Spans first lose what keeps the next ones out: they end."""
    places = [SPAN_COLUMNS.index(name) for name in (*CLOSING, "id")]
    rows = [tuple(row[place] for place in places) for row in changes.updated.get("span", ())]
    return f"UPDATE span SET {', '.join(f'{name} = ?' for name in CLOSING)} WHERE id = ?", rows  # noqa: S608 - our own names


def _inserting(changes: Changes) -> list[tuple[str, list[Row]]]:
    return [
        (f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)  # noqa: S608 - our own names
        for table, rows in changes.inserted.items()
        if rows
    ]


def _replacing(changes: Changes) -> list[tuple[str, list[Row]]]:
    covered = [(row[5], row[6], row[0]) for row in changes.updated.get("coverage", ())]
    daily = [(*row[DAILY_KEY:], *row[:DAILY_KEY]) for row in changes.updated.get("daily", ())]
    state = [(row[3],) for row in changes.updated.get("ledger_state", ())]
    key = "day = ? AND attribution_id = ? AND charge = ? AND currency = ? AND known = ?"
    return [
        ("UPDATE coverage SET end_us = ?, polls = ? WHERE id = ?", covered),
        (f"UPDATE daily SET low = ?, expected = ?, high = ?, us = ? WHERE {key}", daily),  # noqa: S608 - our own names
        ("UPDATE ledger_state SET revision = ? WHERE id = 1", state),
    ]


def same_rows(one: Path, other: Path) -> None:
    """Leave unless both ledgers hold the same rows."""
    with closing(sqlite3.connect(one)) as first, closing(sqlite3.connect(other)) as second:
        for table in TABLES:
            a, b = (c.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3").fetchall() for c in (first, second))  # noqa: S608 - our own names
            if a != b:
                raise SystemExit(f"the yardstick wrote other rows of {table} than the ledger")
