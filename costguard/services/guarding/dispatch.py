"""Deliver due notifications from the outbox: in parallel within a deadline, pages first; record each outcome.

A notification is delivered at least once: after a crash between delivery and its record it is delivered again, under the same
id; its parts and recipients are recorded one by one. If the ledger cannot be written, outcomes are kept in memory until it can,
so that no message is repeated every minute. A notification that is given up (no retry can help, too many failed, or too old)
goes to the second channel, the console. The guard does not wait for deliveries. The module also opens the channels and hooks of
the settings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Protocol

from costguard.errors import InputError, LedgerError
from costguard.guard.alerts.alert import (
    FIRST,
    INFO,
    SEVERITIES,
    WARNING,
    Alert,
    AlertRoute,
    DeliveryResult,
    Notification,
    is_admin_route,
)
from costguard.guard.alerts.part_delivery import PartDelivery, list_undelivered
from costguard.guard.escalation import FAILED, SUCCEEDED, HookEnd, clip_output
from costguard.ledger.guard.store import GuardStore
from costguard.notifiers import Channel, report_parts
from costguard.providers import plugins
from costguard.reporting.schedule import MAIL_PREFIX
from costguard.services.guarding.act.hooks import HookCall, HookRunner
from costguard.services.guarding.ask_links import build_linker, format_channel_name
from costguard.services.poll.concurrency import run_all
from costguard.services.poll.ports import Notifier
from costguard.settings import Settings, expand_path
from costguard.settings.notify import CONSOLE_CHANNEL, is_pager, resolve_address
from costguard.system.clock import Clock, read_monotonic
from costguard.values.checks import require

GIVE_UP_AFTER = timedelta(hours=24)
"""For each of a message's `days`."""
DISPATCH_LIMIT_S = 15.0
"""Seconds for all messages of a round; a channel has 10 s of its own for each."""
START_PARTS_WITHIN = 3
"""No part starts in the last two thirds of a round, so that one that takes its 10 s ends within it."""
CHANNEL_MESSAGES_MAX = 8
DISPATCH_MESSAGES_MAX = 32
"""Messages of one channel and of a round, so that one that hangs holds up no other; the rest is due in the next round."""


