"""Agents and their enrollment codes. No row holds a secret: of a code its hash, of an agent its public key."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, text

from costguard.ledger.types import (
    RESOURCE_KEY,
    KeyWords,
    LaterNumber,
    LaterOptionalNumber,
    LaterOptionalWords,
    LaterWords,
    LedgerRow,
    Number,
    Words,
    declare_table,
    index_where,
)

STILL_JOINED = text("revoked_us IS NULL")


class AgentRow(LedgerRow, table=True):
    """An agent that joined. `life` '': of its resource through all lives; else as in `lives`. `troubles`: a JSON list of texts.

    `record_ms`: the end of the last record that counted, by the agent's clock.
    """

    __tablename__ = "agent"
    __table_args__ = (
        CheckConstraint("(revoked_us IS NULL) = (revoked_by IS NULL)", name="agent_revoked_whole"),
        CheckConstraint("seq >= 0", name="agent_counts"),
        index_where("agent_once", *RESOURCE_KEY, unique=True, where=STILL_JOINED),
        declare_table(keeps_rows=True, written_once=True),
    )

    id: KeyWords
    provider: Words
    account: Words
    region: Words
    external_id: Words
    life: Words
    public_key: Words
    joined_us: Number
    seq: LaterNumber
    record_ms: LaterNumber
    beat_us: LaterOptionalNumber = None
    version: LaterWords
    troubles: LaterWords
    revoked_us: LaterOptionalNumber = None
    revoked_by: LaterOptionalWords = None


class AgentCodeRow(LedgerRow, table=True):
    """A one-time code by its SHA-256. `used_by`: the id of the agent that joined with it."""

    __tablename__ = "agent_code"
    __table_args__ = (
        CheckConstraint("(used_us IS NULL) = (used_by IS NULL)", name="agent_code_used_whole"),
        declare_table(keeps_rows=True, written_once=True),
    )

    hash: KeyWords
    provider: Words
    account: Words
    region: Words
    external_id: Words
    life: Words
    who: Words
    at_us: Number
    expires_us: Number
    used_us: LaterOptionalNumber = None
    used_by: LaterOptionalWords = None
