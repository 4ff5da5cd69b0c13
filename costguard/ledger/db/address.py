"""Address of a ledger: parse its URL as a file or a server, and translate database errors into errors with a remedy.

`sqlite:///ledger.db` is a file in the working folder, `sqlite:////data/ledger.db` one at the root; all after the third slash is
the path. `postgresql://` and `postgresql+psycopg://` name a server; `postgresql:///costguard` is one on this machine, through
its socket, and `?host=/run/postgresql` gives the folder of the socket. Only faults of the environment are translated: a full
disk, a lost server, a damaged file.
"""

from __future__ import annotations

import errno
import os.path
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from costguard.errors import InputError, LedgerError, shorten
from costguard.system.file_security import find_planted_link
from costguard.system.secret import ENCODING_HINT, Secret, find_unencoded, list_url_secrets, scrub_text

SQLITE_PREFIX = "sqlite:///"
POSTGRESQL = "postgresql"
SQLALCHEMY_DRIVER = f"{POSTGRESQL}+psycopg"
URL_FIELD = "[ledger] url"
URL_HINT = "write sqlite:///PATH, or postgresql+psycopg://USER@HOST/DATABASE"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerAddress:
    """A parsed address.

    `path`: the file of a SQLite ledger, absolute and without symbolic links; None: a server. `shown`: the address in messages,
    without a password. `conninfo`: the libpq URL, with the password; "" for a file. `secrets`: what no message may contain.
    """

    shown: str
    path: Path | None = None
    conninfo: str = ""
    secrets: tuple[Secret, ...] = ()

    @property
    def sqlalchemy_url(self) -> str:
        """The URL of a server for `create_engine`."""
        return self.conninfo.replace(f"{POSTGRESQL}://", f"{SQLALCHEMY_DRIVER}://", 1)

    def make_sibling_path(self, suffix: str) -> Path:
        """Return the path of the ledger file with `suffix` appended, such as `.lock`."""
        if self.path is None:
            raise InputError("is a server, not a file", field=URL_FIELD)
        return self.path.with_name(self.path.name + suffix)

    def format_read_only_uri(self) -> str:
        """Return SQLite's URI that opens the file for reading only."""
        return f"{self._format_uri()}?mode=ro"

    def format_writable_uri(self) -> str:
        """Return SQLite's URI that opens the file, which must exist, for writing."""
        return f"{self._format_uri()}?mode=rw"

    def _format_uri(self) -> str:
        return f"file:{str(self.path).translate(_URI_ESCAPES)}"


_URI_ESCAPES = str.maketrans({"%": "%25", "?": "%3f", "#": "%23"})


def parse_ledger_address(url: str) -> LedgerAddress:
    """Return the address in `url`.

    Raises InputError if it is none.
    """
    if url.startswith(SQLITE_PREFIX):
        name = url.removeprefix(SQLITE_PREFIX)
        if name in ("", ":memory:") or "\0" in name:
            raise InputError("a ledger is a file, but this names no file", field=URL_FIELD, hint=URL_HINT)
        file_path = Path(os.path.expanduser(name))  # noqa: PTH111 - Path's raises where there is no such user
        path = Path(os.path.realpath(file_path))
        if link := find_planted_link(file_path):
            what = "is a link that another user created in a world-writable folder"
            raise InputError(what, field=str(link), hint=f"name the file itself, if it is yours: {path}")
        return LedgerAddress(shown=str(path), path=path)
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in (POSTGRESQL, SQLALCHEMY_DRIVER):
        shown = shorten(scheme if separator else url.rsplit("@", maxsplit=1)[-1], 40)
        raise InputError(f"is not an address of a ledger: '{shown}'", field=URL_FIELD, hint=URL_HINT)
    if character := find_unencoded(url):
        what = f"contains {character!r} unencoded, probably in its password"
        raise InputError(what, field=URL_FIELD, hint=f"encode it: {quote(character, safe='')}; {ENCODING_HINT}")
    try:
        parts = urlsplit(f"{POSTGRESQL}://{rest}")
        return _parse_server(parts)
    except ValueError as broken:
        raise InputError("cannot be read as an address of a server", field=URL_FIELD, hint=URL_HINT) from broken