class MessageOutbox(Protocol):
    """Notifications written together with the alerts that they report."""

    def due_messages(self, now: datetime) -> list[Notification]:
        """Return those to be tried at `now`, the oldest first."""

    def settle(self, message_id: str, delivery: DeliveryResult, now: datetime) -> None:
        """Record the outcome of one attempt, and schedule a retry if there is one.

        Raises LedgerError if it cannot be written.
        """

    def undelivered(self, since: datetime) -> list[tuple[Notification, str]]:
        """Return those given up at or after `since`, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchResult:
    """Outcome of one round. `later`: to be retried. `given_up`: sent to the second channel, with the reason."""

    sent: tuple[Notification, ...] = ()
    later: tuple[tuple[Notification, str], ...] = ()
    given_up: tuple[tuple[Notification, str], ...] = ()


class OutboxDispatcher:
    """Delivers due notifications, one round per call.

    `notifiers`: by channel name. `second`: channel for undeliverable ones. `add_links`: returns a message with its links.
    `record_part`: records what one recipient answered to one part, before the next one is sent.
    """

    def __init__(
        self,
        outbox: MessageOutbox,
        notifiers: Mapping[str, Notifier],
        *,
        clock: Clock,
        second: Notifier,
        limit_s: float = DISPATCH_LIMIT_S,
        add_links: Callable[[Notification], Notification] = lambda message: message,
        record_part: Callable[[Notification, PartDelivery, datetime], None] = lambda *_: None,
    ) -> None:
        self._outbox, self._notifiers, self._clock, self._second = outbox, notifiers, clock, second
        self._limit_s, self._add_links, self._record_part = limit_s, add_links, record_part
        self._unsettled = dict[str, DeliveryResult]()

    def deliver(self) -> DispatchResult:
        """Run one round, at most `limit_s` long. Raises LedgerError if the outbox cannot be read or written."""
        began, owed = self._clock.now(), bool(self._unsettled)
        self._settle_all(began)
        messages = _choose_messages(self._outbox.due_messages(began))
        until_s = read_monotonic() + self._limit_s / START_PARTS_WITHIN
        sends = {one.id: partial(self._send_message, self._add_links(one), until_s) for one in messages}
        answers = run_all(sends, limit_s=self._limit_s, most=DISPATCH_MESSAGES_MAX)
        now = self._clock.now()
        deliveries = [(one, _end_old_retries(_to_delivery(answers[one.id]), one, now)) for one in messages]
        self._unsettled |= {one.id: delivery for one, delivery in deliveries}
        self._settle_all(now)
        failed = owed or not all(delivery.sent for _, delivery in deliveries)
        given_up = tuple(self._outbox.undelivered(began if owed else now)) if failed else ()
        for message, why in given_up:
            notices = list_undelivered(message)
            self._second(replace(message, notices=notices, title=f"[not sent to {message.channel}: {why}] {message.title}"))
        ids = {message.id for message, _ in given_up}
        return DispatchResult(
            sent=tuple(one for one, delivery in deliveries if delivery.sent),
            later=tuple((one, delivery.why) for one, delivery in deliveries if not delivery.sent and one.id not in ids),
            given_up=given_up,
        )

    def _send_message(self, message: Notification, until_s: float) -> DeliveryResult:
        """Send what is left of `message`; parts that are not started by `until_s` are left to the next round."""
        notifier = self._notifiers.get(message.channel)
        if notifier is None:
            return DeliveryResult(sent=False, why="no channel of this name is in the settings", again=False)

        def report(part: PartDelivery) -> bool:
            try:
                self._record_part(message, part, self._clock.now())
            except LedgerError:
                return False  # the result has it, and is kept in memory
            return read_monotonic() < until_s

        with report_parts(report):
            return notifier(message)

    def _settle_all(self, now: datetime) -> None:
        """Record each outcome in the outbox, then drop it from memory."""
        for message_id, delivery in list(self._unsettled.items()):
            self._outbox.settle(message_id, delivery, now)
            del self._unsettled[message_id]


def _choose_messages(due: list[Notification]) -> list[Notification]:
    """Choose pages first, then the oldest, up to the limits per channel and per round."""
    chosen, of_one = list[Notification](), Counter[str]()
    for message in sorted(due, key=lambda one: -SEVERITIES.index(one.severity)):
        of_one[message.channel] += 1
        if of_one[message.channel] <= CHANNEL_MESSAGES_MAX:
            chosen.append(message)
    return chosen[:DISPATCH_MESSAGES_MAX]


def _to_delivery(answer: DeliveryResult | BaseException) -> DeliveryResult:
    """Return the result; the text of an exception is dropped, because it may contain an address."""
    if isinstance(answer, DeliveryResult):
        return answer
    why = "no answer in time" if isinstance(answer, TimeoutError) else f"the channel failed ({type(answer).__name__})"
    return DeliveryResult(sent=False, why=why)


def _end_old_retries(delivery: DeliveryResult, message: Notification, now: datetime) -> DeliveryResult:
    """Stop retrying a message older than its `days`; it then goes to the second channel."""
    return (
        replace(delivery, again=False) if not delivery.sent and now - message.at >= message.days * GIVE_UP_AFTER else delivery
    )


WEBHOOK, CHAT = "webhook", "chat"
WEB_SCHEMES, MAIL_SCHEMES = ("http", "https"), ("mailto", "mailtos")
DEFAULT_ROUTE = AlertRoute(name=CONSOLE_CHANNEL, channels=(CONSOLE_CHANNEL,), min_severity=INFO)
"""Where notices go if the settings name no route."""


def list_routes(settings: Settings) -> tuple[AlertRoute, ...]:
    """Return the routes of the settings, with the pagers among their channels, or the console."""
    routes = settings.routes or (DEFAULT_ROUTE,)
    return tuple(replace(route, pagers=tuple(filter(is_pager, route.channels))) for route in routes)


def open_notifiers(settings: Settings, clock: Clock) -> dict[str, Notifier]:
    """Open the console, and what a route or a report names. Raises InputError if an address is not where the settings state."""
    lists = (*(route.channels for route in list_routes(settings)), *(report.channels for report in settings.reports))
    names = dict.fromkeys((CONSOLE_CHANNEL, *(name for channels in lists for name in channels)))  # for what no route takes
    return {name: open_notifier(name, settings, clock) for name in names}


def open_console(clock: Clock) -> Notifier:
    """Open the channel that needs no disk and no network."""
    return partial(plugins.load_notifier(CONSOLE_CHANNEL), channel=Channel(name=CONSOLE_CHANNEL, clock=clock))


def open_dispatcher(settings: Settings, book: GuardStore, clock: Clock, holder: str = "") -> OutboxDispatcher:
    """Open the dispatcher of `book`; one per process. `holder`: name in the leader lease, "" if the process takes none."""
    admins = [name for route in list_routes(settings) if is_admin_route(route) for name in route.channels]

    def record_part(message: Notification, part: PartDelivery, now: datetime) -> None:
        if part.is_refused and part.status is not None:  # a server refused it
            book.enqueue_messages(_build_refusal_message(message, part, name, now) for name in admins)
        book.record_part(message.id, part, now)

    return OutboxDispatcher(
        _LedgerOutbox(book, holder),
        open_notifiers(settings, clock),
        clock=clock,
        second=open_console(clock),
        add_links=build_linker(settings),
        record_part=record_part,
    )


def _build_refusal_message(message: Notification, part: PartDelivery, admin_channel: str, now: datetime) -> Notification:
    """Build the message that tells an admin that a recipient cannot be reached. Its id is always the same: it is sent once."""
    channel = format_channel_name(message.channel)
    what = f"{part.recipient or 'the recipient'} of {channel} cannot be reached: {part.why}"
    next_step = ("next", "it gets no more of this message: remove it from the address, or correct it")
    alert = Alert(topic="notify:refused", subject=channel, severity=WARNING, what=what, at=now, facts=(next_step,), once=True)
    return Notification(
        id=sha256(f"{admin_channel} {message.channel} {part.recipient}".encode()).hexdigest()[:32],
        channel=admin_channel,
        why_now=FIRST,
        severity=WARNING,
        title=what,
        notices=(alert,),
        at=now,
    )


def open_notifier(name: str, settings: Settings, clock: Clock) -> Notifier:
    """Open the channel `name`. Raises InputError if its address is not where the settings state."""
    kind = find_channel_kind(name)
    if kind == CONSOLE_CHANNEL:
        return open_console(clock)
    person = name.removeprefix(MAIL_PREFIX) if name.startswith(MAIL_PREFIX) else ""
    channel = Channel(
        name=format_channel_name(name),
        clock=clock,
        address=_read_mail_address(settings) if person else resolve_address(name, "notify.route.to"),
        secret=resolve_address(settings.signed_with, "notify.signed_with") if settings.signed_with and kind == WEBHOOK else "",
        ca_file=expand_path(settings.network.ca_file) if settings.network.ca_file else None,
        proxy=settings.network.proxy,
        person=person,
    )
    return partial(_notify_shown_address if kind == WEBHOOK else plugins.load_notifier(kind), channel=channel)


def _notify_shown_address(message: Notification, channel: Channel) -> DeliveryResult:
    """Send to an http(s) address: of a service, as that shows it, or of a webhook, which no proxy is used for."""
    from costguard.notifiers.chat.addresses import translate_address

    try:
        address = translate_address(channel.address)
    except InputError as refusal:
        return DeliveryResult(sent=False, why=f"{refusal.what}: {refusal.hint}", again=False)
    kind = CHAT if address else WEBHOOK
    return plugins.load_notifier(kind)(message, channel=replace(channel, address=address or channel.address))


def find_channel_kind(name: str) -> str:
    """Return the plug-in of the channel `name`. Raises InputError if its address is not where the settings state."""
    if name == CONSOLE_CHANNEL or name.startswith(MAIL_PREFIX):
        return CONSOLE_CHANNEL if name == CONSOLE_CHANNEL else CHAT
    return WEBHOOK if resolve_address(name, "notify.route.to").partition("://")[0].lower() in WEB_SCHEMES else CHAT


def _read_mail_address(settings: Settings) -> str:
    """Return the address of the mail server for mail to people."""
    address = resolve_address(settings.mail, "notify.mail")
    is_mail_scheme = address.partition("://")[0].lower() in MAIL_SCHEMES
    hint = "write mailtos://USER:PASSWORD@HOST?from=ADDRESS there, or mailto:// with ?mode=starttls"
    require(is_mail_scheme, "notify.mail", f"what {settings.mail} holds is not an address of a mail server", hint)
    return address


class _LedgerOutbox:
    """The messages of the ledger as a MessageOutbox."""

    def __init__(self, book: GuardStore, holder: str) -> None:
        self.settle, self.undelivered = book.settle_message, book.undelivered
        self._book, self._holder = book, holder

    def due_messages(self, now: datetime) -> list[Notification]:
        """Return those to be tried at `now`.

        Messages worth a retry for days are left to the process with the leader lease; other notifications are sent by any.
        """
        due = self._book.due_messages(now)
        patient = any(one.days > 1 for one in due)
        theirs = patient and is_led_by_another(self._book, self._holder, now)
        return [one for one in due if one.days == 1] if theirs else due


def is_led_by_another(book: GuardStore, holder: str, now: datetime) -> bool:
    """Return whether another process than `holder` has the leader lease."""
    turn = book.load_leader_lease() if holder else None
    return turn is not None and turn.is_held(now) and turn.holder != holder


HTTP_OK, HTTP_REDIRECT = 200, 300


def build_hook_runner(settings: Settings, clock: Clock) -> HookRunner:
    """Build the runner for the hooks of the settings; one per process."""
    return HookRunner(post=partial(_post_hook, settings, clock))


def _post_hook(settings: Settings, clock: Clock, call: HookCall) -> HookEnd:
    """Call the url of a hook once. Its address is read now, because it may have changed."""
    from costguard.notifiers.webhook import post_webhook

    try:
        address = resolve_address(call.hook.url, f"hook {call.hook.name}.url")
        secret = resolve_address(settings.signed_with, "notify.signed_with") if settings.signed_with else ""
    except InputError as error:
        return HookEnd(state=FAILED, why=error.what)
    ca_file = expand_path(settings.network.ca_file) if settings.network.ca_file else None
    channel = Channel(
        name=format_channel_name(call.hook.url),
        clock=clock,
        address=address,
        secret=secret,
        ca_file=ca_file,
        within_s=call.within_s,
    )
    answer = post_webhook(call.id, call.build_body(), channel)
    output = clip_output(answer.said.decode(errors="replace"))
    if answer.status is not None and HTTP_OK <= answer.status < HTTP_REDIRECT:
        return HookEnd(state=SUCCEEDED, status=answer.status, output=output)
    why = answer.why or f"it answered {answer.status}"
    return HookEnd(state=FAILED, status=answer.status, why=why, output=output)
