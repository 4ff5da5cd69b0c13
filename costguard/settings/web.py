"""Values of `[web]` and `[web.oidc]`: where the watchdog listens, what that requires, and at which provider people log in."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from costguard.errors import InputError, collect_errors, raise_errors, shorten
from costguard.settings.fields import read_text, read_texts
from costguard.values.checks import require

if TYPE_CHECKING:
    from costguard.settings.sections import OidcSettings, WebSettings

PORT_RANGE = range(65536)
LISTEN_PATTERN = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<four>[^:\[\]\s]+)):(?P<port>\d{1,5})", re.ASCII)
HOST_PATTERN = r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9a-fA-F:.]+\]"
HOST_HEADER_PATTERN = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9a-fA-F:.]{1,253}\])(?::\d{0,5})?", re.ASCII)
SCOPE_PATTERN = re.compile(r"[!#-\[\]-~]{1,100}", re.ASCII)
"""A scope of RFC 6749, 3.3, not longer than anybody writes one."""
CALLBACK_PATH = "/oidc/callback"
SECRET_EXAMPLE = "COSTGUARD_OIDC_SECRET"  # noqa: S105 - where a secret is kept, and no secret
VALUE_CHARS_MAX = 200
LOOPBACK = ("localhost", "127.0.0.1", "::1")
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


def parse_listen_address(text: str, field: str) -> ListenAddress:
    """Return the address that `text` contains; raise InputError if it contains none."""
    match = LISTEN_PATTERN.fullmatch(text.strip())
    hint = f'write an address and a port: "{LISTEN_EXAMPLE}"'
    if match is None or int(match["port"]) not in PORT_RANGE:
        raise InputError(f"'{shorten(text)}' is not an address to listen at", field=field, hint=hint)
    host = match["six"] or match["four"]
    if host != "localhost":
        try:
            ipaddress.ip_address(host)
        except ValueError:
            problem = f"'{shorten(host)}' is not an IP address: a host name may point to another machine later"
            raise InputError(problem, field=field, hint=hint) from None
    return ListenAddress(host, int(match["port"]))


def check_web(web: WebSettings) -> None:
    """Raise InputErrors for keys of [web] that do not fit together, or would expose unencrypted traffic to others."""
    errors: list[InputError] = []
    if web.listen is not None:
        listen = parse_listen_address(web.listen, ".listen")
        guarded = listen.is_loopback or web.tls_cert or web.tls_key or web.behind_proxy  # one file of two is refused by itself
        with collect_errors(errors):
            require(bool(guarded), ".listen", "is reachable from other machines, over unencrypted traffic", GUARD_HINT)
    if (web.tls_cert is None) != (web.tls_key is None):
        key = ".tls_key" if web.tls_key is None else ".tls_cert"
        errors.append(InputError("is missing", field=key, hint="tls_cert and tls_key must be set together"))
    with collect_errors(errors):
        if web.oidc is not None:
            what, hint = "needs the address of these pages", 'set web.url = "https://guard.example"'
            require(bool(web.url or web.listen), ".oidc", what, hint)
    raise_errors(errors)


def read_listen(value: object, field: str) -> str:
    """Return the text of an address to listen at."""
    text = read_text(value, field)
    parse_listen_address(text, field)
    return text


def read_proxy_address(value: object, field: str) -> str:
    """Return the text of an IP address."""
    text = read_text(value, field)
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise InputError(f"'{shorten(text)}' is not an address", field=field, hint='write "127.0.0.1"') from None
    return text


def read_url(value: object, field: str) -> str:
    """Return the URL at which others reach the pages."""
    url, hint = read_text(value, field), 'write "https://guard.example"'
    # what stands before an @ may be a password, and is not shown
    require("@" not in url, field, "holds a name or a password", f"{hint}: agents use their own key")
    parts = urlsplit(url)
    plain = parts.scheme in ("http", "https") and parts.hostname and not parts.query and not parts.fragment
    require(bool(plain) and parts.path in ("", "/"), field, f"'{shorten(url)}' is not an address", hint)
    near = parts.hostname in LOOPBACK
    require(parts.scheme == "https" or near, field, "is not https: agents send over TLS only", hint)
    return url


def read_issuer(value: object, field: str) -> str:
    """Return the address of an identity provider."""
    issuer, hint = read_text(value, field), 'write "https://login.example", as the ID tokens state it'
    try:
        parts = urlsplit(issuer)
        plain = issuer.isascii() and issuer.isprintable() and not set(" \\?#@") & set(issuer) and parts.port != 0
    except ValueError:
        parts, plain = urlsplit(""), False
    bare = plain and bool(parts.hostname)
    require(bare, field, f"'{shorten(issuer)}' is not an address" if "@" not in issuer else "holds a user or a password", hint)
    near = parts.scheme == "http" and parts.hostname in LOOPBACK
    require(parts.scheme == "https" or near, field, "is not https: an attacker on the network could log in as any user", hint)
    return issuer


def read_client_secret_place(value: object, field: str) -> str:
    """Return where the client's secret is kept; raise InputError if it is the secret itself."""
    from costguard.settings.notify import require_secret_place

    source = read_text(value, field)
    return require_secret_place(source, field, SECRET_EXAMPLE) if source else source


def read_client_secret(oidc: OidcSettings) -> str:
    """Return the client's secret from its source; "" for a public client. Raises InputError if it cannot be read."""
    from costguard.settings.notify import resolve_address

    return resolve_address(oidc.client_secret, "web.oidc.client_secret", what="secret") if oidc.client_secret else ""


def read_scopes(value: object, field: str) -> tuple[str, ...]:
    """Return the scopes that are asked for at a login."""
    scopes = read_texts(value, field)
    for scope in scopes:
        require(bool(SCOPE_PATTERN.fullmatch(scope)), field, f"'{shorten(scope)}' is not a scope", '["openid"]')
    require("openid" in scopes, field, "must contain openid, which requests the ID token", '["openid", "email"]')
    return scopes


def read_claim_values(claim_values: object, field: str) -> tuple[str, ...]:
    """Return values of a claim."""
    values = read_texts(claim_values, field)
    for value in values:
        plain = 0 < len(value) <= VALUE_CHARS_MAX and value.isprintable()
        require(plain, field, f"'{shorten(value)}' is not a value of a claim", 'write viewer = ["ml"]')
    return values


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


def parse_host_header(header: str) -> str:
    """Return the host of a Host header as `normalize_host` does; "" unless it is `host` or `host:port` of RFC 9112, 3.2.

    A user before `@`, blanks, a path or a port that is no number are refused: two readers could take them for two hosts.
    """
    return normalize_host(header) if HOST_HEADER_PATTERN.fullmatch(header) else ""
