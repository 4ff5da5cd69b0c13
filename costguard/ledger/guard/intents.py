"""Intents and hook runs in the ledger: the current row, and every change in an append-only history.

An intent is changed only from the state that its writer read, identified by (state, moved_at, sends): of two writers one
succeeds, even if the intent has returned to the same state meanwhile. A hook run is written before it begins, and again when it
has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from costguard.guard.action_intents import DONE, EXECUTING, OPEN_STATES, Intent
from costguard.guard.audit import HOOKED, MOVED
from costguard.guard.escalation import BEGUN, HookEnd, HookRun
from costguard.guard.policy import STOP
from costguard.guard.run_facts import ConfirmedAct
from costguard.ledger.db.codecs import (
    KEY_COLUMNS,
    Execute,
    Query,
    SqlRow,
    decode_life,
    decode_list,
    decode_optional_instant,
    encode_life_columns,
    encode_list,
    encode_optional_instant,
    format_placeholders,
)
from costguard.ledger.guard import audit_log
from costguard.values.instant import from_micros, to_micros
from costguard.values.resource import ResourceKey, make_storable

FIXED_COLUMNS = f"id, {KEY_COLUMNS}, life, act, policy, rule, created_us"
MOVING_COLUMNS = "why, evidence, state, moved_us, epoch, lose, irreversible, sends, sent_us, expires_us, outcome"
EVENT_COLUMNS = "intent_id, at_us, moved_from, moved_to, why, epoch, run"
INTENT_COLUMNS = f"{FIXED_COLUMNS}, {MOVING_COLUMNS}"


IS_SEND = """e.moved_to = 'executing' AND coalesce((SELECT next.run FROM intent_event AS next
    WHERE next.intent_id = e.intent_id AND next.id > e.id ORDER BY next.id LIMIT 1), '') = ''"""
"""Whether the event `e` counts as a send: it moved to EXECUTING, and the one after it did not take that back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentMove:
    """One move of an intent.

    `old` "": its creation. `run`: the guard run that a send counts in, or is taken back from by a move out of EXECUTING.
    """

    intent_id: str
    at: datetime
    old: str
    new: str
    why: str
    epoch: int
    run: str


def load_open_intents(ask: Query) -> list[Intent]:
    """Return all open intents, oldest first."""
    sql = f"SELECT {INTENT_COLUMNS} FROM intent WHERE state IN ({format_placeholders(OPEN_STATES)}) ORDER BY created_us, id"  # noqa: S608 - our own column names
    return [_decode_intent(row) for row in ask(sql, OPEN_STATES)]


def load_intents_since(ask: Query, at: datetime) -> list[Intent]:
    """Return all intents that were made or moved at or after `at`, oldest first."""
    sql = f"SELECT {INTENT_COLUMNS} FROM intent WHERE moved_us >= ? ORDER BY created_us, id"  # noqa: S608 - our own column names
    return [_decode_intent(row) for row in ask(sql, (to_micros(at),))]


def load_sends_since(ask: Query, at: datetime) -> list[Intent]:
    """Return all intents for which a request may have been sent at or after `at`, by the time of the last one."""
    sql = f"SELECT {INTENT_COLUMNS} FROM intent WHERE sent_us >= ? ORDER BY sent_us, id"  # noqa: S608 - our own column names
    return [_decode_intent(row) for row in ask(sql, (to_micros(at),))]


def load_intents_on(ask: Query, key: ResourceKey, since: datetime) -> list[Intent]:
    """Return all intents on the resource `key` that were made or moved at or after `since`, oldest first."""
    where = " AND ".join(f"{name} = ?" for name in KEY_COLUMNS.split(", "))
    sql = f"SELECT {INTENT_COLUMNS} FROM intent WHERE {where} AND moved_us >= ? ORDER BY created_us, id"  # noqa: S608 - our own column names
    return [_decode_intent(row) for row in ask(sql, (*key, to_micros(since)))]


def load_intent_history(ask: Query, intent_id: str) -> list[IntentMove]:
    """Return every move of an intent, in order."""
    sql = f"SELECT {EVENT_COLUMNS} FROM intent_event WHERE intent_id = ? ORDER BY id"  # noqa: S608 - our own column names
    return [
        IntentMove(intent_id=name, at=from_micros(at_us), old=old, new=new, why=why, epoch=epoch, run=run)
        for name, at_us, old, new, why, epoch, run in ask(sql, (intent_id,))
    ]


