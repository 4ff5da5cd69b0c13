"""A copy of a SQLite ledger that is whole, whoever writes meanwhile."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from costguard.errors import InputError, LedgerError
from costguard.ledger.address import Address
from costguard.ledger.faults import ledger_errors


def copy(source: Address, target: Path) -> None:
    """Make `target`, which must not exist, a checked copy of the ledger as it is at one instant, in one file."""
    with ledger_errors(Address(shown=str(target), path=target)):
        try:
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            hint = "name another file: a backup never overwrites"
            raise InputError("exists already", field=str(target), hint=hint) from None
        try:
            _copied(source, target)
            synced(target)
            synced(target.parent)
        except BaseException:
            target.unlink(missing_ok=True)
            raise


def synced(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk before going on."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _copied(source: Address, target: Path) -> None:
    uri = Address(shown=str(target), path=target).writable_uri()
    with closing(sqlite3.connect(uri, uri=True)) as copied:
        with ledger_errors(source), closing(sqlite3.connect(source.read_only_uri(), uri=True)) as original:
            original.backup(copied)
        copied.execute("PRAGMA journal_mode = DELETE")  # one file, readable from a read-only disk too
        said = [text for (text,) in copied.execute("PRAGMA integrity_check(3)")]
    if said != ["ok"]:
        hint = "the disk or the ledger is damaged; run: costguard db check"
        raise LedgerError(f"the copy is not sound: {said[0]}", field=str(target), hint=hint)


def stamp() -> str:
    """This instant in a file's name: 20261121T120000123456."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
