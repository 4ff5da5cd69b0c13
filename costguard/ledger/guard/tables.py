"""The tables of the guard: overrides, intents, messages, the audit log, and the state that one run leaves to the next.

They identify resources by their full key and incarnations by their times, and refer to no row that polls write: no listing
changes a lease.
"""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Table, Text, UniqueConstraint, text

from costguard.guard.action_intents import EXECUTING, OPEN_STATES
from costguard.guard.escalation import BEGUN
from costguard.ledger.db.columns import (
    BIG_INTEGER,
    METADATA,
    RESOURCE_KEY,
    STRICT,
    WITHOUT_ROWID,
    make_id_column,
    make_instant_columns,
    make_key_columns,
    make_number_columns,
    make_text_columns,
)

_OPEN_STATES = ", ".join(f"'{state}'" for state in OPEN_STATES)
STILL_OPEN = text(f"state IN ({_OPEN_STATES})")
IN_FLIGHT = text(f"state = '{EXECUTING}'")
UNSETTLED = text("sent_us IS NULL AND gave_up_us IS NULL")
IS_BEGUN = text(f"state = '{BEGUN}'")
IS_SEND = text(f"moved_to = '{EXECUTING}'")

WISH = Table(
    "wish",
    METADATA,
    *make_key_columns("id"),
    *make_text_columns("what", "who", "why"),
    *make_number_columns("at_us"),
    *make_instant_columns("until_us"),
    *make_text_columns(*RESOURCE_KEY, "life", "subject", "value"),
    *make_instant_columns("lifted_us"),
    Column("lifted_by", Text),
    CheckConstraint("(lifted_us IS NULL) = (lifted_by IS NULL)", name="wish_lifted_whole"),
    **STRICT,
)
"""What somebody told the guard. `life`: see `lives`; all of KEY and it are '' where it is of no resource in particular."""

INTENT = Table(
    "intent",
    METADATA,
    *make_key_columns("id"),
    *make_text_columns(*RESOURCE_KEY, "life", "act", "policy", "rule", "why", "evidence", "state"),
    *make_number_columns("created_us", "moved_us", "epoch"),
    *make_text_columns("lose"),
    *make_number_columns("irreversible", "sends"),
    *make_instant_columns("sent_us", "expires_us"),
    *make_text_columns("outcome"),
    CheckConstraint("irreversible IN (0, 1) AND sends >= 0", name="intent_counts"),
    Index("intent_open_once", *RESOURCE_KEY, "life", "act", unique=True, sqlite_where=STILL_OPEN, postgresql_where=STILL_OPEN),
    Index("intent_in_flight_once", *RESOURCE_KEY, unique=True, sqlite_where=IN_FLIGHT, postgresql_where=IN_FLIGHT),
    Index("intent_by_sent", "sent_us"),
    **STRICT,
)
"""An intent as it stands. One is open for a life and act, and one a resource is about to be sent or was just sent."""

INTENT_EVENT = Table(
    "intent_event",
    METADATA,
    make_id_column(),
    Column("intent_id", Text, ForeignKey("intent.id"), nullable=False),
    *make_number_columns("at_us"),
    *make_text_columns("moved_from", "moved_to", "why"),
    *make_number_columns("epoch"),
    *make_text_columns("run"),
    Index("intent_event_by_intent", "intent_id", "id"),
    Index("intent_event_sends", "at_us", sqlite_where=IS_SEND, postgresql_where=IS_SEND),
    Index("intent_event_run", "run", sqlite_where=IS_SEND, postgresql_where=IS_SEND),
    **STRICT,
)
"""Each move of an intent; `moved_from` is '' for the first. Those to EXECUTING are what the rails count."""

HOOK_RUN = Table(
    "hook_run",
    METADATA,
    *make_key_columns("id"),
    *make_text_columns(*RESOURCE_KEY, "life", "policy", "rule"),
    *make_number_columns("number"),
    *make_text_columns("hook"),
    *make_number_columns("began_us", "until_us", "epoch"),
    *make_text_columns("state"),
    *make_instant_columns("ended_us", "status"),
    *make_text_columns("why", "output"),
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
    METADATA,
    *make_key_columns("policy", *RESOURCE_KEY, "life"),
    *make_number_columns("since_us", "started_us"),
    *make_text_columns("done"),
    *make_number_columns("left_polls"),
    Column("meaning", Text, nullable=False, server_default=text("''")),
    Column("promised", Text, nullable=False, server_default=text("'[]'")),
    *make_instant_columns("announced_us"),
    **WITHOUT_ROWID,
)
"""How far a life has come in a policy's steps. `done`: JSON of the numbers of its steps.

`meaning`: the digest of the policy; "" in rows of older versions. `promised`: JSON of [act, earliest time in microseconds].
`announced_us`: notices from before it announce nothing; NULL: all since the first step do.
"""

