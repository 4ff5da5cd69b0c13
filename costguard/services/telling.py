"""The channels of the settings, opened: what a route names becomes something that sends."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from costguard.guard.alerts.alert import INFO, AlertRoute, Notification
from costguard.ledger.guard.store import GuardStore
from costguard.notifiers import Channel
from costguard.providers import plugins
from costguard.reporting.schedule import MAIL_PREFIX
from costguard.services.dispatch import OutboxDispatcher
from costguard.services.ports import Notifier
from costguard.settings import Settings, expand_path
from costguard.settings.addresses import CONSOLE_CHANNEL, resolve_address
from costguard.system.clock import Clock
from costguard.values.checks import require

WEBHOOK, CHAT = "webhook", "chat"
WEB_SCHEMES, MAIL_SCHEMES = ("http", "https"), ("mailto", "mailtos")
DEFAULT_ROUTE = AlertRoute(name=CONSOLE_CHANNEL, channels=(CONSOLE_CHANNEL,), min_severity=INFO)
"""Where notices go if the settings name no route."""


def list_routes(settings: Settings) -> tuple[AlertRoute, ...]:
    """The routes of the settings, or the console."""
    return settings.routes or (DEFAULT_ROUTE,)


def open_notifiers(settings: Settings, clock: Clock) -> dict[str, Notifier]:
    """Each channel that a route or a report names. InputError where an address is not where the settings say it is kept."""
    named = (*(route.channels for route in list_routes(settings)), *(report.channels for report in settings.reports))
    names = dict.fromkeys(name for channels in named for name in channels)
    return {name: open_notifier(name, settings, clock) for name in names}


def open_console(clock: Clock) -> Notifier:
    """The channel that needs no disk and no network."""
    return partial(plugins.load_notifier(CONSOLE_CHANNEL), channel=Channel(name=CONSOLE_CHANNEL, clock=clock))


def open_dispatcher(settings: Settings, book: GuardStore, clock: Clock, holder: str = "") -> OutboxDispatcher:
    """What sends the messages of `book`; one a process. `holder`: of the turn, "" for one that takes none."""
    return OutboxDispatcher(
        _LedgerOutbox(book, holder), open_notifiers(settings, clock), clock=clock, second=open_console(clock)
    )


def open_notifier(name: str, settings: Settings, clock: Clock) -> Notifier:
    """The channel `name`. InputError where its address is not where the settings say it is kept."""
    kind = find_channel_kind(name)
    if kind == CONSOLE_CHANNEL:
        return open_console(clock)
    person = name.removeprefix(MAIL_PREFIX) if name.startswith(MAIL_PREFIX) else ""
    address = _read_mail_address(settings) if person else resolve_address(name, "notify.route.to")
    secret = resolve_address(settings.signed_with, "notify.signed_with") if settings.signed_with and kind == WEBHOOK else ""
    ca_file = expand_path(settings.network.ca_file) if settings.network.ca_file else None
    proxy = settings.network.proxy if kind == CHAT else None
    channel = Channel(
        name=format_channel_name(name), clock=clock, address=address, secret=secret, ca_file=ca_file, proxy=proxy, person=person
    )
    return partial(plugins.load_notifier(kind), channel=channel)


def find_channel_kind(name: str) -> str:
    """Which plug-in serves the channel `name`. InputError where its address is not where the settings say it is kept."""
    if name == CONSOLE_CHANNEL or name.startswith(MAIL_PREFIX):
        return CONSOLE_CHANNEL if name == CONSOLE_CHANNEL else CHAT
    return WEBHOOK if resolve_address(name, "notify.route.to").partition("://")[0].lower() in WEB_SCHEMES else CHAT


def _read_mail_address(settings: Settings) -> str:
    """The address of the server that mail to people goes through."""
    address = resolve_address(settings.mail, "notify.mail")
    known = address.partition("://")[0].lower() in MAIL_SCHEMES
    hint = "write mailtos://USER:PASSWORD@HOST?from=ADDRESS there, or mailto:// with ?mode=starttls"
    require(known, "notify.mail", f"what {settings.mail} holds is no address of a mail server", hint)
    return address


def format_channel_name(name: str) -> str:
    """What people see of a channel: where its address is kept, or its host."""
    scheme, separator, rest = name.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}" if separator else name


class _LedgerOutbox:
    """The book's messages, as the postman calls them."""

    def __init__(self, book: GuardStore, holder: str) -> None:
        self.settle, self.undelivered = book.settle_message, book.undelivered
        self._book, self._holder = book, holder

    def due_messages(self, now: datetime) -> list[Notification]:
        """Those to be tried at `now`.

        What is worth sending for days is left to whoever has the turn; a notice waits for nobody.
        """
        due = self._book.due_messages(now)
        patient = any(one.days > 1 for one in due)
        theirs = patient and is_led_by_another(self._book, self._holder, now)
        return [one for one in due if one.days == 1] if theirs else due


def is_led_by_another(book: GuardStore, holder: str, now: datetime) -> bool:
    """Whether the turn is that of another process than `holder` (one process; "" for one that takes no turns)."""
    turn = book.load_leader_lease() if holder else None
    return turn is not None and turn.is_held(now) and turn.holder != holder
