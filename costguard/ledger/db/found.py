"""What is at a ledger's address before anybody writes: this version's, an older one's, or something to keep away from."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from costguard.errors import LedgerError
from costguard.ledger.db.address import Address
from costguard.ledger.db.schema import APPLICATION_ID, HEAD, REVISIONS
from costguard.system.file_security import describe_foreign_writers

if TYPE_CHECKING:  # a type and no more: whoever only reads a ledger does not pay for importing it
    from sqlalchemy import Connection

CHECKED_MOST = 32 * 2**20
"""Bytes. A ledger up to this size is checked for damage (0.1 s) where its last writer left a log behind."""

RESTORE = "keep a copy of it, then put a backup in its place (costguard db backup makes them)"
SMALLEST_PAGE = 512
"""Bytes: a SQLite file that holds anything is not smaller."""

THERE = """
SELECT name FROM unnest(ARRAY['alembic_version', 'ledger_state', 'span']) AS name WHERE to_regclass(name) IS NOT NULL
"""
"""The tables of a server's database by which a ledger is known."""

NAME_ANOTHER = "name another file in [ledger] url"


def folder_there(where: Address) -> LedgerError:
    """The error for a folder where the file of a ledger should be."""
    return LedgerError(
        "is a folder, not a ledger", field=where.shown, hint=f"name a file in it: sqlite:///{where.path}/ledger.db"
    )


def believed(where: Address) -> None:
    """LedgerError where others can have written the file at `where`: what it says would arm policies and lift wishes."""
    why = describe_foreign_writers(where.path) if where.path else ""
    if why:
        hint = "chmod go-w it and its folder, or name a file in a folder of its own: sqlite:///.../costguard/ledger.db"
        raise LedgerError(f"cannot be believed: {why}", field=where.shown, hint=hint)


def found_file(where: Address) -> str:
    """The revision of the ledger in the file at `where`; LedgerError where it is none of ours. It is opened to read only."""
    path = where.path or Path()
    if path.stat().st_size < SMALLEST_PAGE:
        what = "is no ledger: it is empty or cut short"
        raise LedgerError(what, field=where.shown, hint="put a backup in its place, or remove it to start anew")
    for needed in (path, path.parent):
        if not os.access(needed, os.R_OK | os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            what = "its folder is read-only" if needed.is_dir() else "it is read-only"
            raise LedgerError(f"cannot be written: {what}", field=where.shown, hint="let this user write both")
    believed(where)
    log = where.beside("-wal")
    unsure = log.exists() and log.stat().st_size > 0 and path.stat().st_size <= CHECKED_MOST
    with closing(sqlite3.connect(where.read_only_uri(), uri=True)) as connection:
        (mark,) = connection.execute("PRAGMA application_id").fetchone()
        if mark != APPLICATION_ID:
            raise LedgerError("is a SQLite file, but no costguard ledger", field=where.shown, hint=NAME_ANOTHER)
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not {"alembic_version", "ledger_state"} <= names:
            raise LedgerError("is damaged: it says it is a ledger, and lacks its tables", field=where.shown, hint=RESTORE)
        revisions = [revision for (revision,) in connection.execute("SELECT version_num FROM alembic_version")]
        if unsure:
            _check(connection, where)
    return known(revisions, where)


def found_server(connection: Connection, where: Address) -> str | None:
    """The revision of the ledger behind `connection`, None where there is none yet; LedgerError where it is none of ours."""
    there = set(connection.exec_driver_sql(THERE).scalars())
    if not there:
        return None
    if not {"alembic_version", "ledger_state"} <= there:
        hint = "make one for the ledger alone (createdb costguard), and name it in [ledger] url"
        raise LedgerError("is the database of another program", field=where.shown, hint=hint)
    return known(list(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalars()), where)


def known(revisions: list[str], where: Address) -> str:
    """The one revision, if this version knows it."""
    if len(revisions) == 1 and revisions[0] in REVISIONS:
        return revisions[0]
    if not revisions:
        raise LedgerError("is damaged: it does not say which version it has", field=where.shown, hint=RESTORE)
    what = f"was written by a newer costguard (its schema is {', '.join(revisions)}, this one knows {HEAD})"
    raise LedgerError(what, field=where.shown, hint="upgrade costguard: pip install --upgrade gpu-costguard")


def _check(connection: sqlite3.Connection, where: Address) -> None:
    ((said,),) = connection.execute("PRAGMA quick_check(1)")
    if said != "ok":
        raise LedgerError(f"is damaged: {said}", field=where.shown, hint=RESTORE)
