"""The watchdog's key: signs answers to agents; and verification of agents' signatures by the keys they joined with.

The key is in a separate file (0600), created if it is missing. The ledger contains no key that could sign.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from costguard_agent.protocol import decode_base64, encode_base64
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from costguard.system.key_file import KEY_BYTES, open_key

FIELD = "web.key_file"
LOST_HINT = "restore the key from a backup, or remove the file; then every agent must join again"


class WatchdogSeal:
    """Signs with `key`.

    Public keys and signatures are base64.
    """

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self._public = encode_base64(key.public_key().public_bytes_raw())

    @property
    def public_key(self) -> str:
        """The key with which agents verify the watchdog's answers."""
        return self._public

    def sign(self, message: bytes) -> str:
        """Return the signature of `message`."""
        return encode_base64(self._key.sign(message))

    def is_key(self, public_key: str) -> bool:
        """Return whether `public_key` is a valid public key."""
        return _parse_public_key(public_key) is not None

    def verify(self, public_key: str, message: bytes, signature: str) -> bool:
        """Return whether `signature` of `message` was made with the private key of `public_key`."""
        key, signed = _parse_public_key(public_key), decode_base64(signature)
        if key is None or signed is None:
            return False
        try:
            key.verify(signed, message)
        except InvalidSignature:
            return False
        return True


def open_seal(path: Path) -> WatchdogSeal:
    """Return the seal with the key at `path`, which is created if it is missing.

    Raises InputError if the file holds no key or other users can read it.
    """
    return WatchdogSeal(Ed25519PrivateKey.from_private_bytes(open_key(path, FIELD, LOST_HINT)[0]))


FIELD_PRIME = 2**255 - 19
"""The field of Curve25519 (RFC 8032, 5.1)."""
_ORDER_EIGHT_Y = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
SMALL_ORDER_Y = frozenset((0, 1, FIELD_PRIME - 1, _ORDER_EIGHT_Y, FIELD_PRIME - _ORDER_EIGHT_Y))
"""The y of the eight points whose order divides 8: under such a key one signature may fit any message. Tests compute them."""


def _is_weak_key(key: bytes) -> bool:
    """Return whether a public key is of small order, or is not written in the one canonical way (y below the prime)."""
    y = int.from_bytes(key, "little") & ((1 << 255) - 1)
    return y >= FIELD_PRIME or y in SMALL_ORDER_Y


@lru_cache(maxsize=4096)
def _parse_public_key(public_key: str) -> Ed25519PublicKey | None:
    key_bytes = decode_base64(public_key)
    if key_bytes is None or len(key_bytes) != KEY_BYTES or _is_weak_key(key_bytes):
        return None
    try:
        return Ed25519PublicKey.from_public_bytes(key_bytes)
    except ValueError:
        return None
