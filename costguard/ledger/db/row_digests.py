r"""Record a digest of each row that decides something, in the transaction that writes the row.

The digests of one transaction's rows of one table are a text in `row_digest`, a line for each row:

    +q3Jxv1mLkZp0AhFs 17        row 17 was written: digest of its key and fixed columns, a sign for each column, the key
    =Zb81mWq0tYxRAkQ 17         its later columns were set: digest of its key and these, a sign for each column, the key
    - 17                        the row was removed

An audit row of the kind "rows" has the SHA-256 of these texts, so that the chain covers them:

    {"digest": SHA-256 of [[table, text], ...] as canonical JSON, tables sorted, "tables": {"span": 2}}

A digest is the first 12 base64 digits (72 bits) of the SHA-256 of the values as Python's `ascii` writes their tuple: numbers
in decimal, texts in quotes and ASCII, None. A column's sign is one of 64 characters; it only helps to tell which column was
edited.
"""

from __future__ import annotations

import json
from binascii import b2a_base64, crc32
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from costguard.guard.audit import ROWS
from costguard.ledger.db.codecs import format_placeholders
from costguard.ledger.db.deciding_tables import DECIDING_TABLES, DecidingTable
from costguard.ledger.guard.audit_log import AuditedAccount, append_account_entries, append_entries, hash_canonical_json

if TYPE_CHECKING:
    from costguard.ledger.db.codecs import Execute, Query, SqlRow

WRITTEN, SET, REMOVED = "+", "=", "-"
"""The first character of a line."""

DIGEST_BYTES, DIGEST_CHARS = 9, 12
SIGNS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_NUMBER_SIGNS = 61
"""Numbers are told apart by their remainder: a prime, so that a round amount more or less shows."""
_REMEMBERED_TEXTS, _REMEMBERED_CHARS = 4096, 40
LINES_MAX = 5000
"""Lines in one audit row, where a writer may have more."""


class _TextSigns(dict[object, str]):
    """Value -> its sign; short texts are remembered, because few different ones fill most columns."""

    def __missing__(self, value: object) -> str:
        sign = SIGNS[value % _NUMBER_SIGNS] if isinstance(value, int) else SIGNS[crc32(ascii(value).encode()) % len(SIGNS)]
        if isinstance(value, str) and len(value) <= _REMEMBERED_CHARS and len(self) < _REMEMBERED_TEXTS:
            self[value] = sign
        return sign


_text_signs = _TextSigns()


def compute_digests(rows: Sequence[SqlRow]) -> list[str]:
    """Return the digest and the signs of each of `rows`, which have the same columns."""
    hashes = [sha256(ascii(row).encode()).digest()[:DIGEST_BYTES] for row in rows]
    digests = b2a_base64(b"".join(hashes), newline=False).decode()
    signs = map("".join, zip(*map(_compute_signs, zip(*rows, strict=True)), strict=True))
    return [
        digests[at : at + DIGEST_CHARS] + sign for at, sign in zip(range(0, len(digests), DIGEST_CHARS), signs, strict=True)
    ]


def _compute_signs(column: Sequence[Any]) -> list[str]:
    """Return the sign of each value of one column."""
    if column.count(column[0]) == len(column):  # as most are: counting is a tenth of the work
        return [_text_signs[column[0]]] * len(column)
    if set(map(type, column)) == {int}:
        return [SIGNS[value % _NUMBER_SIGNS] for value in column]
    return [_text_signs[value] for value in column]


def format_row_key(values: SqlRow) -> str:
    """Return the key of a row as text without line breaks: a number, or JSON."""
    first = values[0]
    return str(first) if len(values) == 1 and isinstance(first, int) else json.dumps(values, separators=(",", ":"))


def parse_row_key(text: str) -> SqlRow:
    """Return the values in a text of `format_row_key`. Raises ValueError for any other text."""
    found = json.loads(text)
    return tuple(found) if isinstance(found, list) else (found,)


