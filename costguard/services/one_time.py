"""Codes and tokens: made here, shown once, and kept as hashes, so that whoever reads the ledger learns none.

Q7KM-2RXD-9VTP-HW4C is a code: 78 bits in letters and digits that nobody confuses; case and dashes do not matter.
cg_4vZ... is a token: 256 bits.
"""

from __future__ import annotations

import hashlib
import secrets

CODE_LETTERS = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Without I, L, O, U, 0 and 1."""
CODE_GROUPS, CODE_GROUP_LENGTH = 4, 4
TOKEN_BYTES = 32


def make_code() -> str:
    """A code as it is shown."""
    return "-".join("".join(secrets.choice(CODE_LETTERS) for _ in range(CODE_GROUP_LENGTH)) for _ in range(CODE_GROUPS))


def make_token() -> str:
    """A token as it is shown."""
    return f"cg_{secrets.token_urlsafe(TOKEN_BYTES)}"


def hash_code(code: str) -> str:
    """How a code is kept, however it was typed."""
    return _hash_text("".join(sign for sign in code.upper() if sign.isalnum()))


def hash_token(token: str) -> str:
    """How a token is kept."""
    return _hash_text(token)


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
