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
from costguard.ledger.db.asking import Execute, Query
from costguard.ledger.guard.audit_log import ENTRY_COLUMNS, append_entry, hash_canonical_json, parse_entry

if TYPE_CHECKING:
    from costguard.ledger.db.codecs import SqlRow

_LIFE_COLUMNS = ("provider", "account", "region", "external_id", "life")


class AuditedTable(NamedTuple):
    """A table whose rows are told of. `columns`: all that is hashed. `told`: those of them that an audit row repeats."""

    columns: tuple[str, ...]
    told: tuple[str, ...]


AUDITED_TABLES = {
    "wish": AuditedTable(
        ("id", "what", "who", "why", "at_us", "until_us", *_LIFE_COLUMNS, "subject", "value", "lifted_us", "lifted_by"),
        ("what", "who", "subject", "value", "until_us", "lifted_by"),
    ),
    "intent": AuditedTable(
        (
            *(
                "id",
                *_LIFE_COLUMNS,
                "act",
                "policy",
                "rule",
                "why",
                "evidence",
                "state",
                "created_us",
                "moved_us",
                "epoch",
                "lose",
            ),
            *("irreversible", "sends", "sent_us", "expires_us", "outcome"),
        ),
        ("act", "policy", "rule", "epoch", "sends"),
    ),
    "hook_run": AuditedTable(
        (
            *("id", *_LIFE_COLUMNS, "policy", "rule", "number", "hook", "began_us", "until_us", "epoch", "state", "ended_us"),
            *("status", "why", "output"),
        ),
        ("policy", "rule", "hook", "epoch", "state"),
    ),
    "agent": AuditedTable(
        ("id", *_LIFE_COLUMNS, "public_key", "joined_us", "revoked_us", "revoked_by"), ("revoked_us", "revoked_by")
    ),
}
"""Table -> what is told of its rows. Fixed: a column that comes later is no part of these hashes."""

ADOPTED_TABLES = ("wish", "intent", "hook_run")
"""The tables that the first rows of an audit may have to tell of: it is older than the others."""

EVENT_COLUMNS = ("intent_id", "at_us", "moved_from", "moved_to", "why", "epoch", "run")
"""The columns of `intent_event` that are hashed."""


def begin_audit(ask: Query, tell: Execute, now_us: int) -> None:
    """The first rows: of which ledger it is, and what stands in it already."""
    ((ledger_id,),) = ask("SELECT ledger_id FROM ledger_state", ())
    append_entry(ask, tell, BEGAN, now_us, {"ledger": ledger_id})
    for table in ADOPTED_TABLES:
        for (row_id,) in ask(f"SELECT id FROM {table} ORDER BY id", ()):  # noqa: S608 - our own name
            audit_row(ask, tell, (table, row_id), ADOPTED, now_us)
    for (facts,) in ask("SELECT facts FROM guard_run ORDER BY id DESC LIMIT 1", ()):
        audit_settings(ask, tell, parse_settings_mark(facts), now_us)


def audit_row(ask: Query, tell: Execute, of: tuple[str, str], kind: str, at_us: int) -> None:
    """Tell of a row, `of` (table, id), as it stands now: it was just written."""
    table, row_id = of
    audited = AUDITED_TABLES[table]
    (values,) = ask(f"SELECT {', '.join(audited.columns)} FROM {table} WHERE id = ?", (row_id,))  # noqa: S608 - our own names
    row = dict(zip(audited.columns, values, strict=True))
    place = {"resource" if name == "external_id" else name: row[name] for name in _LIFE_COLUMNS}
    body = {
        "table": table,
        "id": row_id,
        "row": hash_canonical_json(row),
        **place,
        **{name: row[name] for name in audited.told},
    }
    if table == "intent":
        body |= _describe_moves(ask, row_id, kind)
    append_entry(ask, tell, kind, at_us, body)


def audit_settings(ask: Query, tell: Execute, mark: str, at_us: int) -> None:
    """Tell that the settings of this fingerprint are in force, if others were; "" says nothing."""
    before = load_audited_settings(ask)
    if mark not in ("", before):
        append_entry(ask, tell, SETTINGS, at_us, {"mark": mark, "before": before})


def load_audited_settings(ask: Query) -> str:
    """The fingerprint that was told of last; "" before the first."""
    rows = ask(f"SELECT {ENTRY_COLUMNS} FROM audit WHERE kind = ? ORDER BY seq DESC LIMIT 1", (SETTINGS,))  # noqa: S608 - our own names
    return str(parse_entry(AuditEntry(*rows[0])).body.get("mark", "")) if rows else ""


def parse_settings_mark(facts: str) -> str:
    """The fingerprint of the settings among the facts of a run, as they are kept; "" where it is not there."""
    try:
        return str(dict(json.loads(facts)).get("settings", ""))
    except (ValueError, TypeError):
        return ""


def hash_row(table: str, values: SqlRow) -> str:
    """Of a row of `table` whose `columns` hold `values`."""
    return hash_canonical_json(dict(zip(AUDITED_TABLES[table].columns, values, strict=True)))


def hash_event(values: SqlRow) -> str:
    """Of a move whose columns EVENT hold `values`."""
    return hash_canonical_json(dict(zip(EVENT_COLUMNS, values, strict=True)))


def _describe_moves(ask: Query, intent_id: str, kind: str) -> dict[str, object]:
    """The last move of an intent, or all that it ever made where they are adopted."""
    newest = " DESC LIMIT 1" if kind == MOVED else ""
    moves = ask(f"SELECT {', '.join(EVENT_COLUMNS)} FROM intent_event WHERE intent_id = ? ORDER BY id{newest}", (intent_id,))  # noqa: S608 - our own names
    found: dict[str, object] = {"events": [hash_event(move) for move in moves]}
    if kind == MOVED:
        _, _, old, new, _, _, run = moves[0]
        found |= {"from": old, "to": new, "run": run}
    return found
