"""Collect the lines of a statement in a temporary file.

So at most `BATCH_LINES` of them are in memory at a time. The parts of a line are summed here, exactly (to 1e-18), and rounded
once, half to even. The ledger is written after the whole statement has been read: a file that breaks in the middle writes
nothing, and reading a large file blocks no other writer.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from costguard.bills.bill_files import BillLinePart
from costguard.bills.bill_line import BillLine
from costguard.errors import InputError, LedgerError
from costguard.ledger.db.codecs import SqlRow, format_placeholders
from costguard.values.instant import to_micros
from costguard.values.money import divide_half_even
from costguard.values.resource import make_storable

BATCH_LINES = 500
"""Lines that are written, read and looked up at a time."""
ID_CHARS_MAX = 120
"""Characters of a line's id that are kept as they are: an export's has hundreds, and PostgreSQL's index takes 2,704 bytes."""
ATTO, ATTO_PER_NANO = 18, 10**9
CACHE_KIB = 32 * 1024

LINE_KEY_COLUMNS = "provider, account, statement, line_id"
LINE_FACT_COLUMNS = "start_us, end_us, nano, currency, charge, external_id, region, estimated, source, description"
LINE_COLUMNS = f"{LINE_KEY_COLUMNS}, {LINE_FACT_COLUMNS}"


