"""A key or token that cannot be shown by accident: not by repr, str, format, a dataclass that holds it, or pickle."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import NoReturn
from urllib.parse import quote

LEAST_FOR_HINT = 16
LEAST_SCRUBBED = 4
"""Characters of a secret that is looked for in what is shown: fewer would strike out ordinary words."""


class Secret:
    """Hold a secret. `reveal()` gives it, `hint()` its last four characters for `doctor`."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The secret itself: for the one place that sends it."""
        return self._value

    def get_hint(self) -> str:
        """The last four characters, where there are enough that they give nothing away."""
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
    """`text` with every one of `secrets` taken out: a provider may echo a key in its error."""
    for secret in secrets:
        for form in _list_forms(secret.reveal()):
            text = text.replace(form, "[secret]")
    return text


def scrub_bytes(data: bytes, secrets: tuple[Secret, ...]) -> bytes:
    """The same for what came over the wire; `data` itself where nothing is in it."""
    for secret in secrets:
        for form in _list_forms(secret.reveal()):
            data = data.replace(form.encode(), b"[secret]")
    return data


def _list_forms(value: str) -> Iterator[str]:
    """How `value` may be echoed: as it is, as an address has it, as JSON has it."""
    if len(value) >= LEAST_SCRUBBED:
        yield from dict.fromkeys((value, quote(value, safe=""), value.replace("/", "\\/").replace('"', '\\"')))


def split_secret(secret: Secret) -> tuple[Secret, ...]:
    """The secret, and what an Authorization header of it holds: the token of a Bearer, the user and password of a Basic."""
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
