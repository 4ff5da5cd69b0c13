"""Column types shared by all tables, and the tables of the guard, the agents and the bills.

The columns are 64-bit numbers, texts and keys, the same on both databases. `db.triggers` restricts which columns may change.

The tables of the guard hold overrides, intents, and the state that one guard run leaves to the next. They identify resources by
their full key and incarnations by their times, and refer to no row that polls write: no listing changes a lease.

The tables of the agents hold agents, their enrollment codes, and the tokens of readers over HTTP. None of them holds a secret:
of codes and tokens they store hashes, of agents the public key.

The tables of the bills hold what providers state that they charged, each import, and the results of reconciliations. Nothing in
them changes a span. A line that its provider restates is replaced, once, by a new row, and the older row names the import that
replaced it. Results of a reconciliation are rows of their own, each with its reason.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.types import REAL
from sqlmodel import Field, SQLModel

from costguard.bills.bill_line import CHARGES
from costguard.guard.action_intents import EXECUTING, OPEN_STATES
from costguard.guard.escalation import BEGUN
from costguard.values.web_login import ROLES

BIG_INTEGER: Any = BigInteger().with_variant(Integer(), "sqlite")
"""64 bits. In SQLite every INTEGER has them, and only INTEGER makes a primary key the row's own number."""
REAL_NUMBER: Any = Double().with_variant(REAL(), "sqlite")
"""Of samples only."""

STRICT: dict[str, Any] = {"sqlite_strict": True}
WITHOUT_ROWID: dict[str, Any] = {
    "sqlite_strict": True,
    "sqlite_with_rowid": False,
}  # rows lie in the order of their primary key, with no copy of it


class LedgerTable(SQLModel):
    """The base of every table.

    Its metadata is separate from any other program's.
    """

    metadata: ClassVar[MetaData] = MetaData()


def make_number_field() -> Any:  # noqa: ANN401 - what SQLModel's Field is typed as
    """Return a field for a 64-bit number."""
    return Field(sa_type=BIG_INTEGER)


def make_optional_number_field() -> Any:  # noqa: ANN401 - see above
    """Return a field for a 64-bit number or NULL."""
    return Field(default=None, sa_type=BIG_INTEGER, nullable=True)


def make_key_field() -> Any:  # noqa: ANN401 - see above
    """Return a primary key field that the database numbers if no value is given."""
    return Field(default=None, primary_key=True, sa_type=BIG_INTEGER)


def make_reference_field(table: str, *, primary_key: bool = False) -> Any:  # noqa: ANN401 - see above
    """Return a field for the id of a row of `table`."""
    return Field(foreign_key=f"{table}.id", sa_type=BIG_INTEGER, primary_key=primary_key)


def make_text_field() -> Any:  # noqa: ANN401 - see above
    """Return a field for a text."""
    return Field(sa_type=Text)


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
    """Return columns for instants, which may be NULL."""
    return [Column(name, BIG_INTEGER) for name in names]


def _make_text_columns(*names: str) -> list[Column[Any]]:
    return [Column(name, Text, nullable=False) for name in names]


def _make_id_column() -> Column[Any]:
    """Return the id column, which the database numbers."""
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
    Column("meaning", Text, nullable=False, server_default=text("''")),
    Column("promised", Text, nullable=False, server_default=text("'[]'")),
    **WITHOUT_ROWID,
)
"""How far a life has come in a policy's steps. `done`: JSON of the numbers of its steps.

`meaning`: the digest of the policy; "" in rows of older versions. `promised`: JSON of [act, earliest time in microseconds].
"""

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

NOTICE_DELIVERY = Table(
    "notice_delivery",
    LedgerTable.metadata,
    *_make_key_columns("message_id", "channel", "topic", "subject"),
    *_make_number_columns("notice_us", "delivered_us"),
    Index("notice_delivery_by_time", "delivered_us"),
    **STRICT,
)
"""A notice about a policy and a resource that a channel confirmed. `notice_us`: when it was written."""

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

ROW_DIGEST = Table(
    "row_digest",
    LedgerTable.metadata,
    Column("seq", BIG_INTEGER, primary_key=True, autoincrement=False),
    *_make_key_columns("table_name"),
    *_make_number_columns("lines"),
    *_make_text_columns("digests"),
    **STRICT,
)
"""The digests of the rows of one table that one transaction wrote, a line each: see `row_digests`. `seq`: its audit row."""

ROW_SEAL = Table(
    "row_seal",
    LedgerTable.metadata,
    *_make_key_columns("table_name", "row_key"),
    *_make_text_columns("seal"),
    **WITHOUT_ROWID,
)
"""The digest of a row that changes too often for the audit log: see `deciding_tables`."""

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


