"""The tables of what speaks to the watchdog over HTTP: agents, the codes they joined with, and tokens of readers.

None of them holds a secret: of codes and tokens it is hashes, of agents the public half of their key. What may be changed of
them, `guards` says.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import CheckConstraint, Column, Index, Table, Text, text

from costguard.ledger.db.tables import BIG, STRICT, Row

KEY = ("provider", "account", "region", "external_id")
STILL_JOINED = text("revoked_us IS NULL")
_ROLES = "'viewer', 'operator'"  # a ledger may hold the second of an early version, which lets one do no more


def _numbers(*names: str) -> list[Column[Any]]:
    return [Column(name, BIG, nullable=False) for name in names]


def _instants(*names: str) -> list[Column[Any]]:
    """Those that may be missing."""
    return [Column(name, BIG) for name in names]


def _texts(*names: str) -> list[Column[Any]]:
    return [Column(name, Text, nullable=False) for name in names]


AGENT = Table(
    "agent",
    Row.metadata,
    Column("id", Text, primary_key=True),
    *_texts(*KEY, "life", "public_key"),
    *_numbers("joined_us", "seq", "record_ms"),
    *_instants("beat_us"),
    *_texts("version", "troubles"),
    *_instants("revoked_us"),
    Column("revoked_by", Text),
    CheckConstraint("(revoked_us IS NULL) = (revoked_by IS NULL)", name="agent_revoked_whole"),
    CheckConstraint("seq >= 0", name="agent_counts"),
    Index("agent_once", *KEY, unique=True, sqlite_where=STILL_JOINED, postgresql_where=STILL_JOINED),
    **STRICT,
)
"""An agent that joined. `life` '': of its resource through all lives; else as in `lives`. `troubles`: a JSON list of texts.

`record_ms`: the end of the last record that counted, by the agent's clock.
"""

AGENT_CODE = Table(
    "agent_code",
    Row.metadata,
    Column("hash", Text, primary_key=True),
    *_texts(*KEY, "life", "who"),
    *_numbers("at_us", "expires_us"),
    *_instants("used_us"),
    Column("used_by", Text),
    CheckConstraint("(used_us IS NULL) = (used_by IS NULL)", name="agent_code_used_whole"),
    **STRICT,
)
"""A one-time code by its SHA-256. `used_by`: the id of the agent that joined with it."""

WEB_TOKEN = Table(
    "web_token",
    Row.metadata,
    Column("hash", Text, primary_key=True),
    *_texts("name", "role", "who"),
    *_numbers("made_us", "expires_us"),
    *_instants("revoked_us"),
    Column("revoked_by", Text),
    CheckConstraint(f"role IN ({_ROLES})", name="web_token_role"),
    CheckConstraint("(revoked_us IS NULL) = (revoked_by IS NULL)", name="web_token_revoked_whole"),
    Index("web_token_once", "name", unique=True, sqlite_where=STILL_JOINED, postgresql_where=STILL_JOINED),
    **STRICT,
)
"""Somebody who may ask over HTTP, by the SHA-256 of a token that was shown once."""
