"""Tokens of readers, links and sessions of the pages, each by its hash."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, text

from costguard.ledger.types import (
    KeyWords,
    LaterOptionalNumber,
    LaterOptionalWords,
    LedgerRow,
    Number,
    Words,
    declare_table,
    index_where,
)
from costguard.values.web_login import ROLES

NOT_REVOKED = text("revoked_us IS NULL")
_ROLES = "'viewer', 'operator'"  # a ledger may hold the second of an early version, which lets one do no more
_PAGE_ROLES = ", ".join(f"'{role}'" for role in ROLES)


class WebTokenRow(LedgerRow, table=True):
    """Somebody who may ask over HTTP, by the SHA-256 of a token that was shown once."""

    __tablename__ = "web_token"
    __table_args__ = (
        CheckConstraint(f"role IN ({_ROLES})", name="web_token_role"),
        CheckConstraint("(revoked_us IS NULL) = (revoked_by IS NULL)", name="web_token_revoked_whole"),
        index_where("web_token_once", "name", unique=True, where=NOT_REVOKED),
        declare_table(keeps_rows=True, written_once=True),
    )

    hash: KeyWords
    name: Words
    role: Words
    who: Words
    made_us: Number
    expires_us: Number
    revoked_us: LaterOptionalNumber = None
    revoked_by: LaterOptionalWords = None


class WebInviteRow(LedgerRow, table=True):
    """A link that logs somebody into the pages once, by the SHA-256 of its code."""

    __tablename__ = "web_invite"
    __table_args__ = (
        CheckConstraint(f"role IN ({_PAGE_ROLES})", name="web_invite_role"),
        declare_table(keeps_rows=True, written_once=True),
    )

    hash: KeyWords
    name: Words
    role: Words
    who: Words
    made_us: Number
    expires_us: Number
    used_us: LaterOptionalNumber = None


class WebSessionRow(LedgerRow, table=True):
    """A login to the pages, by the SHA-256 of its cookie. `invite`: the hash of its link, or "oidc ISSUER"."""

    __tablename__ = "web_session"
    __table_args__ = (
        CheckConstraint(f"role IN ({_PAGE_ROLES})", name="web_session_role"),
        CheckConstraint("(revoked_us IS NULL) = (revoked_by IS NULL)", name="web_session_revoked_whole"),
        declare_table(keeps_rows=True, written_once=True),
    )

    hash: KeyWords
    name: Words
    role: Words
    invite: Words
    made_us: Number
    expires_us: Number
    revoked_us: LaterOptionalNumber = None
    revoked_by: LaterOptionalWords = None