STILL_JOINED = text("revoked_us IS NULL")
_ROLES = "'viewer', 'operator'"  # a ledger may hold the second of an early version, which lets one do no more


AGENT = Table(
    "agent",
    LedgerTable.metadata,
    Column("id", Text, primary_key=True),
    *_make_text_columns(*RESOURCE_KEY, "life", "public_key"),
    *_make_number_columns("joined_us", "seq", "record_ms"),
    *_make_instant_columns("beat_us"),
    *_make_text_columns("version", "troubles"),
    *_make_instant_columns("revoked_us"),
    Column("revoked_by", Text),
    CheckConstraint("(revoked_us IS NULL) = (revoked_by IS NULL)", name="agent_revoked_whole"),
    CheckConstraint("seq >= 0", name="agent_counts"),
    Index("agent_once", *RESOURCE_KEY, unique=True, sqlite_where=STILL_JOINED, postgresql_where=STILL_JOINED),
    **STRICT,
)
"""An agent that joined. `life` '': of its resource through all lives; else as in `lives`. `troubles`: a JSON list of texts.

`record_ms`: the end of the last record that counted, by the agent's clock.
"""

AGENT_CODE = Table(
    "agent_code",
    LedgerTable.metadata,
    Column("hash", Text, primary_key=True),
    *_make_text_columns(*RESOURCE_KEY, "life", "who"),
    *_make_number_columns("at_us", "expires_us"),
    *_make_instant_columns("used_us"),
    Column("used_by", Text),
    CheckConstraint("(used_us IS NULL) = (used_by IS NULL)", name="agent_code_used_whole"),
    **STRICT,
)
"""A one-time code by its SHA-256. `used_by`: the id of the agent that joined with it."""

WEB_TOKEN = Table(
    "web_token",
    LedgerTable.metadata,
    Column("hash", Text, primary_key=True),
    *_make_text_columns("name", "role", "who"),
    *_make_number_columns("made_us", "expires_us"),
    *_make_instant_columns("revoked_us"),
    Column("revoked_by", Text),
    CheckConstraint(f"role IN ({_ROLES})", name="web_token_role"),
    CheckConstraint("(revoked_us IS NULL) = (revoked_by IS NULL)", name="web_token_revoked_whole"),
    Index("web_token_once", "name", unique=True, sqlite_where=STILL_JOINED, postgresql_where=STILL_JOINED),
    **STRICT,
)
"""Somebody who may ask over HTTP, by the SHA-256 of a token that was shown once."""

_PAGE_ROLES = ", ".join(f"'{role}'" for role in ROLES)

WEB_INVITE = Table(
    "web_invite",
    LedgerTable.metadata,
    Column("hash", Text, primary_key=True),
    *_make_text_columns("name", "role", "who"),
    *_make_number_columns("made_us", "expires_us"),
    *_make_instant_columns("used_us"),
    CheckConstraint(f"role IN ({_PAGE_ROLES})", name="web_invite_role"),
    **STRICT,
)
"""A link that logs somebody into the pages once, by the SHA-256 of its code."""

WEB_SESSION = Table(
    "web_session",
    LedgerTable.metadata,
    Column("hash", Text, primary_key=True),
    *_make_text_columns("name", "role", "invite"),
    *_make_number_columns("made_us", "expires_us"),
    *_make_instant_columns("revoked_us"),
    Column("revoked_by", Text),
    CheckConstraint(f"role IN ({_PAGE_ROLES})", name="web_session_role"),
    CheckConstraint("(revoked_us IS NULL) = (revoked_by IS NULL)", name="web_session_revoked_whole"),
    **STRICT,
)
"""A login to the pages, by the SHA-256 of its cookie. `invite`: the hash of the link that it came from."""

ASK_LINK = Table(
    "ask_link",
    LedgerTable.metadata,
    Column("hash", Text, primary_key=True),
    *_make_text_columns("addressee", "policy", "provider", "account", "region", "external_id", "act", "episode"),
    *_make_number_columns("made_us", "expires_us"),
    *_make_instant_columns("settled_us"),
    Column("answer", Text),
    CheckConstraint("answer IS NULL OR answer IN ('approved', 'denied')", name="ask_link_answer"),
    CheckConstraint("(settled_us IS NULL) = (answer IS NULL)", name="ask_link_settled_whole"),
    **STRICT,
)
"""A link in a message that answers one question of the guard once, by the SHA-256 of its secret."""

