"""Logins to the pages: `costguard web invite`, one-time links, and the sessions that they open."""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from threading import Lock

from costguard.ledger.agents.logins import LoginStore
from costguard.services import CommandAnswer
from costguard.services.guarding.overrides import describe_user, get_now
from costguard.services.serving.agent_commands import TOKEN_NAME_PATTERN
from costguard.settings import read_settings, resolve_ledger_url
from costguard.settings.web import resolve_web_address
from costguard.values.agent import VIEWER
from costguard.values.checks import require, require_one_of
from costguard.values.text_format import format_instant, format_local_time
from costguard.values.web_login import INVITE_VALID_FOR, ROLES, SESSION_VALID_FOR, WebInvite, WebSession, is_session_valid
from costguard.views.document import Document

SCHEMA = "costguard.web_invite/1"
SECRET_BYTES = 32
"""256 bits, which nobody guesses."""
SESSIONS_SEEN_MAX = 10_000
LOGIN_PATH = "/login/"


def create_login_link(name: str, *, role: str | None = None, config: str | None = None) -> CommandAnswer:
    """Answer `costguard web invite`: make a link that logs `name` into the pages once."""
    settings, now = read_settings(config), get_now()
    what = "is not a name: letters, digits and . _ @ -, at most 64"
    require(bool(TOKEN_NAME_PATTERN.fullmatch(name)), "NAME", what, "costguard web invite ada --role operator")
    chosen = role or VIEWER
    require_one_of(chosen, ROLES, "--role")
    with LoginStore(resolve_ledger_url(settings)) as book:
        path, invite = make_invite(book, name, chosen, who=describe_user(), now=now)
    link = f"{resolve_web_address(settings.web)}{path}"
    data = {"schema": SCHEMA, "name": name, "role": chosen, "link": link, "expires_at": format_instant(invite.expires_at)}
    lead = (f"{name} logs in as {chosen} with this link, once, until {format_local_time(invite.expires_at)}:", link)
    notes = ("It is shown once; only its hash is stored.", f"next: costguard web logout {name} ends every session of that name")
    missing = () if settings.web.listen else ("[web] listen is not set, so nothing serves the pages yet.",)
    return CommandAnswer(document=Document(data=data, records=(data,), lead=lead, notes=(*missing, *notes)))


def end_sessions(name: str, *, config: str | None = None) -> CommandAnswer:
    """Answer `costguard web logout`: end every session and every unused link of `name`."""
    settings, now = read_settings(config), get_now()
    with LoginStore(resolve_ledger_url(settings)) as book:
        count = book.revoke_sessions(who=describe_user(), now=now, name=name)
    data = {"schema": "costguard.web_logout/1", "name": name, "ended": count}
    lead = f"{count} sessions and links of {name} ended." if count else f"{name} has no session and no unused link."
    return CommandAnswer(document=Document(data=data, records=(data,), lead=(lead,)))


def make_invite(book: LoginStore, name: str, role: str, *, who: str, now: datetime) -> tuple[str, WebInvite]:
    """Record a one-time link; return its path and the record."""
    code = secrets.token_urlsafe(SECRET_BYTES)
    invite = WebInvite(hash=_hash(code), name=name, role=role, who=who, at=now, expires_at=now + INVITE_VALID_FOR)
    book.add_invite(invite)
    return f"{LOGIN_PATH}{code}", invite


@dataclass(slots=True)
class SessionDesk:
    """Opens, checks and ends sessions.

    The time of the last request is kept in memory: after a restart of the process the login counts as it.
    """

    book: LoginStore
    clock: Callable[[], datetime] = get_now
    _seen: OrderedDict[str, datetime] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def find_invite(self, code: str) -> WebInvite:
        """Return the link of `code`, and change nothing. Raises NoAnswerError if it is not valid."""
        return self.book.find_invite(_hash(code), self.clock())

    def redeem(self, code: str) -> tuple[str, WebSession]:
        """Use the link of `code` up; return the secret of the new session, and its record."""
        secret, now = secrets.token_urlsafe(SECRET_BYTES), self.clock()
        session = self.book.redeem(_hash(code), _hash(secret), now, now + SESSION_VALID_FOR)
        self._note(session.hash, now)
        return secret, session

    def open_session(self, name: str, role: str, issuer: str) -> str:
        """Open a session that the identity provider `issuer` vouches for; return its secret."""
        secret, now = secrets.token_urlsafe(SECRET_BYTES), self.clock()
        expires_at, invite = now + SESSION_VALID_FOR, f"oidc {issuer}"
        session = WebSession(hash=_hash(secret), name=name, role=role, invite=invite, at=now, expires_at=expires_at)
        self.book.open_session(session)
        self._note(session.hash, now)
        return secret

    def find_session(self, secret: str) -> WebSession | None:
        """Return the valid session of `secret`, and note the request; None if there is none."""
        now, hashed = self.clock(), _hash(secret)
        session = self.book.load_session(hashed) if secret else None
        if session is None or not is_session_valid(session, self._seen.get(hashed, session.at), now):
            return None
        self._note(hashed, now)
        return session

    def end(self, session: WebSession) -> None:
        """End a session that its holder leaves."""
        self.book.revoke_sessions(who=session.name, now=self.clock(), session_hash=session.hash)

    def _note(self, hashed: str, now: datetime) -> None:
        with self._lock:
            self._seen[hashed] = now
            self._seen.move_to_end(hashed)
            while len(self._seen) > SESSIONS_SEEN_MAX:
                self._seen.popitem(last=False)


def compute_form_token(secret: str) -> str:
    """Return the token that every form of a session carries: only who has the cookie can compute it."""
    return hmac.new(secret.encode(), b"costguard form", sha256).hexdigest()


def _hash(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()
