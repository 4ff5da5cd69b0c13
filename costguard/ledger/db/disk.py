"""The disk below a ledger file: what file systems it may be on, and how a user who can only read it reads it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from costguard.errors import LedgerError
from costguard.ledger.db.address import DISK_HINT, OWNER_HINT, LedgerAddress
from costguard.system.file_security import describe_foreign_owner
from costguard.system.file_system import FLEETING, LOCAL, SHARED, UNSURE, identify_file_system

RISKS = {
    SHARED: "SQLite's log (WAL) loses data on file systems that other machines can mount",
    UNSURE: "SQLite's log (WAL) needs locks and shared memory, and no second machine that uses it",
    FLEETING: "it is lost with the container or at the next boot",
}
MOVE_HINT = "stop costguard, copy the file and its -wal to a local disk, and name that in [ledger] url; or use PostgreSQL"


def describe_disk_risk(where: LedgerAddress) -> tuple[str, str, bool]:
    """Return what can go wrong due to the ledger's file system ("": nothing), what to do, and whether a ledger is refused."""
    name, risk = identify_file_system(where.path) if where.path else ("", LOCAL)
    if where.path is None or risk == LOCAL:
        return "", "", False
    hint = "mount a volume there, or name a file on one in [ledger] url" if risk == FLEETING else DISK_HINT
    return f"it is on {name}: {RISKS[risk]}", MOVE_HINT if risk == SHARED and where.path.exists() else hint, risk == SHARED


def require_writable_file(where: LedgerAddress) -> None:
    """Raise LedgerError if this user cannot write the ledger file and its folder."""
    path = where.path or Path()
    for place in (path, path.parent):
        if not _can_access(place, os.R_OK | os.W_OK):
            what = describe_foreign_owner(path) or f"this user may not write {'its folder' if place.is_dir() else 'it'}"
            what = "its file system is mounted read-only" if os.statvfs(place).f_flag & os.ST_RDONLY else what
            raise LedgerError(f"cannot be written: {what}", field=where.shown, hint=OWNER_HINT)


def connect_read_only(where: LedgerAddress, **options: Any) -> tuple[sqlite3.Connection, Callable[[], None]]:  # noqa: ANN401 - sqlite3's own
    """Return a connection that only reads the ledger file, and a check to call before and after each snapshot.

    SQLite reads a file with a log through shared memory beside it, which it must be able to create. A user who cannot, or whose
    disk is read-only or a network's, reads the file alone (`immutable`) while it has no log with entries; the check raises
    LedgerError if somebody has written since.
    """
    path, memory = where.path or Path(), where.make_sibling_path("-shm")
    stamp, is_shared = _stamp_file(where), identify_file_system(path).risk == SHARED
    can_write = all(_can_access(place, os.W_OK) for place in (path, path.parent))
    if not is_shared and (can_write or (memory.exists() and _can_access(memory, os.R_OK))):
        return sqlite3.connect(where.format_read_only_uri(), uri=True, **options), lambda: None
    if stamp[-1]:
        what = "has a log (-wal) with entries, which can only be read where and by whom it is written"
        raise LedgerError(
            what, field=where.shown, hint=MOVE_HINT if is_shared else "its owner can copy it: costguard db backup"
        )

    def check() -> None:
        if _stamp_file(where) != stamp:
            raise LedgerError("was written while it was read", field=where.shown, hint="run the command again")

    return sqlite3.connect(f"{where.format_read_only_uri()}&immutable=1", uri=True, **options), check


def _stamp_file(where: LedgerAddress) -> tuple[int, ...]:
    """Return what changes if the ledger is written: the file's identity, size and time, and the size of its log."""
    log, status = where.make_sibling_path("-wal"), (where.path or Path()).stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, log.stat().st_size if log.exists() else 0


def _can_access(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)
