"""Store links that answer questions of the guard. Each change is one transaction and one entry of the audit log.

A question has a link for each message that carried it. An answer settles all of them, in the transaction that records the
override, so that a question is answered once whoever clicks.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import update
from sqlmodel import col, select

from costguard.errors import NoAnswerError
from costguard.guard.audit import LINK
from costguard.guard.overrides import Override
from costguard.guard.policy import EscalationState
from costguard.ledger.db.codecs import Execute, Query
from costguard.ledger.db.rows import insert_rows
from costguard.ledger.db.session import read_by
from costguard.ledger.db.store import LedgerStore
from costguard.ledger.guard.audit_log import append_entry
from costguard.ledger.guard.guard_state import add_override, load_escalations
from costguard.ledger.tables.ask_links import AskLinkRow
from costguard.values.ask_link import AskLink, explain_closed
from costguard.values.instant import from_micros, to_micros
from costguard.values.resource import Incarnation, ResourceKey, is_same_life, make_storable

_QUESTION = ("policy", "provider", "account", "region", "external_id", "act", "episode")
"""The columns that name a question."""
ANSWER_HINT = "costguard approve ID ACT and costguard keep ID answer it on a terminal"


def _find(ask: Query, link_hash: str, now: datetime) -> tuple[AskLink, Incarnation]:
    """Return the link of this hash, and the incarnation of the machine that it asks about.

    Raises NoAnswerError unless its question still waits for an answer.
    """
    rows = ask(select(AskLinkRow).where(col(AskLinkRow.hash) == link_hash))
    if not rows:
        raise NoAnswerError("is not known", field="this link", hint=ANSWER_HINT)
    link = _decode(rows[0])
    escalation = next((one for one in load_escalations(ask) if _is_question(one, link)), None)
    closed = explain_closed(link, now)
    if closed or escalation is None:
        raise NoAnswerError(closed or "asks a question that is no longer open", field="this link", hint=ANSWER_HINT)
    return link, escalation.life


class AskLinkStore(LedgerStore):
    """The links of the ledger at `url`. Close it, or use it in a `with` statement; several threads may use it."""

    def add(self, links: Iterable[AskLink]) -> None:
        """Record new links, before their message is sent."""
        rows = [_encode(one) for one in links]
        if not rows:
            return
        at_us = max(row.made_us for row in rows)
        with self._begin_write() as (ask, tell):
            insert_rows(tell, rows)
            for row in rows:
                _log(ask, tell, at_us, row, did="sent")

    find = read_by(_find)

    def settle(self, link_hash: str, answer: str, override: Override, now: datetime) -> None:
        """Record `override`, the answer of a link, and settle every link of its question. Raises NoAnswerError as `find`."""
        with self._begin_write() as (ask, tell):
            link, life = _find(ask, link_hash, now)
            if override.life is None or not is_same_life(override.life, life):
                raise NoAnswerError("asks about an earlier run of the machine", field="this link", hint=ANSWER_HINT)
            row = _encode(link)
            same = [getattr(AskLinkRow, name) == getattr(row, name) for name in _QUESTION]
            hashes = ask(select(AskLinkRow.hash).where(*same, col(AskLinkRow.settled_us).is_(None)))
            settled = update(AskLinkRow).where(col(AskLinkRow.hash).in_(hashes))
            tell(settled.values(settled_us=to_micros(now), answer=answer))
            add_override(ask, tell, override)
            _log(ask, tell, to_micros(now), row, did=answer)


def _is_question(one: EscalationState, link: AskLink) -> bool:
    return one.policy == link.policy and one.life.key == link.key and one.episode == link.episode


def _encode(link: AskLink) -> AskLinkRow:
    provider, account, region, external_id = map(make_storable, link.key)
    return AskLinkRow(
        hash=link.hash,
        addressee=make_storable(link.addressee),
        policy=make_storable(link.policy),
        provider=provider,
        account=account,
        region=region,
        external_id=external_id,
        act=make_storable(link.act),
        episode=make_storable(link.episode),
        made_us=to_micros(link.at),
        expires_us=to_micros(link.expires_at),
    )


def _decode(row: AskLinkRow) -> AskLink:
    return AskLink(
        hash=row.hash,
        addressee=row.addressee,
        policy=row.policy,
        key=ResourceKey(row.provider, row.account, row.region, row.external_id),
        act=row.act,
        episode=row.episode,
        at=from_micros(row.made_us),
        expires_at=from_micros(row.expires_us),
        settled_at=None if row.settled_us is None else from_micros(row.settled_us),
        answer=row.answer or "",
    )


def _log(ask: Query, tell: Execute, at_us: int, row: AskLinkRow, *, did: str) -> None:
    names = ("addressee", "policy", "provider", "account", "region", "external_id", "act")
    append_entry(ask, tell, LINK, at_us, {**{name: getattr(row, name) for name in names}, "did": did})
