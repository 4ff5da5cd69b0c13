"""Store logins to the pages: one-time links and sessions. Each change is one transaction and one entry of the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import func, or_, update
from sqlmodel import col, select

from costguard.errors import NoAnswerError
from costguard.guard.audit import TOKEN
from costguard.ledger.db.codecs import Execute, Query
from costguard.ledger.db.rows import insert_rows
from costguard.ledger.db.session import read_by
from costguard.ledger.db.store import LedgerStore
from costguard.ledger.guard.audit_log import append_entry
from costguard.ledger.tables.logins import WebInviteRow, WebSessionRow
from costguard.values.instant import from_micros, to_micros
from costguard.values.resource import make_storable
from costguard.values.web_login import OIDC_NAME, WebInvite, WebSession

LINK_HINT = "costguard web invite NAME makes a new one"


def _find_invite(ask: Query, invite_hash: str, now: datetime) -> WebInvite:
    """Return the link of this hash. Raises NoAnswerError if it does not exist, was used, or has expired."""
    rows: Sequence[WebInviteRow] = ask(select(WebInviteRow).where(col(WebInviteRow.hash) == invite_hash))
    if not rows:
        raise NoAnswerError("is not known", field="this login link", hint=LINK_HINT)
    row = rows[0]
    if row.used_us is not None:
        raise NoAnswerError("was used already", field="this login link", hint=LINK_HINT)
    if to_micros(now) >= row.expires_us:
        raise NoAnswerError("has expired", field="this login link", hint=LINK_HINT)
    at, ends = from_micros(row.made_us), from_micros(row.expires_us)
    return WebInvite(hash=row.hash, name=row.name, role=row.role, who=row.who, at=at, expires_at=ends)


class LoginStore(LedgerStore):
    """The logins of the ledger at `url`. Close it, or use it in a `with` statement; several threads may use it."""

    def add_invite(self, invite: WebInvite) -> None:
        """Record a new one-time link."""
        at_us = to_micros(invite.at)
        row = WebInviteRow(
            hash=invite.hash,
            name=invite.name,
            role=invite.role,
            who=make_storable(invite.who),
            made_us=at_us,
            expires_us=to_micros(invite.expires_at),
        )
        with self._begin_write() as (ask, tell):
            insert_rows(tell, [row])
            _log(ask, tell, at_us, name=invite.name, role=invite.role, did="invited", who=invite.who)

    find_invite = read_by(_find_invite)

    def redeem(self, invite_hash: str, session_hash: str, now: datetime, expires_at: datetime) -> WebSession:
        """Use a link up and record the session that it opens. Raises NoAnswerError as `find_invite`.

        It is looked up before the writer's lock is taken: whoever guesses links must not hold up who writes.
        """
        self.find_invite(invite_hash, now)
        at_us = to_micros(now)
        with self._begin_write() as (ask, tell):
            invite = _find_invite(ask, invite_hash, now)
            tell(update(WebInviteRow).where(col(WebInviteRow.hash) == invite_hash).values(used_us=at_us))
            session = WebSession(
                hash=session_hash, name=invite.name, role=invite.role, invite=invite_hash, at=now, expires_at=expires_at
            )
            insert_rows(tell, [_encode_session(session)])
            _log(ask, tell, at_us, name=invite.name, role=invite.role, did="logged in", who=invite.name)
        return session

    def open_session(self, session: WebSession) -> None:
        """Record a session that an identity provider vouches for: `session.invite` says which."""
        at_us = to_micros(session.at)
        with self._begin_write() as (ask, tell):
            insert_rows(tell, [_encode_session(session)])
            _log(
                ask,
                tell,
                at_us,
                name=session.name,
                role=session.role,
                did="logged in",
                who=f"{session.name} by {session.invite}",
            )

    def load_session(self, session_hash: str) -> WebSession | None:
        """Return the session of this hash, valid or not; None if there is none."""
        with self._begin_read() as ask:
            rows = ask(select(WebSessionRow).where(col(WebSessionRow.hash) == session_hash))
        return _decode_session(rows[0]) if rows else None

    def revoke_sessions(self, *, who: str, now: datetime, session_hash: str = "", name: str = "") -> int:
        """End the session of a hash, or every session and every unused link of `name`; return how many ended.

        `name`: of a link, or "oidc:SUBJECT" of who logged in at an identity provider, whatever is shown beside it.
        """
        at_us = to_micros(now)
        whose = or_(col(WebSessionRow.hash) == session_hash, col(WebSessionRow.name) == name)
        if name.startswith(OIDC_NAME):
            whose = or_(whose, func.substr(WebSessionRow.name, 1, len(name) + 1) == f"{name} ")  # LIKE would ignore case
        with self._begin_write() as (ask, tell):
            rows = ask(select(WebSessionRow).where(col(WebSessionRow.revoked_us).is_(None), whose))
            links = ask(select(WebInviteRow).where(col(WebInviteRow.used_us).is_(None), col(WebInviteRow.name) == name))
            if rows:
                ended = update(WebSessionRow).where(col(WebSessionRow.hash).in_([one.hash for one in rows]))
                tell(ended.values(revoked_us=at_us, revoked_by=make_storable(who)))
            if links:
                tell(update(WebInviteRow).where(col(WebInviteRow.hash).in_([one.hash for one in links])).values(used_us=at_us))
            for one in rows:
                _log(ask, tell, at_us, name=one.name, role=one.role, did="logged out", who=who)
            for one in links:
                _log(ask, tell, at_us, name=one.name, role=one.role, did="withdrew", who=who)
        return len(rows) + len(links)


def _encode_session(session: WebSession) -> WebSessionRow:
    return WebSessionRow(
        hash=session.hash,
        name=session.name,
        role=session.role,
        invite=session.invite,
        made_us=to_micros(session.at),
        expires_us=to_micros(session.expires_at),
    )


def _decode_session(row: WebSessionRow) -> WebSession:
    return WebSession(
        hash=row.hash,
        name=row.name,
        role=row.role,
        invite=row.invite,
        at=from_micros(row.made_us),
        expires_at=from_micros(row.expires_us),
        revoked_at=None if row.revoked_us is None else from_micros(row.revoked_us),
    )


def _log(ask: Query, tell: Execute, at_us: int, *, name: str, role: str, did: str, who: str) -> None:
    append_entry(ask, tell, TOKEN, at_us, {"name": name, "role": role, "did": did, "who": make_storable(who)})
