"""The outbox: notifications written together with the alerts they report, and delivered afterwards, at least once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from costguard.guard.alerts.alert import Alert, AlertState, Attachment, DeliveryResult, NoticeDelivery, Notification
from costguard.guard.alerts.dispatch import refresh_waiting
from costguard.ledger.db.codecs import Execute, Query, TableShape, decode_fields, encode_fields, replace_rows, upsert_rows
from costguard.ledger.db.row_digests import remove_seals, seal_rows
from costguard.ledger.guard import audit_log
from costguard.reporting.schedule import MAIL_PREFIX
from costguard.values.instant import from_micros, to_micros
from costguard.values.resource import make_storable

if TYPE_CHECKING:
    from costguard.ledger.db.codecs import SqlRow

RETRY_DELAYS = tuple(timedelta(minutes=minutes) for minutes in (1, 2, 5, 15, 60, 180, 360))
"""After each try that failed: how long until the next one."""
ACT_RETRY_DELAYS = RETRY_DELAYS[:4]
"""Of a notice before an act, which is held until the notice is delivered: the last delay again and again, for a day."""
TRIES_MAX = len(RETRY_DELAYS) + 1
"""Of a message that is worth sending for a day; each further day has four more."""
TRIES_PER_DAY = timedelta(days=1) // RETRY_DELAYS[-1]
DUE_MESSAGES_MAX = 200
RETENTION = timedelta(days=30)
"""How long a settled message is kept."""

DELIVERIES_KEPT = timedelta(days=400)
"""A climb may last a year: its steps come at most 365 days after the first."""
POLICY_TOPIC = "policy:"

NO_ROUTE = ""
"""A route has a name; this is kept of what goes past them all."""

_DELIVERY_COLUMNS = "message_id, channel, topic, subject, notice_us, delivered_us, owner"
_STATE_KEY = ("route", "topic", "subject", "owner")
_STATE_TABLE = TableShape("notice_state", _STATE_KEY, ("told",))


def enqueue_messages(ask: Query, tell: Execute, messages: Iterable[Notification]) -> None:
    """Write `messages` with the audit head; one whose id and channel already exist stays as it is."""
    head = audit_log.read_head_text(ask)
    rows: list[SqlRow] = [
        (
            make_storable(one.id),
            make_storable(one.channel),
            encode_fields(replace(one, audit=head)),
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


def refresh_waiting_messages(ask: Query, tell: Execute, present: Iterable[Alert]) -> None:
    """Let the messages that wait for their channel say what holds now."""
    by_key = {(one.topic, one.subject, one.owner): one for one in present}
    for number, payload in ask("SELECT id, payload FROM outbox WHERE sent_us IS NULL AND gave_up_us IS NULL AND tries > 0", ()):
        message = _decode_message(payload)
        fresh = refresh_waiting(message, by_key)
        if fresh is not message:
            tell("UPDATE outbox SET payload = ? WHERE id = ? AND sent_us IS NULL", [(encode_fields(fresh), number)])


def load_due_messages(ask: Query, now: datetime) -> list[Notification]:
    """Return the messages to try at `now`, oldest first, at most `DUE_MESSAGES_MAX`."""
    sql = f"""