MovesById = dict[str, list[tuple[datetime, str, str]]]
"""When an intent went to which state and why, in order, by its id."""


def load_stop_moves(ask: Query, found: Iterable[Intent]) -> MovesById:
    """Return the moves of the confirmed stops of `found`."""
    stops = [one.id for one in found if one.act == STOP and one.state == DONE]
    return {name: _list_effective_moves(load_intent_history(ask, name)) for name in stops}


def _list_effective_moves(moves: Sequence[IntentMove]) -> list[tuple[datetime, str, str]]:
    """List the moves without those to EXECUTING after which nothing was sent."""
    following = (*moves[1:], None)
    return [
        (move.at, move.new, move.why)
        for move, after in zip(moves, following, strict=True)
        if move.new != EXECUTING or after is None or not after.run
    ]


def load_reactions(ask: Query, since: datetime) -> list[ConfirmedAct]:
    """Return the actions confirmed at or after `since`: each from its first request to the listing that confirmed it."""
    sql = f"""
SELECT i.id, i.provider, i.act, min(e.at_us), max(done.at_us)
FROM intent_event AS done JOIN intent AS i ON i.id = done.intent_id JOIN intent_event AS e ON e.intent_id = i.id
WHERE i.moved_us >= ? AND done.at_us >= ? AND done.moved_to = 'done' AND {IS_SEND}
GROUP BY i.id, i.provider, i.act ORDER BY 5, 1
"""  # noqa: S608 - our own words
    return [
        ConfirmedAct(
            intent_id=name, provider=provider, act=act, sent_at=from_micros(sent_us), confirmed_at=from_micros(done_us)
        )
        for name, provider, act, sent_us, done_us in ask(sql, (to_micros(since),) * 2)
    ]


def record_intent(ask: Query, tell: Execute, intent: Intent) -> bool:
    """Write a new intent and its first move; return False if its id exists, or an open one for its incarnation and act."""
    row = (*_encode_fixed(intent), *_encode_moving(intent))
    sql = f"INSERT INTO intent ({INTENT_COLUMNS}) VALUES ({', '.join('?' * len(row))}) ON CONFLICT DO NOTHING"  # noqa: S608 - our own column names
    if tell(sql, [row]) != 1:
        return False
    _log_move(ask, tell, intent, old="", run="")
    return True


def record_move(ask: Query, tell: Execute, old: Intent, new: Intent, run: str) -> bool:
    """Write the move from `old` to `new`; return False if the ledger's intent is no longer `old`.

    `run`: the guard run that counts the send of a move to EXECUTING, or that a move out of it takes the send back from.
    """
    names = ", ".join(f"{name} = ?" for name in MOVING_COLUMNS.split(", "))
    sql = f"UPDATE intent SET {names} WHERE id = ? AND state = ? AND moved_us = ? AND sends = ?"  # noqa: S608 - our own column names
    if tell(sql, [(*_encode_moving(new), old.id, old.state, to_micros(old.moved_at), old.sends)]) != 1:
        return False
    _log_move(ask, tell, new, old=old.state, run=run if new.sends != old.sends else "")
    return True


def load_run_of_send(ask: Query, intent: Intent) -> str:
    """Return the guard run in which `intent` became EXECUTING last; "" if it never did."""
    sql = f"SELECT run FROM intent_event WHERE intent_id = ? AND moved_to = '{EXECUTING}' ORDER BY id DESC LIMIT 1"  # noqa: S608 - our own word
    return next((run for (run,) in ask(sql, (intent.id,))), "")


def is_current(ask: Query, intent: Intent) -> bool:
    """Return whether the ledger's intent is still in the state of `intent`."""
    found = ask("SELECT state, moved_us, sends FROM intent WHERE id = ?", (intent.id,))
    return [tuple(row) for row in found] == [(intent.state, to_micros(intent.moved_at), intent.sends)]


def _log_move(ask: Query, tell: Execute, intent: Intent, *, old: str, run: str) -> None:
    sql = f"INSERT INTO intent_event ({EVENT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - our own column names
    why = make_storable(intent.outcome or intent.why)
    tell(sql, [(intent.id, to_micros(intent.moved_at), old, intent.state, why, intent.epoch, run)])
    audit_log.audit_row(ask, tell, ("intent", intent.id), MOVED, to_micros(intent.moved_at))


