"""Logins to the pages: one-time links, identity providers, and the sessions that they open.

Example: `costguard web invite ada --role operator` makes a link that is valid for a day. Whoever opens it and clicks is ada for
twelve hours, or until an hour without a request has passed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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
    """A login of `name`, of whose cookie only the hash is stored.

    `invite`: the hash of its link; "oidc ISSUER" of a login at an identity provider.
    """

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


OIDC_NAME = "oidc:"
"""How the name of a person begins who logged in at an identity provider: no name of a link has a colon."""
SUBJECT_PATTERN = re.compile(r"[!-~]{1,255}", re.ASCII)
"""OpenID Connect Core 1.0, 2: `sub` has at most 255 ASCII characters; a blank in it would end the name here."""
SHOWN_CHARS_MAX = 80
CLAIM_VALUES_MAX = 2_000
"""Values of the claim for roles that are looked at: nobody is in more groups, and each is compared."""


def choose_role(claims: Mapping[str, object], claim: str, roles: Mapping[str, tuple[str, ...]]) -> str | None:
    """Return the highest role that the values of `claim` give, None if they give none.

    `claim`: its name, or a path into objects ("realm_access.roles"). `roles`: role -> the values that give it.

    >>> choose_role({"groups": ["ml", "leads"]}, "groups", {"viewer": ("ml",), "operator": ("leads",), "admin": ()})
    'operator'
    """
    values = _list_claim_values(claims, claim)
    return next((role for role in reversed(ROLES) if values & set(roles.get(role, ()))), None)


def name_person(claims: Mapping[str, object]) -> str | None:
    """Return the name of who logged in, as sessions and the audit log have it; None if `sub` cannot be one.

    `sub` alone identifies: it is stable and nobody can choose it. An e-mail address follows it where the provider verified it,
    else a name that does not look like an address; both are only shown.

    >>> name_person({"sub": "2481", "email": "ada@example.org", "email_verified": True})
    'oidc:2481 ada@example.org'
    """
    sub = claims.get("sub")
    if not isinstance(sub, str) or not SUBJECT_PATTERN.fullmatch(sub):
        return None
    shown = next((text for text in _list_shown_names(claims) if text), "")
    return f"{OIDC_NAME}{sub} {shown}".rstrip()


def get_shown_name(name: str) -> str:
    """Return what a page calls a person: of a login at an identity provider what follows its subject, if anything does."""
    return (name.partition(" ")[2] or name) if name.startswith(OIDC_NAME) else name


def _list_claim_values(claims: Mapping[str, object], claim: str) -> set[str]:
    value: object = claims.get(claim)
    if value is None and "." in claim:
        value = claims
        for part in claim.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    every = value[:CLAIM_VALUES_MAX] if isinstance(value, list) else [value]
    return {one for one in every if isinstance(one, str)}


def _list_shown_names(claims: Mapping[str, object]) -> list[str]:
    email = claims.get("email") if claims.get("email_verified") is True else ""
    names = [claims.get("preferred_username"), claims.get("name")]
    texts = [email, *(one for one in names if isinstance(one, str) and "@" not in one)]
    return [" ".join(one.split())[:SHOWN_CHARS_MAX] for one in texts if isinstance(one, str) and one.isprintable()]