SELECT payload FROM outbox WHERE sent_us IS NULL AND gave_up_us IS NULL AND next_us <= ? ORDER BY id LIMIT {DUE_MESSAGES_MAX}
"""  # noqa: S608 - our own number
    return [_decode_message(payload) for (payload,) in ask(sql, (to_micros(now),))]


def settle_message(ask: Query, tell: Execute, message_id: str, delivery: DeliveryResult, now: datetime) -> None:
    """Record the result of one try.

    After the last try, or if a retry cannot help, the message is given up; settled messages stay as they are. The attachments
    of a settled message are deleted, because they may be large and are not sent again.
    """
    sql = "SELECT tries, payload FROM outbox WHERE message_id = ? AND sent_us IS NULL AND gave_up_us IS NULL"
    for tries, payload in ask(sql, (message_id,))[:1]:
        message = _decode_message(payload)
        over = not delivery.again or tries + 1 >= compute_tries_max(message)
        delays = ACT_RETRY_DELAYS if _precedes_act(message) else RETRY_DELAYS
        next_us = to_micros(now + (timedelta() if over else delays[min(tries, len(delays) - 1)]))
        sent_us, gave_up_us = (to_micros(now), None) if delivery.sent else (None, to_micros(now) if over else None)
        if message.enclosures and (delivery.sent or over):
            payload = encode_fields(replace(message, enclosures=()))  # noqa: PLW2901 - what is left of it
        sql = (
            "UPDATE outbox SET tries = tries + 1, next_us = ?, sent_us = ?, gave_up_us = ?, why = ?, payload = ? "
            "WHERE message_id = ? AND sent_us IS NULL AND gave_up_us IS NULL"
        )
        tell(sql, [(next_us, sent_us, gave_up_us, make_storable(delivery.why), payload, message_id)])
        _count_try(tell, message.channel, sent=delivery.sent, gave_up=gave_up_us is not None)
        if delivery.sent:
            _record_deliveries(tell, message, now)
            _retry_announcements(ask, tell, message.channel, now)


def _retry_announcements(ask: Query, tell: Execute, channel: str, now: datetime) -> None:
    """Try what announces an act on this channel at once: it works again, and each act waits for its announcement."""
    sql = "SELECT id, payload FROM outbox WHERE channel = ? AND sent_us IS NULL AND gave_up_us IS NULL AND next_us > ?"
    rows = ask(sql, (make_storable(channel), to_micros(now)))
    waiting = [(to_micros(now), number) for number, payload in rows if _precedes_act(_decode_message(payload))]
    if waiting:
        tell("UPDATE outbox SET next_us = ? WHERE id = ? AND sent_us IS NULL", waiting)


def _count_try(tell: Execute, channel: str, *, sent: bool, gave_up: bool) -> None:
    """Count one try for metrics, in a row that stays when the message is deleted."""
    sql = (
        "INSERT INTO message_count (channel, sent, gave_up, tries_failed) VALUES (?, ?, ?, ?) ON CONFLICT (channel) DO UPDATE "
        "SET sent = message_count.sent + excluded.sent, gave_up = message_count.gave_up + excluded.gave_up, "
        "tries_failed = message_count.tries_failed + excluded.tries_failed"
    )
    tell(sql, [(get_counted_channel(make_storable(channel)), int(sent), int(gave_up), int(not sent))])


def get_counted_channel(channel: str) -> str:
    """Return the channel as it is counted: people are many, so mail to any of them is "mail"."""
    return MAIL_PREFIX.rstrip(":") if channel.startswith(MAIL_PREFIX) else channel


def load_deliveries(ask: Query, since: datetime) -> dict[tuple[str, str], tuple[NoticeDelivery, ...]]:
    """Return the notices about policies delivered at or after `since`, by topic and subject, earliest first."""
    sql = """
