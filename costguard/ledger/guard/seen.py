"""The newest head of the audit that a watchdog saw, kept outside of the ledger: so an older copy in its place is noticed.

    ledger.db.seen        {"schema": "costguard.seen/1", "ledger": ..., "seq": 1234, "hash": ...}

It is written after what it tells of was committed, and so a crash in between leaves it behind and never ahead. Who can write
both files can make them fit again; heads in messages are for that (`costguard audit verify --anchor`).
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from costguard.guard.audit import AuditAnchor, format_anchor
from costguard.ledger.db.asking import Query
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.audit_log import ENTRY_COLUMNS, load_head
from costguard.system.whole import write_file_atomically

MARKER_SCHEMA = "costguard.seen/1"
MARKER_BYTES_MAX = 4096
"""Bytes."""


@dataclass(frozen=True, slots=True)
class NotedHead:
    """A head of the audit of the ledger of this id."""

    ledger: str
    anchor: AuditAnchor


@dataclass(frozen=True, slots=True)
class RollbackMarker:
    """The mark of the ledger at `url`, in the file `path`, which need not exist."""

    url: str
    path: Path

    def describe_doubt(self) -> str:
        """Why the ledger is not the one that was seen here last, or an older copy of it; "" where it is. LedgerError unread."""
        seen = self.read_noted_head()
        if seen is None:
            return ""
        with LedgerReader(self.url) as reader, reader.snapshot() as ask:
            return _describe_mismatch(ask, seen)

    def advance(self) -> None:
        """Note the head as it is committed now. Where it cannot be noted the mark stays behind, which proves less."""
        with LedgerReader(self.url) as reader, reader.snapshot() as ask:
            last, ledger = load_head(ask), _load_ledger_id(ask)
        now = None if last is None else NotedHead(ledger, AuditAnchor(last.seq, last.hash))
        if now is None or now == self.read_noted_head():
            return
        text = json.dumps({"schema": MARKER_SCHEMA, "ledger": ledger, "seq": now.anchor.seq, "hash": now.anchor.hash})
        with suppress(OSError):
            write_file_atomically(self.path, f"{text}\n".encode())

    def read_noted_head(self) -> NotedHead | None:
        """What was noted; None where nothing was, or it cannot be read."""
        try:
            with self.path.open("rb") as file:
                found = json.loads(file.read(MARKER_BYTES_MAX))
            if found["schema"] == MARKER_SCHEMA:
                return NotedHead(str(found["ledger"]), AuditAnchor(int(found["seq"]), str(found["hash"])))
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return None
        return None


def _describe_mismatch(ask: Query, seen: NotedHead) -> str:
    number, noted = seen.anchor
    if _load_ledger_id(ask) != seen.ledger:
        return f"another ledger stood here (its audit was at {format_anchor(number, noted)}), and this one knows none of its wishes"
    rows = ask(f"SELECT {ENTRY_COLUMNS} FROM audit WHERE seq = ?", (number,))  # noqa: S608 - our own column names
    if rows and rows[0][-1] == noted:
        return ""
    last = load_head(ask)
    ends = format_anchor(last.seq, last.hash) if last else "nothing"
    if last is None or last.seq < number:
        return (
            f"this ledger is older than what was seen here: its audit ends at {ends}, and was at {format_anchor(number, noted)}"
        )
    return f"this ledger tells another story than was seen here: its audit does not pass through {format_anchor(number, noted)}"


def _load_ledger_id(ask: Query) -> str:
    ((ledger_id,),) = ask("SELECT ledger_id FROM ledger_state", ())
    return str(ledger_id)
