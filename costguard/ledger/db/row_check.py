"""Compare the rows that decide something with their recorded digests: which row was edited, removed or added, and where.

First the texts of digests are compared with the audit rows that have their hash. Then the last digests of each row are
collected in a temporary file, and each table is read once in the order of its keys, so that memory does not grow with the
ledger. Whether the audit log itself is a whole chain is checked by `check_audit`.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from costguard.guard.audit import ROWS
from costguard.ledger.db.codecs import format_placeholders, split_batches
from costguard.ledger.db.deciding_tables import DECIDING_TABLES, DecidingTable
from costguard.ledger.db.row_digests import (
    DIGEST_CHARS,
    REMOVED,
    SET,
    WRITTEN,
    describe_texts,
    encode_fixed,
    encode_later,
    format_row_key,
    page_rows,
    parse_row_key,
)
from costguard.ledger.guard.audit_log import iterate_account_entries, iterate_entries, load_audited_accounts, parse_entry

if TYPE_CHECKING:
    from costguard.guard.audit import AuditEntry
    from costguard.ledger.db.codecs import Query, SqlRow

CACHE_KIB = 64 * 1024
STAGED_LINES = 20_000
"""Lines that are written to the temporary file at a time."""
OUTSIDE = "changed outside costguard"
_NUMBER_KEY = re.compile(r"0|[1-9][0-9]{0,17}")


class _Recorded(NamedTuple):
    """What was recorded of a row last: the digest and signs, and the audit row ("17", or "5 of aws/1234" of an account)."""

    digest: str
    seq: str


def check_rows(ask: Query) -> Iterator[str]:
    """Yield what is wrong with the rows of the deciding tables, a sentence each."""
    with _StagedDigests() as staged:
        yield from _stage_digests(ask, staged)
        for number, table in enumerate(DECIDING_TABLES.values()):
            yield from _check_table(ask, staged, number, table)
    names = sorted(name for name, table in DECIDING_TABLES.items() if table.sealed)
    sql = f"SELECT DISTINCT table_name FROM row_seal WHERE table_name NOT IN ({format_placeholders(names)})"  # noqa: S608 - marks
    yield from (f"row_seal has seals of {name}, which is not sealed" for (name,) in ask(sql, names))


class _StagedDigests:
    """The last digests of each row, in a temporary file that is deleted when the block ends."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="costguard-check-")
        self._file = sqlite3.connect(f"{self._folder.name}/digests.db", isolation_level=None)
        for pragma in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{CACHE_KIB}"):
            self._file.execute(f"PRAGMA {pragma}").fetchall()
        self._file.execute(
            "CREATE TABLE digest (place INTEGER, row_key ANY, part TEXT, digest TEXT, seq TEXT, "
            "PRIMARY KEY (place, row_key, part)) STRICT, WITHOUT ROWID"
        )
        self._file.execute("BEGIN")  # one transaction that never ends: else each row is one, and takes ten times as long

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()
        self._folder.cleanup()

    def add(self, place: int, seq: str, lines: Sequence[str]) -> None:
        """Store `lines` of the table `place` (its number), which replace earlier ones of the same rows."""
        rows = list[tuple[int, int | str, str, str, str]]()
        for line in lines:
            head, _, key = line.partition(" ")
            if head == REMOVED:
                self._write(rows)
                self._file.execute("DELETE FROM digest WHERE place = ? AND row_key = ?", (place, _encode_key(key)))
            else:
                rows.append((place, _encode_key(key), head[:1], head[1:], seq))
        self._write(rows)

    def find(self, place: int, keys: Sequence[str]) -> dict[tuple[str, str], _Recorded]:
        """Return (key, part) -> what was recorded last, of those rows of the table that have any."""
        found = {}
        for some in split_batches([_encode_key(key) for key in keys]):
            sql = f"SELECT row_key, part, digest, seq FROM digest WHERE place = ? AND row_key IN ({format_placeholders(some)})"  # noqa: S608 - marks
            for key, part, digest, seq in self._file.execute(sql, (place, *some)):
                found[str(key), part] = _Recorded(digest, seq)
        return found

    def count(self, place: int) -> int:
        """Return the number of rows of the table that must exist."""
        sql = "SELECT count(DISTINCT row_key) FROM digest WHERE place = ?"
        return int(self._file.execute(sql, (place,)).fetchone()[0])

    def iterate_keys(self, place: int) -> Iterator[tuple[str, str]]:
        """Yield (key, audit row) of every row of the table that must exist."""
        newest = "trim(max(printf('%64s', seq)))"  # a longer number is a later one
        sql = f"SELECT row_key, {newest} FROM digest WHERE place = ? GROUP BY row_key"  # noqa: S608 - our own names
        for key, seq in self._file.execute(sql, (place,)):
            yield str(key), seq

    def _write(self, rows: list[tuple[int, int | str, str, str, str]]) -> None:
        self._file.executemany("INSERT OR REPLACE INTO digest VALUES (?, ?, ?, ?, ?)", rows)
        rows.clear()


