"""The tables of the guard: what people wished, what was going to be done, and what the next run must know of the last one.

They name resources by their whole key and lives by their times, and refer to no row that polls write: whatever a listing says,
a lease stays a lease. What may be changed of them, `guards` says.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Table, Text, UniqueConstraint, text

from costguard.guard.action_intents import EXECUTING, OPEN_STATES
from costguard.guard.hook import BEGUN
from costguard.ledger.db.tables import BIG_INTEGER, STRICT, WITHOUT_ROWID, LedgerTable

RESOURCE_KEY = ("provider", "account", "region", "external_id")
_OPEN_STATES = ", ".join(f"'{state}'" for state in OPEN_STATES)
STILL_OPEN = text(f"state IN ({_OPEN_STATES})")
IN_FLIGHT = text(f"state = '{EXECUTING}'")
UNSETTLED = text("sent_us IS NULL AND gave_up_us IS NULL")
IS_BEGUN = text(f"state = '{BEGUN}'")
IS_SEND = text(f"moved_to = '{EXECUTING}'")


def _make_number_columns(*names: str) -> list[Column[Any]]:
    return [Column(name, BIG_INTEGER, nullable=False) for name in names]


def _make_instant_columns(*names: str) -> list[Column[Any]]:
    """Those that may be missing."""
    return [Column(name, BIG_INTEGER) for name in names]


def _make_text_columns(*names: str) -> list[Column[Any]]:
    return [Column(name, Text, nullable=False) for name in names]


def _make_id_column() -> Column[Any]:
    """A number that the database counts up."""
    return Column("id", BIG_INTEGER, primary_key=True)


def _make_key_columns(*names: str) -> list[Column[Any]]:
    return [Column(name, Text, primary_key=True) for name in names]


WISH = Table(
    "wish",
    LedgerTable.metadata,
    *_make_key_columns("id"),
    *_make_text_columns("what", "who", "why"),
    *_make_number_columns("at_us"),
    *_make_instant_columns("until_us"),
    *_make_text_columns(*RESOURCE_KEY, "life", "subject", "value"),
    *_make_instant_columns("lifted_us"),
    Column("lifted_by", Text),
    CheckConstraint("(lifted_us IS NULL) = (lifted_by IS NULL)", name="wish_lifted_whole"),
    **STRICT,
)
"""What somebody told the guard. `life`: see `lives`; all of KEY and it are '' where it is of no resource in particular."""

INTENT = Table(
    "intent",
    LedgerTable.metadata,
    *_make_key_columns("id"),
    *_make_text_columns(*RESOURCE_KEY, "life", "act", "policy", "rule", "why", "evidence", "state"),
    *_make_number_columns("created_us", "moved_us", "epoch"),
    *_make_text_columns("lose"),
    *_make_number_columns("irreversible", "sends"),
    *_make_instant_columns("sent_us", "expires_us"),
    *_make_text_columns("outcome"),
    CheckConstraint("irreversible IN (0, 1) AND sends >= 0", name="intent_counts"),
    Index("intent_open_once", *RESOURCE_KEY, "life", "act", unique=True, sqlite_where=STILL_OPEN, postgresql_where=STILL_OPEN),
    Index("intent_in_flight_once", *RESOURCE_KEY, unique=True, sqlite_where=IN_FLIGHT, postgresql_where=IN_FLIGHT),
    Index("intent_by_sent", "sent_us"),
    **STRICT,
)
"""An intent as it stands. One is open for a life and act, and one a resource is about to be sent or was just sent."""

INTENT_EVENT = Table(
    "intent_event",
    LedgerTable.metadata,
    _make_id_column(),
    Column("intent_id", Text, ForeignKey("intent.id"), nullable=False),
    *_make_number_columns("at_us"),
    *_make_text_columns("moved_from", "moved_to", "why"),
    *_make_number_columns("epoch"),
    *_make_text_columns("run"),
    Index("intent_event_by_intent", "intent_id", "id"),
    Index("intent_event_sends", "at_us", sqlite_where=IS_SEND, postgresql_where=IS_SEND),
    Index("intent_event_run", "run", sqlite_where=IS_SEND, postgresql_where=IS_SEND),
    **STRICT,
)
"""Each move of an intent; `moved_from` is '' for the first. Those to EXECUTING are what the rails count."""

HOOK_RUN = Table(
    "hook_run",
    LedgerTable.metadata,
    *_make_key_columns("id"),
    *_make_text_columns(*RESOURCE_KEY, "life", "policy", "rule"),
    *_make_number_columns("number"),
    *_make_text_columns("hook"),
    *_make_number_columns("began_us", "until_us", "epoch"),
    *_make_text_columns("state"),
    *_make_instant_columns("ended_us", "status"),
    *_make_text_columns("why", "output"),
    CheckConstraint(f"(state = '{BEGUN}') = (ended_us IS NULL)", name="hook_run_ended_whole"),
    Index(
        "hook_run_open_once",
        *(*RESOURCE_KEY, "life", "policy", "number"),
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
    LedgerTable.metadata,
    *_make_key_columns("policy", *RESOURCE_KEY, "life"),
    *_make_number_columns("since_us", "started_us"),
    *_make_text_columns("done"),
    *_make_number_columns("left_polls"),
    **WITHOUT_ROWID,
)
"""How far a life has come on a policy's ladder. `done`: JSON of the numbers of its steps."""

