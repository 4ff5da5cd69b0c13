"""The audit: one row, chained to all before it, beside each wish, move of an intent, hook and change of settings.

A row is written in the transaction of what it tells, so that neither is ever there without the other. It holds ids, names of
policies and people, and hashes: `row` is the hash of all that the row of the other table held then, `events` of the moves that
came with it. Reasons, evidence and what a hook printed are in those hashes and nowhere else.

    somebody edits a wish        the wish does not come to the hash that the last audit row of it holds
    ... and that audit row       that row does not come to its own hash
    ... and its hash             the next row names another one
    ... and all later rows       only a head that was noted elsewhere shows it (`--anchor`)
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from costguard.guard.audit import ADOPTED, BEGAN, MOVED, SETTINGS, AuditEntry
from costguard.ledger.db.asking import Ask, Tell
from costguard.ledger.guard.audit_log import COLUMNS, append, sha256, told

if TYPE_CHECKING:
    from costguard.ledger.db.codecs import Row

_PLACE = ("provider", "account", "region", "external_id", "life")


class Audited(NamedTuple):
    """A table whose rows are told of. `columns`: all that is hashed. `told`: those of them that an audit row repeats."""

    columns: tuple[str, ...]
    told: tuple[str, ...]


AUDITED = {
    "wish": Audited(
        ("id", "what", "who", "why", "at_us", "until_us", *_PLACE, "subject", "value", "lifted_us", "lifted_by"),
        ("what", "who", "subject", "value", "until_us", "lifted_by"),
    ),
    "intent": Audited(
        (
            *("id", *_PLACE, "act", "policy", "rule", "why", "evidence", "state", "created_us", "moved_us", "epoch", "lose"),
            *("irreversible", "sends", "sent_us", "expires_us", "outcome"),
        ),
        ("act", "policy", "rule", "epoch", "sends"),
    ),
    "hook_run": Audited(
        (
            *("id", *_PLACE, "policy", "rule", "number", "hook", "began_us", "until_us", "epoch", "state", "ended_us"),
            *("status", "why", "output"),
        ),
        ("policy", "rule", "hook", "epoch", "state"),
    ),
    "agent": Audited(("id", *_PLACE, "public_key", "joined_us", "revoked_us", "revoked_by"), ("revoked_us", "revoked_by")),
}
"""Table -> what is told of its rows. Fixed: a column that comes later is no part of these hashes."""

FIRST_AUDITED = ("wish", "intent", "hook_run")
"""The tables that the first rows of an audit may have to tell of: it is older than the others."""

EVENT = ("intent_id", "at_us", "moved_from", "moved_to", "why", "epoch", "run")
"""The columns of `intent_event` that are hashed."""


def begin(ask: Ask, tell: Tell, now_us: int) -> None:
    """The first rows: of which ledger it is, and what stands in it already."""
    ((ledger_id,),) = ask("SELECT ledger_id FROM ledger_state", ())
    append(ask, tell, BEGAN, now_us, {"ledger": ledger_id})
    for table in FIRST_AUDITED:
        for (row_id,) in ask(f"SELECT id FROM {table} ORDER BY id", ()):  # noqa: S608 - our own name
            tell_row(ask, tell, (table, row_id), ADOPTED, now_us)
    for (facts,) in ask("SELECT facts FROM guard_run ORDER BY id DESC LIMIT 1", ()):
        tell_settings(ask, tell, settings_of(facts), now_us)


def tell_row(ask: Ask, tell: Tell, of: tuple[str, str], kind: str, at_us: int) -> None:
    """Tell of a row, `of` (table, id), as it stands now: it was just written."""
    table, row_id = of
    audited = AUDITED[table]
    (values,) = ask(f"SELECT {', '.join(audited.columns)} FROM {table} WHERE id = ?", (row_id,))  # noqa: S608 - our own names
    row = dict(zip(audited.columns, values, strict=True))
    place = {"resource" if name == "external_id" else name: row[name] for name in _PLACE}
    body = {"table": table, "id": row_id, "row": sha256(row), **place, **{name: row[name] for name in audited.told}}
    if table == "intent":
        body |= _moves(ask, row_id, kind)
    append(ask, tell, kind, at_us, body)


def tell_settings(ask: Ask, tell: Tell, mark: str, at_us: int) -> None:
    """Tell that the settings of this fingerprint are in force, if others were; "" says nothing."""
    before = settings_told(ask)
    if mark not in ("", before):
        append(ask, tell, SETTINGS, at_us, {"mark": mark, "before": before})


def settings_told(ask: Ask) -> str:
    """The fingerprint that was told of last; "" before the first."""
    rows = ask(f"SELECT {COLUMNS} FROM audit WHERE kind = ? ORDER BY seq DESC LIMIT 1", (SETTINGS,))  # noqa: S608 - our own names
    return str(told(AuditEntry(*rows[0])).body.get("mark", "")) if rows else ""


def settings_of(facts: str) -> str:
    """The fingerprint of the settings among the facts of a run, as they are kept; "" where it is not there."""
    try:
        return str(dict(json.loads(facts)).get("settings", ""))
    except (ValueError, TypeError):
        return ""


def row_hash(table: str, values: Row) -> str:
    """Of a row of `table` whose `columns` hold `values`."""
    return sha256(dict(zip(AUDITED[table].columns, values, strict=True)))


def event_hash(values: Row) -> str:
    """Of a move whose columns EVENT hold `values`."""
    return sha256(dict(zip(EVENT, values, strict=True)))


def _moves(ask: Ask, intent_id: str, kind: str) -> dict[str, object]:
    """The last move of an intent, or all that it ever made where they are adopted."""
    newest = " DESC LIMIT 1" if kind == MOVED else ""
    moves = ask(f"SELECT {', '.join(EVENT)} FROM intent_event WHERE intent_id = ? ORDER BY id{newest}", (intent_id,))  # noqa: S608 - our own names
    found: dict[str, object] = {"events": [event_hash(move) for move in moves]}
    if kind == MOVED:
        _, _, old, new, _, _, run = moves[0]
        found |= {"from": old, "to": new, "run": run}
    return found
