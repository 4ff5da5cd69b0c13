"""Readers' tokens in the ledger, within a write transaction or a snapshot."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import update
from sqlmodel import col, select

from costguard.errors import InputError
from costguard.guard.audit import TOKEN
from costguard.ledger.db.codecs import Execute, Query, decode_optional_instant
from costguard.ledger.db.rows import insert_rows
from costguard.ledger.guard.audit_log import append_entry
from costguard.ledger.tables.logins import WebTokenRow
from costguard.values.agent import WebToken
from costguard.values.instant import from_micros, to_micros
from costguard.values.resource import make_storable


def add_token(ask: Query, tell: Execute, token: WebToken) -> None:
    """Write a new token.

    Raises InputError if its name already has a valid one.
    """
    valid = select(WebTokenRow.hash, WebTokenRow.expires_us).where(
        col(WebTokenRow.name) == token.name, col(WebTokenRow.revoked_us).is_(None)
    )
    for token_hash, expires_us in ask(valid):
        if expires_us > to_micros(token.at):
            hint = f"costguard web revoke {token.name} revokes it first, or choose another name"
            raise InputError("already has a token", field=f"NAME {token.name}", hint=hint)
        _revoke_token(tell, token_hash, who="its end", now=token.at)
    row = WebTokenRow(
        hash=token.hash,
        name=token.name,
        role=token.role,
        who=make_storable(token.who),
        made_us=to_micros(token.at),
        expires_us=to_micros(token.expires_at),
    )
    insert_rows(tell, [row])
    _audit_token(ask, tell, token, did="made", who=make_storable(token.who), at=token.at)


def revoke_token(ask: Query, tell: Execute, name: str, *, who: str, now: datetime) -> WebToken:
    """Revoke the token of `name`, and return it.

    Raises InputError if there is none that is not revoked.
    """
    token = next((one for one in load_tokens(ask) if one.name == name and one.revoked_at is None), None)
    if token is None:
        raise InputError("has no token", field=f"NAME {name}", hint="costguard web tokens lists them")
    _revoke_token(tell, token.hash, who=make_storable(who), now=now)
    _audit_token(ask, tell, token, did="revoked", who=make_storable(who), at=now)
    return token


def load_tokens(ask: Query) -> list[WebToken]:
    """Return every token ever made, in order of creation."""
    return list(map(_decode_token, ask(select(WebTokenRow).order_by(col(WebTokenRow.made_us), col(WebTokenRow.name)))))


def load_token(ask: Query, token_hash: str) -> WebToken | None:
    """Return the token of this hash; None if there is none."""
    rows = ask(select(WebTokenRow).where(col(WebTokenRow.hash) == token_hash))
    return _decode_token(rows[0]) if rows else None


def _revoke_token(tell: Execute, token_hash: str, *, who: str, now: datetime) -> None:
    end = {"revoked_us": to_micros(now), "revoked_by": who}
    tell(update(WebTokenRow).where(col(WebTokenRow.hash) == token_hash).values(end))


def _audit_token(ask: Query, tell: Execute, token: WebToken, *, did: str, who: str, at: datetime) -> None:
    append_entry(ask, tell, TOKEN, to_micros(at), {"name": token.name, "role": token.role, "did": did, "who": who})


def _decode_token(row: WebTokenRow) -> WebToken:
    return WebToken(
        hash=row.hash,
        name=row.name,
        role=row.role,
        who=row.who,
        at=from_micros(row.made_us),
        expires_at=from_micros(row.expires_us),
        revoked_at=decode_optional_instant(row.revoked_us),
    )
