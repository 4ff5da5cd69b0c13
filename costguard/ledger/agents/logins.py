"""Store logins to the pages: one-time links and sessions. Each change is one transaction and one entry of the audit log."""

from __future__ import annotations

from datetime import datetime

from costguard.errors import NoAnswerError
from costguard.guard.audit import TOKEN
from costguard.ledger.db.codecs import Execute, Query, SqlRow
from costguard.ledger.db.row_digests import RowRecorder
from costguard.ledger.db.store import LedgerStore
from costguard.ledger.guard.audit_log import append_entry
from costguard.values.instant import from_micros, to_micros
from costguard.values.resource import make_storable
from costguard.values.web_login import OIDC_NAME, WebInvite, WebSession

INVITE_COLUMNS = "hash, name, role, who, made_us, expires_us"
SESSION_COLUMNS = "hash, name, role, invite, made_us, expires_us"
LINK_HINT = "costguard web invite NAME makes a new one"


class LoginStore(LedgerStore):
    """The logins of the ledger at `url`. Close it, or use it in a `with` statement; several threads may use it."""

    def add_invite(self, invite: WebInvite) -> None:
        """Record a new one-time link."""
        at_us = to_micros(invite.at)
        row = (invite.hash, invite.name, invite.role, make_storable(invite.who), at_us, to_micros(invite.expires_at))
        with self._begin_write() as (ask, tell):
            _insert(ask, tell, "web_invite", INVITE_COLUMNS, row, at_us=at_us)
            _log(ask, tell, at_us, name=invite.name, role=invite.role, did="invited", who=invite.who)

    def find_invite(self, invite_hash: str, now: datetime) -> WebInvite:
        """Return the link of this hash. Raises NoAnswerError if it does not exist, was used, or has expired."""
        with self._begin_read() as ask:
            return _find_invite(ask, invite_hash, now)

    def redeem(self, invite_hash: str, session_hash: str, now: datetime, expires_at: datetime) -> WebSession:
        """Use a link up and record the session that it opens. Raises NoAnswerError as `find_invite`.

        It is looked up before the writer's lock is taken: whoever guesses links must not hold up who writes.
        """
        self.find_invite(invite_hash, now)
        at_us = to_micros(now)
        with self._begin_write() as (ask, tell):
            invite = _find_invite(ask, invite_hash, now)
            recorder, used = RowRecorder(), (at_us, invite_hash)
            tell("UPDATE web_invite SET used_us = ? WHERE hash = ?", [used])
            recorder.change("web_invite", "used_us, hash", [used])
            recorder.append(ask, tell, at_us)
            row = (session_hash, invite.name, invite.role, invite_hash, at_us, to_micros(expires_at))
            _insert(ask, tell, "web_session", SESSION_COLUMNS, row, at_us=at_us)
            _log(ask, tell, at_us, name=invite.name, role=invite.role, did="logged in", who=invite.name)
        return WebSession(
            hash=session_hash, name=invite.name, role=invite.role, invite=invite_hash, at=now, expires_at=expires_at
        )

    def open_session(self, session: WebSession) -> None:
        """Record a session that an identity provider vouches for: `session.invite` says which."""
        at_us = to_micros(session.at)
        row = (session.hash, session.name, session.role, session.invite, at_us, to_micros(session.expires_at))
        with self._begin_write() as (ask, tell):
            _insert(ask, tell, "web_session", SESSION_COLUMNS, row, at_us=at_us)
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
            rows = ask(f"SELECT {SESSION_COLUMNS}, revoked_us FROM web_session WHERE hash = ?", (session_hash,))  # noqa: S608 - our own names
        return _decode_session(rows[0]) if rows else None

    def revoke_sessions(self, *, who: str, now: datetime, session_hash: str = "", name: str = "") -> int:
        """End the session of a hash, or every session and every unused link of `name`; return how many ended.

        `name`: of a link, or "oidc:SUBJECT" of who logged in at an identity provider, whatever is shown beside it.
        """
        at_us, subject = to_micros(now), f"{name} " if name.startswith(OIDC_NAME) else ""
        with self._begin_write() as (ask, tell):
            found = ask(
                "SELECT hash, name, role FROM web_session WHERE revoked_us IS NULL AND (hash = ? OR name = ? "
                "OR (? <> '' AND substr(name, 1, ?) = ?))",
                (session_hash, name, subject, len(subject), subject),
            )
            links = ask("SELECT hash, name, role FROM web_invite WHERE used_us IS NULL AND name = ?", (name,))
            recorder = RowRecorder()
            if found:
                rows = [(at_us, make_storable(who), one[0]) for one in found]
                tell("UPDATE web_session SET revoked_us = ?, revoked_by = ? WHERE hash = ?", rows)
                recorder.change("web_session", "revoked_us, revoked_by, hash", rows)
            if links:
                used = [(at_us, one[0]) for one in links]
                tell("UPDATE web_invite SET used_us = ? WHERE hash = ?", used)
                recorder.change("web_invite", "used_us, hash", used)
            if found or links:
                recorder.append(ask, tell, at_us)
            for _, of, role in found:
                _log(ask, tell, at_us, name=of, role=role, did="logged out", who=who)
            for _, of, role in links:
                _log(ask, tell, at_us, name=of, role=role, did="withdrew", who=who)
        return len(found) + len(links)


def _find_invite(ask: Query, invite_hash: str, now: datetime) -> WebInvite:
    rows = ask(f"SELECT {INVITE_COLUMNS}, used_us FROM web_invite WHERE hash = ?", (invite_hash,))  # noqa: S608 - our own names
    if not rows:
        raise NoAnswerError("is not known", field="this login link", hint=LINK_HINT)
    hash_, name, role, who, made_us, expires_us, used_us = rows[0]
    if used_us is not None:
        raise NoAnswerError("was used already", field="this login link", hint=LINK_HINT)
    if to_micros(now) >= expires_us:
        raise NoAnswerError("has expired", field="this login link", hint=LINK_HINT)
    at, ends = from_micros(made_us), from_micros(expires_us)
    return WebInvite(hash=hash_, name=name, role=role, who=who, at=at, expires_at=ends)


def _decode_session(row: SqlRow) -> WebSession:
    hash_, name, role, invite, made_us, expires_us, revoked_us = row
    return WebSession(
        hash=hash_,
        name=name,
        role=role,
        invite=invite,
        at=from_micros(made_us),
        expires_at=from_micros(expires_us),
        revoked_at=None if revoked_us is None else from_micros(revoked_us),
    )


def _insert(ask: Query, tell: Execute, table: str, columns: str, row: SqlRow, *, at_us: int) -> None:
    recorder = RowRecorder()
    tell(f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(row))})", [row])  # noqa: S608 - our own names
    recorder.add(table, columns, [row])
    recorder.append(ask, tell, at_us)


def _log(ask: Query, tell: Execute, at_us: int, *, name: str, role: str, did: str, who: str) -> None:
    append_entry(ask, tell, TOKEN, at_us, {"name": name, "role": role, "did": did, "who": make_storable(who)})
