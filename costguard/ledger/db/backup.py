"""Make a consistent copy of a SQLite ledger while other processes may write to it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from glob import escape
from pathlib import Path
from tempfile import mkstemp

from costguard.errors import InputError, LedgerError
from costguard.ledger.db.address import LedgerAddress, translate_ledger_errors
from costguard.ledger.db.disk import connect_read_only
from costguard.system.atomic_file import sync_to_disk
from costguard.system.progress import report_progress

TARGET_ERROR_CODES = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_FSYNC,
)
"""What goes wrong in writing: of the ledger itself nothing but its log's index is."""


BACKUP_PAGES = 4096
"""Pages copied between two reports of progress: 16 MiB."""


def copy_ledger(source: LedgerAddress, target: Path) -> None:
    """Write a checked copy of the ledger at one instant to `target`, one file, which must not exist.

    The copy is made under a temporary name and renamed when it is complete, so a file named `target` is complete even if the
    process is killed.
    """
    with translate_ledger_errors(LedgerAddress(shown=str(target), path=target)):
        _require_free(target)
        unfinished = _create_unfinished(target)
        try:
            _copy_pages(source, unfinished, target)
            sync_to_disk(unfinished)
            _require_free(target)
            unfinished.rename(target)
            sync_to_disk(target.parent)
        finally:
            for suffix in ("", "-journal", "-wal", "-shm"):
                unfinished.with_name(unfinished.name + suffix).unlink(missing_ok=True)


def remove_unfinished_copies(target: Path) -> None:
    """Remove the temporary files of interrupted copies whose names begin with that of `target`."""
    for left in target.parent.glob(f".{escape(target.name)}*"):
        left.unlink(missing_ok=True)


def _require_free(target: Path) -> None:
    if target.exists() or target.is_symlink():
        raise InputError("exists already", field=str(target), hint="name another file: a backup never overwrites")


def _create_unfinished(target: Path) -> Path:
    """Create an empty file next to `target` with an unpredictable name."""
    try:
        file, name = mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from None
    os.close(file)
    return Path(name)


def _report_pages(_status: int, remaining: int, total: int) -> None:
    report_progress("copying pages of the ledger", total - remaining, total)


def _copy_pages(source: LedgerAddress, unfinished: Path, target: Path) -> None:
    # nobody else opens the copy: no lock is needed, which a network disk may lack, and for which Python would wait for ever
    uri = f"{LedgerAddress(shown=str(target), path=unfinished).format_writable_uri()}&vfs=unix-none"
    with closing(sqlite3.connect(uri, uri=True)) as copied:
        with translate_ledger_errors(source):
            original, check = connect_read_only(source)
            try:
                with closing(original):
                    original.backup(copied, pages=BACKUP_PAGES, progress=_report_pages)
                check()
            except sqlite3.Error as error:
                if error.sqlite_errorcode not in TARGET_ERROR_CODES:
                    raise
                with translate_ledger_errors(LedgerAddress(shown=str(target), path=target)):
                    raise
        copied.execute("PRAGMA locking_mode = EXCLUSIVE")
        copied.execute("PRAGMA journal_mode = DELETE")  # one file, readable from a read-only disk too
        findings = [text for (text,) in copied.execute("PRAGMA integrity_check(3)")]
    if findings != ["ok"]:
        hint = "the disk or the ledger is damaged; run: costguard db check"
        raise LedgerError(f"the copy is not consistent: {findings[0]}", field=str(target), hint=hint)


def format_copy_stamp() -> str:
    """Return the present instant in the form for file names: 20261121T120000123456."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
