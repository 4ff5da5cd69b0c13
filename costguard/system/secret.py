"""A key or token that is not shown by repr, str, format, a dataclass that holds it, or pickle."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterator
from itertools import combinations
from typing import NoReturn
from urllib.parse import quote, unquote

LEAST_FOR_HINT = 16
LEAST_SCRUBBED = 4
"""Characters of a secret that is looked for in what is shown: fewer would strike out ordinary words."""


class Secret:
    """A secret.

    `reveal()` returns it, `get_hint()` its last four characters for `doctor`.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the secret itself; only for the code that sends it."""
        return self._value

    def get_hint(self) -> str:
        """Return the last four characters after "..."; only "..." if the secret has fewer than 16 characters."""
        return f"...{self._value[-4:]}" if len(self._value) >= LEAST_FOR_HINT else "..."

    def __repr__(self) -> str:
        return "Secret(...)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not written anywhere")

    def __getstate__(self) -> NoReturn:
        raise TypeError("a secret is not written anywhere")


def scrub_text(text: str, secrets: tuple[Secret, ...]) -> str:
    """Return `text` with every one of `secrets` replaced: a provider may echo a key in its error."""
    for secret in secrets:
        for form in _list_forms(secret.reveal()):
            text = text.replace(form, "[secret]")
    return text


def scrub_bytes(data: bytes, secrets: tuple[Secret, ...]) -> bytes:
    """Do the same for bytes received; returns `data` itself if it contains no secret."""
    for secret in secrets:
        for form in _list_forms(secret.reveal()):
            data = data.replace(form.encode(), b"[secret]")
    return data


def _list_forms(value: str) -> Iterator[str]:
    """Yield the forms in which `value` may be echoed: plain, URL-encoded, JSON-escaped."""
    if len(value) >= LEAST_SCRUBBED:
        yield from dict.fromkeys((value, quote(value, safe=""), value.replace("/", "\\/").replace('"', '\\"')))


def split_secret(secret: Secret) -> tuple[Secret, ...]:
    """Return the secret, and the parts of an Authorization header: the token of Bearer, user and password of Basic."""
    scheme, _, token = secret.reveal().partition(" ")
    if not token or scheme.lower() not in ("bearer", "basic", "token", "apikey"):
        return (secret,)
    inner = [token]
    if scheme.lower() == "basic":
        try:
            inner += base64.b64decode(token, validate=True).decode().split(":")
        except (binascii.Error, UnicodeDecodeError):
            inner = [token]
    return (secret, *(Secret(one) for one in inner if one))


SECRET_PARAMETER = re.compile(r"[?&][^=&]*(?:password|passwd|secret|token|key)=([^&#]+)", re.IGNORECASE)
ENCODING_HINT = "in a user or password write %23 for #, %25 for %, %2F for /, %3A for :, %3F for ?, %40 for @"


def find_unencoded(url: str) -> str:
    """Return a character of `url` that must be percent-encoded, probably of a user or password; "" if there is none.

    In `postgresql://me:pa/ss@host/db` it is "/": the host would be "me", its port "pa". An "@" only stands before the host.
    """
    rest = url.partition("://")[2]
    authority = re.split("[/?]", rest, maxsplit=1)[0]
    user, at, _ = authority.rpartition("@")
    odd = re.search(r"[\s#]|%(?![0-9A-Fa-f]{2})", rest) or re.search(r"[@\[\]]", user)
    if odd:
        return odd[0]
    head, late, _ = rest[len(authority) :].partition("@")
    return late and ("@" if at or "?" in head[1:] else head[0])


def list_url_secrets(url: str) -> tuple[Secret, ...]:
    """Return the password of `url` and the secrets among its parameters, each as it is written and decoded, longest first.

    With them all parts of the password between characters that may end it: a library that misreads the address prints a part.
    """
    credentials = url.partition("://")[2].rpartition("@")[0]
    forms = set[str]()
    for secret in (credentials.partition(":")[2], *SECRET_PARAMETER.findall(url)):
        ends = [0, *(one.end() for one in re.finditer(r"[@/#?%:\[\]\s]", secret)), len(secret) + 1]
        texts = {secret, *(secret[start : end - 1] for start, end in combinations(ends[:20], 2))}
        forms |= {form for text in texts for form in (text, unquote(text)) if len(form) >= LEAST_SCRUBBED}
    return tuple(map(Secret, sorted(forms, key=lambda form: (-len(form), form))))


def scrub_environment(text: str) -> str:
    """Return `text`, which a library wrote, without the passwords of the addresses in this process's environment."""
    return scrub_text(text, tuple(one for url in os.environ.values() if "://" in url for one in list_url_secrets(url)))
