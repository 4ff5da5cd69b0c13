"""The `[web]` section: the address at which the watchdog listens, and the protection that the address requires."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from costguard.errors import InputError, collect_errors, raise_errors, shorten
from costguard.values.checks import require

if TYPE_CHECKING:
    from costguard.settings.sections import WebSettings

PORT_RANGE = range(65536)
LISTEN_PATTERN = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<four>[^:\[\]\s]+)):(?P<port>\d{1,5})", re.ASCII)
HOST_PATTERN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9a-fA-F:.]+\]", re.ASCII)
NAME_SIGNS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._")
IPV6_SIGNS = frozenset("0123456789abcdefABCDEF:.")
HOST_LENGTH, PORT_DIGITS = 253, 5
LISTEN_EXAMPLE = "127.0.0.1:8470"
GUARD_HINT = 'write listen = "127.0.0.1:8470", or state tls_cert and tls_key, or behind_proxy = "ADDRESS"'


class ListenAddress(NamedTuple):
    """An address to listen at.

    `host`: the host as it is bound, without brackets.
    """

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Return whether the address can be reached from this machine only."""
        return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback

    @property
    def shown(self) -> str:
        """Return the address as written in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listen_address(stated: str, field: str) -> ListenAddress:
    """Return the address that `stated` contains; raise InputError if it contains none."""
    found = LISTEN_PATTERN.fullmatch(stated.strip())
    hint = f'write an address and a port: "{LISTEN_EXAMPLE}"'
    if found is None or int(found["port"]) not in PORT_RANGE:
        raise InputError(f"'{shorten(stated)}' is not an address to listen at", field=field, hint=hint)
    host = found["six"] or found["four"]
    if host != "localhost":
        try:
            ipaddress.ip_address(host)
        except ValueError:
            told = f"'{shorten(host)}' is not an IP address: a host name may point to another machine later"
            raise InputError(told, field=field, hint=hint) from None
    return ListenAddress(host, int(found["port"]))


def check_web(web: WebSettings) -> None:
    """Raise InputErrors for values of [web] that are invalid or would expose unencrypted traffic to others."""
    errors: list[InputError] = []
    for key, check in WEB_CHECKS.items():
        with collect_errors(errors):
            if getattr(web, key) is not None:
                check(web, f".{key}")
    if (web.tls_cert is None) != (web.tls_key is None):
        key = ".tls_key" if web.tls_key is None else ".tls_cert"
        errors.append(InputError("is missing", field=key, hint="tls_cert and tls_key belong together"))
    raise_errors(errors)


def _check_proxy_address(web: WebSettings, field: str) -> None:
    try:
        ipaddress.ip_address(web.behind_proxy or "")
    except ValueError:
        told = f"'{shorten(web.behind_proxy or '')}' is not an address"
        raise InputError(told, field=field, hint='write "127.0.0.1"') from None


def _check_hosts(web: WebSettings, field: str) -> None:
    for host in web.hosts:
        told = f"'{shorten(host)}' is not a name of a host"
        require(bool(HOST_PATTERN.fullmatch(host)), field, told, 'write ["guard.internal"], without a port')


def _check_listen(web: WebSettings, field: str) -> None:
    listen = parse_listen_address(web.listen or "", field)
    guarded = listen.is_loopback or web.tls_cert or web.tls_key or web.behind_proxy  # one file of two is refused by itself
    require(bool(guarded), field, "is reachable by others, who could read unencrypted traffic", GUARD_HINT)


def _check_oidc(web: WebSettings, field: str) -> None:
    from costguard.settings.oidc import check_oidc

    check_oidc(web, field)


def resolve_web_address(web: WebSettings) -> str:
    """Return the URL that others use: `url`, else the listen address; "" if neither is set."""
    if web.url is not None:
        return web.url.rstrip("/")
    if web.listen is None:
        return ""
    return f"{'https' if web.tls_cert else 'http'}://{parse_listen_address(web.listen, 'web.listen').shown}"


def list_allowed_hosts(web: WebSettings) -> frozenset[str]:
    """Return the host names accepted in requests, in lower case and without a port."""
    names = {"localhost", "127.0.0.1", "[::1]", *web.hosts}
    if web.url is not None:
        names.add(urlsplit(web.url).netloc.rpartition("@")[2])
    if web.listen is not None:
        listen = parse_listen_address(web.listen, "web.listen")
        names.add(f"[{listen.host}]" if ":" in listen.host else listen.host)
    return frozenset(normalize_host(name) for name in names)


def normalize_host(name: str) -> str:
    """Return `name` for comparison: in lower case, without a port and without a final dot."""
    host = name.strip().lower()
    bare = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
    return bare.removesuffix(".")


def parse_host_header(stated: str) -> str:
    """Return the host of a Host header as `normalize_host` does; "" unless it is `host` or `host:port` of RFC 9112, 3.2.

    A user before `@`, blanks, a path or a port that is no number are refused: two readers could take them for two hosts.
    """
    if stated.startswith("["):
        host, bracket, rest = stated.partition("]")
        host, allowed = host[1:], IPV6_SIGNS
        port = rest.removeprefix(":") if rest.startswith(":") or not rest else "?"
        valid = bool(bracket)
    else:
        host, _, port = stated.partition(":")
        allowed, valid = NAME_SIGNS, True
    port_valid = not port or (port.isascii() and port.isdigit() and len(port) <= PORT_DIGITS)
    if not valid or not port_valid or not host or len(host) > HOST_LENGTH or not set(host) <= allowed:
        return ""
    return normalize_host(stated)


def _check_url(web: WebSettings, field: str) -> None:
    url = web.url or ""
    if "@" in url:  # what stands before it may be a password, and is not shown
        raise InputError(
            "holds a name or a password", field=field, hint='write "https://guard.example": agents use their own key'
        )
    parts = urlsplit(url)
    plain = parts.scheme in ("http", "https") and parts.hostname and not parts.query and not parts.fragment
    require(
        bool(plain) and parts.path in ("", "/"), field, f"'{shorten(url)}' is not an address", 'write "https://guard.example"'
    )
    near = parts.hostname in ("localhost", "127.0.0.1", "::1")
    require(parts.scheme == "https" or near, field, "is not https: agents send over TLS only", 'write "https://guard.example"')


WEB_CHECKS: Mapping[str, Callable[[WebSettings, str], object]] = {
    "behind_proxy": _check_proxy_address,
    "hosts": _check_hosts,
    "url": _check_url,
    "oidc": _check_oidc,
    "listen": _check_listen,
}
"""What is checked of a key that is stated."""
