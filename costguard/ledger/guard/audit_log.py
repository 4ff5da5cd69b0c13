"""The audit log: its hash chain, its rows, its verification, and the rollback marker.

The hash format never changes.

    hash = SHA-256 of [previous, seq, at_us, kind, body] as canonical JSON, in hexadecimal

Canonical JSON has sorted keys, no blanks, ASCII only, and no floats. `body` is such a text itself. The hash of a row covers all
rows before it, and a program of ten lines in any language can check the rows.

Each override, move of an intent, hook run and change of settings adds one row, in the same transaction, so neither exists
without the other. A row holds ids, names of policies and people, and hashes: `row` is the hash of the row in the other table at
that time, `events` are the hashes of the moves that came with it. Reasons, evidence and the output of hooks are only in those
hashes.

    edited afterwards            detected by
    an override                  its hash differs from the one in its last audit row
    ... and that audit row       the row differs from its own hash
    ... and its hash             the next row names another hash
    ... and all later rows       only a head that was noted elsewhere (`--anchor`)

`audit_check` checks the chain, heads that were noted elsewhere, and the recorded rows against the tables.

The rollback marker is the newest audit head that a watchdog saw, stored outside of the ledger, so that an older copy in its
place is detected:

    ledger.db.seen        {"schema": "costguard.seen/1", "ledger": ..., "seq": 1234, "hash": ...}

It is written after the commit, so a crash in between leaves it behind the ledger and never ahead. A user who can write both
files can make them consistent again; heads in messages protect against that (`costguard audit verify --anchor`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Select, insert, select
from sqlmodel import col

from costguard.guard.audit import (
    FIRST_HASH,
    HASH_DIGITS_SHOWN,
    SETTINGS,
    AuditAnchor,
    AuditEntry,
    AuditFinding,
    AuditRecord,
    format_anchor,
)
from costguard.guard.policy import PERSON_RULE
from costguard.ledger.db.codecs import Execute, Query, SqlRow
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.tables.audit import AuditRow
from costguard.ledger.tables.intents import IntentEventRow
from costguard.ledger.tables.spans import LedgerStateRow
from costguard.ledger.types import METADATA
from costguard.system.atomic_file import write_file_atomically
from costguard.values.checks import require

_ENTRIES = select(*(getattr(AuditRow, name) for name in AuditEntry._fields))
_NEWEST = _ENTRIES.order_by(col(AuditRow.seq).desc()).limit(1)
ENTRY_PAGE_ROWS = 5000
"""Rows read at a time."""


def encode_canonical_json(value: object) -> str:
    """Return `value` (objects, lists, texts, whole numbers, None) as canonical JSON. Raises InputError for other types."""
    _require_plain(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def hash_canonical_json(value: object) -> str:
    """Return the SHA-256 of `value` as canonical JSON, in hexadecimal."""
    return hashlib.sha256(encode_canonical_json(value).encode()).hexdigest()


def hash_entry(previous: str, seq: int, at_us: int, kind: str, body: str) -> str:
    """Return the hash of a row."""
    return hash_canonical_json([previous, seq, at_us, kind, body])


def load_head(ask: Query) -> AuditEntry | None:
    """Return the last row; None before the first one."""
    rows = ask(_NEWEST)
    return AuditEntry(*rows[0]) if rows else None


def read_head_text(ask: Query) -> str:
    """Return the head in its short form, "1234:9f86d081884c7d65"; "" before the first row."""
    last = load_head(ask)
    return format_anchor(last.seq, last.hash) if last else ""


def append_entry(ask: Query, tell: Execute, kind: str, at_us: int, body: Mapping[str, object]) -> None:
    """Append one row in the write transaction of `ask` and `tell`, which also writes the change that it records."""
    last, text = load_head(ask), encode_canonical_json(body)
    seq, previous = (last.seq + 1, last.hash) if last else (1, FIRST_HASH)
    entry = AuditEntry(seq, at_us, kind, text, previous, hash_entry(previous, seq, at_us, kind, text))
    tell(insert(AuditRow), [entry._asdict()])


def iterate_entries(ask: Query, since_us: int | None = None, *, after_seq: int | None = None) -> Iterator[AuditEntry]:
    """Yield every row in order; `since_us`: only rows dated then or later; `after_seq`: only rows of a higher number."""
    entries, last = _ENTRIES.order_by(col(AuditRow.seq)).limit(ENTRY_PAGE_ROWS), -(2**62) if after_seq is None else after_seq
    if since_us is not None:
        entries = entries.where(col(AuditRow.at_us) >= since_us)
    while page := ask(entries.where(col(AuditRow.seq) > last)):
        yield from (AuditEntry(*row) for row in page)
        last = page[-1][0]


def parse_entry(entry: AuditEntry) -> AuditRecord:
    """Return `entry` with its body parsed; an empty body if it cannot be parsed."""
    try:
        body = json.loads(entry.body)
    except (ValueError, RecursionError):
        body = {}
    return AuditRecord(entry.seq, entry.at_us, entry.kind, body if isinstance(body, dict) else {}, entry.hash)


def find_break_after(last: AuditEntry | None, entry: AuditEntry, *, first: str = FIRST_HASH) -> AuditFinding | None:
    """Return why `entry` cannot follow the row `last` (None: be the first one, after `first`); None if it can."""
    expected, previous = (last.seq + 1, last.hash) if last else (1, first)
    if entry.seq != expected:
        return AuditFinding(expected, f"row {expected} is missing: row {entry.seq} follows instead")
    if entry.previous != previous:
        says = (
            f"it names {_shorten_hash(entry.previous)} as the hash of the row before it, and that one's is "
            f"{_shorten_hash(previous)}"
        )
        return AuditFinding(entry.seq, f"row {entry.seq} does not follow the row before it: {says}")
    comes_to = hash_entry(entry.previous, entry.seq, entry.at_us, entry.kind, entry.body)
    if entry.hash != comes_to:
        says = f"its hash is {_shorten_hash(entry.hash)}, but its content has the hash {_shorten_hash(comes_to)}"
        return AuditFinding(entry.seq, f"row {entry.seq} was changed: {says}")
    return None


def _shorten_hash(row_hash: str) -> str:
    return row_hash[:HASH_DIGITS_SHOWN]


def _require_plain(value: Any) -> None:  # noqa: ANN401 - whatever somebody hands over
    if isinstance(value, dict):
        for key, one in value.items():
            require(isinstance(key, str), "audit", f"has a key that is not text: {key!r}", "name it")
            _require_plain(one)
    elif isinstance(value, list | tuple):
        for one in value:
            _require_plain(one)
    else:
        plain = value is None or (isinstance(value, str | int) and not isinstance(value, bool))
        require(plain, "audit", f"cannot hold {value!r}", "write texts and whole numbers")


_MOVE_COLUMNS = ("created_us", "moved_us", "epoch", "lose", "irreversible", "sends", "sent_us", "expires_us", "outcome")
_LIFE_COLUMNS = ("provider", "account", "region", "external_id", "life")


class AuditedTable(NamedTuple):
    """A table whose rows are audited.

    `columns`: the hashed columns. `told`: those of them that an audit row repeats.
    """

    columns: tuple[str, ...]
    told: tuple[str, ...]


AUDITED_TABLES = {
    "wish": AuditedTable(
        ("id", "what", "who", "why", "at_us", "until_us", *_LIFE_COLUMNS, "subject", "value", "lifted_us", "lifted_by"),
        ("what", "who", "subject", "value", "until_us", "lifted_by"),
    ),
    "intent": AuditedTable(
        ("id", *_LIFE_COLUMNS, "act", "policy", "rule", "why", "evidence", "state", *_MOVE_COLUMNS),
        ("act", "policy", "rule", "epoch", "sends"),
    ),
    "hook_run": AuditedTable(
        (
            *("id", *_LIFE_COLUMNS, "policy", "rule", "number", "hook", "began_us", "until_us", "epoch", "state", "ended_us"),
            *("status", "why", "output"),
        ),
        ("policy", "rule", "hook", "epoch", "state"),
    ),
    "agent": AuditedTable(
        ("id", *_LIFE_COLUMNS, "public_key", "joined_us", "revoked_us", "revoked_by"), ("revoked_us", "revoked_by")
    ),
}
"""Table -> what is told of its rows. Fixed: a column that comes later is no part of these hashes."""

EVENT_COLUMNS = ("intent_id", "at_us", "moved_from", "moved_to", "why", "epoch", "run")
"""The columns of `intent_event` that are hashed."""


def audit_row(ask: Query, tell: Execute, of: tuple[str, str], kind: str, at_us: int) -> None:
    """Record the present content of a row, `of` (table, id), which was just written."""
    table, row_id = of
    audited = AUDITED_TABLES[table]
    (values,) = ask(select_audited(table).where(METADATA.tables[table].columns["id"] == row_id))
    row = dict(zip(audited.columns, values, strict=True))
    place = {"resource" if name == "external_id" else name: row[name] for name in _LIFE_COLUMNS}
    body = {
        "table": table,
        "id": row_id,
        "row": hash_canonical_json(row),
        **place,
        **{name: row[name] for name in audited.told},
    }
    if table == "intent":
        body |= _describe_move(ask, row_id)
        body |= {"why": row["why"]} if row["rule"] == PERSON_RULE else {}  # which names the person
    append_entry(ask, tell, kind, at_us, body)


def audit_settings(ask: Query, tell: Execute, mark: str, at_us: int) -> None:
    """Record that settings with the fingerprint `mark` are in force, if others were before; "" records nothing."""
    last_settings = load_audited_settings(ask)
    if mark not in ("", last_settings):
        append_entry(ask, tell, SETTINGS, at_us, {"mark": mark, "before": last_settings})


def load_audited_settings(ask: Query) -> str:
    """Return the fingerprint that was recorded last; "" before the first."""
    rows = ask(_NEWEST.where(col(AuditRow.kind) == SETTINGS))
    return str(parse_entry(AuditEntry(*rows[0])).body.get("mark", "")) if rows else ""


def parse_settings_mark(facts: str) -> str:
    """Return the fingerprint of the settings in the stored facts of a run; "" if there is none."""
    try:
        return str(dict(json.loads(facts)).get("settings", ""))
    except (ValueError, TypeError):
        return ""


def select_audited(table: str) -> Select[Any]:
    """Return the query for the hashed columns of all rows of `table`, whose class was imported."""
    columns = METADATA.tables[table].columns
    return select(*(columns[name] for name in AUDITED_TABLES[table].columns))


def hash_row(table: str, values: SqlRow) -> str:
    """Return the hash of a row of `table` with `values` in its hashed columns."""
    return hash_canonical_json(dict(zip(AUDITED_TABLES[table].columns, values, strict=True)))


def hash_event(values: SqlRow) -> str:
    """Return the hash of a move with `values` in `EVENT_COLUMNS`."""
    return hash_canonical_json(dict(zip(EVENT_COLUMNS, values, strict=True)))


def select_moves() -> Select[Any]:
    """Return the query for all moves of intents, each as `hash_event` takes it."""
    return select(*(getattr(IntentEventRow, name) for name in EVENT_COLUMNS))


def _describe_move(ask: Query, intent_id: str) -> dict[str, object]:
    """Return the last move of an intent."""
    of_intent = select_moves().where(col(IntentEventRow.intent_id) == intent_id)
    (move,) = ask(of_intent.order_by(col(IntentEventRow.id).desc()).limit(1))
    return {"events": [hash_event(move)], "from": move[2], "to": move[3], "run": move[6]}


MARKER_SCHEMA = "costguard.seen/1"
MARKER_BYTES_MAX = 4096
"""Bytes."""


@dataclass(frozen=True, slots=True)
class NotedHead:
    """An audit head, and the id of its ledger."""

    ledger: str
    anchor: AuditAnchor


@dataclass(frozen=True, slots=True)
class RollbackMarker:
    """The rollback marker of the ledger at `url`, in the file `path`, which need not exist."""

    url: str
    path: Path

    def describe_doubt(self) -> str:
        """Return why the ledger is not the one seen last, or is an older copy of it.

        "" if there is no doubt, or no head was noted. Raises LedgerError if the ledger cannot be read.
        """
        head = self.read_noted_head()
        if head is None:
            return ""
        with LedgerReader(self.url) as reader, reader.snapshot() as ask:
            return _describe_mismatch(ask, head)

    def advance(self) -> None:
        """Write the committed head to the marker file.

        If the file cannot be written, the older head stays, which proves less.
        """
        with LedgerReader(self.url) as reader, reader.snapshot() as ask:
            last, ledger = load_head(ask), load_ledger_id(ask)
        now = None if last is None else NotedHead(ledger, AuditAnchor(last.seq, last.hash))
        if now is None or now == self.read_noted_head():
            return
        text = json.dumps({"schema": MARKER_SCHEMA, "ledger": ledger, "seq": now.anchor.seq, "hash": now.anchor.hash})
        with suppress(OSError):
            write_file_atomically(self.path, f"{text}\n".encode())

    def copy_from(self, other: RollbackMarker) -> None:
        """Note what `other` notes: of a ledger that was copied from its place to this one."""
        if other.path.exists():
            write_file_atomically(self.path, other.path.read_bytes())

    def read_noted_head(self) -> NotedHead | None:
        """Return the noted head; None if there is none or it cannot be read."""
        try:
            with self.path.open("rb") as file:
                value = json.loads(file.read(MARKER_BYTES_MAX))
            if value["schema"] == MARKER_SCHEMA:
                return NotedHead(str(value["ledger"]), AuditAnchor(int(value["seq"]), str(value["hash"])))
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return None
        return None


def _describe_mismatch(ask: Query, head: NotedHead) -> str:
    number, noted = head.anchor
    if load_ledger_id(ask) != head.ledger:
        return f"another ledger was here (its audit was at {format_anchor(number, noted)}): this one has none of its overrides"
    rows = ask(_ENTRIES.where(col(AuditRow.seq) == number))
    if rows and rows[0][-1] == noted:
        return ""
    last = load_head(ask)
    ends = format_anchor(last.seq, last.hash) if last else "nothing"
    if last is None or last.seq < number:
        return (
            f"this ledger is older than the one used last: its audit ends at {ends}, and was at {format_anchor(number, noted)}"
        )
    return f"this ledger is not the one used last: its audit log does not contain {format_anchor(number, noted)}"


def load_ledger_id(ask: Query) -> str:
    """Return the id that the ledger got when it was created."""
    ((ledger_id,),) = ask(select(col(LedgerStateRow.ledger_id)))
    return str(ledger_id)
