"""The tables of agents and logins: agents and their enrollment codes, tokens of readers, links and sessions of the pages.

None of them holds a secret: of codes, tokens, links and sessions they store hashes, of agents the public key.
"""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, Index, Table, Text, text

from costguard.ledger.db.columns import (
    METADATA,
    RESOURCE_KEY,
    STRICT,
    make_instant_columns,
    make_number_columns,
    make_text_columns,
)
from costguard.values.web_login import ROLES

STILL_JOINED = text("revoked_us IS NULL")
_ROLES = "'viewer', 'operator'"  # a ledger may hold the second of an early version, which lets one do no more


AGENT = Table(
    "agent",
    METADATA,
    Column("id", Text, primary_key=True),
    *make_text_columns(*RESOURCE_KEY, "life", "public_key"),
    *make_number_columns("joined_us", "seq", "record_ms"),
    *make_instant_columns("beat_us"),
    *make_text_columns("version", "troubles"),
    *make_instant_columns("revoked_us"),
    Column("revoked_by", Text),
    CheckConstraint("(revoked_us IS NULL) = (revoked_by IS NULL)", name="agent_revoked_whole"),
    CheckConstraint("seq >= 0", name="agent_counts"),
    Index("agent_once", *RESOURCE_KEY, unique=True, sqlite_where=STILL_JOINED, postgresql_where=STILL_JOINED),
    **STRICT,
)
"""An agent that joined. `life` '': of its resource through all lives; else as in `lives`. `troubles`: a JSON list of texts.

`record_ms`: the end of the last record that counted, by the agent's clock.
"""

AGENT_CODE = Table(
    "agent_code",
    METADATA,
    Column("hash", Text, primary_key=True),
    *make_text_columns(*RESOURCE_KEY, "life", "who"),
    *make_number_columns("at_us", "expires_us"),
    *make_instant_columns("used_us"),
    Column("used_by", Text),
    CheckConstraint("(used_us IS NULL) = (used_by IS NULL)", name="agent_code_used_whole"),
    **STRICT,
)
"""A one-time code by its SHA-256. `used_by`: the id of the agent that joined with it."""

WEB_TOKEN = Table(
    "web_token",
    METADATA,
    Column("hash", Text, primary_key=True),
    *make_text_columns("name", "role", "who"),
    *make_number_columns("made_us", "expires_us"),
    *make_instant_columns("revoked_us"),
    Column("revoked_by", Text),
    CheckConstraint(f"role IN ({_ROLES})", name="web_token_role"),
    CheckConstraint("(revoked_us IS NULL) = (revoked_by IS NULL)", name="web_token_revoked_whole"),
    Index("web_token_once", "name", unique=True, sqlite_where=STILL_JOINED, postgresql_where=STILL_JOINED),
    **STRICT,
)
"""Somebody who may ask over HTTP, by the SHA-256 of a token that was shown once."""

_PAGE_ROLES = ", ".join(f"'{role}'" for role in ROLES)

WEB_INVITE = Table(
    "web_invite",
    METADATA,
    Column("hash", Text, primary_key=True),
    *make_text_columns("name", "role", "who"),
    *make_number_columns("made_us", "expires_us"),
    *make_instant_columns("used_us"),
    CheckConstraint(f"role IN ({_PAGE_ROLES})", name="web_invite_role"),
    **STRICT,
)
"""A link that logs somebody into the pages once, by the SHA-256 of its code."""

WEB_SESSION = Table(
    "web_session",
    METADATA,
    Column("hash", Text, primary_key=True),
    *make_text_columns("name", "role", "invite"),
    *make_number_columns("made_us", "expires_us"),
    *make_instant_columns("revoked_us"),
    Column("revoked_by", Text),
    CheckConstraint(f"role IN ({_PAGE_ROLES})", name="web_session_role"),
    CheckConstraint("(revoked_us IS NULL) = (revoked_by IS NULL)", name="web_session_revoked_whole"),
    **STRICT,
)
"""A login to the pages, by the SHA-256 of its cookie. `invite`: the hash of its link, or "oidc ISSUER"."""
