"""Addresses that are written to: channels, hooks, the heartbeat. Those that hold a secret are named, never stated.

"console"                         the terminal of the watchdog
"https://example.com/costguard"   a webhook whose address gives nothing away
"env:SLACK_URL"                   the variable that holds the address, such as slack://... (any that Apprise knows)
"file:/run/secrets/slack"         the file that holds it
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from costguard.errors import InputError
from costguard.settings.files import expand_path
from costguard.system.file_security import describe_exposure
from costguard.values.checks import require

CONSOLE_CHANNEL = "console"
VARIABLE_PATTERN = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")
FILE_PATTERN = re.compile(r"file:(\S.*)")
SCHEME_PATTERN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
TOKEN_PATTERN = re.compile(r"(?=.*[0-9])[A-Za-z0-9_+=~-]{16,}|[A-Za-z]{32,}|[A-Z0-9]{9,}|[0-9a-f]{8}-[0-9a-f-]{27}")
"""A part of a path that gives away more than a place."""
SECRET_BYTES_MAX = 64 * 2**10
"""Bytes of a file that holds an address."""


def check_address(text: str, field: str, variable: str) -> str:
    """`text` where it is an address that may stand in the settings file; an error never shows it. `variable`: an example."""
    if VARIABLE_PATTERN.fullmatch(text) or FILE_PATTERN.fullmatch(text):
        return text
    cure = f'write "env:{variable}" and set {variable} to the address, or "file:PATH" of a file that holds it'
    scheme = SCHEME_PATTERN.match(text)
    if scheme is None:
        raise InputError("is no address", field=field, hint=f'{cure}; or "https://..." of a webhook')
    name, rest = scheme[1].lower(), text[scheme.end() :]
    if name not in ("http", "https"):
        # syslog:// and the like name nobody, and so hold no secret
        open_book = not any(letter.isalnum() for letter in rest)
        require(open_book, field, f"{name}:// addresses hold a secret, and the settings file holds none", cure)
        return text
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host:
        raise InputError("is no address", field=field, hint='write "https://example.com/costguard"')
    require(name == "https" or host in LOOPBACK, field, "is http:// to another machine", "write https://")
    secret = (
        "@" in parts.netloc
        or parts.query
        or parts.fragment
        or any(TOKEN_PATTERN.fullmatch(part) for part in parts.path.split("/"))
    )
    require(not secret, field, "holds a secret, as it seems, and the settings file holds none", cure)
    return text


def resolve_address(text: str, field: str, folder: Path | None = None) -> str:
    """The address that `text` states or names. InputError for `field` where the variable or the file is not there or empty.

    `folder`: where a file's path starts that is not whole; None: the working folder.
    """
    variable, file = VARIABLE_PATTERN.fullmatch(text), FILE_PATTERN.fullmatch(text)
    if variable:
        found = os.environ.get(variable[1], "").strip()
        require(bool(found), field, f"the variable {variable[1]} is not set", f"set {variable[1]} to the address")
        return found
    if file is None:
        return text
    path = (folder or Path()) / expand_path(file[1])
    try:
        with path.open("rb") as opened:
            found = opened.read(SECRET_BYTES_MAX).decode().strip()
    except (OSError, ValueError):
        raise InputError(
            f"{path} cannot be read", field=field, hint="write the path of a file that holds the address"
        ) from None
    require(bool(found), field, f"{path} is empty", "write the address into it")
    others = describe_exposure(path)
    require(not others, field, f"{path} holds a secret and {others}", f"chmod 600 '{path}'")
    return found
