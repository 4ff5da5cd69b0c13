"""What is at a ledger's address before anybody writes: this version's, an older one's, or something to keep away from."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from costguard.errors import LedgerError
from costguard.ledger.db.address import LedgerAddress
from costguard.ledger.db.schema import APPLICATION_ID, HEAD_REVISION, REVISIONS
from costguard.system.file_security import describe_foreign_writers

if TYPE_CHECKING:  # a type and no more: whoever only reads a ledger does not pay for importing it
    from sqlalchemy import Connection

CHECK_BYTES_MAX = 32 * 2**20
"""Bytes. A ledger up to this size is checked for damage (0.1 s) where its last writer left a log behind."""

RESTORE_HINT = "keep a copy of it, then put a backup in its place (costguard db backup makes them)"
PAGE_BYTES_MIN = 512
"""Bytes: a SQLite file that holds anything is not smaller."""

SERVER_TABLES = """
SELECT name FROM unnest(ARRAY['alembic_version', 'ledger_state', 'span']) AS name WHERE to_regclass(name) IS NOT NULL
"""
"""The tables of a server's database by which a ledger is known."""

OTHER_FILE_HINT = "name another file in [ledger] url"


def make_folder_error(where: LedgerAddress) -> LedgerError:
    """The error for a folder where the file of a ledger should be."""
    return LedgerError(
        "is a folder, not a ledger", field=where.shown, hint=f"name a file in it: sqlite:///{where.path}/ledger.db"
    )


def require_trusted_file(where: LedgerAddress) -> None:
    """LedgerError where others can have written the file at `where`: what it says would arm policies and lift wishes."""
    why = describe_foreign_writers(where.path) if where.path else ""
    if why:
        hint = "chmod go-w it and its folder, or name a file in a folder of its own: sqlite:///.../costguard/ledger.db"
        raise LedgerError(f"cannot be believed: {why}", field=where.shown, hint=hint)


def identify_file(where: LedgerAddress) -> str:
    """The revision of the ledger in the file at `where`; LedgerError where it is none of ours. It is opened to read only."""
    path = where.path or Path()
    if path.stat().st_size < PAGE_BYTES_MIN:
        what = "is no ledger: it is empty or cut short"
        raise LedgerError(what, field=where.shown, hint="put a backup in its place, or remove it to start anew")
    for needed in (path, path.parent):
        if not os.access(needed, os.R_OK | os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            what = "its folder is read-only" if needed.is_dir() else "it is read-only"
            raise LedgerError(f"cannot be written: {what}", field=where.shown, hint="let this user write both")
    require_trusted_file(where)
    log = where.make_sibling_path("-wal")
    unsure = log.exists() and log.stat().st_size > 0 and path.stat().st_size <= CHECK_BYTES_MAX
    with closing(sqlite3.connect(where.format_read_only_uri(), uri=True)) as connection:
        (mark,) = connection.execute("PRAGMA application_id").fetchone()
        if mark != APPLICATION_ID:
            raise LedgerError("is a SQLite file, but no costguard ledger", field=where.shown, hint=OTHER_FILE_HINT)
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not {"alembic_version", "ledger_state"} <= names:
            raise LedgerError("is damaged: it says it is a ledger, and lacks its tables", field=where.shown, hint=RESTORE_HINT)
        revisions = [revision for (revision,) in connection.execute("SELECT version_num FROM alembic_version")]
        if unsure:
            _check_pages(connection, where)
    return require_known_revision(revisions, where)


def identify_server(connection: Connection, where: LedgerAddress) -> str | None:
    """The revision of the ledger behind `connection`, None where there is none yet; LedgerError where it is none of ours."""
    there = set(connection.exec_driver_sql(SERVER_TABLES).scalars())
    if not there:
        return None
    if not {"alembic_version", "ledger_state"} <= there:
        hint = "make one for the ledger alone (createdb costguard), and name it in [ledger] url"
        raise LedgerError("is the database of another program", field=where.shown, hint=hint)
    return require_known_revision(list(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalars()), where)


def require_known_revision(revisions: list[str], where: LedgerAddress) -> str:
    """The one revision, if this version knows it."""
    if len(revisions) == 1 and revisions[0] in REVISIONS:
        return revisions[0]
    if not revisions:
        raise LedgerError("is damaged: it does not say which version it has", field=where.shown, hint=RESTORE_HINT)
    what = f"was written by a newer costguard (its schema is {', '.join(revisions)}, this one knows {HEAD_REVISION})"
    raise LedgerError(what, field=where.shown, hint="upgrade costguard: pip install --upgrade gpu-costguard")


def _check_pages(connection: sqlite3.Connection, where: LedgerAddress) -> None:
    ((said,),) = connection.execute("PRAGMA quick_check(1)")
    if said != "ok":
        raise LedgerError(f"is damaged: {said}", field=where.shown, hint=RESTORE_HINT)
