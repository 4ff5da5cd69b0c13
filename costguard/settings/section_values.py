"""Reads values of the sections of plain fields: intervals, labels, addresses, rates."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import UTC, timedelta, tzinfo
from pathlib import Path
from urllib.parse import quote

from costguard.errors import InputError
from costguard.settings.fields import describe_unlike, read_flag, read_text, read_texts
from costguard.settings.files import expand_path
from costguard.settings.model import ReadAs, fit_each
from costguard.system.secret import ENCODING_HINT, find_unencoded
from costguard.values.checks import require, require_known_keys, require_whole_number
from costguard.values.money import ExchangeRate, parse_exchange_rate

SQLITE_PREFIX = "sqlite:///"
INTERVAL_MIN, INTERVAL_MAX = timedelta(seconds=1), timedelta(hours=1)
"""Between two polls."""
POD_OWNER_PATTERN = r"label:[^\s=][^=]*|namespace"
OWNER_PATTERN = r"(?:label|tag):[^\s=][^=]*"
PROTECTED_PATTERN = r"(?:label|tag):[^\s=][^=]*(?:=.*)?"
"""Labels only: one machine is protected by `costguard protect ID`."""
GROUP_PATTERN = r"(?:label|tag):[^\s=+][^=+]*(?: \+ (?:label|tag):[^\s=+][^=+]*)*"
PASSWORD_PATTERN = r"://[^/?#@\s]*:[^/?#@\s]+@|[?&](?:ssl)?password=[^&]"  # noqa: S105 - looks for one, holds none
ENDPOINT_PATTERN = (
    r"(?:https|(?P<plain>http))://(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~-]+)*/?"
)
ENDPOINT_HINT = 'write "https://mirror.example", or "http://127.0.0.1:8080" for a server on this machine'
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
PROXY_PATTERN = r"https?://(?:(?P<who>[^\s/@]*)@)?[^\s/@]+/?"


def load_zone(name: str, field: str) -> tzinfo:
    """Return the IANA zone `name`, such as "Europe/Berlin".

    Raise UnknownNameError for `field`, with the zones that it can mean, if there is none.
    """
    if name == "UTC":
        return UTC  # also where the machine carries no data of zones
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown; no name at all ("../x"); a folder ("Europe")
        from costguard.settings.time_zones import make_unknown_zone_error

        raise make_unknown_zone_error(name, field) from None


def read_zone(value: object, field: str) -> tzinfo:
    """Return the zone that a text names."""
    return load_zone(read_text(value, field), field)


def fit_labels(pattern: str, example: str, more: str = "") -> ReadAs:
    """Return the mark of a list of places of labels, each of which fits `pattern`."""
    return fit_each(pattern, "does not say where to look", f'write ["{example}"]{more}')


def resolve_path(text: str, folder: Path) -> str:
    """Return a path resolved against `folder`."""
    return str(folder / expand_path(text))


def resolve_url(text: str, folder: Path) -> str:
    """Return a file's URL resolved against `folder`; a server's URL and an in-memory database are unchanged."""
    name = text.removeprefix(SQLITE_PREFIX)
    return text if name in (text, "", ":memory:") else SQLITE_PREFIX + resolve_path(name, folder)


def read_ledger_url(value: object, field: str) -> str:
    """Return the ledger's address. One with a password is only allowed in the environment variable.

    Other errors in the address are reported when it is opened.
    """
    url = read_text(value, field)
    hint = "keep it in ~/.pgpass (0600), or export COSTGUARD_LEDGER__URL with the whole address and remove the line"
    hidden = url.startswith(SQLITE_PREFIX) or "COSTGUARD_LEDGER__URL" in os.environ or not re.search(PASSWORD_PATTERN, url)
    require(hidden, field, "holds a password; the settings file must not contain one", hint)
    return url


def read_proxy(value: object, field: str) -> str:
    """Return the address of an http(s) proxy. One with a password is only allowed in the environment variable."""
    proxy = read_text(value, field)
    match = re.fullmatch(PROXY_PATTERN, proxy, re.IGNORECASE)
    character = find_unencoded(proxy)
    if match is None or character:
        hint = f"encode it: {quote(character, safe='')}; {ENCODING_HINT}" if character else 'write "http://proxy.example:3128"'
        raise InputError("is not an address of a proxy", field=field, hint=hint)
    hidden = "COSTGUARD_NETWORK__PROXY" in os.environ or not match["who"]
    hint = "export COSTGUARD_NETWORK__PROXY with the whole address, and remove the line"
    require(hidden, field, "holds a password; the settings file must not contain one", hint)
    return proxy


def read_endpoint(value: object, field: str) -> str:
    """Return an address that may be asked: https anywhere, plain http on this machine only."""
    endpoint = read_text(value, field)
    match = re.fullmatch(ENDPOINT_PATTERN, endpoint)
    if match is None:
        raise InputError("is not an address of a host", field=field, hint=ENDPOINT_HINT)
    safe = match["plain"] is None or match["host"].lower() in LOOPBACK_HOSTS
    require(safe, field, "is plain http to another machine, which others on the network can change", ENDPOINT_HINT)
    return endpoint


def read_endpoints(value: object, field: str) -> Mapping[str, str]:
    """Return the `endpoint` of each table below `[prices.sources]`, by the name of the table."""
    if not isinstance(value, Mapping) or not all(isinstance(table, Mapping) for table in value.values()):
        hint = 'write [prices.sources.NAME] and endpoint = "https://..." below it'
        raise InputError(f"must be tables, not {describe_unlike(value)}", field=field, hint=hint)
    endpoints = dict[str, str]()
    for name, table in value.items():
        require_known_keys(table, ("endpoint",), f"{field}.{name}")
        if "endpoint" in table:
            endpoints[str(name)] = read_endpoint(table["endpoint"], f"{field}.{name}.endpoint")
    return endpoints


def read_heartbeat(value: object, field: str) -> str:
    """Return the address that the watchdog requests, or its source."""
    from costguard.settings.notify import check_address

    return check_address(read_text(value, field), field, "HEARTBEAT_URL")


DOLLARS_MAX = 10**6


def read_dollars(value: object, field: str) -> int:
    """Return whole dollars; the environment has them as text."""
    return require_whole_number(
        int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value, field, most=DOLLARS_MAX
    )


def read_switch(value: object, field: str) -> bool:
    """Return a flag; the environment has it as text."""
    return read_flag({"true": True, "false": False}.get(value, value) if isinstance(value, str) else value, field)


def read_tolerance(value: object, field: str) -> str:
    """Return the text of an allowed difference."""
    from costguard.bills.drift import parse_tolerance

    parse_tolerance(read_text(value, field), field)
    return str(value)


def read_rates(value: object, field: str) -> tuple[ExchangeRate, ...]:
    """Return the exchange rates that texts state."""
    return tuple(parse_exchange_rate(text, field) for text in read_texts(value, field))
