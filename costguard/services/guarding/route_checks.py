"""`costguard notify test`: send one message to each channel of a route and show what came back; check addresses unsent.

A message of the test has the severity `warning` at a pager, whose incident is ended at once, and else that of its route.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from secrets import token_hex

from costguard.errors import CostguardError, InputError, NoAnswerError
from costguard.guard.alerts.alert import ASKED, SEVERITIES, WARNING, Alert, AlertRoute, DeliveryResult, Notification
from costguard.notifiers import Channel
from costguard.services import CommandAnswer
from costguard.services.guarding.ask_links import format_channel_name
from costguard.services.guarding.dispatch import WEB_SCHEMES, list_routes, open_notifier
from costguard.services.poll.configured_providers import SystemClock
from costguard.settings import Settings, read_settings
from costguard.settings.notify import CONSOLE_CHANNEL, resolve_address
from costguard.values.checks import require_one_of
from costguard.values.provider import CHECK_BAD, CHECK_GOOD, HealthCheck
from costguard.values.text_format import format_local_time
from costguard.views.setup import AccountChecks, RouteTest, build_route_test_document

WEBHOOK_CHECK = "a webhook: it gets costguard's JSON"


def answer_notify_test(name: str | None = None, *, config: str | None = None, offline: bool = False) -> CommandAnswer:
    """Answer `costguard notify test`. `name`: of a route; None: every route. Raises InputError with `offline`."""
    settings = read_settings(config)
    if offline:
        raise InputError("sends messages over the network", field="--offline", hint="leave it out")
    routes = list_routes(settings)
    if name is not None:
        require_one_of(name, [route.name for route in routes], "ROUTE")
        routes = tuple(route for route in routes if route.name == name)
    tests = [send_test(route, channel, settings) for route in routes for channel in route.channels]
    failed = [one for one in tests if one.outcome != "delivered"]
    hint = "costguard doctor checks the address; correct the route and test it again"
    refusal = NoAnswerError(f"not delivered whole: {', '.join(f'{one.route} ({one.channel})' for one in failed)}", hint=hint)
    return CommandAnswer(document=build_route_test_document(tests), refusal=refusal if failed else None)


def send_test(route: AlertRoute, channel: str, settings: Settings) -> RouteTest:
    """Send a test message to one channel of a route, and return what came back."""
    severity = max(route.min_severity, WARNING if channel in route.pagers else route.min_severity, key=SEVERITIES.index)
    at = SystemClock().now()
    alert = Alert(
        topic="notify:test",
        subject=token_hex(8),
        severity=severity,
        what=f"Test of the route {route.name}",
        at=at,
        facts=(("next", "nothing: no machine is concerned"),),
    )
    message = Notification(
        id=token_hex(16),
        channel=channel,
        why_now=ASKED,
        severity=severity,
        title=alert.what,
        notices=(alert,),
        at=at,
        told_at=format_local_time(at, settings.defaults.timezone),
        route=route.name,
    )
    try:
        send = open_notifier(channel, settings, SystemClock())
        result = send(message)
        if channel in route.pagers and result.sent:
            result = send(replace(message, notices=(replace(alert, is_over=True),)))
    except InputError as error:
        result = DeliveryResult(sent=False, why=f"{error.what}: {error.hint}", again=False)
    return RouteTest(route=route.name, channel=format_channel_name(channel), result=result)


def check_routes(settings: Settings) -> Iterator[AccountChecks]:
    """Yield the checks of each route: whether the address of each channel can be read and used. Nothing is sent."""
    for route in settings.routes:
        checks = tuple(_check_channel(channel) for channel in route.channels)
        yield AccountChecks(provider="route", account=route.name, checks=checks)


def _check_channel(channel: str) -> HealthCheck:
    subject = format_channel_name(channel)
    try:
        description = _describe_channel(channel)
    except CostguardError as error:
        return HealthCheck(subject=subject, outcome=CHECK_BAD, told=error.what, fix=error.hint or "")
    return HealthCheck(subject=subject, outcome=CHECK_GOOD, told=description)


def _describe_channel(channel: str) -> str:
    """Return what the channel is: "Slack"; raise InputError if its address cannot be read or used."""
    if channel == CONSOLE_CHANNEL:
        return "the terminal or the log of the watchdog"
    from costguard.notifiers.chat import describe_address
    from costguard.notifiers.chat.addresses import translate_address

    address = resolve_address(channel, "notify.route.to")
    if address.partition("://")[0].lower() in WEB_SCHEMES:
        address = translate_address(address)
    return describe_address(Channel(name="", clock=SystemClock(), address=address)) if address else WEBHOOK_CHECK