class RowRecorder:
    """The digests of rows that one transaction writes; `append` adds them to the audit log.

    `columns`: the names of the values in a row, separated by commas; columns that are left out have their default.
    """

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def add(self, name: str, columns: str, rows: Sequence[SqlRow]) -> None:
        """Record that `rows` were inserted into the table `name`."""
        if rows:
            table = DECIDING_TABLES[name]
            self._write(name, WRITTEN, columns, rows, encode_fixed(table, columns, rows))
            later = _list_present(columns, table.later)
            if later and not table.sealed:
                pick, unset = pick_values(columns, later), (None,) * len(later)
                self.change(name, columns, [row for row in rows if pick(row) != unset])

    def change(self, name: str, columns: str, rows: Sequence[SqlRow]) -> None:
        """Record that the later columns of `rows` were set; `columns` has the key and all later columns."""
        if rows:
            table = DECIDING_TABLES[name]
            self._write(name, SET, columns, rows, encode_later(table, columns, rows))

    def remove(self, name: str, keys: Iterable[SqlRow]) -> None:
        """Record that the rows with these keys were removed."""
        self._lines.setdefault(name, []).extend(f"{REMOVED} {format_row_key(key)}" for key in keys)

    def append(self, ask: Query, tell: Execute, at_us: int, *, adopted: bool = False) -> None:
        """Append the audit row, dated `at_us`, if there is anything to record.

        `adopted`: the rows were there before digests were recorded.
        """
        append_recorded(ask, tell, [(at_us, self)], adopted=adopted)

    def build_texts(self) -> list[tuple[str, int, str]]:
        """Return (table, lines, text) of each table, sorted."""
        return [(name, len(lines), "\n".join(lines)) for name, lines in sorted(self._lines.items()) if lines]

    def _write(self, name: str, sign: str, columns: str, rows: Sequence[SqlRow], digests: Sequence[str]) -> None:
        keys = _format_keys(DECIDING_TABLES[name], columns, rows)
        self._lines.setdefault(name, []).extend(f"{sign}{digest} {key}" for digest, key in zip(digests, keys, strict=True))


def append_recorded(
    ask: Query,
    tell: Execute,
    recorded: Sequence[tuple[int, RowRecorder]],
    *,
    adopted: bool = False,
    account: AuditedAccount | None = None,
) -> None:
    """Append an audit row for each of `recorded` (time in microseconds, digests) that is not empty.

    `account`: to the chain of this account; None: to the audit log itself.
    """
    texts = [(at_us, found) for at_us, recorder in recorded if (found := recorder.build_texts())]
    if not texts:
        return
    entries = [(ROWS, at_us, describe_texts(found) | ({"adopted": 1} if adopted else {})) for at_us, found in texts]
    first = append_account_entries(ask, tell, account, entries) if account else append_entries(ask, tell, entries)
    rows = [(seq, *text) for seq, (_, found) in enumerate(texts, first) for text in found]
    if account:
        sql = "INSERT INTO account_digest (account_id, seq, table_name, lines, digests) VALUES (?, ?, ?, ?, ?)"
        tell(sql, [(account.id, *row) for row in rows])
    else:
        tell("INSERT INTO row_digest (seq, table_name, lines, digests) VALUES (?, ?, ?, ?)", rows)


def describe_texts(texts: Sequence[tuple[str, int, str]]) -> dict[str, object]:
    """Return what an audit row says of `texts`: (table, lines, text)."""
    return {
        "digest": hash_canonical_json([(name, text) for name, _, text in texts]),
        "tables": {name: lines for name, lines, _ in texts},
    }


def seal_rows(tell: Execute, name: str, columns: str, rows: Sequence[SqlRow]) -> None:
    """Store the digest of key and later columns of `rows`, which were just written to the sealed table `name`."""
    if rows:
        table = DECIDING_TABLES[name]
        keys = _format_keys(table, columns, rows)
        seals = encode_later(table, columns, rows)
        tell(_SEAL, [(name, key, seal) for key, seal in zip(keys, seals, strict=True)])


def remove_seals(tell: Execute, name: str, keys: Sequence[SqlRow]) -> None:
    """Remove the seals of rows with these keys, which were just removed."""
    if keys:
        tell("DELETE FROM row_seal WHERE table_name = ? AND row_key = ?", [(name, format_row_key(key)) for key in keys])


def encode_fixed(table: DecidingTable, columns: str, rows: Sequence[SqlRow]) -> list[str]:
    """Return the digest and signs of key and fixed columns of each row."""
    return _encode(table, columns, rows, table.fixed, tuple(table.added))


