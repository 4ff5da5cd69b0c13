"""The outbox: notifications written together with the alerts they report, and delivered afterwards, at least once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, Update, and_, delete, or_, text, update
from sqlmodel import col, select

from costguard.guard.alerts.alert import (
    UNUSUAL,
    Alert,
    AlertState,
    Attachment,
    DeliveryResult,
    NoticeDelivery,
    Notification,
)
from costguard.guard.alerts.dispatch import refresh_waiting
from costguard.guard.alerts.part_delivery import PartDelivery, add_parts, list_numbers
from costguard.ledger.db.codecs import Execute, Query, decode_fields, encode_fields
from costguard.ledger.db.rows import delete_rows, insert_new, make_insert, replace_rows, upsert_rows
from costguard.ledger.guard import audit_log
from costguard.ledger.tables.notices import MessageCountRow, NoticeDeliveryRow, NoticeStateRow, OutboxRow
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

_STATE_KEY = ("route", "topic", "subject", "owner")
_WAITS = and_(col(OutboxRow.sent_us).is_(None), col(OutboxRow.gave_up_us).is_(None))


def enqueue_messages(ask: Query, tell: Execute, messages: Iterable[Notification]) -> None:
    """Write `messages` with the audit head; one whose id and channel already exist stays as it is."""
    head = audit_log.read_head_text(ask)
    rows = [
        {
            "message_id": make_storable(one.id),
            "channel": make_storable(one.channel),
            "payload": encode_fields(replace(one, audit=head)),
            "at_us": to_micros(one.at),
            "tries": 0,
            "next_us": to_micros(one.at),
            "why": "",
        }
        for one in messages
    ]
    if rows:
        tell(insert_new(OutboxRow), rows)


def refresh_waiting_messages(ask: Query, tell: Execute, present: Iterable[Alert]) -> None:
    """Let the messages that wait for their channel say what holds now."""
    by_key = {(one.topic, one.subject, one.owner): one for one in present}
    for number, payload in ask(select(OutboxRow.id, OutboxRow.payload).where(_WAITS, col(OutboxRow.tries) > 0)):
        message = _decode_message(payload)
        fresh = refresh_waiting(message, by_key)
        if fresh is not message:
            tell(_change_unsent(number).values(payload=encode_fields(fresh)))


def load_due_messages(ask: Query, now: datetime) -> list[Notification]:
    """Return the messages to try at `now`, oldest first, at most `DUE_MESSAGES_MAX`."""
    due = select(OutboxRow.payload).where(_WAITS, col(OutboxRow.next_us) <= to_micros(now))
    return [_decode_message(payload) for payload in ask(due.order_by(col(OutboxRow.id)).limit(DUE_MESSAGES_MAX))]


def settle_message(ask: Query, tell: Execute, message_id: str, delivery: DeliveryResult, now: datetime) -> None:
    """Record the result of one try.

    After the last try, or if a retry cannot help, the message is given up; settled messages stay as they are. The attachments
    of a settled message are deleted, because they may be large and are not sent again. A wait that the service asked for is no
    failed try.
    """
    is_message = and_(col(OutboxRow.message_id) == message_id, _WAITS)
    for tries, payload in ask(select(OutboxRow.tries, OutboxRow.payload).where(is_message))[:1]:
        message, waits = add_parts(_decode_message(payload), delivery.parts), delivery.retry_after is not None
        count = tries if waits and delivery.again else tries + 1
        over = not delivery.again or count >= compute_tries_max(message)
        delays = ACT_RETRY_DELAYS if _precedes_act(message) else RETRY_DELAYS
        delay = delays[min(tries, len(delays) - 1)] if delivery.retry_after is None else delivery.retry_after
        next_us = to_micros(now + (timedelta() if over else delay))
        sent_us, gave_up_us = (to_micros(now), None) if delivery.sent else (None, to_micros(now) if over else None)
        stored = replace(message, enclosures=()) if delivery.sent or over else message
        outcome = {"next_us": next_us, "sent_us": sent_us, "gave_up_us": gave_up_us, "why": make_storable(delivery.why)}
        tell(update(OutboxRow).where(is_message).values(tries=count, payload=encode_fields(stored), **outcome))
        _count_try(tell, message.channel, sent=delivery.sent, gave_up=gave_up_us is not None)
        in_parts = {number for part in delivery.parts if part.sent for number in part.alerts}
        is_whole = delivery.sent and not message.accepted
        _record_deliveries(tell, message, list_numbers(message) if is_whole else in_parts, now)
        if delivery.sent:
            _retry_announcements(ask, tell, message.channel, now)


def record_part(ask: Query, tell: Execute, message_id: str, part: PartDelivery, now: datetime) -> None:
    """Record what one recipient answered to one part of a message, before the next part is sent."""
    is_message = and_(col(OutboxRow.message_id) == message_id, _WAITS)
    for payload in ask(select(OutboxRow.payload).where(is_message))[:1]:
        message = add_parts(_decode_message(payload), [part])
        tell(update(OutboxRow).where(is_message).values(payload=encode_fields(message)))
        _record_deliveries(tell, message, part.alerts if part.sent else (), now)


def _retry_announcements(ask: Query, tell: Execute, channel: str, now: datetime) -> None:
    """Try what announces an act on this channel at once: it works again, and each act waits for its announcement."""
    waiting = select(OutboxRow.id, OutboxRow.payload).where(
        col(OutboxRow.channel) == make_storable(channel), _WAITS, col(OutboxRow.next_us) > to_micros(now)
    )
    for number, payload in ask(waiting):
        if _precedes_act(_decode_message(payload)):
            tell(_change_unsent(number).values(next_us=to_micros(now)))


def _change_unsent(number: int) -> Update:
    return update(OutboxRow).where(col(OutboxRow.id) == number, col(OutboxRow.sent_us).is_(None))


def _count_try(tell: Execute, channel: str, *, sent: bool, gave_up: bool) -> None:
    """Count one try for metrics, in a row that stays when the message is deleted."""
    counts = {"sent": int(sent), "gave_up": int(gave_up), "tries_failed": int(not sent)}
    statement = make_insert(MessageCountRow)
    rise = {name: getattr(MessageCountRow, name) + statement.excluded[name] for name in counts}
    row = {"channel": get_counted_channel(make_storable(channel)), **counts}
    tell(statement.on_conflict_do_update(index_elements=["channel"], set_=rise), [row])


def get_counted_channel(channel: str) -> str:
    """Return the channel as it is counted: people are many, so mail to any of them is "mail"."""
    return MAIL_PREFIX.rstrip(":") if channel.startswith(MAIL_PREFIX) else channel


def load_deliveries(ask: Query, since: datetime) -> dict[tuple[str, str], tuple[NoticeDelivery, ...]]:
    """Return the notices about policies delivered at or after `since`, by topic and subject, earliest first."""
    recent = select(NoticeDeliveryRow).where(col(NoticeDeliveryRow.delivered_us) >= to_micros(since))
    rows: Sequence[NoticeDeliveryRow] = ask(
        recent.order_by(col(NoticeDeliveryRow.delivered_us), col(NoticeDeliveryRow.channel))
    )
    by_notice: dict[tuple[str, str], list[NoticeDelivery]] = {}
    for row in rows:
        written_at, delivered_at = from_micros(row.notice_us), from_micros(row.delivered_us)
        one = NoticeDelivery(channel=row.channel, notice_at=written_at, delivered_at=delivered_at, owner=row.owner)
        by_notice.setdefault((row.topic, row.subject), []).append(one)
    return {key: tuple(deliveries) for key, deliveries in by_notice.items()}


def _record_deliveries(tell: Execute, message: Notification, numbers: Collection[int], now: datetime) -> None:
    """Record the announcements of acts among the alerts `numbers` of `message`: the grace of an act starts at that time.

    A notice that says "no stop while it is blocked" announces none.
    """
    rows = [
        NoticeDeliveryRow(
            message_id=message.id,
            channel=message.channel,
            topic=make_storable(one.topic),
            subject=make_storable(one.subject),
            notice_us=to_micros(message.at),
            delivered_us=to_micros(now),
            owner=make_storable(one.owner),
        )
        for number, one in enumerate(message.notices)
        if number in numbers and one.topic.startswith(POLICY_TOPIC) and one.ahead
    ]
    if rows:
        tell(insert_new(NoticeDeliveryRow), [row.model_dump() for row in rows])


def compute_tries_max(message: Notification) -> int:
    """Return the highest number of tries of `message`."""
    if _precedes_act(message):
        return len(ACT_RETRY_DELAYS) + timedelta(days=message.days) // ACT_RETRY_DELAYS[-1]
    return TRIES_MAX + (message.days - 1) * TRIES_PER_DAY


def _precedes_act(message: Notification) -> bool:
    return any(one.ahead for one in message.notices)


def load_undelivered(ask: Query, since: datetime) -> list[tuple[Notification, str]]:
    """Return the messages that were given up at or after `since`, with the reason."""
    undelivered = select(OutboxRow.payload, OutboxRow.why).where(col(OutboxRow.gave_up_us) >= to_micros(since))
    return [(_decode_message(payload), why) for payload, why in ask(undelivered.order_by(col(OutboxRow.id)))]


def load_failed(ask: Query, since: datetime) -> list[tuple[Notification, str, datetime | None]]:
    """Return the messages written at or after `since` whose last try failed, with what came back and when they are tried again.

    None: they were given up.
    """
    failed = select(OutboxRow.payload, OutboxRow.why, OutboxRow.next_us, OutboxRow.gave_up_us).where(
        col(OutboxRow.sent_us).is_(None), col(OutboxRow.tries) > 0, col(OutboxRow.at_us) >= to_micros(since)
    )
    return [
        (_decode_message(payload), why, None if gave_up_us is not None else from_micros(next_us))
        for payload, why, next_us, gave_up_us in ask(failed.order_by(col(OutboxRow.id)))
    ]


def load_unusual_alerts(ask: Query, start: datetime, end: datetime) -> list[Alert]:
    """Return what was told as unusual within [start, end), oldest first; as far back as messages are kept."""
    written = select(OutboxRow.payload).where(col(OutboxRow.at_us) >= to_micros(start), col(OutboxRow.at_us) < to_micros(end))
    payloads = ask(written.where(col(OutboxRow.payload).contains(f'"{UNUSUAL}:')).order_by(col(OutboxRow.id)))
    alerts = (one for payload in payloads for one in _decode_message(payload).notices if one.topic.startswith(f"{UNUSUAL}:"))
    return list({(one.topic, one.subject, one.at): one for one in alerts}.values())


def delete_settled(tell: Execute, now: datetime) -> None:
    """Delete messages settled more than `RETENTION` ago, and delivery records older than `DELIVERIES_KEPT`."""
    until_us = to_micros(now - RETENTION)
    tell(delete(OutboxRow).where(or_(col(OutboxRow.sent_us) < until_us, col(OutboxRow.gave_up_us) < until_us)))
    tell(delete(NoticeDeliveryRow).where(col(NoticeDeliveryRow.delivered_us) < to_micros(now - DELIVERIES_KEPT)))


def load_alert_states(ask: Query) -> list[AlertState]:
    """Return all alert states with a route, sorted by key, as `replace_alert_states` stored them."""
    return _load_states(ask, col(NoticeStateRow.route) != NO_ROUTE)


def replace_alert_states(ask: Query, tell: Execute, states: Iterable[AlertState]) -> None:
    """Replace all alert states with a route by `states`."""
    replace_rows(ask, tell, NoticeStateRow, _encode_states((*states, *load_unrouted_states(ask))))


def load_unrouted_states(ask: Query) -> list[AlertState]:
    """Return the alert states without a route: see `ledger.reports.store`."""
    return _load_states(ask, col(NoticeStateRow.route) == NO_ROUTE)


def record_unrouted_state(tell: Execute, one: AlertState) -> None:
    """Store `one`, which has no route, and overwrite the state with its key."""
    upsert_rows(tell, NoticeStateRow, _encode_states((one,)))


def delete_unrouted_states(tell: Execute, states: Iterable[AlertState]) -> None:
    """Delete the states `states`, which have no route."""
    delete_rows(tell, NoticeStateRow, list(_encode_states(states)))


def _load_states(ask: Query, where: ColumnElement[bool]) -> list[AlertState]:
    rows: Sequence[NoticeStateRow] = ask(select(NoticeStateRow).where(where).order_by(*map(text, _STATE_KEY)))
    return [
        AlertState(route=row.route, topic=row.topic, subject=row.subject, owner=row.owner, **decode_fields(row.told))
        for row in rows
    ]


def _encode_states(states: Iterable[AlertState]) -> dict[SqlRow, SqlRow]:
    return {
        tuple(make_storable(getattr(one, name)) for name in _STATE_KEY): (encode_fields(one, without=_STATE_KEY),)
        for one in states
    }


def _decode_message(payload: str) -> Notification:
    values = decode_fields(payload)
    of = {"notices": Alert, "enclosures": Attachment}
    return Notification(**values | {name: tuple(make(**one) for one in values.get(name, ())) for name, make in of.items()})
