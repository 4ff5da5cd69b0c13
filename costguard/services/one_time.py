"""Codes and tokens: made here, shown once, and kept as hashes, so that whoever reads the ledger learns none.

Q7KM-2RXD-9VTP-HW4C is a code: 78 bits in letters and digits that nobody confuses; case and dashes do not matter.
cg_4vZ... is a token: 256 bits.
"""

from __future__ import annotations

import hashlib
import secrets

LETTERS = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Without I, L, O, U, 0 and 1."""
GROUPS, IN_A_GROUP = 4, 4
TOKEN_BYTES = 32


def new_code() -> str:
    """A code as it is shown."""
    return "-".join("".join(secrets.choice(LETTERS) for _ in range(IN_A_GROUP)) for _ in range(GROUPS))


def new_token() -> str:
    """A token as it is shown."""
    return f"cg_{secrets.token_urlsafe(TOKEN_BYTES)}"


def code_hash(code: str) -> str:
    """How a code is kept, however it was typed."""
    return _sha256("".join(sign for sign in code.upper() if sign.isalnum()))


def token_hash(token: str) -> str:
    """How a token is kept."""
    return _sha256(token)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