def _encode_key(key: str) -> int | str:
    """Return a key that is a number as a number, which takes less room and is found faster."""
    return int(key) if key.isdecimal() and _NUMBER_KEY.fullmatch(key) else key


def _stage_digests(ask: Query, staged: _StagedDigests) -> Iterator[str]:
    """Store the recorded digests, and yield what differs between them and the audit rows that have their hash."""
    for entry in iterate_entries(ask):
        if entry.kind == ROWS:
            texts = [tuple(row) for row in ask(_TEXTS, (entry.seq,))]
            yield from _stage_texts(staged, entry, str(entry.seq), texts, "row_digest")
    for account in load_audited_accounts(ask):  # after the log itself, which has the older rows of an upgraded ledger
        for entry in iterate_account_entries(ask, account.id):
            texts = [tuple(row) for row in ask(_ACCOUNT_TEXTS, (account.id, entry.seq))]
            name = f"{entry.seq} of {account.provider}/{account.account}"
            yield from _stage_texts(staged, entry, name, texts, "account_digest")
    for (seq,) in ask(_UNCHAINED, (ROWS,)):
        yield f"row_digest has digests of row {seq} of the audit log, which records none"
    for account_id, seq in ask(_ACCOUNT_UNCHAINED, ()):
        yield f"account_digest has digests of row {seq} of account {account_id}, whose audit log records none"


def _stage_texts(
    staged: _StagedDigests, entry: AuditEntry, name: str, texts: Sequence[tuple[str, int, str]], table: str
) -> Iterator[str]:
    """Store the digests in `texts`, and yield it if `entry`, the audit row `name`, has another hash of them."""
    body = parse_entry(entry).body
    if {key: body.get(key) for key in ("digest", "tables")} != describe_texts(texts):
        yield f"the row digests of audit row {name} differ from its hash: {table} was {OUTSIDE}"
    for deciding, _, text in texts:
        if deciding in _TABLE_NUMBERS:
            lines = text.split("\n")
            for first in range(0, len(lines), STAGED_LINES):
                staged.add(_TABLE_NUMBERS[deciding], name, lines[first : first + STAGED_LINES])


_TABLE_NUMBERS = {name: number for number, name in enumerate(DECIDING_TABLES)}


def _check_table(ask: Query, staged: _StagedDigests, number: int, table: DecidingTable) -> Iterator[str]:
    """Yield the faults of one table: rows that differ from their digests, lack them, or are missing."""
    columns = ", ".join(table.columns)
    recorded = sealed = 0
    for page in page_rows(ask, table, table.columns):
        keys = [format_row_key(row[: len(table.key)]) for row in page]
        found = staged.find(number, keys) if table.chained else {}
        seals = _find_seals(ask, table, keys) if table.sealed else {}
        recorded, sealed = recorded + len({key for key, _ in found}), sealed + len(seals)
        fixed = encode_fixed(table, columns, page) if table.chained else [""] * len(page)
        later = encode_later(table, columns, page) if table.later else [""] * len(page)
        for row, key, first, second in zip(page, keys, fixed, later, strict=True):
            written, changed, seal = found.get((key, WRITTEN)), found.get((key, SET)), seals.get(key)
            if written and changed and written.digest == first and changed.digest == second and not table.sealed:
                continue  # most rows: closed spans
            yield from _compare_row(table, row, (first, second), (written, changed, seal))
    if table.chained and recorded != staged.count(number):
        for key, seq in staged.iterate_keys(number):
            if not _exists(ask, table, key):
                yield f"{table.name} {key}, recorded by audit row {seq}, is missing"
    if table.sealed:
        yield from _find_leftover_seals(ask, table, sealed)