SELECT topic, subject, channel, notice_us, delivered_us, owner FROM notice_delivery WHERE delivered_us >= ? ORDER BY 5, 3
"""
    found: dict[tuple[str, str], list[NoticeDelivery]] = {}
    for topic, subject, channel, notice_us, delivered_us, owner in ask(sql, (to_micros(since),)):
        written_at, delivered_at = from_micros(notice_us), from_micros(delivered_us)
        one = NoticeDelivery(channel=channel, notice_at=written_at, delivered_at=delivered_at, owner=owner)
        found.setdefault((topic, subject), []).append(one)
    return {key: tuple(rows) for key, rows in found.items()}


def _record_deliveries(tell: Execute, message: Notification, now: datetime) -> None:
    """Record the announcements of acts that `message` carried: the grace of an act starts at that time.

    A notice that says "no stop while it is blocked" announces none.
    """
    about = [one for one in message.notices if one.topic.startswith(POLICY_TOPIC) and one.ahead]
    rows: list[SqlRow] = [
        (
            message.id,
            message.channel,
            make_storable(one.topic),
            make_storable(one.subject),
            to_micros(message.at),
            to_micros(now),
            make_storable(one.owner),
        )
        for one in about
    ]
    insert_deliveries(tell, rows)


def insert_deliveries(tell: Execute, rows: Sequence[SqlRow]) -> None:
    """Insert `rows` of notice_delivery that are new, with their seals."""
    sql = f"INSERT INTO notice_delivery ({_DELIVERY_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"  # noqa: S608 - our own column names
    new = [row for row in dict.fromkeys(rows) if tell(sql, [row]) == 1]
    seal_rows(tell, "notice_delivery", _DELIVERY_COLUMNS, new)


def compute_tries_max(message: Notification) -> int:
    """Return the highest number of tries of `message`."""
    if _precedes_act(message):
        return len(ACT_RETRY_DELAYS) + timedelta(days=message.days) // ACT_RETRY_DELAYS[-1]
    return TRIES_MAX + (message.days - 1) * TRIES_PER_DAY


def _precedes_act(message: Notification) -> bool:
    return any(one.ahead for one in message.notices)


def load_undelivered(ask: Query, since: datetime) -> list[tuple[Notification, str]]:
    """Return the messages that were given up at or after `since`, with the reason."""
    sql = "SELECT payload, why FROM outbox WHERE gave_up_us >= ? ORDER BY id"
    return [(_decode_message(payload), why) for payload, why in ask(sql, (to_micros(since),))]


def delete_settled(ask: Query, tell: Execute, now: datetime) -> None:
    """Delete messages settled more than `RETENTION` ago, and delivery records older than `DELIVERIES_KEPT`."""
    until_us = to_micros(now - RETENTION)
    tell("DELETE FROM outbox WHERE sent_us < ? OR gave_up_us < ?", [(until_us, until_us)])
    sql = "SELECT message_id, channel, topic, subject FROM notice_delivery WHERE delivered_us < ?"
    gone = ask(sql, (to_micros(now - DELIVERIES_KEPT),))
    if gone:
        where = "message_id = ? AND channel = ? AND topic = ? AND subject = ?"
        tell(f"DELETE FROM notice_delivery WHERE {where}", list(gone))  # noqa: S608 - our own column names
        remove_seals(tell, "notice_delivery", gone)


def load_alert_states(ask: Query) -> list[AlertState]:
    """Return all alert states with a route, sorted by key, as `replace_alert_states` stored them."""
    return _load_states(ask, "<>")


def replace_alert_states(ask: Query, tell: Execute, states: Iterable[AlertState]) -> None:
    """Replace all alert states with a route by `states`."""
    replace_rows(ask, tell, _STATE_TABLE, _encode_states((*states, *load_unrouted_states(ask))))


def load_unrouted_states(ask: Query) -> list[AlertState]:
    """Return the alert states without a route: see `ledger.reports.store`."""
    return _load_states(ask, "=")


def record_unrouted_state(tell: Execute, one: AlertState) -> None:
    """Store `one`, which has no route, and overwrite the state with its key."""
    upsert_rows(tell, _STATE_TABLE, _encode_states((one,)))


def delete_unrouted_states(tell: Execute, gone: Iterable[AlertState]) -> None:
    """Delete the states `gone`, which have no route."""
    rows = list(_encode_states(gone))
    if rows:
        tell(f"DELETE FROM notice_state WHERE {' AND '.join(f'{name} = ?' for name in _STATE_KEY)}", rows)  # noqa: S608 - our own column names


def _load_states(ask: Query, compared: str) -> list[AlertState]:
    names = ", ".join(_STATE_KEY)
    rows = ask(f"SELECT {names}, told FROM notice_state WHERE route {compared} ? ORDER BY {names}", (NO_ROUTE,))  # noqa: S608 - our own names
    return [AlertState(**dict(zip(_STATE_KEY, key, strict=True)), **decode_fields(rest)) for *key, rest in rows]


def _encode_states(states: Iterable[AlertState]) -> dict[SqlRow, SqlRow]:
    return {
        tuple(make_storable(getattr(one, name)) for name in _STATE_KEY): (encode_fields(one, without=_STATE_KEY),)
        for one in states
    }


def _decode_message(payload: str) -> Notification:
    found = decode_fields(payload)
    of = {"notices": Alert, "enclosures": Attachment}
    return Notification(**found | {name: tuple(make(**one) for one in found.get(name, ())) for name, make in of.items()})