def _parse_server(parts: SplitResult) -> LedgerAddress:
    query = parse_qsl(parts.query, keep_blank_values=True)
    if not parts.path.strip("/"):
        raise InputError("names a server, but no database on it", field=URL_FIELD, hint=URL_HINT)
    host_parameter = dict(query).get("host", "")
    socket = host_parameter.startswith("/")  # a folder: it cannot stand before the database's name
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ("" if socket else host_parameter)
    where = f"{host}:{parts.port}" if parts.port else host
    user = f"{unquote(parts.username)}@" if parts.username else ""
    parameters = urlencode([(k, v) for k, v in query if "password" not in k and (socket or k != "host")], safe="/")
    conninfo = _format_server_url(parts.netloc, parts.path, parts.query)
    shown = _format_server_url(f"{user}{where}", parts.path, parameters)
    return LedgerAddress(shown=shown, conninfo=conninfo, secrets=list_url_secrets(conninfo))


def _format_server_url(place: str, path: str, query: str) -> str:
    """Return the URL of a server.

    An empty `place` keeps both slashes: libpq then connects through a socket.
    """
    return f"{POSTGRESQL}://{place}{path}{f'?{query}' if query else ''}"


NOTHING_WRITTEN = "nothing was written"
OWNER_HINT = "run this as its owner, or change [ledger] url; costguard report, --offline status and db check only read"
DISK_HINT = "name a file on a local disk in [ledger] url, or use PostgreSQL: postgresql+psycopg://USER@HOST/DATABASE"
LOCK_ERRORS = (errno.ENOLCK, errno.EPROTO, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ESTALE)
"""What a network file system answers to a lock that it does not have, or whose server does not answer."""
_NO_LOCKS = "cannot be used: its file system does not lock files"
_BUSY = ("is locked by another program", "close the program that has it open (a SQL tool?), then try again")
_CLOSED = ("cannot be opened or written: it, its folder or its file system is closed to this user or read-only", OWNER_HINT)

_SQLITE = {
    **dict.fromkeys((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED), _BUSY),
    **dict.fromkeys((sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_CANTOPEN), _CLOSED),
    **dict.fromkeys((sqlite3.SQLITE_IOERR_LOCK, sqlite3.SQLITE_IOERR_RDLOCK, sqlite3.SQLITE_PROTOCOL), (_NO_LOCKS, DISK_HINT)),
    **dict.fromkeys((sqlite3.SQLITE_IOERR_CHECKRESERVEDLOCK, sqlite3.SQLITE_IOERR_SHMLOCK), (_NO_LOCKS, DISK_HINT)),
    **dict.fromkeys(
        (sqlite3.SQLITE_IOERR_SHMMAP, sqlite3.SQLITE_IOERR_SHMOPEN),
        ("cannot be used: its file system does not let processes share memory", DISK_HINT),
    ),
    sqlite3.SQLITE_FULL: (f"cannot be written: the disk is full; {NOTHING_WRITTEN}", "free disk space, then try again"),
    sqlite3.SQLITE_IOERR: (f"cannot be written or read: the disk has errors or is full; {NOTHING_WRITTEN}", "check the disk"),
    sqlite3.SQLITE_CORRUPT: ("is damaged: part of it is missing or overwritten", "copy it, then restore a backup"),
    sqlite3.SQLITE_NOTADB: ("is not a ledger: it is not a SQLite file", "change [ledger] url, or restore a backup"),
}
"""Extended or primary result code of SQLite -> what happened, what to do."""

_FILE_HINT = "let this user write there, or name another file in [ledger] url"

