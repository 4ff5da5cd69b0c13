"""Wishes in the ledger: written once, and lifted once. Nothing that a listing says touches them.

A wish whose `life` is given is read back with the key of that life.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from costguard.errors import InputError
from costguard.guard.audit import LIFTED, WISHED
from costguard.guard.overrides import Override
from costguard.ledger.db.asking import Execute, Query
from costguard.ledger.db.codecs import SqlRow, decode_optional_instant
from costguard.ledger.db.lives import KEY_COLUMNS, decode_life, encode_life, encode_optional_instant
from costguard.ledger.guard import audit
from costguard.values.checks import require
from costguard.values.instant import from_micros, to_micros
from costguard.values.resource import ResourceKey, make_storable

OVERRIDE_COLUMNS = f"id, what, who, why, at_us, until_us, {KEY_COLUMNS}, life, subject, value, lifted_us, lifted_by"
NO_KEY = ResourceKey("", "", "", "")


def load_open_overrides(ask: Query, now: datetime) -> list[Override]:
    """The wishes that count at `now`, the oldest first."""
    sql = f"""
SELECT {OVERRIDE_COLUMNS} FROM wish
WHERE at_us <= ? AND (lifted_us IS NULL OR lifted_us > ?) AND (until_us IS NULL OR until_us > ?) ORDER BY at_us, id
"""  # noqa: S608 - our own column names
    return [_decode_override(row) for row in ask(sql, (to_micros(now),) * 3)]


def load_overrides_since(ask: Query, at: datetime) -> list[Override]:
    """Every wish made at or after `at`, whatever became of it, the oldest first: how often was a lease renewed?"""
    sql = f"SELECT {OVERRIDE_COLUMNS} FROM wish WHERE at_us >= ? ORDER BY at_us, id"  # noqa: S608 - our own column names
    return [_decode_override(row) for row in ask(sql, (to_micros(at),))]


def add_override(ask: Query, tell: Execute, wish: Override) -> None:
    """Write `wish`; one with its id that is there already stays as it is."""
    key = wish.life.key if wish.life else wish.key
    require(wish.key in (None, key), f"wish {wish.id}", "names two resources", "leave key or life out")
    require(wish.lifted_at is None, f"wish {wish.id}", "is lifted before it is made", "lift it afterwards")
    row = (
        make_storable(wish.id),
        wish.what,
        make_storable(wish.who),
        make_storable(wish.why),
        to_micros(wish.at),
        encode_optional_instant(wish.until),
        *(key or NO_KEY),
        encode_life(wish.life) if wish.life else "",
        make_storable(wish.subject),
        make_storable(wish.value),
    )
    names = OVERRIDE_COLUMNS.removesuffix(", lifted_us, lifted_by")
    sql = f"INSERT INTO wish ({names}) VALUES ({', '.join('?' * len(row))}) ON CONFLICT DO NOTHING"  # noqa: S608 - our own column names
    if tell(sql, [row]) == 1:
        audit.audit_row(ask, tell, ("wish", row[0]), WISHED, to_micros(wish.at))


def lift_override(ask: Query, tell: Execute, wish_id: str, *, who: str, now: datetime) -> Override:
    """Take a wish back, and say what it is now; one that was lifted before stays as it is."""
    rows = ask(f"SELECT {OVERRIDE_COLUMNS} FROM wish WHERE id = ?", (wish_id,))  # noqa: S608 - our own column names
    if not rows:
        raise InputError("is no wish of this ledger", field=f"wish {wish_id}", hint="costguard status lists the open ones")
    wish = _decode_override(rows[0])
    if wish.lifted_at is not None:
        return wish
    tell("UPDATE wish SET lifted_us = ?, lifted_by = ? WHERE id = ?", [(to_micros(now), make_storable(who), wish_id)])
    audit.audit_row(ask, tell, ("wish", wish_id), LIFTED, to_micros(now))
    return replace(wish, lifted_at=now, lifted_by=make_storable(who))


def _decode_override(row: SqlRow) -> Override:
    wish_id, what, who, why, at_us, until_us, *columns, life, subject, value, lifted_us, lifted_by = row
    key = ResourceKey(*columns)
    return Override(
        id=wish_id,
        what=what,
        who=who,
        why=why,
        at=from_micros(at_us),
        until=decode_optional_instant(until_us),
        key=None if key == NO_KEY else key,
        life=decode_life((*key, life)) if life else None,
        subject=subject,
        value=value,
        lifted_at=decode_optional_instant(lifted_us),
        lifted_by=lifted_by or "",
    )
