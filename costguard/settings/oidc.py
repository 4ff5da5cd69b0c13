"""The `[web.oidc]` section: the identity provider at which people log in to the pages, and which of its groups may do what.

[web.oidc]
issuer = "https://login.example"
client_id = "costguard"
client_secret = "env:COSTGUARD_OIDC_SECRET"     # or "file:/run/secrets/oidc"; without: a public client
operator = ["ml-leads"]                         # of the claim "groups"; whoever has no such group is refused
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from costguard.errors import InputError, shorten
from costguard.settings.notify import FILE_PATTERN, VARIABLE_PATTERN, resolve_address
from costguard.settings.sections import OidcSettings, WebSettings
from costguard.values.checks import require
from costguard.values.web_login import ROLES

SERVER_PREFIX = "COSTGUARD_"
"""How the variables begin that the process which serves pages gets."""
CALLBACK_PATH = "/oidc/callback"
SCOPE_PATTERN = re.compile(r"[!#-\[\]-~]{1,100}", re.ASCII)
"""A scope of RFC 6749, 3.3, not longer than anybody writes one."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
SECRET_EXAMPLE = "env:COSTGUARD_OIDC_SECRET"  # noqa: S105 - where a secret is kept, and no secret
VALUE_CHARS_MAX = 200


def check_oidc(web: WebSettings, place: str) -> None:
    """Raise InputError for values of [web.oidc] that no login could be made with, or that a secret is in."""
    oidc = web.oidc
    assert oidc is not None  # noqa: S101 - whoever calls has looked
    require(bool(oidc.issuer), f"{place}.issuer", "is missing", 'write "https://login.example"')
    require(bool(oidc.client_id), f"{place}.client_id", "is missing", "write the client id that the provider shows")
    require(
        oidc.client_id.isascii() and oidc.client_id.isprintable(), f"{place}.client_id", "is not plain text", "copy it anew"
    )
    require(bool(oidc.role_claim), f"{place}.role_claim", "is empty", 'write "groups"')
    _check_issuer(oidc.issuer, f"{place}.issuer")
    _check_secret_source(oidc.client_secret, f"{place}.client_secret")
    for scope in oidc.scopes:
        require(bool(SCOPE_PATTERN.fullmatch(scope)), f"{place}.scopes", f"'{shorten(scope)}' is not a scope", '["openid"]')
    require("openid" in oidc.scopes, f"{place}.scopes", "lacks openid, without which no ID token comes", '["openid", "email"]')
    given = [value for role in ROLES for value in getattr(oidc, role)]
    told = "gives nobody a role, so everybody would be refused"
    require(bool(given), place, told, 'write operator = ["ml-leads"], a value of the claim that decides')
    for value in given:
        plain = 0 < len(value) <= VALUE_CHARS_MAX and value.isprintable()
        require(plain, place, f"'{shorten(value)}' is not a value of a claim", 'write viewer = ["ml"]')
    require(
        bool(web.url or web.listen),
        place,
        "needs the address that browsers come back to",
        'set web.url = "https://guard.example"',
    )


def read_client_secret(oidc: OidcSettings) -> str:
    """Return the client's secret from its source; "" for a public client. Raises InputError if it cannot be read."""
    return resolve_address(oidc.client_secret, "web.oidc.client_secret", what="secret") if oidc.client_secret else ""


def _check_issuer(issuer: str, field: str) -> None:
    hint = 'write "https://login.example", as the ID tokens state it'
    try:
        parts = urlsplit(issuer)
        plain = issuer.isascii() and issuer.isprintable() and not set(" \\?#@") & set(issuer) and parts.port != 0
    except ValueError:
        parts, plain = urlsplit(""), False
    bare = plain and bool(parts.hostname)
    require(bare, field, f"'{shorten(issuer)}' is not an address" if "@" not in issuer else "holds a user or a password", hint)
    near = parts.scheme == "http" and parts.hostname in LOOPBACK
    require(parts.scheme == "https" or near, field, "is not https: whoever is in between could log in as anybody", hint)


def _check_secret_source(source: str, field: str) -> None:
    """Raise InputError unless `source` says where the secret is kept, and the process of the pages can read it there."""
    if not source:
        return
    variable = VARIABLE_PATTERN.fullmatch(source)
    if variable is None and FILE_PATTERN.fullmatch(source) is None:
        told = "holds a secret; the settings file must not contain one"
        raise InputError(told, field=field, hint=f'write "{SECRET_EXAMPLE}", or "file:PATH" of a file that holds it')
    told = f"names {variable[1]}, which the process that serves pages does not get" if variable else ""
    require(
        variable is None or variable[1].startswith(SERVER_PREFIX),
        field,
        told,
        f'name it {SERVER_PREFIX}..., such as "{SECRET_EXAMPLE}"',
    )