class StagedStatement:
    """The lines of one statement, deleted when the block ends.

    Use it in a `with` statement.
    """

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="costguard-bill-")
        self._file = sqlite3.connect(f"{self._folder.name}/lines.db", isolation_level=None)
        for pragma in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{CACHE_KIB}"):
            self._file.execute(f"PRAGMA {pragma}").fetchall()
        self._file.execute(_TABLE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()
        self._folder.cleanup()

    def add(self, parts: Iterable[BillLinePart], *, sums: bool = True) -> None:
        """Store `parts`: each is added to the amount of its line, or replaces the line if `sums` is False."""
        lot = list[SqlRow]()
        for line, amount in parts:
            lot.append(_encode_line(line, *divmod(int(amount.scaleb(ATTO).to_integral_value()), ATTO_PER_NANO)))
            if len(lot) == BATCH_LINES:
                self._write(lot, sums=sums)
                lot.clear()
        self._write(lot, sums=sums)

    def list_providers(self) -> list[str]:
        """Return the providers of the lines, sorted."""
        return [name for (name,) in self._file.execute("SELECT DISTINCT provider FROM line ORDER BY provider")]

    def compute_extent(self, provider: str) -> tuple[int, int, int, int]:
        """Return (lines, first start, last end, estimated lines) of one provider, times in microseconds.

        Tax and credits cover whole months, so they do not count for start and end unless there are no other lines.
        """
        sql = """
SELECT count(*), min(CASE WHEN charge NOT IN ('tax', 'credit') THEN start_us END),
    max(CASE WHEN charge NOT IN ('tax', 'credit') THEN end_us END), min(start_us), max(end_us), sum(estimated)
FROM line WHERE provider = ?
"""
        lines, start, end, first, last, estimated = self._file.execute(sql, (provider,)).fetchone()
        return lines, (first or 0) if start is None else start, (last or 0) if end is None else end, estimated or 0

    def iterate_batches(self, provider: str) -> Iterator[list[SqlRow]]:
        """Yield the lines of one provider in batches, as rows of `LINE_COLUMNS`."""
        last = 0
        sql = (
            f"SELECT rowid, rest, {LINE_COLUMNS} FROM line WHERE provider = ? AND rowid > ? ORDER BY rowid LIMIT {BATCH_LINES}"  # noqa: S608 - our own names
        )
        while rows := self._file.execute(sql, (provider, last)).fetchall():
            last = rows[-1][0]
            yield [_round_sum(row[1], row[2:]) for row in rows]

    def list_bills(self, provider: str) -> list[tuple[str, str]]:
        """Return (statement, bill) of the bills of its lines that are delivered as a whole."""
        sql = "SELECT DISTINCT statement, bill FROM line WHERE provider = ? AND bill <> '' ORDER BY statement, bill"
        return self._file.execute(sql, (provider,)).fetchall()

    def list_accounts(self, provider: str) -> set[tuple[str, str]]:
        """Return (account, statement) of the lines that belong to no such bill."""
        return set(
            self._file.execute("SELECT DISTINCT account, statement FROM line WHERE provider = ? AND bill = ''", (provider,))
        )

    def find_digests(self, names: Sequence[tuple[str, str, str, str]]) -> set[bytes]:
        """Return the digests of those of `names` that the statement has."""
        digests = [hash_line_key(*name) for name in names]
        sql = f"SELECT digest FROM line WHERE digest IN ({format_placeholders(digests)})"  # noqa: S608 - question marks
        return {found for (found,) in self._file.execute(sql, digests)}

    def _write(self, lot: list[SqlRow], *, sums: bool) -> None:
        if not lot:
            return
        with _translate_staging_errors():
            self._file.execute("BEGIN")
            self._file.executemany(_ADD_TO_LINE if sums else _REPLACE_LINE, lot)
            self._file.execute("COMMIT")


def hash_line_key(provider: str, account: str, statement: str, line_id: str) -> bytes:
    """Return the digest by which a line is looked up."""
    return sha256(f"{provider}\0{account}\0{statement}\0{line_id}".encode()).digest()[:16]


def shorten_line_id(line_id: str, bill: str = "") -> str:
    """Return a line's id as stored in the ledger: itself, or for a long id its hash, prefixed with `bill`."""
    text = make_storable(line_id)
    if len(text) <= ID_CHARS_MAX:
        return text
    hashed = f"sha256:{sha256(text.encode()).hexdigest()}"
    return f"{make_storable(bill)}|{hashed}" if bill else hashed


@contextmanager
def _translate_staging_errors() -> Iterator[None]:
    """Raise LedgerError if lines cannot be stored, and InputError if a line's sum is too large for any bill."""
    try:
        yield
    except (sqlite3.IntegrityError, OverflowError):
        raise InputError("sums to more than nine billion in one line", field="bill", hint="check its currency") from None
    except (sqlite3.Error, OSError) as broken:
        hint = "free disk space there, or set TMPDIR to another folder"
        what = f"the bill's lines cannot be stored temporarily: {broken}"
        raise LedgerError(what, field="the folder for temporary files", hint=hint) from None


def _encode_line(line: BillLine, nano: int, rest: int) -> SqlRow:
    name = (make_storable(line.provider), make_storable(line.account), line.statement, shorten_line_id(line.id, line.bill))
    return (
        hash_line_key(*name),
        make_storable(line.bill),
        *name,
        to_micros(line.start),
        to_micros(line.end),
        line.amount.nano + nano,
        rest,
        line.amount.currency,
        line.charge,
        make_storable(line.resource_id),
        make_storable(line.region),
        int(line.estimated),
        make_storable(line.source),
        make_storable(line.description),
    )


def _round_sum(rest: int, row: SqlRow) -> SqlRow:
    provider, account, statement, line_id, start_us, end_us, nano, *others = row
    nano = divide_half_even(nano * ATTO_PER_NANO + rest, ATTO_PER_NANO)
    return (provider, account, statement, line_id, start_us, end_us, nano, *others)


_TABLE = """
CREATE TABLE line (
    digest BLOB NOT NULL UNIQUE, bill TEXT NOT NULL, provider TEXT NOT NULL, account TEXT NOT NULL,
    statement TEXT NOT NULL, line_id TEXT NOT NULL,
    start_us INTEGER NOT NULL, end_us INTEGER NOT NULL, nano INTEGER NOT NULL, rest INTEGER NOT NULL, currency TEXT NOT NULL,
    charge TEXT NOT NULL, external_id TEXT NOT NULL, region TEXT NOT NULL, estimated INTEGER NOT NULL, source TEXT NOT NULL,
    description TEXT NOT NULL
) STRICT
"""
_INSERT_LINE = """
INSERT INTO line (digest, bill, provider, account, statement, line_id, start_us, end_us, nano, rest, currency, charge,
    external_id, region, estimated, source, description)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (digest) DO UPDATE SET
"""
_ADD_TO_LINE = f"""{_INSERT_LINE} nano = line.nano + excluded.nano, rest = line.rest + excluded.rest,
    end_us = max(line.end_us, excluded.end_us), estimated = max(line.estimated, excluded.estimated)
"""
_REPLACE_LINE = f"""{_INSERT_LINE} start_us = excluded.start_us, end_us = excluded.end_us, nano = excluded.nano, rest =
    excluded.rest,
    charge = excluded.charge, external_id = excluded.external_id, estimated = excluded.estimated
"""
