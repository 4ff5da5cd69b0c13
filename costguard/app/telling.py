"""The channels of the settings, opened: what a route names becomes something that sends."""

from __future__ import annotations

from functools import partial

from costguard import plugins
from costguard.core.guard.notice import INFO, Route
from costguard.flows.tell import Postman
from costguard.ledger.guardbook import GuardBook
from costguard.notifiers import Channel
from costguard.ports import Clock
from costguard.ports.guarding import Notifier
from costguard.settings import Settings, path_of
from costguard.settings.addresses import CONSOLE, revealed

WEB = ("http", "https")
EVERYBODY = Route(name=CONSOLE, channels=(CONSOLE,), min_severity=INFO)
"""Where notices go if the settings name no route."""


def routes_of(settings: Settings) -> tuple[Route, ...]:
    """The routes of the settings, or the console."""
    return settings.routes or (EVERYBODY,)


def notifiers_of(settings: Settings, clock: Clock) -> dict[str, Notifier]:
    """Each channel that a route names. InputError where an address is not where the settings say it is kept."""
    names = dict.fromkeys(name for route in routes_of(settings) for name in route.channels)
    return {name: _notifier(name, settings, clock) for name in names}


def console(clock: Clock) -> Notifier:
    """The channel that needs no disk and no network."""
    return partial(plugins.notifier(CONSOLE), channel=Channel(name=CONSOLE, clock=clock))


def postman(settings: Settings, book: GuardBook, clock: Clock) -> Postman:
    """What sends the messages of `book`; one a process."""
    return Postman(_Outbox(book), notifiers_of(settings, clock), clock=clock, second=console(clock))


def _notifier(name: str, settings: Settings, clock: Clock) -> Notifier:
    if name == CONSOLE:
        return console(clock)
    address = revealed(name, "notify.route.to")
    kind = "webhook" if address.partition("://")[0].lower() in WEB else "chat"
    secret = revealed(settings.signed_with, "notify.signed_with") if settings.signed_with and kind == "webhook" else ""
    ca_file = path_of(settings.network.ca_file) if settings.network.ca_file else None
    proxy = settings.network.proxy if kind == "chat" else None
    channel = Channel(name=shown(name), clock=clock, address=address, secret=secret, ca_file=ca_file, proxy=proxy)
    return partial(plugins.notifier(kind), channel=channel)


def shown(name: str) -> str:
    """What people see of a channel: where its address is kept, or its host."""
    scheme, separator, rest = name.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}" if separator else name


class _Outbox:
    """The book's messages, as the postman calls them."""

    def __init__(self, book: GuardBook) -> None:
        self.due_messages, self.settle, self.undelivered = book.due_messages, book.settle_message, book.undelivered
