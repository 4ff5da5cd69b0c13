"""Messages on their way, what became of them, and what each route was told."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Index, UniqueConstraint, text

from costguard.ledger.types import (
    KeyWords,
    LaterNumber,
    LedgerRow,
    Number,
    OptionalNumber,
    OptionalWords,
    RowNumber,
    Words,
    declare_table,
    index_where,
)

UNSETTLED = text("sent_us IS NULL AND gave_up_us IS NULL")


class NoticeStateRow(LedgerRow, table=True):
    """What a route was told of something, as JSON of the rest of it: the ledger only keeps it."""

    __tablename__ = "notice_state"
    __table_args__ = declare_table(without_rowid=True)

    route: KeyWords
    topic: KeyWords
    subject: KeyWords
    owner: KeyWords
    told: Words


class OutboxRow(LedgerRow, table=True):
    """Messages, written with what they tell of and sent afterwards. `payload`: JSON of the message."""

    __tablename__ = "outbox"
    __table_args__ = (
        UniqueConstraint("message_id", "channel", name="outbox_once"),
        CheckConstraint("sent_us IS NULL OR gave_up_us IS NULL", name="outbox_settled_once"),
        index_where("outbox_due", "next_us", where=UNSETTLED),
        declare_table(),
    )

    id: RowNumber
    message_id: Words
    channel: Words
    payload: Words
    at_us: Number
    tries: Number
    next_us: Number
    sent_us: OptionalNumber = None
    gave_up_us: OptionalNumber = None
    why: Words


class MessageCountRow(LedgerRow, table=True):
    """What became of the messages of a channel, ever: they go after 30 days. `channel`: all mail to people is "mail"."""

    __tablename__ = "message_count"
    __table_args__ = (
        UniqueConstraint("channel", name="message_count_once"),
        declare_table(keeps_rows=True, written_once=True),
    )

    id: RowNumber
    channel: Words
    sent: LaterNumber
    gave_up: LaterNumber
    tries_failed: LaterNumber


class NoticeDeliveryRow(LedgerRow, table=True):
    """A notice about a policy and a resource that a channel confirmed. `notice_us`: when it was written.

    `owner`: whose resource it was then; NULL in rows of older versions.
    """

    __tablename__ = "notice_delivery"
    __table_args__ = (
        Index("notice_delivery_by_time", "delivered_us"),
        declare_table(),
    )

    message_id: KeyWords
    channel: KeyWords
    topic: KeyWords
    subject: KeyWords
    notice_us: Number
    delivered_us: Number
    owner: OptionalWords = None
