"""The price history: one SQLite file in the user's data folder, to which each refresh of the prices appends.

A row is a *run*: a price of one machine, the day on which it was first seen and the last one on which it was seen unchanged.
So a price that stays costs no row. Example: a refresh a day that finds $2.99 for 30 days and then $2.69 makes two rows.

The file uses SQLite's rollback journal rather than a write-ahead log: a process that is killed leaves the file as it was before
its transaction, two processes wait for each other, and no version of SQLite loses a commit (`system/atomic_file.py` tells of a
bug in the write-ahead log). Old rows are thinned: one a week beyond a year, ROWS_PER_MACHINE_MAX a machine, ROWS_MAX in all.
"""

from __future__ import annotations

import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from costguard.errors import InputError
from costguard.quoting.offer import Offer, OfferSelection
from costguard.quoting.price_series import PricedMachine, PriceRun, PriceSeries, identify_machine, is_dated_price
from costguard.system.atomic_file import make_folder
from costguard.values.money import Rate

APPLICATION_ID = 0x43475048
"""Marks the file as ours: "CGPH" in ASCII."""
SCHEMA_VERSION = 1

SCHEMA = f"""
CREATE TABLE machines (
    machine_id INTEGER PRIMARY KEY,
    gpu TEXT NOT NULL,
    provider TEXT NOT NULL,
    region TEXT NOT NULL,
    instance_type TEXT NOT NULL,
    gpu_count INTEGER NOT NULL CHECK (gpu_count >= 1),
    tier TEXT NOT NULL,
    drift TEXT NOT NULL,
    UNIQUE (gpu, provider, region, instance_type, gpu_count, tier, drift)
) STRICT;
CREATE TABLE prices (
    machine_id INTEGER NOT NULL REFERENCES machines,
    seen_on INTEGER NOT NULL,
    last_seen_on INTEGER NOT NULL CHECK (last_seen_on >= seen_on),
    nano_usd_per_hour INTEGER NOT NULL CHECK (nano_usd_per_hour > 0),
    PRIMARY KEY (machine_id, seen_on)
) STRICT, WITHOUT ROWID;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""
"""Days are counted from 1970-01-01."""

EPOCH = date(1970, 1, 1)
UNSEEN_DAYS_MAX = 35
"""A price that is seen again after more days than these begins a new row: nobody saw it in between. An assumption."""
WEEKLY_AFTER_DAYS = 365
"""Beyond this age one row a week is kept: a chart has fewer columns than weeks."""
ROWS_PER_MACHINE_MAX, ROWS_MAX = 600, 500_000
"""A year of days and five of weeks are 625 rows. A row takes about 25 bytes: 500,000 are 13 MB."""
BUSY_WAIT_S = 20.0
"""How long to wait for another process; an append of 20,000 prices takes about a second."""


def append_prices(path: Path, offers: Iterable[Offer], on: date) -> int:
    """Record the prices of `offers` in the history at `path`, made if missing; return the number of rows added.

    `on`: today. An offer counts for the day on which it was observed, at most `on`; of several offers of one machine the
    cheapest counts. Unknown prices, undated ones and placeholders are left out. Either all is recorded or nothing. InputError
    if the file is damaged or cannot be written; it says what to do.
    """
    seen = _select_cheapest(offers, on)
    with _open_for_writing(path) as connection:
        machine_ids = _add_machines(connection, {machine for machine, _ in seen})
        added = sum(
            _record_price(connection, machine_ids[machine], day, nano, _to_number(on))
            for (machine, day), nano in sorted(seen.items(), key=lambda item: (machine_ids[item[0][0]], item[0][1]))
        )
        _thin_rows(connection, _to_number(on))
    return added


def _select_cheapest(offers: Iterable[Offer], on: date) -> dict[tuple[PricedMachine, int], int]:
    """Return (machine, day) -> nano-dollars per hour."""
    seen: dict[tuple[PricedMachine, int], int] = {}
    for offer in offers:
        if offer.rate is not None and is_dated_price(offer):
            key = (identify_machine(offer), _to_number(min(offer.observed_on, on)))
            seen[key] = min(seen.get(key, offer.rate.nano_per_hour), offer.rate.nano_per_hour)
    return seen


_MACHINE_COLUMNS = ("gpu", "provider", "region", "instance_type", "gpu_count", "tier", "drift")
_MACHINES = f"INSERT INTO machines ({', '.join(_MACHINE_COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"  # noqa: S608
_MACHINE_ID = f"SELECT machine_id FROM machines WHERE {' AND '.join(f'{name} = ?' for name in _MACHINE_COLUMNS)}"  # noqa: S608 - our own column names


def _add_machines(connection: sqlite3.Connection, machines: set[PricedMachine]) -> dict[PricedMachine, int]:
    named = {one: tuple(getattr(one, name) for name in _MACHINE_COLUMNS) for one in sorted(machines)}
    connection.executemany(_MACHINES, named.values())
    return {one: connection.execute(_MACHINE_ID, values).fetchone()[0] for one, values in named.items()}


_RUN_BEFORE = """
SELECT seen_on, last_seen_on, nano_usd_per_hour FROM prices WHERE machine_id = ? AND seen_on <= ? ORDER BY seen_on DESC LIMIT 1
"""
_EXTEND = "UPDATE prices SET last_seen_on = ? WHERE machine_id = ? AND seen_on = ?"
_INSERT = "INSERT INTO prices (machine_id, seen_on, last_seen_on, nano_usd_per_hour) VALUES (?, ?, ?, ?)"
_REPLACE = "UPDATE prices SET nano_usd_per_hour = ? WHERE machine_id = ? AND seen_on = ?"


def _record_price(connection: sqlite3.Connection, machine: int, day: int, nano: int, today: int) -> int:
    """Record one price; return the number of rows added. The last price that is recorded of a day stands for it."""
    found = connection.execute(_RUN_BEFORE, (machine, day)).fetchone()
    if found is None or day > found[1] + UNSEEN_DAYS_MAX:
        connection.execute(_INSERT, (machine, day, day, nano))
        return 1
    first, known = found[0], found[2]
    last = max(first, min(found[1], today))  # a clock that ran ahead once may have dated it into the future
    if nano == known:
        if day > last:
            connection.execute(_EXTEND, (day, machine, first))
        return 0
    if day < last:  # a later day confirmed the recorded price: this copy is older than what is known
        return 0
    if first == day:
        connection.execute(_REPLACE, (nano, machine, day))
        return 0
    if last == day:
        connection.execute(_EXTEND, (day - 1, machine, first))
    connection.execute(_INSERT, (machine, day, day, nano))
    return 1


_THIN_WEEKS = """
DELETE FROM prices WHERE seen_on < :weekly AND EXISTS (
    SELECT 1 FROM prices AS later WHERE later.machine_id = prices.machine_id AND later.seen_on > prices.seen_on
        AND later.seen_on < :weekly AND (later.seen_on + 3) / 7 = (prices.seen_on + 3) / 7
)
"""
"""1970-01-01 was a Thursday, so that weeks begin on Monday."""
_THIN_MACHINES = """
DELETE FROM prices WHERE machine_id IN (SELECT machine_id FROM prices GROUP BY machine_id HAVING count(*) > :most)
    AND seen_on < (
        SELECT later.seen_on FROM prices AS later WHERE later.machine_id = prices.machine_id
        ORDER BY later.seen_on DESC LIMIT 1 OFFSET :most - 1
    )