PROTECTION_SEEN = Table(
    "protection_seen",
    LedgerTable.metadata,
    *_make_key_columns(*RESOURCE_KEY),
    *_make_number_columns("at_us"),
    *_make_text_columns("how"),
    **WITHOUT_ROWID,
)
"""When a resource was last seen protected on the cloud's side."""

NOTICE_STATE = Table(
    "notice_state",
    LedgerTable.metadata,
    *_make_key_columns("route", "topic", "subject", "owner"),
    *_make_text_columns("told"),
    **WITHOUT_ROWID,
)
"""What a route was told of something, as JSON of the rest of it: the ledger only keeps it."""

OUTBOX = Table(
    "outbox",
    LedgerTable.metadata,
    _make_id_column(),
    *_make_text_columns("message_id", "channel", "payload"),
    *_make_number_columns("at_us", "tries", "next_us"),
    *_make_instant_columns("sent_us", "gave_up_us"),
    *_make_text_columns("why"),
    UniqueConstraint("message_id", "channel", name="outbox_once"),
    CheckConstraint("sent_us IS NULL OR gave_up_us IS NULL", name="outbox_settled_once"),
    Index("outbox_due", "next_us", sqlite_where=UNSETTLED, postgresql_where=UNSETTLED),
    **STRICT,
)
"""Messages, written with what they tell of and sent afterwards. `payload`: JSON of the message."""

TURN = Table(
    "turn",
    LedgerTable.metadata,
    Column("id", BIG_INTEGER, primary_key=True, autoincrement=False),
    *_make_number_columns("epoch", "rounds"),
    *_make_text_columns("holder"),
    *_make_number_columns("until_us"),
    CheckConstraint("id = 1", name="turn_one_row"),
    **STRICT,
)
"""One row: who acts. `rounds`: how often it was taken or renewed."""

AUDIT = Table(
    "audit",
    LedgerTable.metadata,
    Column("seq", BIG_INTEGER, primary_key=True, autoincrement=False),
    *_make_number_columns("at_us"),
    *_make_text_columns("kind", "body", "previous", "hash"),
    CheckConstraint("seq >= 1", name="audit_counts_from_one"),
    Index("audit_by_kind", "kind", "seq"),
    **STRICT,
)
"""What people wished and what was done, chained: see `chain`. `previous`: the hash of the row before."""

GUARD_RUN = Table(
    "guard_run",
    LedgerTable.metadata,
    _make_id_column(),
    *_make_text_columns("run_id"),
    *_make_number_columns("at_us", "epoch", "interval_us", "skew_us"),
    *_make_text_columns("outcome", "notes", "facts"),
    UniqueConstraint("run_id", name="guard_run_once"),
    **STRICT,
)
"""The last runs of the guard. `notes`: JSON of texts. `facts`: JSON of pairs that the next run reads."""
