"""Logins to the pages: one-time links and the sessions that they open.

Example: `costguard web invite ada --role operator` makes a link that is valid for a day. Whoever opens it and clicks is ada for
twelve hours, or until an hour without a request has passed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from costguard.values.agent import OPERATOR, VIEWER

ADMIN = "admin"
ROLES = (VIEWER, OPERATOR, ADMIN)
"""Each role may do what those before it may: see; keep, protect, snooze and approve; arm and stop."""
INVITE_VALID_FOR = timedelta(hours=24)
SESSION_VALID_FOR, SESSION_IDLE_FOR = timedelta(hours=12), timedelta(hours=1)
"""A session ends so long after its login, or so long after its last request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebInvite:
    """A one-time link, of which only the hash is stored. `who`: who made it. `used_at`: None: not used yet."""

    hash: str
    name: str
    role: str
    who: str
    at: datetime
    expires_at: datetime
    used_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSession:
    """A login of `name`, of whose cookie only the hash is stored. `invite`: the hash of its link."""

    hash: str
    name: str
    role: str
    invite: str
    at: datetime
    expires_at: datetime
    revoked_at: datetime | None = None


def is_session_valid(session: WebSession, seen_at: datetime, now: datetime) -> bool:
    """Return whether `session` grants access at `now`. `seen_at`: its last request, or its login."""
    return session.revoked_at is None and session.at <= now < session.expires_at and now - seen_at < SESSION_IDLE_FOR


def has_role(role: str, needed: str) -> bool:
    """Return whether `role` may do what `needed` may; False for a role that does not exist."""
    return role in ROLES and ROLES.index(role) >= ROLES.index(needed)
