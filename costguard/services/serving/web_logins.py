"""Logins to the pages: `costguard web invite`, one-time links, and the sessions that they open.

The watchdog and the commands write them with the login key (`LoginDesk`, `make_invite`); the server only reads (`SessionDesk`).
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from threading import Lock

from costguard.errors import NoAnswerError
from costguard.ledger.agents.logins import LINK_HINT, LoginStore
from costguard.services import CommandAnswer
from costguard.services.guarding.overrides import describe_user, get_now
from costguard.services.serving.agent_commands import TOKEN_NAME_PATTERN
from costguard.services.serving.login_key import INVITE, SESSION, LoginKey, open_login_key
from costguard.settings import read_settings, resolve_ledger_url
from costguard.settings.web import resolve_web_address
from costguard.values.agent import VIEWER
from costguard.values.checks import require, require_one_of
from costguard.values.text_format import format_instant, format_local_time
from costguard.values.web_login import INVITE_VALID_FOR, ROLES, SESSION_VALID_FOR, WebInvite, WebSession, is_session_valid
from costguard.views.document import Document

SCHEMA = "costguard.web_invite/1"
SESSIONS_SEEN_MAX = 10_000
LOGIN_PATH = "/login/"


def create_login_link(name: str, *, role: str | None = None, config: str | None = None) -> CommandAnswer:
    """Answer `costguard web invite`: make a link that logs `name` into the pages once."""
    settings, now = read_settings(config), get_now()
    what = "is not a name: letters, digits and . _ @ -, at most 64"
    require(bool(TOKEN_NAME_PATTERN.fullmatch(name)), "NAME", what, "costguard web invite ada --role operator")
    chosen = role or VIEWER
    require_one_of(chosen, ROLES, "--role")
    url = resolve_ledger_url(settings)
    with LoginStore(url) as book:
        path, invite = make_invite(
            book, name, chosen, who=describe_user(), now=now, key=open_login_key(url, settings.web.key_file)
        )
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


def make_invite(book: LoginStore, name: str, role: str, *, who: str, now: datetime, key: LoginKey) -> tuple[str, WebInvite]:
    """Record a one-time link; return its path and the record."""
    expires_at = now + INVITE_VALID_FOR
    code = key.make_secret(INVITE, name, role, expires_at)
    invite = WebInvite(hash=_hash(code), name=name, role=role, who=who, at=now, expires_at=expires_at)
    book.add_invite(invite)
    return f"{LOGIN_PATH}{code}", invite


@dataclass(slots=True, kw_only=True)
class LoginDesk:
    """The watchdog's side: opens and ends sessions, and says whether one was opened here. It alone has the key."""

    book: LoginStore
    key: LoginKey
    clock: Callable[[], datetime] = get_now

    def redeem(self, code: str) -> str:
        """Use the link of `code` up; return the secret of the new session. Raises NoAnswerError if the link is not valid."""
        now = self.clock()
        invite = self.book.find_invite(_hash(code), now)
        if not self.key.has_issued(INVITE, code, invite.name, invite.role, invite.expires_at):
            raise NoAnswerError(
                "was not made with this watchdog's login key, but by another user, on another machine or by an earlier version",
                field="this login link",
                hint=f"{LINK_HINT}, on the watchdog's machine",
            )
        secret = self.key.make_secret(SESSION, invite.name, invite.role, now + SESSION_VALID_FOR)
        self.book.redeem(_hash(code), _hash(secret), now, now + SESSION_VALID_FOR)
        return secret

    def open_session(self, name: str, role: str, issuer: str) -> str:
        """Open a session that the identity provider `issuer` vouches for; return its secret."""
        now = self.clock()
        expires_at, invite = now + SESSION_VALID_FOR, f"oidc {issuer}"
        secret = self.key.make_secret(SESSION, name, role, expires_at)
        self.book.open_session(
            WebSession(hash=_hash(secret), name=name, role=role, invite=invite, at=now, expires_at=expires_at)
        )
        return secret

    def find_session(self, secret: str) -> WebSession | None:
        """Return the valid session of `secret`; None if there is none. Raises NoAnswerError if it was not opened here."""
        now, session = self.clock(), self.book.load_session(_hash(secret))
        if session is None or not is_session_valid(session, now, now):
            return None
        if not self.key.has_issued(SESSION, secret, session.name, session.role, session.expires_at):
            raise NoAnswerError(
                "was not opened by this watchdog, but by an earlier version or with another login key",
                field="your session",
                hint="log out and log in again: costguard web invite NAME makes a login link",
            )
        return session

    def end(self, secret: str) -> None:
        """End a session that its holder leaves."""
        session = self.book.load_session(_hash(secret))
        if session is not None:
            self.book.revoke_sessions(who=session.name, now=self.clock(), session_hash=session.hash)


@dataclass(slots=True)
class SessionDesk:
    """The server's side: finds links and sessions, and writes nothing.

    The time of the last request is kept in memory: after a restart of the process the login counts as it.
    """

    book: LoginStore
    clock: Callable[[], datetime] = get_now
    _seen: OrderedDict[str, datetime] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def find_invite(self, code: str) -> WebInvite:
        """Return the link of `code`, and change nothing. Raises NoAnswerError if it is not valid."""
        return self.book.find_invite(_hash(code), self.clock())

    def find_session(self, secret: str) -> WebSession | None:
        """Return the valid session of `secret`, and note the request; None if there is none."""
        now, hashed = self.clock(), _hash(secret)
        session = self.book.load_session(hashed) if secret else None
        if session is None or not is_session_valid(session, self._seen.get(hashed, session.at), now):
            return None
        self._note(hashed, now)
        return session

    def is_open(self, session: WebSession) -> bool:
        """Return whether `session` is still valid, without noting a request."""
        current = self.book.load_session(session.hash)
        return current is not None and is_session_valid(current, self._seen.get(session.hash, current.at), self.clock())

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
