"""Agents, their codes, and readers' tokens in the ledger, within a write transaction or a snapshot.

A code can be used once: a second use is refused, unless it comes from the same agent (the same public key), whose answer was
lost. The number of a message is committed before the message is answered, and a number that does not increase changes nothing,
whichever watchdog receives it.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from costguard.agents.messages import BAD_CODE, EXPIRED_CODE, USED_CODE
from costguard.errors import InputError
from costguard.guard.audit import ENROLLED, JOINED, REFUSED, REVOKED, TOKEN
from costguard.ledger.db.codecs import (
    KEY_COLUMNS,
    Execute,
    Query,
    SqlRow,
    decode_life,
    decode_list,
    decode_optional_instant,
    encode_life,
    encode_list,
)
from costguard.ledger.db.row_digests import RowRecorder
from costguard.ledger.guard import audit_log
from costguard.ledger.guard.audit_log import append_entry
from costguard.values.agent import Agent, EnrollmentCode, WebToken
from costguard.values.instant import from_micros, to_micros
from costguard.values.resource import Incarnation, ResourceKey, make_storable

AGENT_COLUMNS = (
    f"id, {KEY_COLUMNS}, life, public_key, joined_us, seq, record_ms, beat_us, version, troubles, revoked_us, revoked_by"
)
CODE_COLUMNS = f"hash, {KEY_COLUMNS}, life, who, at_us, expires_us, used_us, used_by"
TOKEN_COLUMNS = "hash, name, role, who, made_us, expires_us, revoked_us"  # noqa: S105 - names of columns
REPLACED_BY = "another agent"


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
    where = "" if every else "WHERE revoked_us IS NULL "
    return [_decode_agent(row) for row in ask(f"SELECT {AGENT_COLUMNS} FROM agent {where}ORDER BY joined_us, id", ())]  # noqa: S608 - our own names


def load_agent(ask: Query, agent_id: str) -> Agent | None:
    """Return the agent of this id, revoked or not; None if there is none."""
    rows = ask(f"SELECT {AGENT_COLUMNS} FROM agent WHERE id = ?", (agent_id,))  # noqa: S608 - our own names
    return _decode_agent(rows[0]) if rows else None


def add_code(ask: Query, tell: Execute, code: EnrollmentCode) -> None:
    """Write a new code, and audit it."""
    row = (
        code.hash,
        *code.key,
        _encode_life(code.life),
        make_storable(code.who),
        to_micros(code.at),
        to_micros(code.expires_at),
    )
    columns, recorder = f"hash, {KEY_COLUMNS}, life, who, at_us, expires_us", RowRecorder()
    tell(f"INSERT INTO agent_code ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", [row])  # noqa: S608 - our own columns  # noqa: S608 - our own names
    body = {**_describe_place(code.key, code.life), "who": make_storable(code.who), "expires_us": to_micros(code.expires_at)}
    append_entry(ask, tell, ENROLLED, to_micros(code.at), body)
    recorder.add("agent_code", columns, [row])
    recorder.append(ask, tell, to_micros(code.at))


def load_code(ask: Query, code_hash: str) -> EnrollmentCode | None:
    """Return the code of this hash, used and expired ones too; None if there is none."""
    rows = ask(f"SELECT {CODE_COLUMNS} FROM agent_code WHERE hash = ?", (code_hash,))  # noqa: S608 - our own names
    return _decode_code(rows[0]) if rows else None


def join_agent(ask: Query, tell: Execute, code_hash: str, made: Agent) -> Agent | str:
    """Add the agent `made` by the code of this hash; return the agent, or the reason of the refusal.

    The agent gets the resource and incarnation of the code. Other agents of that resource are revoked.
    """
    code, now = load_code(ask, code_hash), made.joined_at
    if code is None:
        return BAD_CODE
    if now >= code.expires_at:
        return EXPIRED_CODE
    if code.used_at is not None:
        before = load_agent(ask, code.used_by)
        same = before is not None and before.public_key == made.public_key and before.revoked_at is None
        return before if before is not None and same else USED_CODE
    for (other,) in ask(f"SELECT id FROM agent WHERE revoked_us IS NULL AND {_WHERE_KEY}", tuple(code.key)):  # noqa: S608 - our own names
        revoke_agent(ask, tell, other, who=REPLACED_BY, now=now)
    row = (
        made.id,
        *code.key,
        _encode_life(code.life),
        made.public_key,
        to_micros(now),
        0,
        0,
        make_storable(made.version),
        "[]",
    )
    names = f"id, {KEY_COLUMNS}, life, public_key, joined_us, seq, record_ms, version, troubles"
    tell(f"INSERT INTO agent ({names}) VALUES ({', '.join('?' * len(row))})", [row])  # noqa: S608 - our own names
    used: SqlRow = (to_micros(now), made.id, code_hash)
    tell("UPDATE agent_code SET used_us = ?, used_by = ? WHERE hash = ?", [used])
    audit_log.audit_row(ask, tell, ("agent", made.id), JOINED, to_micros(now))
    recorder = RowRecorder()
    recorder.change("agent_code", "used_us, used_by, hash", [used])
    recorder.append(ask, tell, to_micros(now))
    return load_agent(ask, made.id) or BAD_CODE


def record_message(tell: Execute, taken: AgentMessage) -> bool:
    """Record a message; return False and change nothing if its number does not increase or its agent is revoked."""
    troubles = encode_list([make_storable(one) for one in taken.troubles])
    row = (taken.seq, taken.record_ms, taken.record_ms, to_micros(taken.at), make_storable(taken.version), troubles)
    return tell(_RECORD_MESSAGE, [(*row, taken.agent, taken.seq)]) == 1


def revoke_agent(ask: Query, tell: Execute, agent_id: str, *, who: str, now: datetime) -> Agent:
    """Revoke an agent, and return it.

    A revoked one stays as it is. Raises InputError if there is none.
    """
    found = load_agent(ask, agent_id)
    if found is None:
        raise InputError("is not an agent of this ledger", field=f"agent {agent_id}", hint="costguard agent list shows them")
    if found.revoked_at is not None:
        return found
    tell("UPDATE agent SET revoked_us = ?, revoked_by = ? WHERE id = ?", [(to_micros(now), make_storable(who), agent_id)])
    audit_log.audit_row(ask, tell, ("agent", agent_id), REVOKED, to_micros(now))
    return load_agent(ask, agent_id) or found


def audit_refused_messages(ask: Query, tell: Execute, agent: Agent, count: int, now: datetime) -> None:
    """Write to the audit log that `count` messages in the name of `agent` had an invalid signature."""
    append_entry(ask, tell, REFUSED, to_micros(now), {**_describe_place(agent.key, agent.life), "id": agent.id, "count": count})


def add_token(ask: Query, tell: Execute, token: WebToken) -> None:
    """Write a new token.

    Raises InputError if its name already has a valid one.
    """
    rows = ask("SELECT hash, expires_us FROM web_token WHERE name = ? AND revoked_us IS NULL", (token.name,))
    for code_hash, expires_us in rows:
        if expires_us > to_micros(token.at):
            hint = f"costguard web revoke {token.name} revokes it first, or choose another name"
            raise InputError("already has a token", field=f"NAME {token.name}", hint=hint)
        _revoke_token(ask, tell, (to_micros(token.at), "its end", code_hash))
    row = (token.hash, token.name, token.role, make_storable(token.who), to_micros(token.at), to_micros(token.expires_at))
    columns, recorder = "hash, name, role, who, made_us, expires_us", RowRecorder()
    tell(f"INSERT INTO web_token ({columns}) VALUES (?, ?, ?, ?, ?, ?)", [row])  # noqa: S608 - our own names
    _audit_token(ask, tell, token, did="made", who=make_storable(token.who), at=token.at)
    recorder.add("web_token", columns, [row])
    recorder.append(ask, tell, to_micros(token.at))


def revoke_token(ask: Query, tell: Execute, name: str, *, who: str, now: datetime) -> WebToken:
    """Revoke the token of `name`, and return it.

    Raises InputError if there is none that is not revoked.
    """
    found = next((one for one in load_tokens(ask) if one.name == name and one.revoked_at is None), None)
    if found is None:
        raise InputError("has no token", field=f"NAME {name}", hint="costguard web tokens lists them")
    _revoke_token(ask, tell, (to_micros(now), make_storable(who), found.hash))
    _audit_token(ask, tell, found, did="revoked", who=make_storable(who), at=now)
    return found


def load_tokens(ask: Query) -> list[WebToken]:
    """Return every token ever made, in order of creation."""
    found = ask(f"SELECT {TOKEN_COLUMNS} FROM web_token ORDER BY made_us, name", ())  # noqa: S608 - our own names
    return [_decode_token(row) for row in found]


def load_token(ask: Query, token_hash: str) -> WebToken | None:
    """Return the token of this hash; None if there is none."""
    rows = ask(f"SELECT {TOKEN_COLUMNS} FROM web_token WHERE hash = ?", (token_hash,))  # noqa: S608 - our own names
    return _decode_token(rows[0]) if rows else None


_WHERE_KEY = "provider = ? AND account = ? AND region = ? AND external_id = ?"
_RECORD_MESSAGE = """
UPDATE agent SET seq = ?, record_ms = CASE WHEN record_ms > ? THEN record_ms ELSE ? END, beat_us = ?, version = ?, troubles = ?
WHERE id = ? AND seq < ? AND revoked_us IS NULL
"""


def _revoke_token(ask: Query, tell: Execute, row: SqlRow) -> None:
    """Write the end of a token: time in microseconds, who revoked it, and its hash."""
    tell("UPDATE web_token SET revoked_us = ?, revoked_by = ? WHERE hash = ?", [row])
    recorder = RowRecorder()
    recorder.change("web_token", "revoked_us, revoked_by, hash", [row])
    recorder.append(ask, tell, row[0])


def _audit_token(ask: Query, tell: Execute, token: WebToken, *, did: str, who: str, at: datetime) -> None:
    append_entry(ask, tell, TOKEN, to_micros(at), {"name": token.name, "role": token.role, "did": did, "who": who})


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


def _decode_life(key: ResourceKey, text: str) -> Incarnation | None:
    return decode_life((*key, text)) if text else None


def _decode_agent(row: SqlRow) -> Agent:
    agent_id, *columns, life, public_key, joined_us, seq, record_ms, beat_us, version, troubles, revoked_us, revoked_by = row
    key = ResourceKey(*columns)
    return Agent(
        id=agent_id,
        key=key,
        life=_decode_life(key, life),
        public_key=public_key,
        joined_at=from_micros(joined_us),
        seq=seq,
        record_ms=record_ms,
        beat_at=decode_optional_instant(beat_us),
        version=version,
        troubles=decode_list(troubles),
        revoked_at=decode_optional_instant(revoked_us),
        revoked_by=revoked_by or "",
    )


def _decode_code(row: SqlRow) -> EnrollmentCode:
    code_hash, *columns, life, who, at_us, expires_us, used_us, used_by = row
    key = ResourceKey(*columns)
    return EnrollmentCode(
        hash=code_hash,
        key=key,
        life=_decode_life(key, life),
        who=who,
        at=from_micros(at_us),
        expires_at=from_micros(expires_us),
        used_at=decode_optional_instant(used_us),
        used_by=used_by or "",
    )


def _decode_token(row: SqlRow) -> WebToken:
    token_hash, name, role, who, made_us, expires_us, revoked_us = row
    return WebToken(
        hash=token_hash,
        name=name,
        role=role,
        who=who,
        at=from_micros(made_us),
        expires_at=from_micros(expires_us),
        revoked_at=decode_optional_instant(revoked_us),
    )
