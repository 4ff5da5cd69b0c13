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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Text,
    bindparam,
    delete,
    exists,
    func,
    insert,
    inspect,
    select,
    tuple_,
    update,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CheckConstraint, Column, ForeignKey, MetaData, Table, UniqueConstraint

from costguard.errors import InputError
from costguard.ledger.db.session import wrap_driver
from costguard.quoting.offer import Offer, OfferSelection
from costguard.quoting.price_series import PricedMachine, PriceRun, PriceSeries, identify_machine, is_dated_price
from costguard.system.atomic_file import make_folder
from costguard.values.money import Rate

APPLICATION_ID = 0x43475048
"""Marks the file as ours: "CGPH" in ASCII."""
SCHEMA_VERSION = 1

_METADATA = MetaData()
_MACHINE_TEXTS = ("gpu", "provider", "region", "instance_type", "tier", "drift")
_MACHINES = Table(
    "machines",
    _METADATA,
    Column("machine_id", Integer, primary_key=True),
    *(Column(name, Text, nullable=False) for name in _MACHINE_TEXTS),
    Column("gpu_count", Integer, CheckConstraint("gpu_count >= 1"), nullable=False),
    UniqueConstraint(*_MACHINE_TEXTS, "gpu_count"),
    sqlite_strict=True,
)
_MACHINE = tuple(_MACHINES.columns[name] for name in (*_MACHINE_TEXTS, "gpu_count"))
_PRICES = Table(
    "prices",
    _METADATA,
    Column("machine_id", Integer, ForeignKey("machines.machine_id"), primary_key=True),
    Column("seen_on", Integer, primary_key=True),
    Column("last_seen_on", Integer, CheckConstraint("last_seen_on >= seen_on"), nullable=False),
    Column("nano_usd_per_hour", Integer, CheckConstraint("nano_usd_per_hour > 0"), nullable=False),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)
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
    cheapest = _select_cheapest(offers, on)
    with _open_for_writing(path) as connection:
        machine_ids = _add_machines(connection, {machine for machine, _ in cheapest})
        days = defaultdict[int, dict[int, int]](dict)
        for (machine, day), nano in cheapest.items():
            days[day][machine_ids[machine]] = nano
        added = sum(_record_day(connection, day, prices, _to_number(on)) for day, prices in sorted(days.items()))
        _thin_rows(connection, _to_number(on))
    return added


def _select_cheapest(offers: Iterable[Offer], on: date) -> dict[tuple[PricedMachine, int], int]:
    """Return (machine, day) -> nano-dollars per hour."""
    cheapest: dict[tuple[PricedMachine, int], int] = {}
    for offer in offers:
        if offer.rate is not None and is_dated_price(offer):
            key = (identify_machine(offer), _to_number(min(offer.observed_on, on)))
            cheapest[key] = min(cheapest.get(key, offer.rate.nano_per_hour), offer.rate.nano_per_hour)
    return cheapest


def _add_machines(connection: Connection, machines: set[PricedMachine]) -> dict[PricedMachine, int]:
    """Add those of `machines` that are new, and return the number of every one."""
    numbers = _load_machines(connection)
    if new := sorted(machines.difference(numbers)):
        connection.execute(insert(_MACHINES), [{column.name: getattr(one, column.name) for column in _MACHINE} for one in new])
        numbers = _load_machines(connection)
    return numbers


def _load_machines(connection: Connection) -> dict[PricedMachine, int]:
    return {_decode_machine(row): number for number, *row in connection.execute(select(_MACHINES.c.machine_id, *_MACHINE))}


_RUNS_BEFORE = (
    select(_PRICES.c.machine_id, func.max(_PRICES.c.seen_on), _PRICES.c.last_seen_on, _PRICES.c.nano_usd_per_hour)
    .where(_PRICES.c.seen_on <= bindparam("day"))
    .group_by(_PRICES.c.machine_id)
)
"""SQLite takes all columns from the row of the maximum (sqlite.org/lang_select.html, "bare columns")."""
_RUN = update(_PRICES).where(_PRICES.c.machine_id == bindparam("machine"), _PRICES.c.seen_on == bindparam("first"))
_EXTEND = _RUN.values(last_seen_on=bindparam("last"))
_REPLACE = _RUN.values(nano_usd_per_hour=bindparam("nano"))


