"""Which addresses a provider may be asked at: https anywhere, plain http on this machine only (tests, tunnels).

An address is read strictly, so that no two readers of it can disagree on which host it names: plain ASCII, no user, no query,
no escapes, and a host that is a name or an IP address in its usual form (not 2130706433, 0x7f.1 or 127.0.0.1.).
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import urlsplit

from costguard.errors import InputError, shorten

ADDRESS_CHARACTERS = re.compile(r"[A-Za-z0-9._~:/\[\]-]+")
"""Characters of an address. No `%`, `@`, `\\`, `?`, `#`, blank, and nothing beyond ASCII: a foreign name is written as xn--."""

HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*")
NUMERIC_LABEL = re.compile(r"(?:0[xX][0-9A-Fa-f]*|[0-9]+)")
"""The last label of a host that some readers take for an IP address; no top-level domain is a number."""

HOST_AND_PORT = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\[\]:]+)(?::[0-9]{1,5})?")
"""A host, the brackets of an IPv6 one, and a port."""

LONGEST_ADDRESS = 1000
ADDRESS_HINT = "write https://host[:port][/path]"


def check_url(text: str, field: str) -> str:
    """`text` without a trailing slash, if it is a base address that keys may be sent to; InputError otherwise."""
    text = text.strip(" \t\r\n")
    if "@" in text or "?" in text or "#" in text:
        raise InputError("holds a user, a password or a query", field=field, hint=f"{ADDRESS_HINT} alone")
    try:
        parts = urlsplit(text)
        port, host = parts.port, parts.hostname
    except ValueError:
        raise _make_address_error(text, field) from None
    plain = ADDRESS_CHARACTERS.fullmatch(text) and len(text) <= LONGEST_ADDRESS
    if not plain or parts.scheme not in ("http", "https") or not host or port == 0 or not _is_host(host):
        raise _make_address_error(text, field)
    if re.search(r"/\.{1,2}(?:/|$)|//", parts.path) or not HOST_AND_PORT.fullmatch(parts.netloc):
        raise _make_address_error(text, field)
    if parts.scheme == "http" and not is_loopback(host):
        raise InputError("is plain http, which would send the key in the open", field=field, hint="write https://...")
    return text.rstrip("/")


def _make_address_error(text: str, field: str) -> InputError:
    return InputError(f"is no address: {shorten(text)}", field=field, hint=ADDRESS_HINT)


def _is_host(host: str) -> bool:
    """Whether `host` is a name or an IP address as everybody reads it."""
    try:
        ip_address(host)
    except ValueError:
        return bool(HOST_NAME.fullmatch(host)) and not NUMERIC_LABEL.fullmatch(host.rpartition(".")[2])
    return True


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine, by its name or its address in the usual form."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
