"""Store links that answer questions of the guard. Each change is one transaction and one entry of the audit log.

A question has a link for each message that carried it. An answer settles all of them, in the transaction that records the
override, so that a question is answered once whoever clicks.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from costguard.errors import NoAnswerError
from costguard.guard.audit import LINK
from costguard.guard.overrides import Override
from costguard.guard.policy import EscalationState
from costguard.ledger.db.codecs import Execute, Query, SqlRow
from costguard.ledger.db.row_digests import RowRecorder
from costguard.ledger.db.store import LedgerStore
from costguard.ledger.guard.audit_log import append_entry
from costguard.ledger.guard.guard_state import add_override, load_escalations
from costguard.values.ask_link import AskLink, explain_closed
from costguard.values.instant import from_micros, to_micros
from costguard.values.resource import Incarnation, ResourceKey, is_same_life, make_storable

_COLUMNS = "hash, addressee, policy, provider, account, region, external_id, act, episode, made_us, expires_us"
_QUESTION = "policy = ? AND provider = ? AND account = ? AND region = ? AND external_id = ? AND act = ? AND episode = ?"
ANSWER_HINT = "costguard approve ID ACT and costguard keep ID answer it on a terminal"


class AskLinkStore(LedgerStore):
    """The links of the ledger at `url`. Close it, or use it in a `with` statement; several threads may use it."""

    def add(self, links: Iterable[AskLink]) -> None:
        """Record new links, before their message is sent."""
        rows = [_encode(one) for one in links]
        if not rows:
            return
        at_us = max(row[9] for row in rows)
        with self._begin_write() as (ask, tell):
            tell(f"INSERT INTO ask_link ({_COLUMNS}) VALUES ({', '.join('?' * len(rows[0]))})", rows)  # noqa: S608 - our own names
            recorder = RowRecorder()
            recorder.add("ask_link", _COLUMNS, rows)
            recorder.append(ask, tell, at_us)
            for row in rows:
                _log(ask, tell, at_us, row, did="sent")

    def find(self, link_hash: str, now: datetime) -> tuple[AskLink, Incarnation]:
        """Return the link of this hash, and the incarnation of the machine that it asks about.

        Raises NoAnswerError unless its question still waits for an answer.
        """
        with self._begin_read() as ask:
            return _find(ask, link_hash, now)

    def settle(self, link_hash: str, answer: str, wish: Override, now: datetime) -> None:
        """Record `wish`, the answer of a link, and settle every link of its question. Raises NoAnswerError as `find`."""
        with self._begin_write() as (ask, tell):
            link, life = _find(ask, link_hash, now)
            if wish.life is None or not is_same_life(wish.life, life):
                raise NoAnswerError("asks about an earlier run of the machine", field="this link", hint=ANSWER_HINT)
            question = _encode(link)[2:9]
            hashes = ask(f"SELECT hash FROM ask_link WHERE {_QUESTION} AND settled_us IS NULL", question)  # noqa: S608 - our own names
            rows: list[SqlRow] = [(to_micros(now), answer, one) for (one,) in hashes]
            tell("UPDATE ask_link SET settled_us = ?, answer = ? WHERE hash = ?", rows)
            recorder = RowRecorder()
            recorder.change("ask_link", "settled_us, answer, hash", rows)
            recorder.append(ask, tell, to_micros(now))
            add_override(ask, tell, wish)
            _log(ask, tell, to_micros(now), _encode(link), did=answer)


def _find(ask: Query, link_hash: str, now: datetime) -> tuple[AskLink, Incarnation]:
    rows = ask(f"SELECT {_COLUMNS}, settled_us, answer FROM ask_link WHERE hash = ?", (link_hash,))  # noqa: S608 - our own names
    if not rows:
        raise NoAnswerError("is not known", field="this link", hint=ANSWER_HINT)
    link = _decode(rows[0])
    asked = next((one for one in load_escalations(ask) if _is_question(one, link)), None)
    closed = explain_closed(link, now)
    if closed or asked is None:
        raise NoAnswerError(closed or "asks what is no longer asked", field="this link", hint=ANSWER_HINT)
    return link, asked.life


def _is_question(one: EscalationState, link: AskLink) -> bool:
    return one.policy == link.policy and one.life.key == link.key and one.episode == link.episode


def _encode(link: AskLink) -> SqlRow:
    texts = map(make_storable, (link.addressee, link.policy, *link.key, link.act, link.episode))
    return (link.hash, *texts, to_micros(link.at), to_micros(link.expires_at))


def _decode(row: SqlRow) -> AskLink:
    hash_, addressee, policy, *place, act, episode, made_us, expires_us, settled_us, answer = row
    return AskLink(
        hash=hash_,
        addressee=addressee,
        policy=policy,
        key=ResourceKey(*place),
        act=act,
        episode=episode,
        at=from_micros(made_us),
        expires_at=from_micros(expires_us),
        settled_at=None if settled_us is None else from_micros(settled_us),
        answer=answer or "",
    )


def _log(ask: Query, tell: Execute, at_us: int, row: SqlRow, *, did: str) -> None:
    names = ("addressee", "policy", "provider", "account", "region", "external_id", "act")
    append_entry(ask, tell, LINK, at_us, {**dict(zip(names, row[1:8], strict=True)), "did": did})