def _encode_fixed(intent: Intent) -> SqlRow:
    return (
        intent.id,
        *encode_life_columns(intent.life),
        intent.act,
        make_storable(intent.policy),
        intent.rule,
        to_micros(intent.created_at),
    )


def _encode_moving(intent: Intent) -> SqlRow:
    return (
        make_storable(intent.why),
        make_storable(intent.evidence),
        intent.state,
        to_micros(intent.moved_at),
        intent.epoch,
        encode_list([make_storable(one) for one in intent.lose]),
        int(intent.irreversible),
        intent.sends,
        encode_optional_instant(intent.sent_at),
        encode_optional_instant(intent.expires_at),
        make_storable(intent.outcome),
    )


def _decode_intent(row: SqlRow) -> Intent:
    intent_id, *life, act, policy, rule, created_us = row[:10]
    why, evidence, state, moved_us, epoch, lose, irreversible, sends, sent_us, expires_us, outcome = row[10:]
    return Intent(
        id=intent_id,
        life=decode_life(life),
        act=act,
        policy=policy,
        rule=rule,
        created_at=from_micros(created_us),
        why=why,
        evidence=evidence,
        state=state,
        moved_at=from_micros(moved_us),
        epoch=epoch,
        lose=decode_list(lose),
        irreversible=bool(irreversible),
        sends=sends,
        sent_at=decode_optional_instant(sent_us),
        expires_at=decode_optional_instant(expires_us),
        outcome=outcome,
    )


HOOK_RUN_COLUMNS = (
    f"id, {KEY_COLUMNS}, life, policy, rule, number, hook, began_us, until_us, epoch, state, ended_us, status, why, output"
)


def load_hook_runs(ask: Query, since: datetime) -> list[HookRun]:
    """Return the hook runs that have not ended, and all that began at or after `since`, oldest first."""
    sql = f"SELECT {HOOK_RUN_COLUMNS} FROM hook_run WHERE state = ? OR began_us >= ? ORDER BY began_us, id"  # noqa: S608 - our own column names
    return [_decode_hook_run(row) for row in ask(sql, (BEGUN, to_micros(since)))]


def record_hook_begin(ask: Query, tell: Execute, run: HookRun) -> bool:
    """Write `run`; return False if its id exists, or a run of its incarnation and step has not ended."""
    row = (
        run.id,
        *encode_life_columns(run.life),
        make_storable(run.policy),
        run.rule,
        run.number,
        make_storable(run.hook),
        to_micros(run.began_at),
        to_micros(run.until),
        run.epoch,
        run.state,
        encode_optional_instant(run.ended_at),
        run.status,
        make_storable(run.why),
        make_storable(run.output),
    )
    sql = f"INSERT INTO hook_run ({HOOK_RUN_COLUMNS}) VALUES ({', '.join('?' * len(row))}) ON CONFLICT DO NOTHING"  # noqa: S608 - our own column names
    if tell(sql, [row]) != 1:
        return False
    audit_log.audit_row(ask, tell, ("hook_run", run.id), HOOKED, to_micros(run.began_at))
    return True


def record_hook_end(ask: Query, tell: Execute, run_id: str, end: HookEnd, now: datetime) -> bool:
    """Write the end of a run; return False if the run does not exist or has ended already."""
    sql = "UPDATE hook_run SET state = ?, ended_us = ?, status = ?, why = ?, output = ? WHERE id = ? AND state = ?"
    row = (end.state, to_micros(now), end.status, make_storable(end.why), make_storable(end.output), run_id, BEGUN)
    if tell(sql, [row]) != 1:
        return False
    audit_log.audit_row(ask, tell, ("hook_run", run_id), HOOKED, to_micros(now))
    return True


def _decode_hook_run(row: SqlRow) -> HookRun:
    run_id, *life, policy, rule, number, hook, began_us, until_us, epoch, state, ended_us, status, why, output = row
    return HookRun(
        id=run_id,
        life=decode_life(life),
        policy=policy,
        rule=rule,
        number=number,
        hook=hook,
        began_at=from_micros(began_us),
        until=from_micros(until_us),
        epoch=epoch,
        state=state,
        ended_at=decode_optional_instant(ended_us),
        status=status,
        why=why,
        output=output,
    )
