"""Which SQLite this Python links, and whether it has the fault that can damage a file with a write-ahead log."""

from __future__ import annotations

import sqlite3

FIXED_SINCE = (3, 51, 3)
FIXED_BACKPORTS = {(3, 44): 6, (3, 50): 7}
"""Where the WAL-reset fault was mended (SQLite's own notes, 2026-03-13), which is in every release from 3.7.0 on: two
connections that write and checkpoint at once. costguard's own writers take turns by a lock, so another program must do it."""


def read_sqlite_version() -> str:
    """Of the library, such as 3.51.3."""
    return sqlite3.sqlite_version


def has_wal_fix(version: str) -> bool:
    """Whether SQLite `version` is without that fault."""
    major, minor, patch = (int(part) for part in (*version.split("."), "0", "0")[:3])
    least = FIXED_BACKPORTS.get((major, minor))
    return (major, minor, patch) >= FIXED_SINCE or (least is not None and patch >= least)
