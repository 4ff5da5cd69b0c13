"""The tables of the guard: what people wished, what was going to be done, and what the next run must know of the last one.

They name resources by their whole key and lives by their times, and refer to no row that polls write: whatever a listing says,
a lease stays a lease. What may be changed of them, `guards` says.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Table, Text, UniqueConstraint, text

from costguard.guard.action_intents import EXECUTING, OPEN_STATES
from costguard.guard.hook import BEGUN
from costguard.ledger.db.tables import BIG, PACKED, STRICT, Row

KEY = ("provider", "account", "region", "external_id")
_OPEN = ", ".join(f"'{state}'" for state in OPEN_STATES)
STILL_OPEN = text(f"state IN ({_OPEN})")
IN_FLIGHT = text(f"state = '{EXECUTING}'")
UNSETTLED = text("sent_us IS NULL AND gave_up_us IS NULL")
IS_BEGUN = text(f"state = '{BEGUN}'")
IS_SEND = text(f"moved_to = '{EXECUTING}'")


def _numbers(*names: str) -> list[Column[Any]]:
    return [Column(name, BIG, nullable=False) for name in names]


def _instants(*names: str) -> list[Column[Any]]:
    """Those that may be missing."""
    return [Column(name, BIG) for name in names]


def _texts(*names: str) -> list[Column[Any]]:
    return [Column(name, Text, nullable=False) for name in names]


def _id() -> Column[Any]:
    """A number that the database counts up."""
    return Column("id", BIG, primary_key=True)


def _keys(*names: str) -> list[Column[Any]]:
    return [Column(name, Text, primary_key=True) for name in names]


WISH = Table(
    "wish",
    Row.metadata,
    *_keys("id"),
    *_texts("what", "who", "why"),
    *_numbers("at_us"),
    *_instants("until_us"),
    *_texts(*KEY, "life", "subject", "value"),
    *_instants("lifted_us"),
    Column("lifted_by", Text),
    CheckConstraint("(lifted_us IS NULL) = (lifted_by IS NULL)", name="wish_lifted_whole"),
    **STRICT,
)
"""What somebody told the guard. `life`: see `lives`; all of KEY and it are '' where it is of no resource in particular."""

INTENT = Table(
    "intent",
    Row.metadata,
    *_keys("id"),
    *_texts(*KEY, "life", "act", "policy", "rule", "why", "evidence", "state"),
    *_numbers("created_us", "moved_us", "epoch"),
    *_texts("lose"),
    *_numbers("irreversible", "sends"),
    *_instants("sent_us", "expires_us"),
    *_texts("outcome"),
    CheckConstraint("irreversible IN (0, 1) AND sends >= 0", name="intent_counts"),
    Index("intent_open_once", *KEY, "life", "act", unique=True, sqlite_where=STILL_OPEN, postgresql_where=STILL_OPEN),
    Index("intent_in_flight_once", *KEY, unique=True, sqlite_where=IN_FLIGHT, postgresql_where=IN_FLIGHT),
    Index("intent_by_sent", "sent_us"),
    **STRICT,
)
"""An intent as it stands. One is open for a life and act, and one a resource is about to be sent or was just sent."""

INTENT_EVENT = Table(
    "intent_event",
    Row.metadata,
    _id(),
    Column("intent_id", Text, ForeignKey("intent.id"), nullable=False),
    *_numbers("at_us"),
    *_texts("moved_from", "moved_to", "why"),
    *_numbers("epoch"),
    *_texts("run"),
    Index("intent_event_by_intent", "intent_id", "id"),
    Index("intent_event_sends", "at_us", sqlite_where=IS_SEND, postgresql_where=IS_SEND),
    Index("intent_event_run", "run", sqlite_where=IS_SEND, postgresql_where=IS_SEND),
    **STRICT,
)
"""Each move of an intent; `moved_from` is '' for the first. Those to EXECUTING are what the rails count."""

HOOK_RUN = Table(
    "hook_run",
    Row.metadata,
    *_keys("id"),
    *_texts(*KEY, "life", "policy", "rule"),
    *_numbers("number"),
    *_texts("hook"),
    *_numbers("began_us", "until_us", "epoch"),
    *_texts("state"),
    *_instants("ended_us", "status"),
    *_texts("why", "output"),
    CheckConstraint(f"(state = '{BEGUN}') = (ended_us IS NULL)", name="hook_run_ended_whole"),
    Index(
        "hook_run_open_once",
        *(*KEY, "life", "policy", "number"),
        unique=True,
        sqlite_where=IS_BEGUN,
        postgresql_where=IS_BEGUN,
    ),
    Index("hook_run_by_beginning", "began_us"),
    **STRICT,
)
"""A run of a hook, written before it begins, and once more when it has ended. `status`: how its program ended."""

CLIMB = Table(
    "climb",
    Row.metadata,
    *_keys("policy", *KEY, "life"),
    *_numbers("since_us", "started_us"),
    *_texts("done"),
    *_numbers("left_polls"),
    **PACKED,
)
"""How far a life has come on a policy's ladder. `done`: JSON of the numbers of its steps."""

PROTECTION_SEEN = Table("protection_seen", Row.metadata, *_keys(*KEY), *_numbers("at_us"), *_texts("how"), **PACKED)
"""When a resource was last seen protected on the cloud's side."""

NOTICE_STATE = Table("notice_state", Row.metadata, *_keys("route", "topic", "subject", "owner"), *_texts("told"), **PACKED)
"""What a route was told of something, as JSON of the rest of it: the ledger only keeps it."""

OUTBOX = Table(
    "outbox",
    Row.metadata,
    _id(),
    *_texts("message_id", "channel", "payload"),
    *_numbers("at_us", "tries", "next_us"),
    *_instants("sent_us", "gave_up_us"),
    *_texts("why"),
    UniqueConstraint("message_id", "channel", name="outbox_once"),
    CheckConstraint("sent_us IS NULL OR gave_up_us IS NULL", name="outbox_settled_once"),
    Index("outbox_due", "next_us", sqlite_where=UNSETTLED, postgresql_where=UNSETTLED),
    **STRICT,
)
"""Messages, written with what they tell of and sent afterwards. `payload`: JSON of the message."""

TURN = Table(
    "turn",
    Row.metadata,
    Column("id", BIG, primary_key=True, autoincrement=False),
    *_numbers("epoch", "rounds"),
    *_texts("holder"),
    *_numbers("until_us"),
    CheckConstraint("id = 1", name="turn_one_row"),
    **STRICT,
)
"""One row: who acts. `rounds`: how often it was taken or renewed."""

AUDIT = Table(
    "audit",
    Row.metadata,
    Column("seq", BIG, primary_key=True, autoincrement=False),
    *_numbers("at_us"),
    *_texts("kind", "body", "previous", "hash"),
    CheckConstraint("seq >= 1", name="audit_counts_from_one"),
    Index("audit_by_kind", "kind", "seq"),
    **STRICT,
)
"""What people wished and what was done, chained: see `chain`. `previous`: the hash of the row before."""

GUARD_RUN = Table(
    "guard_run",
    Row.metadata,
    _id(),
    *_texts("run_id"),
    *_numbers("at_us", "epoch", "interval_us", "skew_us"),
    *_texts("outcome", "notes", "facts"),
    UniqueConstraint("run_id", name="guard_run_once"),
    **STRICT,
)
"""The last runs of the guard. `notes`: JSON of texts. `facts`: JSON of pairs that the next run reads."""