def _format_keys(table: DecidingTable, columns: str, rows: Sequence[SqlRow]) -> list[str]:
    """Return the key of each row as `format_row_key` does; numbers, the common case, without calls."""
    if len(table.key) > 1:
        return list(map(format_row_key, map(pick_values(columns, table.key), rows)))
    place = split_columns(columns).index(table.key[0])
    return [str(row[place]) if type(row[place]) is int else format_row_key((row[place],)) for row in rows]


def encode_later(table: DecidingTable, columns: str, rows: Sequence[SqlRow]) -> list[str]:
    """Return the digest and signs of key and later columns of each row; of a table that is only sealed, added ones too."""
    return _encode(table, columns, rows, table.later, () if table.chained else tuple(table.added))


def _encode(
    table: DecidingTable, columns: str, rows: Sequence[SqlRow], named: tuple[str, ...], added: tuple[str, ...]
) -> list[str]:
    """Return the digest and signs of key, `named` columns, and those of `added` that differ from their default, of each row."""
    found, added = list(map(pick_values(columns, (*table.key, *named)), rows)), _list_present(columns, added)
    if not added:
        return compute_digests(found)
    pick, defaults = pick_values(columns, added), [table.added[name] for name in added]
    pairs = ([(name, v) for name, v, old in zip(added, pick(row), defaults, strict=True) if v != old] for row in rows)
    return [compute_digests([(*row, *chain.from_iterable(more))])[0] for row, more in zip(found, pairs, strict=True)]


@lru_cache(maxsize=256)
def pick_values(columns: str, names: tuple[str, ...]) -> Callable[[SqlRow], SqlRow]:
    """Return a function that takes `names` out of a row of `columns`, as a tuple. Raises ValueError if one is missing."""
    places = [split_columns(columns).index(name) for name in names]
    if places == list(range(places[0], places[0] + len(places))):
        return itemgetter(slice(places[0], places[0] + len(places)))
    return itemgetter(*places)


@lru_cache(maxsize=256)
def split_columns(columns: str) -> tuple[str, ...]:
    """Return the names in a text of names separated by commas."""
    return tuple(name.strip() for name in columns.split(","))


def _list_present(columns: str, names: tuple[str, ...]) -> tuple[str, ...]:
    there = split_columns(columns)
    return tuple(name for name in names if name in there)


PAGE_ROWS = 5000


def page_rows(ask: Query, table: DecidingTable, columns: Sequence[str]) -> Iterator[Sequence[SqlRow]]:
    """Yield the rows of `table`, `PAGE_ROWS` at a time, in the order of their keys, which `columns` begins with."""
    keys, width = ", ".join(table.key), len(table.key)
    select = f"SELECT {', '.join(columns)} FROM {table.name}"  # noqa: S608 - our own names
    after = f"({keys}) > ({format_placeholders(table.key)})" if width > 1 else f"{keys} > ?"
    tail = f"ORDER BY {keys} LIMIT {PAGE_ROWS}"
    page = ask(f"{select} {tail}", ())
    while page:
        yield page
        page = ask(f"{select} WHERE {after} {tail}", page[-1][:width])


def adopt_rows(ask: Query, tell: Execute, now_us: int, columns: Mapping[str, Collection[str]] | None = None) -> None:
    """Record the rows that are there, as they are: they were written before digests were recorded.

    `columns`: those that each table of the schema has now (None: as declared). Tables and columns that a later revision adds
    are passed over.
    """
    for table in DECIDING_TABLES.values():
        if columns is not None and table.name not in columns:
            continue
        names = [name for name in table.columns if columns is None or name in columns[table.name]]
        for page in page_rows(ask, table, names):
            if table.chained:
                recorder = RowRecorder()
                recorder.add(table.name, ", ".join(names), page)
                recorder.append(ask, tell, now_us, adopted=True)
            if table.sealed:
                seal_rows(tell, table.name, ", ".join(names), page)


_SEAL = """
INSERT INTO row_seal (table_name, row_key, seal) VALUES (?, ?, ?)
ON CONFLICT (table_name, row_key) DO UPDATE SET seal = excluded.seal
"""
