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
from costguard.ledger.db.asking import Ask, Tell
from costguard.values.checks import require

COLUMNS = "seq, at_us, kind, body, previous, hash"
PAGE = 5000
"""Rows read at a time."""


def canonical(value: object) -> str:
    """`value` (objects, lists, texts, whole numbers, None) as canonical JSON; InputError for anything else."""
    _check(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def sha256(value: object) -> str:
    """Of `value` as canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def link(previous: str, seq: int, at_us: int, kind: str, body: str) -> str:
    """The hash of a row."""
    return sha256([previous, seq, at_us, kind, body])


def head(ask: Ask) -> AuditEntry | None:
    """The last row; None before the first one."""
    rows = ask(f"SELECT {COLUMNS} FROM audit ORDER BY seq DESC LIMIT 1", ())  # noqa: S608 - our own column names
    return AuditEntry(*rows[0]) if rows else None


def head_text(ask: Ask) -> str:
    """The head in its short form, "1234:9f86d081884c7d65"; "" before the first row."""
    last = head(ask)
    return format_anchor(last.seq, last.hash) if last else ""


def append(ask: Ask, tell: Tell, kind: str, at_us: int, body: Mapping[str, object]) -> None:
    """Add one row, in the write transaction that `ask` and `tell` are in: with what it tells of, or neither."""
    last, text = head(ask), canonical(body)
    seq, previous = (last.seq + 1, last.hash) if last else (1, FIRST_HASH)
    row = (seq, at_us, kind, text, previous, link(previous, seq, at_us, kind, text))
    tell(f"INSERT INTO audit ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", [row])  # noqa: S608 - our own column names


def entries(ask: Ask, since_us: int | None = None) -> Iterator[AuditEntry]:
    """Every row in order; with `since_us`, those that tell of then or later."""
    where, last = "" if since_us is None else f"at_us >= {int(since_us)} AND ", -(2**62)
    sql = f"SELECT {COLUMNS} FROM audit WHERE {where}seq > ? ORDER BY seq LIMIT {PAGE}"  # noqa: S608 - our own names
    while page := ask(sql, (last,)):
        yield from (AuditEntry(*row) for row in page)
        last = page[-1][0]


def told(entry: AuditEntry) -> AuditRecord:
    """`entry` with its body read; an empty one where it cannot be."""
    try:
        body = json.loads(entry.body)
    except (ValueError, RecursionError):
        body = {}
    return AuditRecord(entry.seq, entry.at_us, entry.kind, body if isinstance(body, dict) else {}, entry.hash)


def break_after(last: AuditEntry | None, entry: AuditEntry) -> AuditFinding | None:
    """Why `entry` cannot be the row after `last` (None: the first one); None where it is."""
    expected, previous = (last.seq + 1, last.hash) if last else (1, FIRST_HASH)
    if entry.seq != expected:
        return AuditFinding(expected, f"row {expected} is missing: row {entry.seq} comes in its place")
    if entry.previous != previous:
        says = f"it names {_short(entry.previous)} as the hash of the row before it, and that one's is {_short(previous)}"
        return AuditFinding(entry.seq, f"row {entry.seq} does not follow the row before it: {says}")
    comes_to = link(entry.previous, entry.seq, entry.at_us, entry.kind, entry.body)
    if entry.hash != comes_to:
        says = f"its hash is {_short(entry.hash)}, and what it says comes to {_short(comes_to)}"
        return AuditFinding(entry.seq, f"row {entry.seq} was changed: {says}")
    return None


def first_break(rows: Iterable[AuditEntry]) -> AuditFinding | None:
    """The first row of a whole chain that does not fit; None where all do."""
    last = None
    for entry in rows:
        found = break_after(last, entry)
        if found:
            return found
        last = entry
    return None


def _short(row_hash: str) -> str:
    return row_hash[:HASH_DIGITS_SHOWN]


def _check(value: Any) -> None:  # noqa: ANN401 - whatever somebody hands over
    if isinstance(value, dict):
        for key, one in value.items():
            require(isinstance(key, str), "audit", f"has a key that is no text: {key!r}", "name it")
            _check(one)
    elif isinstance(value, list | tuple):
        for one in value:
            _check(one)
    else:
        plain = value is None or (isinstance(value, str | int) and not isinstance(value, bool))
        require(plain, "audit", f"cannot hold {value!r}", "write texts and whole numbers")