_SERVER_HINTS = (
    (
        "password authentication failed",
        "check the user in [ledger] url, and the password in ~/.pgpass or COSTGUARD_LEDGER__URL",
    ),
    ("no password supplied", "write it into ~/.pgpass (0600), or export COSTGUARD_LEDGER__URL with the whole address"),
    ("does not exist", "create it (createdb NAME, createuser NAME), or correct [ledger] url"),
    ("permission denied", "grant this user CREATE and USAGE on the database's schema"),
    ("read-only transaction", "name the primary server, not a replica"),
    ("idle-in-transaction", "this process was suspended within a transaction, which wrote nothing; try again"),
    ("lock timeout", "another costguard is writing; try again"),
    ("No space left", "free disk space on the server; nothing was written"),
)
_OPERATIONAL_STATES = ("08", "25006", "25P03", "28", "3D", "40", "42501", "53", "55P03", "57", "58")
"""Beginnings of SQLSTATE that befall a sound program: connection, read-only, a transaction in which nothing was asked for too
long, login, no database, serialisation, rights, a full disk, locks, shutdown, the server's own disk. See
postgresql.org/docs/18/errcodes-appendix.html."""

_ADDRESS_WORDS = ("invalid URI", "connection option", "percent-encoded", "connection info string", "unexpected spaces")
"""In what libpq says of an address; it may repeat part of it."""

_SERVER_HINT = "is the server up, and are host and port in [ledger] url right?"


@contextmanager
def translate_ledger_errors(where: LedgerAddress) -> Iterator[None]:
    """Translate errors of the ledger at `where` in this block into a LedgerError that names it."""
    try:
        yield
    except Exception as raised:  # sorted below, without importing a library only to catch its errors
        error = _translate_error(getattr(raised, "orig", None) or raised, where)
        if error is None:
            raise
        raise error from (None if where.secrets else raised)  # a traceback may show what the password stands in


def _translate_error(raised: BaseException, where: LedgerAddress) -> LedgerError | None:
    """Return `raised` as a LedgerError; None if it is not a fault of the environment."""
    if isinstance(raised, sqlite3.Error):
        code = getattr(raised, "sqlite_errorcode", 0)
        what, hint = _SQLITE.get(code) or _SQLITE.get(code & 0xFF) or ("", "")
        if (what, hint) == _BUSY and (why := _explain_lock_error(where)):
            what, hint = f"{_NO_LOCKS} ({why})", DISK_HINT
        return LedgerError(what, field=where.shown, hint=hint) if what else None
    if isinstance(raised, OSError):
        what, hint = f"cannot be opened or written: {raised.strerror or raised}", _FILE_HINT
        if raised.errno in LOCK_ERRORS:
            what, hint = f"{_NO_LOCKS} ({raised.strerror})", DISK_HINT
        hint = "free disk space, then try again" if raised.errno in (errno.ENOSPC, errno.EDQUOT) else hint
        return LedgerError(what, field=str(raised.filename or where.shown), hint=hint)
    if isinstance(raised, ImportError) and "psycopg" in str(raised):
        hint = "in a clone of costguard: pip install '.[postgres]'"
        return LedgerError("a ledger on PostgreSQL needs psycopg, which is not installed", field=where.shown, hint=hint)
    return _translate_server_error(raised, where)


def _explain_lock_error(where: LedgerAddress) -> str:
    """Return why files beside the ledger cannot be locked; "" if they can. SQLite reports ENOLCK as "busy".

    The lock file is tried, because closing the ledger itself would drop this process's locks.
    """
    import fcntl  # not on Windows, where quote, size and report only read

    try:
        with where.make_sibling_path(".lock").open("rb") as file:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return str(error.strerror) if error.errno in LOCK_ERRORS else ""
    return ""


def _translate_server_error(raised: BaseException, where: LedgerAddress) -> LedgerError | None:
    psycopg = sys.modules.get("psycopg")
    if psycopg is None or not isinstance(raised, psycopg.Error):
        return None
    message = next(filter(None, (line.strip() for line in str(raised).splitlines())), type(raised).__name__)
    state = raised.sqlstate or ""
    if not state and any(words in message for words in _ADDRESS_WORDS):
        return LedgerError("cannot be read as an address of a server", field=where.shown, hint=URL_HINT)
    if not (state.startswith(_OPERATIONAL_STATES) if state else isinstance(raised, psycopg.OperationalError)):
        return None
    message = scrub_text(message, where.secrets)
    hint = next((hint for words, hint in _SERVER_HINTS if words in message), _SERVER_HINT)
    return LedgerError(f"the ledger's server refused: {shorten(message, 200)}", field=where.shown, hint=hint)
