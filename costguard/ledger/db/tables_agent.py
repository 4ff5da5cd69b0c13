"""The tables of what speaks to the watchdog over HTTP: agents, the codes they joined with, and tokens of readers.

None of them holds a secret: of codes and tokens it is hashes, of agents the public half of their key. What may be changed of
them, `guards` says.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import CheckConstraint, Column, Index, Table, Text, text

from costguard.ledger.db.tables import BIG_INTEGER, STRICT, LedgerTable

RESOURCE_KEY = ("provider", "account", "region", "external_id")
STILL_JOINED = text("revoked_us IS NULL")
_ROLES = "'viewer', 'operator'"  # a ledger may hold the second of an early version, which lets one do no more


def _make_number_columns(*names: str) -> list[Column[Any]]:
    return [Column(name, BIG_INTEGER, nullable=False) for name in names]


def _make_instant_columns(*names: str) -> list[Column[Any]]:
    """Those that may be missing."""
    return [Column(name, BIG_INTEGER) for name in names]


def _make_text_columns(*names: str) -> list[Column[Any]]:
    return [Column(name, Text, nullable=False) for name in names]


AGENT = Table(
    "agent",
    LedgerTable.metadata,
    Column("id", Text, primary_key=True),
    *_make_text_columns(*RESOURCE_KEY, "life", "public_key"),
    *_make_number_columns("joined_us", "seq", "record_ms"),
    *_make_instant_columns("beat_us"),
    *_make_text_columns("version", "troubles"),
    *_make_instant_columns("revoked_us"),
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
    LedgerTable.metadata,
    Column("hash", Text, primary_key=True),
    *_make_text_columns(*RESOURCE_KEY, "life", "who"),
    *_make_number_columns("at_us", "expires_us"),
    *_make_instant_columns("used_us"),
    Column("used_by", Text),
    CheckConstraint("(used_us IS NULL) = (used_by IS NULL)", name="agent_code_used_whole"),
    **STRICT,
)
"""A one-time code by its SHA-256. `used_by`: the id of the agent that joined with it."""

WEB_TOKEN = Table(
    "web_token",
    LedgerTable.metadata,
    Column("hash", Text, primary_key=True),
    *_make_text_columns("name", "role", "who"),
    *_make_number_columns("made_us", "expires_us"),
    *_make_instant_columns("revoked_us"),
    Column("revoked_by", Text),
    CheckConstraint(f"role IN ({_ROLES})", name="web_token_role"),
    CheckConstraint("(revoked_us IS NULL) = (revoked_by IS NULL)", name="web_token_revoked_whole"),
    Index("web_token_once", "name", unique=True, sqlite_where=STILL_JOINED, postgresql_where=STILL_JOINED),
    **STRICT,
)
"""Somebody who may ask over HTTP, by the SHA-256 of a token that was shown once."""
