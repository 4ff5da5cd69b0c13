"""The login key: the watchdog acts for a session, a link or a token only if it was made with this key (decision 0134).

    secret = chosen at random . HMAC-SHA256(key, kind, what was chosen, name, role, end)

The ledger holds hashes of secrets. Its rows alone therefore give nobody a right to act: who can write to the ledger's file can
add a row for a secret of their own, or another role, but cannot make the second half. The key is in a file beside that of the
watchdog's other key; the process that serves HTTP does not read it.
"""

from __future__ import annotations

import hmac
import json
import secrets
from base64 import urlsafe_b64encode
from datetime import datetime
from hashlib import sha256
from pathlib import Path

from costguard.ledger.agents.store import AgentStore
from costguard.ledger.db.address import parse_ledger_address
from costguard.settings.files import get_data_path
from costguard.system.key_file import open_key
from costguard.values.agent import OPERATOR, WebToken
from costguard.values.instant import to_micros

SESSION, INVITE, TOKEN = "session", "invite", "token"
SECRET_BYTES = 32
"""256 bits, which nobody guesses."""
TOKENS_MAX = 900
"""Tokens from before the key that are accepted: more do not fit into its file."""
FIELD = "the login key"
LOST_HINT = "remove the file; then everybody must log in again, and operators' tokens must be made anew"


class LoginKey:
    """Makes and recognises secrets. `tokens`: hashes of the tokens that were valid when the key was made."""

    def __init__(self, key: bytes, tokens: frozenset[str] = frozenset()) -> None:
        self._key, self._tokens = key, tokens

    def make_secret(self, kind: str, name: str, role: str, expires_at: datetime, *, prefix: str = "") -> str:
        """Return a new secret of this kind, for `name` with `role` until `expires_at`."""
        chosen = f"{prefix}{secrets.token_urlsafe(SECRET_BYTES)}"
        return f"{chosen}.{self._sign(kind, chosen, name, role, expires_at)}"

    def has_issued(self, kind: str, secret: str, name: str, role: str, expires_at: datetime) -> bool:
        """Return whether `secret` was made with this key for exactly this."""
        chosen, _, mark = secret.rpartition(".")
        return hmac.compare_digest(mark.encode(), self._sign(kind, chosen, name, role, expires_at).encode())

    def has_issued_token(self, shown: str, token: WebToken) -> bool:
        """Return whether `shown`, which the ledger has as `token`, was made with this key, or before there was one."""
        return token.hash in self._tokens or self.has_issued(TOKEN, shown, token.name, token.role, token.expires_at)

    def _sign(self, kind: str, chosen: str, name: str, role: str, expires_at: datetime) -> str:
        message = json.dumps([kind, chosen, name, role, to_micros(expires_at)]).encode()
        return urlsafe_b64encode(hmac.new(self._key, message, sha256).digest()).rstrip(b"=").decode()


def open_login_key(url: str, key_file: str | None = None) -> LoginKey:
    """Return the login key of the ledger at `url`, which is created if it is missing. `key_file`: as the settings state it.

    A new key accepts the operators' tokens that the ledger has by then: they were made by an earlier version, or the ledger was
    moved. Raises InputError if its file cannot be used.
    """

    def list_tokens() -> list[str]:
        with AgentStore(url) as book:
            tokens = [one for one in book.load_tokens() if one.role == OPERATOR and one.revoked_at is None]
        return [one.hash for one in tokens][-TOKENS_MAX:]

    path = locate_key_file(url, key_file)
    return LoginKey(*open_key(path.with_name(f"{path.name}-logins"), FIELD, LOST_HINT, list_tokens))


def locate_key_file(url: str, key_file: str | None) -> Path:
    """Return the file of the key that signs answers to agents: as stated, or beside the ledger."""
    if key_file is not None:
        return Path(key_file)
    where = parse_ledger_address(url)
    server = get_data_path(f"web-{sha256(where.shown.encode()).hexdigest()[:16]}.key")
    return Path(server) if where.path is None else where.make_sibling_path(".web-key")
