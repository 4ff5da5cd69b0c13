"""Agents and their codes in the ledger, within a write transaction or a snapshot.

A code can be used once: a second use is refused, unless it comes from the same agent (the same public key), whose answer was
lost. The number of a message is committed before the message is answered, and a number that does not increase changes nothing,
whichever watchdog receives it.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import case, insert, update
from sqlmodel import col, select

from costguard.agents.messages import BAD_CODE, EXPIRED_CODE, USED_CODE
from costguard.errors import InputError
from costguard.guard.audit import ENROLLED, JOINED, REFUSED, REVOKED
from costguard.ledger.db.codecs import (
    Execute,
    Query,
    decode_life,
    decode_list,
    decode_optional_instant,
    encode_life,
    encode_list,
)
from costguard.ledger.db.rows import insert_rows
from costguard.ledger.guard import audit_log
from costguard.ledger.guard.audit_log import append_entry
from costguard.ledger.tables.agents import AgentCodeRow, AgentRow
from costguard.values.agent import Agent, EnrollmentCode
from costguard.values.instant import from_micros, to_micros
from costguard.values.resource import Incarnation, ResourceKey, make_storable

REPLACED_BY = "another agent"
STILL_JOINED = col(AgentRow.revoked_us).is_(None)


class AgentMessage(NamedTuple):
    """The changes that one message makes to its agent.

    `record_ms`: as in `Agent`; an earlier value changes nothing.
    """

    agent: str
    seq: int
    at: datetime
    record_ms: int
    version: str
    troubles: tuple[str, ...]


def load_agents(ask: Query, *, every: bool = False) -> list[Agent]:
    """Return the agents that are not revoked, in order of joining.

    `every`: the revoked ones, too.
    """
    statement = select(AgentRow).order_by(col(AgentRow.joined_us), col(AgentRow.id))
    return list(map(_decode_agent, ask(statement if every else statement.where(STILL_JOINED))))


def load_agent(ask: Query, agent_id: str) -> Agent | None:
    """Return the agent of this id, revoked or not; None if there is none."""
    rows = ask(select(AgentRow).where(col(AgentRow.id) == agent_id))
    return _decode_agent(rows[0]) if rows else None


def add_code(ask: Query, tell: Execute, code: EnrollmentCode) -> None:
    """Write a new code, and audit it."""
    provider, account, region, external_id = code.key
    row = AgentCodeRow(
        hash=code.hash,
        provider=provider,
        account=account,
        region=region,
        external_id=external_id,
        life=_encode_life(code.life),
        who=make_storable(code.who),
        at_us=to_micros(code.at),
        expires_us=to_micros(code.expires_at),
    )
    insert_rows(tell, [row])
    body = {**_describe_place(code.key, code.life), "who": make_storable(code.who), "expires_us": to_micros(code.expires_at)}
    append_entry(ask, tell, ENROLLED, to_micros(code.at), body)


def load_code(ask: Query, code_hash: str) -> EnrollmentCode | None:
    """Return the code of this hash, used and expired ones too; None if there is none."""
    rows = ask(select(AgentCodeRow).where(col(AgentCodeRow.hash) == code_hash))
    return _decode_code(rows[0]) if rows else None


def join_agent(ask: Query, tell: Execute, code_hash: str, agent: Agent) -> Agent | str:
    """Add the agent `agent` by the code of this hash; return the agent, or the reason of the refusal.

    The agent gets the resource and incarnation of the code. Other agents of that resource are revoked.
    """
    code, now = load_code(ask, code_hash), agent.joined_at
    if code is None:
        return BAD_CODE
    if now >= code.expires_at:
        return EXPIRED_CODE
    if code.used_at is not None:
        earlier_agent = load_agent(ask, code.used_by)
        same = earlier_agent is not None and earlier_agent.public_key == agent.public_key and earlier_agent.revoked_at is None
        return earlier_agent if earlier_agent is not None and same else USED_CODE
    provider, account, region, external_id = code.key
    others = select(AgentRow.id).where(
        STILL_JOINED,
        col(AgentRow.provider) == provider,
        col(AgentRow.account) == account,
        col(AgentRow.region) == region,
        col(AgentRow.external_id) == external_id,
    )
    for other in ask(others):
        revoke_agent(ask, tell, other, who=REPLACED_BY, now=now)
    row = AgentRow(
        id=agent.id,
        provider=provider,
        account=account,
        region=region,
        external_id=external_id,
        life=_encode_life(code.life),
        public_key=agent.public_key,
        joined_us=to_micros(now),
        seq=0,
        record_ms=0,
        version=make_storable(agent.version),
        troubles="[]",
    )
    tell(insert(AgentRow), [row.model_dump()])
    tell(update(AgentCodeRow).where(col(AgentCodeRow.hash) == code_hash).values(used_us=to_micros(now), used_by=agent.id))
    audit_log.audit_row(ask, tell, ("agent", agent.id), JOINED, to_micros(now))
    return load_agent(ask, agent.id) or BAD_CODE


def record_message(tell: Execute, message: AgentMessage) -> bool:
    """Record a message; return False and change nothing if its number does not increase or its agent is revoked."""
    newer = case((col(AgentRow.record_ms) > message.record_ms, col(AgentRow.record_ms)), else_=message.record_ms)
    statement = (
        update(AgentRow)
        .where(col(AgentRow.id) == message.agent, col(AgentRow.seq) < message.seq, STILL_JOINED)
        .values(
            seq=message.seq,
            record_ms=newer,
            beat_us=to_micros(message.at),
            version=make_storable(message.version),
            troubles=encode_list([make_storable(one) for one in message.troubles]),
        )
    )
    return tell(statement) == 1


def revoke_agent(ask: Query, tell: Execute, agent_id: str, *, who: str, now: datetime) -> Agent:
    """Revoke an agent, and return it.

    A revoked one stays as it is. Raises InputError if there is none.
    """
    agent = load_agent(ask, agent_id)
    if agent is None:
        raise InputError("is not an agent of this ledger", field=f"agent {agent_id}", hint="costguard agent list shows them")
    if agent.revoked_at is not None:
        return agent
    end = {"revoked_us": to_micros(now), "revoked_by": make_storable(who)}
    tell(update(AgentRow).where(col(AgentRow.id) == agent_id).values(end))
    audit_log.audit_row(ask, tell, ("agent", agent_id), REVOKED, to_micros(now))
    return load_agent(ask, agent_id) or agent


def audit_refused_messages(ask: Query, tell: Execute, agent: Agent, count: int, now: datetime) -> None:
    """Write to the audit log that `count` messages in the name of `agent` had an invalid signature."""
    append_entry(ask, tell, REFUSED, to_micros(now), {**_describe_place(agent.key, agent.life), "id": agent.id, "count": count})


def _describe_place(key: ResourceKey, life: Incarnation | None) -> dict[str, object]:
    """Return the resource and incarnation in the form that the audit log stores."""
    return {
        "provider": key.provider,
        "account": key.account,
        "region": key.region,
        "resource": key.id,
        "life": _encode_life(life),
    }


def _encode_life(life: Incarnation | None) -> str:
    return "" if life is None else encode_life(life)


def _decode_agent(row: AgentRow) -> Agent:
    key = ResourceKey(row.provider, row.account, row.region, row.external_id)
    return Agent(
        id=row.id,
        key=key,
        life=decode_life((*key, row.life)) if row.life else None,
        public_key=row.public_key,
        joined_at=from_micros(row.joined_us),
        seq=row.seq,
        record_ms=row.record_ms,
        beat_at=decode_optional_instant(row.beat_us),
        version=row.version,
        troubles=decode_list(row.troubles),
        revoked_at=decode_optional_instant(row.revoked_us),
        revoked_by=row.revoked_by or "",
    )


def _decode_code(row: AgentCodeRow) -> EnrollmentCode:
    key = ResourceKey(row.provider, row.account, row.region, row.external_id)
    return EnrollmentCode(
        hash=row.hash,
        key=key,
        life=decode_life((*key, row.life)) if row.life else None,
        who=row.who,
        at=from_micros(row.at_us),
        expires_at=from_micros(row.expires_us),
        used_at=decode_optional_instant(row.used_us),
        used_by=row.used_by or "",
    )