_CHARGES = ", ".join(f"'{charge}'" for charge in CHARGES)
STILL_STATED = text("replaced_us IS NULL")
LINE_KEY_NAMES = ("provider", "account", "statement", "line_id")
"""What a line is known by: a newer statement of the same name replaces the older one."""


def _make_reference_column(table: str, name: str, *, missing: bool = False) -> Column[Any]:
    """Return a column for the id of a row of `table`."""
    return Column(name, BIG_INTEGER, ForeignKey(f"{table}.id"), nullable=missing)


BILL_IMPORT = Table(
    "bill_import",
    LedgerTable.metadata,
    _make_id_column(),
    *_make_number_columns("at_us"),
    *_make_text_columns("who", "provider", "source"),
    *_make_number_columns("start_us", "end_us", "stated_us", "whole"),
    *_make_text_columns("why"),
    *_make_number_columns("lines"),
    CheckConstraint("whole IN (0, 1) AND start_us <= end_us", name="bill_import_in_order"),
    **STRICT,
)
"""One statement that was read: whose, from where, of which period, as it was `stated_us`, with how many lines.

`whole` 0: `why` says what it leaves out. What it changed, the lines that name it say.
"""

BILL_IMPORT_UNFINISHED = Table(
    "bill_import_unfinished",
    LedgerTable.metadata,
    Column("import_id", BIG_INTEGER, ForeignKey("bill_import.id"), primary_key=True, autoincrement=False),
    *_make_number_columns("lines_after", "undone"),
    CheckConstraint("undone IN (0, 1)", name="bill_import_unfinished_undone"),
    **STRICT,
)
"""An import that is being written, or whose process died: readers ignore what it did. Its lines have ids above `lines_after`.

`undone` 1: nothing of it is left.
"""

BILL_LINE = Table(
    "bill_line",
    LedgerTable.metadata,
    _make_id_column(),
    _make_reference_column("bill_import", "import_id"),
    *_make_text_columns(*LINE_KEY_NAMES),
    *_make_number_columns("start_us", "end_us", "nano"),
    *_make_text_columns("currency", "charge", "external_id", "region"),
    *_make_number_columns("estimated", "stated_us"),
    *_make_text_columns("source", "description"),
    Column("replaced_us", BIG_INTEGER),
    _make_reference_column("bill_import", "replaced_by", missing=True),
    Column("replaced_why", Text),
    CheckConstraint("start_us < end_us AND estimated IN (0, 1)", name="bill_line_in_order"),
    CheckConstraint(f"charge IN ({_CHARGES})", name="bill_line_charge"),
    CheckConstraint(
        "(replaced_us IS NULL) = (replaced_by IS NULL) AND (replaced_us IS NULL) = (replaced_why IS NULL)",
        name="bill_line_replaced_whole",
    ),
    Index("bill_line_once", *LINE_KEY_NAMES, unique=True, sqlite_where=STILL_STATED, postgresql_where=STILL_STATED),
    Index("bill_line_by_time", "provider", "start_us"),
    **STRICT,
)
"""One line as stated, but for its tags: one that is set later would replace a line whose money is the same.

`replaced_us`, `replaced_by` (an import) and `replaced_why` are set once, when it is stated no more.
"""

RECONCILIATION = Table(
    "reconciliation",
    LedgerTable.metadata,
    _make_id_column(),
    *_make_number_columns("at_us"),
    *_make_text_columns("who", "provider", "account", "currency"),
    *_make_number_columns("start_us", "end_us", "billed", "low", "expected", "high", "unexplained", "allowed"),
    *_make_text_columns("outcome", "tolerance"),
    *_make_number_columns("told"),
    CheckConstraint("outcome IN ('within', 'beyond', 'unknown') AND told IN (0, 1)", name="reconciliation_outcome"),
    CheckConstraint("start_us < end_us AND low <= expected AND expected <= high", name="reconciliation_in_order"),
    Index("reconciliation_by_time", "end_us"),
    **STRICT,
)
"""A bill compared with the charges of one account and currency in [start, end). `told`: whether a notice was written of it."""

BILL_ADJUSTMENT = Table(
    "bill_adjustment",
    LedgerTable.metadata,
    _make_id_column(),
    _make_reference_column("reconciliation", "reconciliation_id"),
    *_make_text_columns("cause", "charge", "sku", "currency"),
    *_make_number_columns("nano", "explained", "resources", "lines"),
    *_make_text_columns("reason"),
    CheckConstraint("explained IN (0, 1)", name="bill_adjustment_explained"),
    Index("bill_adjustment_by_reconciliation", "reconciliation_id"),
    **STRICT,
)
"""What is added to the charges so that they come to the bill, for one cause: bill less expected charges, and the reason."""
