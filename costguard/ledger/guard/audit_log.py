"""The chain of the audit: how a row is hashed, how one is added, and where a chain breaks. None of this ever changes.

    hash = SHA-256 of [previous, seq, at_us, kind, body] as canonical JSON, in hexadecimal

Canonical JSON: keys sorted, no blanks, ASCII, no floats. `body` is such a text itself. So the hash of a row is over all rows
before it, and rows can be checked by a program of ten lines in any language.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from costguard.guard.audit import FIRST_HASH, HASH_DIGITS_SHOWN, AuditEntry, AuditFinding, AuditRecord, format_anchor
from costguard.ledger.db.asking import Execute, Query
from costguard.values.checks import require

ENTRY_COLUMNS = "seq, at_us, kind, body, previous, hash"
ENTRY_PAGE_ROWS = 5000
"""Rows read at a time."""


def encode_canonical_json(value: object) -> str:
    """`value` (objects, lists, texts, whole numbers, None) as canonical JSON; InputError for anything else."""
    _require_plain(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def hash_canonical_json(value: object) -> str:
    """Of `value` as canonical JSON, in hexadecimal."""
    return hashlib.sha256(encode_canonical_json(value).encode()).hexdigest()


def hash_entry(previous: str, seq: int, at_us: int, kind: str, body: str) -> str:
    """The hash of a row."""
    return hash_canonical_json([previous, seq, at_us, kind, body])


def load_head(ask: Query) -> AuditEntry | None:
    """The last row; None before the first one."""
    rows = ask(f"SELECT {ENTRY_COLUMNS} FROM audit ORDER BY seq DESC LIMIT 1", ())  # noqa: S608 - our own column names
    return AuditEntry(*rows[0]) if rows else None


def read_head_text(ask: Query) -> str:
    """The head in its short form, "1234:9f86d081884c7d65"; "" before the first row."""
    last = load_head(ask)
    return format_anchor(last.seq, last.hash) if last else ""


def append_entry(ask: Query, tell: Execute, kind: str, at_us: int, body: Mapping[str, object]) -> None:
    """Add one row, in the write transaction that `ask` and `tell` are in: with what it tells of, or neither."""
    last, text = load_head(ask), encode_canonical_json(body)
    seq, previous = (last.seq + 1, last.hash) if last else (1, FIRST_HASH)
    row = (seq, at_us, kind, text, previous, hash_entry(previous, seq, at_us, kind, text))
    tell(f"INSERT INTO audit ({ENTRY_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", [row])  # noqa: S608 - our own column names


def iterate_entries(ask: Query, since_us: int | None = None) -> Iterator[AuditEntry]:
    """Every row in order; with `since_us`, those that tell of then or later."""
    where, last = "" if since_us is None else f"at_us >= {int(since_us)} AND ", -(2**62)
    sql = f"SELECT {ENTRY_COLUMNS} FROM audit WHERE {where}seq > ? ORDER BY seq LIMIT {ENTRY_PAGE_ROWS}"  # noqa: S608 - our own names
    while page := ask(sql, (last,)):
        yield from (AuditEntry(*row) for row in page)
        last = page[-1][0]


def parse_entry(entry: AuditEntry) -> AuditRecord:
    """`entry` with its body read; an empty one where it cannot be."""
    try:
        body = json.loads(entry.body)
    except (ValueError, RecursionError):
        body = {}
    return AuditRecord(entry.seq, entry.at_us, entry.kind, body if isinstance(body, dict) else {}, entry.hash)


def find_break_after(last: AuditEntry | None, entry: AuditEntry) -> AuditFinding | None:
    """Why `entry` cannot be the row after `last` (None: the first one); None where it is."""
    expected, previous = (last.seq + 1, last.hash) if last else (1, FIRST_HASH)
    if entry.seq != expected:
        return AuditFinding(expected, f"row {expected} is missing: row {entry.seq} comes in its place")
    if entry.previous != previous:
        says = f"it names {_shorten_hash(entry.previous)} as the hash of the row before it, and that one's is {_shorten_hash(previous)}"
        return AuditFinding(entry.seq, f"row {entry.seq} does not follow the row before it: {says}")
    comes_to = hash_entry(entry.previous, entry.seq, entry.at_us, entry.kind, entry.body)
    if entry.hash != comes_to:
        says = f"its hash is {_shorten_hash(entry.hash)}, and what it says comes to {_shorten_hash(comes_to)}"
        return AuditFinding(entry.seq, f"row {entry.seq} was changed: {says}")
    return None


def find_first_break(rows: Iterable[AuditEntry]) -> AuditFinding | None:
    """The first row of a whole chain that does not fit; None where all do."""
    last = None
    for entry in rows:
        found = find_break_after(last, entry)
        if found:
            return found
        last = entry
    return None


def _shorten_hash(row_hash: str) -> str:
    return row_hash[:HASH_DIGITS_SHOWN]


def _require_plain(value: Any) -> None:  # noqa: ANN401 - whatever somebody hands over
    if isinstance(value, dict):
        for key, one in value.items():
            require(isinstance(key, str), "audit", f"has a key that is no text: {key!r}", "name it")
            _require_plain(one)
    elif isinstance(value, list | tuple):
        for one in value:
            _require_plain(one)
    else:
        plain = value is None or (isinstance(value, str | int) and not isinstance(value, bool))
        require(plain, "audit", f"cannot hold {value!r}", "write texts and whole numbers")