PROTECTION_SEEN = Table(
    "protection_seen",
    METADATA,
    *make_key_columns(*RESOURCE_KEY),
    *make_number_columns("at_us"),
    *make_text_columns("how"),
    **WITHOUT_ROWID,
)
"""When a resource was last seen protected on the cloud's side."""

NOTICE_STATE = Table(
    "notice_state",
    METADATA,
    *make_key_columns("route", "topic", "subject", "owner"),
    *make_text_columns("told"),
    **WITHOUT_ROWID,
)
"""What a route was told of something, as JSON of the rest of it: the ledger only keeps it."""

OUTBOX = Table(
    "outbox",
    METADATA,
    make_id_column(),
    *make_text_columns("message_id", "channel", "payload"),
    *make_number_columns("at_us", "tries", "next_us"),
    *make_instant_columns("sent_us", "gave_up_us"),
    *make_text_columns("why"),
    UniqueConstraint("message_id", "channel", name="outbox_once"),
    CheckConstraint("sent_us IS NULL OR gave_up_us IS NULL", name="outbox_settled_once"),
    Index("outbox_due", "next_us", sqlite_where=UNSETTLED, postgresql_where=UNSETTLED),
    **STRICT,
)
"""Messages, written with what they tell of and sent afterwards. `payload`: JSON of the message."""

MESSAGE_COUNT = Table(
    "message_count",
    METADATA,
    make_id_column(),
    *make_text_columns("channel"),
    *make_number_columns("sent", "gave_up", "tries_failed"),
    UniqueConstraint("channel", name="message_count_once"),
    **STRICT,
)
"""What became of the messages of a channel, ever: they are deleted 30 days after. `channel`: all mail to people is "mail"."""

NOTICE_DELIVERY = Table(
    "notice_delivery",
    METADATA,
    *make_key_columns("message_id", "channel", "topic", "subject"),
    *make_number_columns("notice_us", "delivered_us"),
    Column("owner", Text),
    Index("notice_delivery_by_time", "delivered_us"),
    **STRICT,
)
"""A notice about a policy and a resource that a channel confirmed. `notice_us`: when it was written.

`owner`: whose resource it was then; NULL in rows of older versions.
"""

TURN = Table(
    "turn",
    METADATA,
    Column("id", BIG_INTEGER, primary_key=True, autoincrement=False),
    *make_number_columns("epoch", "rounds"),
    *make_text_columns("holder"),
    *make_number_columns("until_us"),
    CheckConstraint("id = 1", name="turn_one_row"),
    **STRICT,
)
"""One row: who acts. `rounds`: how often it was taken or renewed."""

AUDIT = Table(
    "audit",
    METADATA,
    Column("seq", BIG_INTEGER, primary_key=True, autoincrement=False),
    *make_number_columns("at_us"),
    *make_text_columns("kind", "body", "previous", "hash"),
    CheckConstraint("seq >= 1", name="audit_counts_from_one"),
    Index("audit_by_kind", "kind", "seq"),
    **STRICT,
)
"""What people wished and what was done, chained: see `chain`. `previous`: the hash of the row before."""

ROW_DIGEST = Table(
    "row_digest",
    METADATA,
    Column("seq", BIG_INTEGER, primary_key=True, autoincrement=False),
    *make_key_columns("table_name"),
    *make_number_columns("lines"),
    *make_text_columns("digests"),
    **STRICT,
)
"""The digests of the rows of one table that one transaction wrote, a line each: see `row_digests`. `seq`: its audit row."""

ROW_SEAL = Table(
    "row_seal",
    METADATA,
    *make_key_columns("table_name", "row_key"),
    *make_text_columns("seal"),
    **WITHOUT_ROWID,
)
"""The digest of a row that changes too often for the audit log: see `deciding_tables`."""

GUARD_RUN = Table(
    "guard_run",
    METADATA,
    make_id_column(),
    *make_text_columns("run_id"),
    *make_number_columns("at_us", "epoch", "interval_us", "skew_us"),
    *make_text_columns("outcome", "notes", "facts"),
    UniqueConstraint("run_id", name="guard_run_once"),
    **STRICT,
)
"""The last runs of the guard. `notes`: JSON of texts. `facts`: JSON of pairs that the next run reads."""

ASK_LINK = Table(
    "ask_link",
    METADATA,
    Column("hash", Text, primary_key=True),
    *make_text_columns("addressee", "policy", "provider", "account", "region", "external_id", "act", "episode"),
    *make_number_columns("made_us", "expires_us"),
    *make_instant_columns("settled_us"),
    Column("answer", Text),
    CheckConstraint("answer IS NULL OR answer IN ('approved', 'denied')", name="ask_link_answer"),
    CheckConstraint("(settled_us IS NULL) = (answer IS NULL)", name="ask_link_settled_whole"),
    **STRICT,
)
"""A link in a message that answers one question of the guard once, by the SHA-256 of its secret."""