"""
_THIN_ALL = """
DELETE FROM prices WHERE (machine_id, seen_on) IN (
    SELECT machine_id, seen_on FROM prices ORDER BY last_seen_on, seen_on, machine_id
    LIMIT max(0, (SELECT count(*) FROM prices) - :most)
)
"""
_DROP_MACHINES = "DELETE FROM machines WHERE machine_id NOT IN (SELECT machine_id FROM prices)"


def _thin_rows(connection: sqlite3.Connection, today: int) -> None:
    connection.execute(_THIN_WEEKS, {"weekly": today - WEEKLY_AFTER_DAYS})
    connection.execute(_THIN_MACHINES, {"most": ROWS_PER_MACHINE_MAX})
    connection.execute(_THIN_ALL, {"most": ROWS_MAX})
    connection.execute(_DROP_MACHINES)


@contextmanager
def _open_for_writing(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the file, made with its folder if missing, for one transaction; it is readable by this user only."""
    try:
        make_folder(path.absolute().parent)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(path, timeout=BUSY_WAIT_S, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            _prepare_schema(connection, path)
            yield connection
            connection.execute("COMMIT")
    except OSError as failed:
        raise _make_unwritable_error(path, failed.strerror or type(failed).__name__) from None
    except sqlite3.Error as failed:
        raise _make_sqlite_error(path, failed) from None


def _prepare_schema(connection: sqlite3.Connection, path: Path) -> None:
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if not tables:
        for statement in filter(str.strip, SCHEMA.split(";")):  # executescript would commit the transaction
            connection.execute(statement)
    _check_format(connection, path)


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    found = [connection.execute(f"PRAGMA {pragma}").fetchone()[0] for pragma in ("application_id", "user_version")]
    if found != [APPLICATION_ID, SCHEMA_VERSION]:
        ours = found[0] == APPLICATION_ID
        raise _make_damaged_error(path, f"has format {found[1]}, not {SCHEMA_VERSION}" if ours else "is not a price history")


class PriceHistoryReader:
    """The prices of one history file. Use it in a `with` statement, or call `close`.

    InputError if the file is missing or damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            hint = "costguard prices refresh begins one"
            raise InputError("the price history does not exist", field=str(path), hint=hint)
        try:  # opened for writing too: what a killed process left unfinished is rolled back by whoever opens the file next
            self._connection = sqlite3.connect(path, timeout=BUSY_WAIT_S, isolation_level=None)
            self._connection.execute("PRAGMA query_only = 1")
            _check_format(self._connection, path)
        except sqlite3.Error as failed:
            raise _make_sqlite_error(path, failed) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def list_series(self, selection: OfferSelection) -> list[PriceSeries]:
        """Return the prices of every selected machine, sorted by machine.

        `selection.observed_since`: rows that were last seen before that day are left out.
        """
        where, values = _format_selection(selection)
        return self._collect_series(_SERIES.format(where=where), values)

    def describe_file(self) -> Mapping[str, object]:
        """Return the number of machines and rows, and the first and the last day on which a price was seen."""
        ((machines, rows, first, last),) = self._list_rows(_FACTS, [])
        return {
            "path": str(self.path),
            "machines": machines,
            "rows": rows,
            "oldest": None if first is None else _to_day(first).isoformat(),
            "newest": None if last is None else _to_day(last).isoformat(),
        }

    def _collect_series(self, query: str, values: Sequence[str | int]) -> list[PriceSeries]:
        runs: dict[PricedMachine, list[PriceRun]] = defaultdict(list)
        for row in self._list_rows(query, values):
            runs[_decode_machine(row)].append(
                PriceRun(seen_on=_to_day(row[7]), last_seen_on=_to_day(row[8]), rate=Rate(nano_per_hour=row[9]))
            )
        return [PriceSeries(machine=machine, runs=tuple(own)) for machine, own in sorted(runs.items())]

    def _list_rows(self, query: str, values: Sequence[str | int]) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as failed:
            raise _make_sqlite_error(self.path, failed) from None


_SERIES = f"""
SELECT {", ".join(f"m.{name}" for name in _MACHINE_COLUMNS)}, p.seen_on, p.last_seen_on, p.nano_usd_per_hour
FROM machines AS m CROSS JOIN prices AS p USING (machine_id) WHERE {{where}} ORDER BY m.machine_id, p.seen_on
"""  # noqa: S608 - our own column names
_FACTS = """
SELECT (SELECT count(*) FROM machines), count(*), min(seen_on), max(last_seen_on) FROM prices
"""


def _format_selection(selection: OfferSelection) -> tuple[str, list[str | int]]:
    """Return `selection` as SQL and its values."""
    limits: tuple[tuple[str, Sequence[str | int] | None], ...] = (
        ("m.gpu", selection.gpus),
        ("m.provider", selection.providers),
        ("m.region", selection.regions),
        ("m.tier", selection.tiers),
        ("m.gpu_count", selection.gpu_counts),
    )
    conditions = [f"{column} IN ({', '.join('?' * len(allowed))})" for column, allowed in limits if allowed is not None]
    values = [value for _, allowed in limits if allowed is not None for value in allowed]
    bounds = (
        ("m.gpu_count >= ?", selection.least_gpus),
        ("m.gpu_count <= ?", selection.most_gpus),
        ("p.last_seen_on >= ?", None if selection.observed_since is None else _to_number(selection.observed_since)),
    )
    conditions += [sql for sql, bound in bounds if bound is not None]
    return " AND ".join(conditions or ["TRUE"]), [*values, *(bound for _, bound in bounds if bound is not None)]


def _decode_machine(row: Sequence[Any]) -> PricedMachine:
    return PricedMachine(**dict(zip(_MACHINE_COLUMNS, row, strict=False)))


def _to_number(day: date) -> int:
    return (day - EPOCH).days


def _to_day(number: int) -> date:
    return EPOCH + timedelta(days=number)


@dataclass(frozen=True, slots=True)
class _Failure:
    """A kind of SQLite's errors that leaves the file whole: the file is not to be moved away for it."""

    codes: frozenset[int]
    what: str
    hint: str


_PASSING_FAILURES = (
    _Failure(
        frozenset((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)),
        "is in use by another costguard",
        "wait for it to end, then try again; nothing was written",
    ),
    _Failure(
        frozenset((sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)),
        "cannot be written",
        "free disk space, or make it writable for this user",
    ),
)
_PRIMARY_CODE = 0xFF
"""The low byte of an extended result code is its primary one (sqlite.org/rescode.html, 2026-11)."""


def _make_sqlite_error(path: Path, failed: sqlite3.Error) -> InputError:
    code = getattr(failed, "sqlite_errorcode", None)
    for one in _PASSING_FAILURES:
        if code is not None and code & _PRIMARY_CODE in one.codes:
            return InputError(f"the price history {one.what} ({failed})", field=str(path), hint=one.hint)
    return _make_damaged_error(path, f"cannot be read ({failed})")


def _make_unwritable_error(path: Path, why: str) -> InputError:
    hint = "free disk space, or make it writable for this user"
    return InputError(f"the price history cannot be written: {why}", field=str(path), hint=hint)


def _make_damaged_error(path: Path, what: str) -> InputError:
    hint = f"move it away (mv {path.name} {path.name}.damaged): the next costguard prices refresh begins a new one"
    return InputError(f"the price history {what}", field=str(path), hint=hint)
