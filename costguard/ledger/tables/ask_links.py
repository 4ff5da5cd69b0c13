"""Links in messages that answer a question of the guard."""

from __future__ import annotations

from sqlalchemy import CheckConstraint

from costguard.ledger.types import KeyWords, LaterOptionalNumber, LaterOptionalWords, LedgerRow, Number, Words, declare_table


class AskLinkRow(LedgerRow, table=True):
    """A link in a message that answers one question of the guard once, by the SHA-256 of its secret."""

    __tablename__ = "ask_link"
    __table_args__ = (
        CheckConstraint("answer IS NULL OR answer IN ('approved', 'denied')", name="ask_link_answer"),
        CheckConstraint("(settled_us IS NULL) = (answer IS NULL)", name="ask_link_settled_whole"),
        declare_table(keeps_rows=True, written_once=True),
    )

    hash: KeyWords
    addressee: Words
    policy: Words
    provider: Words
    account: Words
    region: Words
    external_id: Words
    act: Words
    episode: Words
    made_us: Number
    expires_us: Number
    settled_us: LaterOptionalNumber = None
    answer: LaterOptionalWords = None
