"""Where a ledger is: the URL that a person wrote, as a file or a server.

`sqlite:///ledger.db` is a file beside the working folder, `sqlite:////data/ledger.db` one at the root, as everywhere else that
uses such URLs; all after the third slash is the path as it stands. `postgresql://` and `postgresql+psycopg://` name a server;
`postgresql:///costguard` is one on this machine, through its socket, and `?host=/run/postgresql` says where that is.
"""

from __future__ import annotations

import os.path
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from costguard.errors import InputError, shorten
from costguard.system.file_security import find_planted_link

SQLITE_PREFIX = "sqlite:///"
POSTGRESQL = "postgresql"
SQLALCHEMY_DRIVER = f"{POSTGRESQL}+psycopg"
URL_FIELD = "[ledger] url"
URL_HINT = "write sqlite:///PATH, or postgresql+psycopg://USER@HOST/DATABASE"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerAddress:
    """`path`: the file of a SQLite ledger, absolute and without symbolic links; None for a server.

    `shown`: how messages name it, without a password. `conninfo`: what libpq takes, password and all; "" for a file.
    """

    shown: str
    path: Path | None = None
    conninfo: str = ""
    password: str = ""

    @property
    def sqlalchemy_url(self) -> str:
        """For `create_engine`, of a server."""
        return self.conninfo.replace(f"{POSTGRESQL}://", f"{SQLALCHEMY_DRIVER}://", 1)

    def make_sibling_path(self, suffix: str) -> Path:
        """The file beside a SQLite ledger whose name ends in `suffix`, such as `.lock`."""
        if self.path is None:
            raise InputError("is a server, not a file", field=URL_FIELD)
        return self.path.with_name(self.path.name + suffix)

    def format_read_only_uri(self) -> str:
        """SQLite's URI of the file, opened for reading only."""
        return f"{self._format_uri()}?mode=ro"

    def format_writable_uri(self) -> str:
        """SQLite's URI of the file, which must exist."""
        return f"{self._format_uri()}?mode=rw"

    def _format_uri(self) -> str:
        return f"file:{str(self.path).translate(_URI_ESCAPES)}"


_URI_ESCAPES = str.maketrans({"%": "%25", "?": "%3f", "#": "%23"})


def parse_ledger_address(url: str) -> LedgerAddress:
    """The place that `url` names; InputError where it names none."""
    if url.startswith(SQLITE_PREFIX):
        name = url.removeprefix(SQLITE_PREFIX)
        if name in ("", ":memory:") or "\0" in name:
            raise InputError("a ledger is a file, and this names none", field=URL_FIELD, hint=URL_HINT)
        stated = Path(os.path.expanduser(name))  # noqa: PTH111 - Path's raises where there is no such user
        path = Path(os.path.realpath(stated))
        if link := find_planted_link(stated):
            what = "is a link that somebody else put into a folder where everybody may write"
            raise InputError(what, field=str(link), hint=f"name the file itself, if it is yours: {path}")
        return LedgerAddress(shown=str(path), path=path)
    scheme, found, rest = url.partition("://")
    if not found or scheme not in (POSTGRESQL, SQLALCHEMY_DRIVER):
        shown = shorten(scheme if found else url.rsplit("@", maxsplit=1)[-1], 40)
        raise InputError(f"is no address of a ledger: '{shown}'", field=URL_FIELD, hint=URL_HINT)
    try:
        parts = urlsplit(f"{POSTGRESQL}://{rest}")
        return _parse_server(parts)
    except ValueError as broken:
        raise InputError("cannot be read as an address of a server", field=URL_FIELD, hint=URL_HINT) from broken


def _parse_server(parts: SplitResult) -> LedgerAddress:
    query = parse_qsl(parts.query, keep_blank_values=True)
    secret = unquote(parts.password or "") or dict(query).get("password", "")
    if not parts.path.strip("/"):
        raise InputError("names a server, but no database on it", field=URL_FIELD, hint=URL_HINT)
    stated = dict(query).get("host", "")
    socket = stated.startswith("/")  # a folder: it cannot stand before the database's name
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ("" if socket else stated)
    where = f"{host}:{parts.port}" if parts.port else host
    user = f"{unquote(parts.username)}@" if parts.username else ""
    kept = urlencode([(k, v) for k, v in query if "password" not in k and (socket or k != "host")], safe="/")
    conninfo = _format_server_url(parts.netloc, parts.path, parts.query)
    return LedgerAddress(shown=_format_server_url(f"{user}{where}", parts.path, kept), conninfo=conninfo, password=secret)


def _format_server_url(place: str, path: str, query: str) -> str:
    """The URL of a server, which keeps both slashes where `place` is "": there libpq goes through a socket."""
    return f"{POSTGRESQL}://{place}{path}{f'?{query}' if query else ''}"
