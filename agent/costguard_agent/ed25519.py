"""Ed25519 signatures (RFC 8032) in plain integers.

Old images have no library for them, and an agent needs one every 15 s. A signature takes some milliseconds. That time depends
on the key, which only code that already runs on the agent's machine could measure. The watchdog verifies with the library
`cryptography`.
"""

from __future__ import annotations

import hashlib
import os
from typing import NamedTuple

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
KEY_BYTES, SIGNATURE_BYTES = 32, 64


class Point(NamedTuple):
    """A point of the curve in extended coordinates: x = X/Z, y = Y/Z, x*y = T/Z (RFC 8032, section 5.1.4)."""

    x: int
    y: int
    z: int
    t: int


def generate_key() -> bytes:
    """Return a new private key: 32 random bytes."""
    return os.urandom(KEY_BYTES)


def derive_public_key(secret: bytes) -> bytes:
    """Return the public key of `secret`, 32 bytes each."""
    return _compress_point(_multiply_point(_expand_secret(secret)[0], BASE))


def sign(secret: bytes, message: bytes) -> bytes:
    """Return the signature of `message`, 64 bytes."""
    scalar, prefix = _expand_secret(secret)
    public = _compress_point(_multiply_point(scalar, BASE))
    nonce = _to_number(prefix, message)
    point = _compress_point(_multiply_point(nonce, BASE))
    return point + ((nonce + _to_number(point, public, message) * scalar) % ORDER).to_bytes(32, "little")


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Return whether `signature` of `message` was made with the private key of `public`."""
    if len(public) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    key, point = _decompress_point(public), _decompress_point(signature[:32])
    answer = int.from_bytes(signature[32:], "little")
    if key is None or point is None or answer >= ORDER:
        return False
    challenge = _to_number(signature[:32], public, message)
    return _is_same_point(_multiply_point(answer, BASE), _add_points(point, _multiply_point(challenge, key)))


def _expand_secret(secret: bytes) -> tuple[int, bytes]:
    if len(secret) != KEY_BYTES:
        raise ValueError(f"a secret key has {KEY_BYTES} bytes, not {len(secret)}")
    digest = hashlib.sha512(secret).digest()
    scalar = int.from_bytes(digest[:32], "little")
    return scalar & ((1 << 254) - 8) | (1 << 254), digest[32:]


def _to_number(*parts: bytes) -> int:
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little") % ORDER


def _add_points(one: Point, two: Point) -> Point:
    a = (one.y - one.x) * (two.y - two.x) % P
    b = (one.y + one.x) * (two.y + two.x) % P
    c = 2 * one.t * two.t * D % P
    d = 2 * one.z * two.z % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return Point(e * f % P, g * h % P, f * g % P, e * h % P)


def _multiply_point(scalar: int, point: Point) -> Point:
    product = Point(0, 1, 1, 0)
    while scalar > 0:
        if scalar & 1:
            product = _add_points(product, point)
        point = _add_points(point, point)
        scalar >>= 1
    return product


def _is_same_point(one: Point, two: Point) -> bool:
    return (one.x * two.z - two.x * one.z) % P == 0 and (one.y * two.z - two.y * one.z) % P == 0


def _compress_point(point: Point) -> bytes:
    inverse = pow(point.z, P - 2, P)
    x, y = point.x * inverse % P, point.y * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _decompress_point(data: bytes) -> Point | None:
    """Return the point encoded in `data` (RFC 8032, section 5.1.3); None if there is none."""
    y = int.from_bytes(data, "little")
    odd, y = y >> 255, y & ((1 << 255) - 1)
    x = _recover_x(y, odd)
    return None if x is None else Point(x, y, 1, x * y % P)


def _recover_x(y: int, odd: int) -> int | None:
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    if square == 0:
        return None if odd else 0
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P != 0:
        x = x * pow(2, (P - 1) // 4, P) % P
    if (x * x - square) % P != 0:
        return None
    return P - x if x & 1 != odd else x


_BASE_Y = 4 * pow(5, P - 2, P) % P
_BASE_X = _recover_x(_BASE_Y, 0) or 0
BASE = Point(_BASE_X, _BASE_Y, 1, _BASE_X * _BASE_Y % P)
