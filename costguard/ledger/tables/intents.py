"""Intents to act, their moves, and runs of hooks: each is written before it begins."""

from __future__ import annotations

from typing import Annotated

from sqlalchemy import CheckConstraint, Index, text

from costguard.guard.action_intents import EXECUTING, OPEN_STATES
from costguard.guard.escalation import BEGUN
from costguard.ledger.types import (
    RESOURCE_KEY,
    KeyWords,
    LaterNumber,
    LaterOptionalNumber,
    LaterWords,
    LedgerRow,
    Number,
    RowNumber,
    Words,
    declare_table,
    index_where,
    refer_to_words,
)

_OPEN_STATES = ", ".join(f"'{state}'" for state in OPEN_STATES)
STILL_OPEN = text(f"state IN ({_OPEN_STATES})")
IN_FLIGHT = text(f"state = '{EXECUTING}'")
IS_BEGUN = text(f"state = '{BEGUN}'")
IS_SEND = text(f"moved_to = '{EXECUTING}'")


class IntentRow(LedgerRow, table=True):
    """An intent as it stands. One is open for a life and act, and one a resource is about to be sent or was just sent."""

    __tablename__ = "intent"
    __table_args__ = (
        CheckConstraint("irreversible IN (0, 1) AND sends >= 0", name="intent_counts"),
        index_where("intent_open_once", *RESOURCE_KEY, "life", "act", unique=True, where=STILL_OPEN),
        index_where("intent_in_flight_once", *RESOURCE_KEY, unique=True, where=IN_FLIGHT),
        Index("intent_by_sent", "sent_us"),
        declare_table(keeps_rows=True, written_once=True),
    )

    id: KeyWords
    provider: Words
    account: Words
    region: Words
    external_id: Words
    life: Words
    act: Words
    policy: Words
    rule: Words
    why: LaterWords
    evidence: LaterWords
    state: LaterWords
    created_us: Number
    moved_us: LaterNumber
    epoch: LaterNumber
    lose: LaterWords
    irreversible: LaterNumber
    sends: LaterNumber
    sent_us: LaterOptionalNumber = None
    expires_us: LaterOptionalNumber = None
    outcome: LaterWords


class IntentEventRow(LedgerRow, table=True):
    """Each move of an intent; `moved_from` is '' for the first. Those to EXECUTING are what the rails count."""

    __tablename__ = "intent_event"
    __table_args__ = (
        Index("intent_event_by_intent", "intent_id", "id"),
        index_where("intent_event_sends", "at_us", where=IS_SEND),
        index_where("intent_event_run", "run", where=IS_SEND),
        declare_table(keeps_rows=True, written_once=True),
    )

    id: RowNumber
    intent_id: Annotated[str, refer_to_words("intent.id")]
    at_us: Number
    moved_from: Words
    moved_to: Words
    why: Words
    epoch: Number
    run: Words


class HookRunRow(LedgerRow, table=True):
    """A run of a hook, written before it begins, and once more when it has ended. `status`: how its program ended."""

    __tablename__ = "hook_run"
    __table_args__ = (
        CheckConstraint(f"(state = '{BEGUN}') = (ended_us IS NULL)", name="hook_run_ended_whole"),
        index_where(
            "hook_run_open_once",
            *(*RESOURCE_KEY, "life", "policy", "number"),
            unique=True,
            where=IS_BEGUN,
        ),
        Index("hook_run_by_beginning", "began_us"),
        declare_table(keeps_rows=True, written_once=True),
    )

    id: KeyWords
    provider: Words
    account: Words
    region: Words
    external_id: Words
    life: Words
    policy: Words
    rule: Words
    number: Number
    hook: Words
    began_us: Number
    until_us: Number
    epoch: Number
    state: LaterWords
    ended_us: LaterOptionalNumber = None
    status: LaterOptionalNumber = None
    why: LaterWords
    output: LaterWords