def _record_day(connection: Connection, day: int, prices: Mapping[int, int], today: int) -> int:
    """Record the prices of a day, by machine; return the number of rows added.

    The last price that is recorded of a day stands for it.
    """
    runs = {machine: run for machine, *run in connection.execute(_RUNS_BEFORE, {"day": day})}
    new, extended, replaced = list[dict[str, int]](), list[dict[str, int]](), list[dict[str, int]]()
    for machine, nano in sorted(prices.items()):
        row = {"machine_id": machine, "seen_on": day, "last_seen_on": day, "nano_usd_per_hour": nano}
        first, until, price = runs.get(machine, (day, day - UNSEEN_DAYS_MAX - 1, 0))
        if day > until + UNSEEN_DAYS_MAX:
            new.append(row)
            continue
        last = max(first, min(until, today))  # a clock that ran ahead once may have dated it into the future
        if nano == price:
            if day > last:
                extended.append({"machine": machine, "first": first, "last": day})
        elif first == day == last:
            replaced.append({"machine": machine, "first": first, "nano": nano})
        elif day >= last:  # else a later day confirmed the recorded price: this copy is older than what is known
            new.append(row)
            if last == day:
                extended.append({"machine": machine, "first": first, "last": day - 1})
    for statement, rows in ((_EXTEND, extended), (_REPLACE, replaced), (insert(_PRICES), new)):
        if rows:
            connection.execute(statement, rows)
    return len(new)


_OTHER = _PRICES.alias("other")
_SAME_MACHINE = _OTHER.c.machine_id == _PRICES.c.machine_id


