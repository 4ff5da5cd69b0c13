"""Login links, sessions and tokens as the commands and the watchdog make them, and as who can write to the ledger does."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from hashlib import sha256

from costguard.ledger.agents.logins import LoginStore
from costguard.ledger.agents.store import AgentStore
from costguard.services.guarding.overrides import get_now
from costguard.services.serving.agent_gateway import hash_token
from costguard.services.serving.login_key import TOKEN, open_login_key
from costguard.services.serving.web_logins import LoginDesk, make_invite
from costguard.values.agent import WebToken
from costguard.values.web_login import WebInvite, WebSession

DAY = timedelta(days=1)


def invite(url: str, name: str, role: str, *, now: datetime | None = None) -> str:
    """The path of a one-time link."""
    with LoginStore(url) as book:
        return make_invite(book, name, role, who="test", now=now or get_now(), key=open_login_key(url))[0]


def open_session(url: str, name: str, role: str) -> str:
    """The cookie of a session."""
    with LoginStore(url) as book:
        return LoginDesk(book=book, key=open_login_key(url)).open_session(name, role, "test")


def make_token(url: str, name: str, role: str = "viewer", *, lasts: timedelta = DAY) -> str:
    """A token, as `costguard web token` makes it."""
    now = get_now()
    shown = open_login_key(url).make_secret(TOKEN, name, role, now + lasts)
    write_token(url, shown, name, role, now=now, lasts=lasts)
    return shown


def write_token(url: str, shown: str, name: str, role: str, *, now: datetime | None = None, lasts: timedelta = DAY) -> None:
    """Write the row of a token, with no key."""
    at, made = now or get_now(), timedelta(seconds=1)
    token = WebToken(hash=hash_token(shown), name=name, role=role, who="test", at=at - made, expires_at=at + lasts)
    with AgentStore(url) as book:
        book.add_token(token)


def forge_session(url: str, name: str = "mallory", role: str = "admin") -> str:
    """The cookie of a session whose row was written with no key, as by an earlier version, or by a web that is taken over."""
    secret, now = secrets.token_urlsafe(32), get_now()
    session = WebSession(hash=hash_secret(secret), name=name, role=role, invite="x", at=now, expires_at=now + DAY / 2)
    with LoginStore(url) as book:
        book.open_session(session)
    return secret


def forge_invite(url: str, name: str = "mallory", role: str = "admin") -> str:
    """The code of a link whose row was written with no key."""
    code, now = secrets.token_urlsafe(32), get_now()
    with LoginStore(url) as book:
        book.add_invite(WebInvite(hash=hash_secret(code), name=name, role=role, who="x", at=now, expires_at=now + DAY))
    return code


def hash_secret(secret: str) -> str:
    """As the ledger has it."""
    return sha256(secret.encode()).hexdigest()