def _find_leftover_seals(ask: Query, table: DecidingTable, count: int) -> Iterator[str]:
    """Yield the seals whose rows are missing, if the table has more than the `count` that were found with their rows."""
    ((there,),) = ask("SELECT count(*) FROM row_seal WHERE table_name = ?", (table.name,))
    if there == count:
        return
    for (key,) in ask("SELECT row_key FROM row_seal WHERE table_name = ? ORDER BY row_key", (table.name,)):
        if not _exists(ask, table, key):
            yield f"{table.name} {key} has a seal, and is missing"


def _compare_row(
    table: DecidingTable, row: SqlRow, found: tuple[str, str], recorded: tuple[_Recorded | None, _Recorded | None, str | None]
) -> Iterator[str]:
    """Compare one row, whose two digests are `found`, with what was recorded of it: written, set, and sealed."""
    written, later, seal = recorded
    width, name = len(table.key), f"{table.name} {format_row_key(row[: len(table.key)])}"
    first, second = (*table.key, *table.fixed), (*table.key, *table.later)
    if table.chained and written is None:
        yield f"{name} exists, but no row of the audit log records it"
    elif written is not None and written.digest != found[0]:
        yield f"{name} was {OUTSIDE}: {_describe_columns(first, found[0], written.digest)} from audit row {written.seq}"
    if later is not None and later.digest != found[1]:
        yield f"{name} was {OUTSIDE}: {_describe_columns(second, found[1], later.digest)} from audit row {later.seq}"
    if table.sealed and seal != found[1]:
        says = "it has no seal" if seal is None else f"{_describe_columns(second, found[1], seal)} from its seal"
        yield f"{name} was {OUTSIDE}: {says}"
    values = zip(table.later, row[width + len(table.fixed) :], strict=False)
    unrecorded = [column for column, value in values if value is not None]
    if later is None and not table.sealed and unrecorded:
        yield f"{name} was {OUTSIDE}: no row of the audit log records {', '.join(unrecorded)}"


def _describe_columns(columns: Sequence[str], found: str, recorded: str) -> str:
    """Return which columns differ, as far as their signs tell, with the verb."""
    now, then = found[DIGEST_CHARS:], recorded[DIGEST_CHARS:]
    differ = [name for name, one, other in zip(columns, now, then, strict=False) if one != other]
    if len(now) != len(then):
        return "its columns differ"
    return f"{', '.join(differ)} {'differs' if len(differ) == 1 else 'differ'}" if differ else "it differs"


def _find_seals(ask: Query, table: DecidingTable, keys: Sequence[str]) -> Mapping[str, str]:
    found = dict[str, str]()
    for some in split_batches(keys):
        found |= {key: seal for key, seal in ask(_SEALS.format(format_placeholders(some)), (table.name, *some))}  # noqa: C416 - rows of two
    return found


def _exists(ask: Query, table: DecidingTable, key: str) -> bool:
    """Return whether the table has a row of this key; a key that nobody could have written has none."""
    try:
        values = parse_row_key(key)
    except ValueError:
        return False
    if len(values) != len(table.key):
        return False
    where = " AND ".join(f"{name} = ?" for name in table.key)
    return bool(ask(f"SELECT 1 FROM {table.name} WHERE {where}", values))  # noqa: S608 - our own names


_TEXTS = "SELECT table_name, lines, digests FROM row_digest WHERE seq = ? ORDER BY table_name"
_ACCOUNT_TEXTS = """
SELECT table_name, lines, digests FROM account_digest WHERE account_id = ? AND seq = ? ORDER BY table_name
"""
_ACCOUNT_UNCHAINED = """
SELECT DISTINCT d.account_id, d.seq FROM account_digest AS d
LEFT JOIN account_audit AS a ON a.account_id = d.account_id AND a.seq = d.seq
WHERE a.seq IS NULL ORDER BY d.account_id, d.seq
"""
_UNCHAINED = """
SELECT DISTINCT d.seq FROM row_digest AS d LEFT JOIN audit AS a ON a.seq = d.seq AND a.kind = ?
WHERE a.seq IS NULL ORDER BY d.seq
"""
_SEALS = "SELECT row_key, seal FROM row_seal WHERE table_name = ? AND row_key IN ({})"