def _thin_rows(connection: Connection, today: int) -> None:
    weekly = today - WEEKLY_AFTER_DAYS
    week, other_week = ((of.c.seen_on + 3) // 7 for of in (_PRICES, _OTHER))  # 1970-01-01 was a Thursday: weeks begin on Monday
    later = exists().where(_SAME_MACHINE, _OTHER.c.seen_on > _PRICES.c.seen_on, _OTHER.c.seen_on < weekly, other_week == week)
    connection.execute(delete(_PRICES).where(_PRICES.c.seen_on < weekly, later))
    crowded = select(_OTHER.c.machine_id).group_by(_OTHER.c.machine_id).having(func.count() > ROWS_PER_MACHINE_MAX)
    rows = select(_OTHER.c.seen_on).where(_SAME_MACHINE).order_by(_OTHER.c.seen_on.desc())
    oldest_kept = rows.limit(1).offset(ROWS_PER_MACHINE_MAX - 1).scalar_subquery()
    connection.execute(delete(_PRICES).where(_PRICES.c.machine_id.in_(crowded), _PRICES.c.seen_on < oldest_kept))
    if (excess := connection.execute(select(func.count()).select_from(_PRICES)).scalar_one() - ROWS_MAX) > 0:
        oldest = select(_OTHER.c.machine_id, _OTHER.c.seen_on).limit(excess)
        oldest = oldest.order_by(_OTHER.c.last_seen_on, _OTHER.c.seen_on, _OTHER.c.machine_id)
        connection.execute(delete(_PRICES).where(tuple_(_PRICES.c.machine_id, _PRICES.c.seen_on).in_(oldest)))
    connection.execute(delete(_MACHINES).where(_MACHINES.c.machine_id.not_in(select(_PRICES.c.machine_id))))


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    """Raise InputError for an error of SQLite."""
    try:
        yield
    except DBAPIError as failed:
        raise _make_sqlite_error(path, failed.orig) from None
    except sqlite3.Error as failed:
        raise _make_sqlite_error(path, failed) from None


@contextmanager
def _open_for_writing(path: Path) -> Iterator[Connection]:
    """Open the file, made with its folder if missing, for one transaction; it is readable by this user only."""
    try:
        make_folder(path.absolute().parent)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as failed:
        raise _make_unwritable_error(path, failed.strerror or type(failed).__name__) from None
    with (
        _translate_errors(path),
        closing(sqlite3.connect(path, timeout=BUSY_WAIT_S, isolation_level=None)) as file,
        wrap_driver("sqlite", file) as connection,
    ):
        file.execute("BEGIN IMMEDIATE")
        if not inspect(connection).get_table_names():
            _METADATA.create_all(connection, checkfirst=False)
            file.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            file.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        _check_format(file, path)
        yield connection
        file.execute("COMMIT")


def _check_format(file: sqlite3.Connection, path: Path) -> None:
    pragmas = [file.execute(f"PRAGMA {pragma}").fetchone()[0] for pragma in ("application_id", "user_version")]
    if pragmas != [APPLICATION_ID, SCHEMA_VERSION]:
        is_history = pragmas[0] == APPLICATION_ID
        raise _make_damaged_error(
            path, f"has format {pragmas[1]}, not {SCHEMA_VERSION}" if is_history else "is not a price history"
        )


class PriceHistoryReader:
    """The prices of one history file. Use it in a `with` statement, or call `close`.

    InputError if the file is missing or damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            hint = "costguard prices refresh begins one"
            raise InputError("the price history does not exist", field=str(path), hint=hint)
        with _translate_errors(path):
            # opened for writing too: what a killed process left unfinished is rolled back by whoever opens the file next
            self._file = sqlite3.connect(path, timeout=BUSY_WAIT_S, isolation_level=None)
            self._file.execute("PRAGMA query_only = 1")
            _check_format(self._file, path)
            self._connection = wrap_driver("sqlite", self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
        self._file.close()

    def list_series(self, selection: OfferSelection) -> list[PriceSeries]:
        """Return the prices of every selected machine, sorted by machine.

        `selection.observed_since`: rows that were last seen before that day are left out.
        """
        runs: dict[PricedMachine, list[PriceRun]] = defaultdict(list)
        with _translate_errors(self.path):
            for *machine, first, last, nano in self._connection.execute(_SERIES.where(*_list_conditions(selection))):
                run = PriceRun(seen_on=_to_day(first), last_seen_on=_to_day(last), rate=Rate(nano_per_hour=nano))
                runs[_decode_machine(machine)].append(run)
        return [PriceSeries(machine=machine, runs=tuple(own)) for machine, own in sorted(runs.items())]

    def describe_file(self) -> Mapping[str, object]:
        """Return the number of machines and rows, and the first and the last day on which a price was seen."""
        with _translate_errors(self.path):
            machines, rows, first, last = self._connection.execute(_FACTS).one()
        return {
            "path": str(self.path),
            "machines": machines,
            "rows": rows,
            "oldest": None if first is None else _to_day(first).isoformat(),
            "newest": None if last is None else _to_day(last).isoformat(),
        }


_SERIES = (
    select(*_MACHINE, _PRICES.c.seen_on, _PRICES.c.last_seen_on, _PRICES.c.nano_usd_per_hour)
    .join_from(_MACHINES, _PRICES)
    .order_by(_MACHINES.c.machine_id, _PRICES.c.seen_on)
)
_FACTS = select(
    select(func.count()).select_from(_MACHINES).scalar_subquery(),
    func.count(),
    func.min(_PRICES.c.seen_on),
    func.max(_PRICES.c.last_seen_on),
)


def _list_conditions(selection: OfferSelection) -> list[ColumnElement[bool]]:
    machine = _MACHINES.c
    allowed: tuple[tuple[ColumnElement[Any], Collection[str | int] | None], ...] = (
        (machine.gpu, selection.gpus),
        (machine.provider, selection.providers),
        (machine.region, selection.regions),
        (machine.tier, selection.tiers),
        (machine.gpu_count, selection.gpu_counts),
    )
    conditions: list[ColumnElement[bool]] = [column.in_(values) for column, values in allowed if values is not None]
    if selection.least_gpus is not None:
        conditions.append(machine.gpu_count >= selection.least_gpus)
    if selection.most_gpus is not None:
        conditions.append(machine.gpu_count <= selection.most_gpus)
    if selection.observed_since is not None:
        conditions.append(_PRICES.c.last_seen_on >= _to_number(selection.observed_since))
    return conditions


def _decode_machine(row: Sequence[Any]) -> PricedMachine:
    return PricedMachine(**{column.name: value for column, value in zip(_MACHINE, row, strict=True)})


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


def _make_sqlite_error(path: Path, failed: BaseException | None) -> InputError:
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
