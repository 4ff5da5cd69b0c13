"""What databases raise, as errors that say what to do. One place, so that every room of the ledger fails alike.

Only what happens to a sound program is translated: a full disk, a lost server, a damaged file. Anything else is a bug of ours
and passes through as it is.
"""

from __future__ import annotations

import errno
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from costguard.errors import LedgerError, shorten
from costguard.ledger.db.address import URL_HINT, LedgerAddress

NOTHING_WRITTEN = "nothing was written"

_SQLITE = {
    sqlite3.SQLITE_BUSY: ("is locked by another program", "close what has it open (a SQL tool?), then try again"),
    sqlite3.SQLITE_LOCKED: ("is locked by another program", "close what has it open (a SQL tool?), then try again"),
    sqlite3.SQLITE_FULL: (f"cannot be written: the disk is full; {NOTHING_WRITTEN}", "make room, then try again"),
    sqlite3.SQLITE_IOERR: (f"cannot be written or read: the disk fails or is full; {NOTHING_WRITTEN}", "look at the disk"),
    sqlite3.SQLITE_READONLY: ("cannot be written: it or its folder is read-only", "let this user write both"),
    sqlite3.SQLITE_PERM: ("may not be opened by this user", "let this user read and write it and its folder"),
    sqlite3.SQLITE_AUTH: ("may not be opened by this user", "let this user read and write it and its folder"),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "let this user read and write it and its folder"),
    sqlite3.SQLITE_CORRUPT: ("is damaged: part of it is missing or overwritten", "keep a copy, then put a backup in its place"),
    sqlite3.SQLITE_NOTADB: (
        "is no ledger: it is not even a SQLite file",
        "name another file in [ledger] url, or put a backup in its place",
    ),
}
"""Primary result code of SQLite -> what happened, what to do."""

_FILE_HINT = "let this user write there, or name another file in [ledger] url"

_SERVER_HINTS = (
    (
        "password authentication failed",
        "check the user in [ledger] url, and the password in ~/.pgpass or COSTGUARD_LEDGER__URL",
    ),
    ("no password supplied", "write it into ~/.pgpass (0600), or export COSTGUARD_LEDGER__URL with the whole address"),
    ("does not exist", "make it first (createdb NAME, createuser NAME), or correct [ledger] url"),
    ("permission denied", "grant this user CREATE and USAGE on the database's schema"),
    ("read-only transaction", "name the primary server, not a replica"),
    ("lock timeout", "another costguard is writing; try again"),
    ("No space left", "make room on the server; nothing was written"),
)
_OPERATIONAL_STATES = ("08", "25006", "28", "3D", "40", "42501", "53", "55P03", "57", "58")
"""Beginnings of SQLSTATE that befall a sound program: connection, read-only, login, no database, serialisation, rights, a full
disk, locks, shutdown, the server's own disk. See postgresql.org/docs/18/errcodes-appendix.html."""

_ADDRESS_WORDS = ("invalid URI", "connection option", "percent-encoded", "connection info string", "unexpected spaces")
"""In what libpq says of an address; it may repeat part of it."""

_SERVER_HINT = "is the server up, and are host and port in [ledger] url right?"


@contextmanager
def translate_ledger_errors(where: LedgerAddress) -> Iterator[None]:
    """Turn what goes wrong with the ledger at `where` in this block into a LedgerError that names it."""
    try:
        yield
    except Exception as raised:  # sorted below, without importing a library only to catch its errors
        told = _translate_error(getattr(raised, "orig", None) or raised, where)
        if told is None:
            raise
        raise told from (None if where.password else raised)  # a traceback may show what the password stands in


def _translate_error(raised: BaseException, where: LedgerAddress) -> LedgerError | None:
    """`raised` in our words; None where it is none of those that befall a sound program."""
    if isinstance(raised, sqlite3.Error):
        code = getattr(raised, "sqlite_errorcode", 0) & 0xFF
        if code not in _SQLITE:
            return None
        what, hint = _SQLITE[code]
        return LedgerError(what, field=where.shown, hint=hint)
    if isinstance(raised, OSError):
        what = f"cannot be opened or written: {raised.strerror or raised}"
        hint = "make room, then try again" if raised.errno == errno.ENOSPC else _FILE_HINT
        return LedgerError(what, field=str(raised.filename or where.shown), hint=hint)
    if isinstance(raised, ImportError) and "psycopg" in str(raised):
        hint = "pip install 'gpu-costguard[postgres]'"
        return LedgerError("a ledger on PostgreSQL needs psycopg, which is not installed", field=where.shown, hint=hint)
    return _translate_server_error(raised, where)


def _translate_server_error(raised: BaseException, where: LedgerAddress) -> LedgerError | None:
    psycopg = sys.modules.get("psycopg")
    if psycopg is None or not isinstance(raised, psycopg.Error):
        return None
    said = next(filter(None, (line.strip() for line in str(raised).splitlines())), type(raised).__name__)
    state = raised.sqlstate or ""
    if not state and any(words in said for words in _ADDRESS_WORDS):
        return LedgerError("cannot be read as an address of a server", field=where.shown, hint=URL_HINT)
    if not (state.startswith(_OPERATIONAL_STATES) if state else isinstance(raised, psycopg.OperationalError)):
        return None
    if where.password:
        said = said.replace(where.password, "***")
    hint = next((hint for words, hint in _SERVER_HINTS if words in said), _SERVER_HINT)
    return LedgerError(f"the ledger's server refused: {shorten(said, 200)}", field=where.shown, hint=hint)
