"""Intents and hook runs in the ledger: the current row, and every change in an append-only history.

An intent is changed only from the state that its writer read, identified by (state, moved_at, sends): of two writers one
succeeds, even if the intent has returned to the same state meanwhile. A hook run is written before it begins, and again when it
has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, insert, literal_column, or_, update
from sqlalchemy import select as select_columns
from sqlalchemy.orm import Mapped, aliased
from sqlmodel import col, select

from costguard.guard.action_intents import DONE, EXECUTING, OPEN_STATES, Intent
from costguard.guard.audit import HOOKED, MOVED
from costguard.guard.escalation import BEGUN, HookEnd, HookRun
from costguard.guard.policy import IDLE_RULE, PERSON_RULE, START, STOP
from costguard.guard.run_facts import UNDONE_WITHIN, ConfirmedAct, Restart
from costguard.ledger.db.codecs import (
    Execute,
    Query,
    decode_life,
    decode_list,
    decode_optional_instant,
    encode_life_columns,
    encode_list,
    encode_optional_instant,
    pick_fields,
)
from costguard.ledger.db.rows import insert_new
from costguard.ledger.guard import audit_log
from costguard.ledger.tables.intents import HookRunRow, IntentEventRow, IntentRow
from costguard.ledger.tables.spans import ObservationRow, ResourceRow
from costguard.ledger.types import RESOURCE_KEY
from costguard.values.instant import MICROSECOND, from_micros, to_micros
from costguard.values.resource import RUNNING, Incarnation, ResourceKey, make_storable

_FIXED, _MOVING = ("id", "act", "policy", "rule"), ("why", "evidence", "state", "epoch", "sends", "outcome")
_OF_RUN = ("id", "policy", "rule", "number", "hook", "epoch", "state", "status", "why", "output")
"""What rows have as intents and hook runs have it."""
LIFE_COLUMNS = (*RESOURCE_KEY, "life")
_IS_EXECUTING: ColumnElement[str] = literal_column(f"'{EXECUTING}'")
"""Written out: the indexes of sends are partial, and SQLite uses none of them where the state is a parameter."""


def is_send(event: type[IntentEventRow]) -> ColumnElement[bool]:
    """Return whether `event` counts as a send: it moved to EXECUTING, and the one after it did not take that back."""
    following = aliased(IntentEventRow)
    next_run = select(following.run).where(following.intent_id == event.intent_id, col(following.id) > event.id)
    run = next_run.order_by(col(following.id)).limit(1).correlate(event).scalar_subquery()
    return and_(col(event.moved_to) == _IS_EXECUTING, func.coalesce(run, "") == "")


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
    return _load_intents(ask, col(IntentRow.state).in_(OPEN_STATES))


def load_intents_since(ask: Query, at: datetime) -> list[Intent]:
    """Return all intents that were made or moved at or after `at`, oldest first."""
    return _load_intents(ask, col(IntentRow.moved_us) >= to_micros(at))


def load_sends_since(ask: Query, at: datetime) -> list[Intent]:
    """Return all intents for which a request may have been sent at or after `at`, by the time of the last one."""
    return _load_intents(ask, col(IntentRow.sent_us) >= to_micros(at), by=col(IntentRow.sent_us))


def load_intents_on(ask: Query, key: ResourceKey, since: datetime) -> list[Intent]:
    """Return all intents on the resource `key` that were made or moved at or after `since`, oldest first."""
    return _load_intents(ask, is_on_resource(key), col(IntentRow.moved_us) >= to_micros(since))


def is_on_resource(key: ResourceKey) -> ColumnElement[bool]:
    """Return whether an intent is on the resource `key`."""
    return and_(*(getattr(IntentRow, name) == value for name, value in zip(RESOURCE_KEY, key, strict=True)))


def _load_intents(ask: Query, *where: ColumnElement[bool], by: Mapped[int | None] | None = None) -> list[Intent]:
    rows: Sequence[IntentRow] = ask(
        select(IntentRow).where(*where).order_by(col(IntentRow.created_us) if by is None else by, col(IntentRow.id))
    )
    return list(map(_decode_intent, rows))


def load_intent_history(ask: Query, intent_id: str) -> list[IntentMove]:
    """Return every move of an intent, in order."""
    moves = select(IntentEventRow).where(col(IntentEventRow.intent_id) == intent_id)
    rows: Sequence[IntentEventRow] = ask(moves.order_by(col(IntentEventRow.id)))
    return [
        IntentMove(
            intent_id=row.intent_id,
            at=from_micros(row.at_us),
            old=row.moved_from,
            new=row.moved_to,
            why=row.why,
            epoch=row.epoch,
            run=row.run,
        )
        for row in rows
    ]


MovesById = dict[str, list[tuple[datetime, str, str]]]
"""When an intent went to which state and why, in order, by its id."""


def load_stop_moves(ask: Query, intents: Iterable[Intent]) -> MovesById:
    """Return the moves of the confirmed stops of `intents`."""
    stops = [one.id for one in intents if one.act == STOP and one.state == DONE]
    return {name: _list_effective_moves(load_intent_history(ask, name)) for name in stops}


def _list_effective_moves(moves: Sequence[IntentMove]) -> list[tuple[datetime, str, str]]:
    """List the moves without those to EXECUTING after which nothing was sent."""
    following = (*moves[1:], None)
    return [
        (move.at, move.new, move.why)
        for move, next_move in zip(moves, following, strict=True)
        if move.new != EXECUTING or next_move is None or not next_move.run
    ]


_NAMED = (col(IntentRow.id), col(IntentRow.provider), col(IntentRow.act))


def load_restarts(ask: Query, since: datetime) -> list[Restart]:
    """Return which machines were listed as running within UNDONE_WITHIN after an idle stop sent since `since`.

    One that a schedule of ours started meanwhile is not among them.
    """
    return [
        Restart(key=ResourceKey(*key), stopped_at=from_micros(stopped_us), at=from_micros(at_us))
        for *key, stopped_us, at_us in ask(_select_restarts().where(col(IntentRow.sent_us) >= to_micros(since)))
    ]


def _select_restarts() -> Select[Any]:
    start, stopped_us, at_us = aliased(IntentRow), col(IntentRow.moved_us), col(ObservationRow.at_us)
    keys = [(getattr(IntentRow, name), getattr(ResourceRow, name), getattr(start, name)) for name in RESOURCE_KEY]
    is_ours = and_(
        *(of_start == of_stop for of_stop, _, of_start in keys),
        col(start.act) == START,
        col(start.rule) != PERSON_RULE,
        col(start.sent_us).between(stopped_us, at_us),
    )
    return (
        select_columns(*(of_stop for of_stop, _, _ in keys), stopped_us, func.min(at_us))
        .join(ResourceRow, and_(*(of_resource == of_stop for of_stop, of_resource, _ in keys)))
        .join(ObservationRow, col(ObservationRow.resource_id) == ResourceRow.id)
        .where(col(IntentRow.act) == STOP, col(IntentRow.state) == DONE, col(IntentRow.rule) == IDLE_RULE)
        .where(col(ObservationRow.state) == RUNNING, at_us > stopped_us, at_us <= stopped_us + UNDONE_WITHIN // MICROSECOND)
        .where(~select(start.id).where(is_ours).exists())
        .group_by(col(IntentRow.id), *(of_stop for of_stop, _, _ in keys), stopped_us)
        .order_by(stopped_us, col(IntentRow.id))
    )


def load_reactions(ask: Query, since: datetime) -> list[ConfirmedAct]:
    """Return the actions confirmed at or after `since`: each from its first request to the listing that confirmed it."""
    done_event = aliased(IntentEventRow)
    confirmed_us = func.max(done_event.at_us)
    acts = (
        select_columns(*_NAMED, func.min(IntentEventRow.at_us), confirmed_us)
        .join(done_event, col(done_event.intent_id) == IntentRow.id)
        .join(IntentEventRow, col(IntentEventRow.intent_id) == IntentRow.id)
        .where(
            col(IntentRow.moved_us) >= to_micros(since),
            col(done_event.at_us) >= to_micros(since),
            col(done_event.moved_to) == DONE,
        )
        .where(is_send(IntentEventRow))
        .group_by(*_NAMED)
        .order_by(confirmed_us, col(IntentRow.id))
    )
    return [
        ConfirmedAct(
            intent_id=name, provider=provider, act=act, sent_at=from_micros(sent_us), confirmed_at=from_micros(done_us)
        )
        for name, provider, act, sent_us, done_us in ask(acts)
    ]


def record_intent(ask: Query, tell: Execute, intent: Intent) -> bool:
    """Write a new intent and its first move; return False if its id exists, or an open one for its incarnation and act."""
    fixed = pick_fields(intent, _FIXED) | {"created_us": to_micros(intent.created_at)} | _encode_life(intent.life)
    row = IntentRow(**fixed, **_encode_moving(intent))
    if tell(insert_new(IntentRow), [row.model_dump()]) != 1:
        return False
    _log_move(ask, tell, intent, old="", run="")
    return True


def record_move(ask: Query, tell: Execute, old: Intent, new: Intent, run: str) -> bool:
    """Write the move from `old` to `new`; return False if the ledger's intent is no longer `old`.

    `run`: the guard run that counts the send of a move to EXECUTING, or that a move out of it takes the send back from.
    """
    same = (
        col(IntentRow.state) == old.state,
        col(IntentRow.moved_us) == to_micros(old.moved_at),
        col(IntentRow.sends) == old.sends,
    )
    if tell(update(IntentRow).where(col(IntentRow.id) == old.id, *same).values(_encode_moving(new))) != 1:
        return False
    _log_move(ask, tell, new, old=old.state, run=run if new.sends != old.sends else "")
    return True


def load_run_of_send(ask: Query, intent: Intent) -> str:
    """Return the guard run in which `intent` became EXECUTING last; "" if it never did."""
    sends = select(IntentEventRow.run).where(
        col(IntentEventRow.intent_id) == intent.id, col(IntentEventRow.moved_to) == _IS_EXECUTING
    )
    return next(iter(ask(sends.order_by(col(IntentEventRow.id).desc()).limit(1))), "")


def _log_move(ask: Query, tell: Execute, intent: Intent, *, old: str, run: str) -> None:
    event = {
        "intent_id": intent.id,
        "at_us": to_micros(intent.moved_at),
        "moved_from": old,
        "moved_to": intent.state,
        "why": make_storable(intent.outcome or intent.why),
        "epoch": intent.epoch,
        "run": run,
    }
    tell(insert(IntentEventRow), [event])
    audit_log.audit_row(ask, tell, ("intent", intent.id), MOVED, to_micros(intent.moved_at))


def _encode_life(life: Incarnation) -> dict[str, Any]:
    return dict(zip(LIFE_COLUMNS, encode_life_columns(life), strict=True))


def _encode_moving(intent: Intent) -> dict[str, Any]:
    return pick_fields(intent, _MOVING) | {
        "moved_us": to_micros(intent.moved_at),
        "lose": encode_list([make_storable(one) for one in intent.lose]),
        "irreversible": int(intent.irreversible),
        "sent_us": encode_optional_instant(intent.sent_at),
        "expires_us": encode_optional_instant(intent.expires_at),
    }


def _decode_life(row: IntentRow | HookRunRow) -> Incarnation:
    return decode_life([getattr(row, name) for name in LIFE_COLUMNS])


def _decode_intent(row: IntentRow) -> Intent:
    return Intent(
        **pick_fields(row, (*_FIXED, *_MOVING)),
        life=_decode_life(row),
        created_at=from_micros(row.created_us),
        moved_at=from_micros(row.moved_us),
        lose=decode_list(row.lose),
        irreversible=bool(row.irreversible),
        sent_at=decode_optional_instant(row.sent_us),
        expires_at=decode_optional_instant(row.expires_us),
    )


def load_hook_runs(ask: Query, since: datetime) -> list[HookRun]:
    """Return the hook runs that have not ended, and all that began at or after `since`, oldest first."""
    runs = select(HookRunRow).where(or_(col(HookRunRow.state) == BEGUN, col(HookRunRow.began_us) >= to_micros(since)))
    return list(map(_decode_hook_run, ask(runs.order_by(col(HookRunRow.began_us), col(HookRunRow.id)))))


def record_hook_begin(ask: Query, tell: Execute, run: HookRun) -> bool:
    """Write `run`; return False if its id exists, or a run of its incarnation and step has not ended."""
    times = {"began_us": to_micros(run.began_at), "until_us": to_micros(run.until)}
    ended = {"ended_us": encode_optional_instant(run.ended_at)}
    row = HookRunRow(**pick_fields(run, _OF_RUN) | _encode_life(run.life) | times | ended)
    if tell(insert_new(HookRunRow), [row.model_dump()]) != 1:
        return False
    audit_log.audit_row(ask, tell, ("hook_run", run.id), HOOKED, to_micros(run.began_at))
    return True


def record_hook_end(ask: Query, tell: Execute, run_id: str, end: HookEnd, now: datetime) -> bool:
    """Write the end of a run; return False if the run does not exist or has ended already."""
    begun = update(HookRunRow).where(col(HookRunRow.id) == run_id, col(HookRunRow.state) == BEGUN)
    texts = {"why": make_storable(end.why), "output": make_storable(end.output)}
    if tell(begun.values(state=end.state, ended_us=to_micros(now), status=end.status, **texts)) != 1:
        return False
    audit_log.audit_row(ask, tell, ("hook_run", run_id), HOOKED, to_micros(now))
    return True


def _decode_hook_run(row: HookRunRow) -> HookRun:
    return HookRun(
        **pick_fields(row, _OF_RUN),
        life=_decode_life(row),
        began_at=from_micros(row.began_us),
        until=from_micros(row.until_us),
        ended_at=decode_optional_instant(row.ended_us),
    )
