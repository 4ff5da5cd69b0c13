"""The outbox: messages written together with what they tell of, and sent afterwards, at least once, so many times at most."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from costguard.guard.alerts.alert import Alert, AlertState, Attachment, DeliveryResult, Notification
from costguard.ledger.db.asking import Ask, Tell
from costguard.ledger.db.lives import Shape, make_whole, put, text_fields, value_text
from costguard.ledger.guard import audit_log
from costguard.values.instant import to_micros
from costguard.values.resource import make_storable

if TYPE_CHECKING:
    from costguard.ledger.db.codecs import Row

AGAIN = tuple(timedelta(minutes=minutes) for minutes in (1, 2, 5, 15, 60, 180, 360))
"""After each try that failed: how long until the next one."""
MOST_TRIES = len(AGAIN) + 1
"""Of a message that is worth sending for a day; each further day has four more."""
A_DAY_MORE = timedelta(days=1) // AGAIN[-1]
MOST_DUE = 200
KEPT = timedelta(days=30)
"""How long a settled message is kept."""

NO_ROUTE = ""
"""A route has a name; this is kept of what goes past them all."""

_KEY = ("route", "topic", "subject", "owner")
_TOLD = Shape("notice_state", _KEY, ("told",))


def put_out(ask: Ask, tell: Tell, messages: Iterable[Notification]) -> None:
    """Write `messages`, with the audit's head; one with its id and channel that is there already stays as it is."""
    head = audit_log.head_text(ask)
    rows: list[Row] = [
        (
            make_storable(one.id),
            make_storable(one.channel),
            value_text(replace(one, audit=head)),
            to_micros(one.at),
            0,
            to_micros(one.at),
            "",
        )
        for one in messages
    ]
    sql = "INSERT INTO outbox (message_id, channel, payload, at_us, tries, next_us, why) VALUES (?, ?, ?, ?, ?, ?, ?)"
    if rows:
        tell(f"{sql} ON CONFLICT DO NOTHING", rows)


def due_messages(ask: Ask, now: datetime) -> list[Notification]:
    """Those to be tried at `now`, the oldest first, MOST_DUE at once."""
    sql = f"""
SELECT payload FROM outbox WHERE sent_us IS NULL AND gave_up_us IS NULL AND next_us <= ? ORDER BY id LIMIT {MOST_DUE}
"""  # noqa: S608 - our own number
    return [_message_of(payload) for (payload,) in ask(sql, (to_micros(now),))]


def settle(ask: Ask, tell: Tell, message_id: str, delivery: DeliveryResult, now: datetime) -> None:
    """What came of one try. After the last one, or where no other try helps, it is given up; settled ones stay as they are.

    What a settled message enclosed is dropped: it may be large, and nobody sends it again.
    """
    sql = "SELECT tries, payload FROM outbox WHERE message_id = ? AND sent_us IS NULL AND gave_up_us IS NULL"
    for tries, payload in ask(sql, (message_id,))[:1]:
        message = _message_of(payload)
        over = not delivery.again or tries + 1 >= most_tries(message)
        next_us = to_micros(now + (timedelta() if over else AGAIN[min(tries, len(AGAIN) - 1)]))
        sent_us, gave_up_us = (to_micros(now), None) if delivery.sent else (None, to_micros(now) if over else None)
        if message.enclosures and (delivery.sent or over):
            payload = value_text(replace(message, enclosures=()))  # noqa: PLW2901 - what is left of it
        sql = (
            "UPDATE outbox SET tries = tries + 1, next_us = ?, sent_us = ?, gave_up_us = ?, why = ?, payload = ? "
            "WHERE message_id = ? AND sent_us IS NULL AND gave_up_us IS NULL"
        )
        tell(sql, [(next_us, sent_us, gave_up_us, make_storable(delivery.why), payload, message_id)])


def most_tries(message: Notification) -> int:
    """How often `message` is tried at most."""
    return MOST_TRIES + (message.days - 1) * A_DAY_MORE


def undelivered(ask: Ask, since: datetime) -> list[tuple[Notification, str]]:
    """Those that were given up at or after `since`, with why."""
    sql = "SELECT payload, why FROM outbox WHERE gave_up_us >= ? ORDER BY id"
    return [(_message_of(payload), why) for payload, why in ask(sql, (to_micros(since),))]


def forget_settled(tell: Tell, now: datetime) -> None:
    """Drop what was settled KEPT ago."""
    until_us = to_micros(now - KEPT)
    tell("DELETE FROM outbox WHERE sent_us < ? OR gave_up_us < ?", [(until_us, until_us)])


def told(ask: Ask) -> list[AlertState]:
    """What routes were told of all that is kept, as it was handed to `write_told`, by its key."""
    return _told(ask, "<>")


def write_told(ask: Ask, tell: Tell, states: Iterable[AlertState]) -> None:
    """Keep `states` and nothing else of what routes were told."""
    make_whole(ask, tell, _TOLD, _told_rows((*states, *told_apart(ask))))


def told_apart(ask: Ask) -> list[AlertState]:
    """What was told past all routes: see `reportbook`."""
    return _told(ask, "=")


def write_told_apart(tell: Tell, one: AlertState) -> None:
    """Keep `one`, which is of no route, over what was kept by its key."""
    put(tell, _TOLD, _told_rows((one,)))


def forget_told_apart(tell: Tell, gone: Iterable[AlertState]) -> None:
    """Keep nothing of `gone`, each of no route."""
    rows = list(_told_rows(gone))
    if rows:
        tell(f"DELETE FROM notice_state WHERE {' AND '.join(f'{name} = ?' for name in _KEY)}", rows)  # noqa: S608 - our own column names


def _told(ask: Ask, compared: str) -> list[AlertState]:
    names = ", ".join(_KEY)
    rows = ask(f"SELECT {names}, told FROM notice_state WHERE route {compared} ? ORDER BY {names}", (NO_ROUTE,))  # noqa: S608 - our own names
    return [AlertState(**dict(zip(_KEY, key, strict=True)), **text_fields(rest)) for *key, rest in rows]


def _told_rows(states: Iterable[AlertState]) -> dict[Row, Row]:
    return {tuple(make_storable(getattr(one, name)) for name in _KEY): (value_text(one, without=_KEY),) for one in states}


def _message_of(payload: str) -> Notification:
    found = text_fields(payload)
    of = {"notices": Alert, "enclosures": Attachment}
    return Notification(**found | {name: tuple(make(**one) for one in found.get(name, ())) for name, make in of.items()})
