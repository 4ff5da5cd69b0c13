"""What sections of plain fields say, checked as a whole when they are read, so that a slip is told at the start."""

from __future__ import annotations

import re
from datetime import timedelta

from costguard.errors import shorten
from costguard.settings.environment import describe_origin, format_variable
from costguard.settings.lasting import parse_duration
from costguard.settings.sections import SQLITE_PREFIX, Settings, WebSettings
from costguard.values.checks import require

INTERVAL_MIN, INTERVAL_MAX = timedelta(seconds=1), timedelta(hours=1)
"""Between two polls."""
OWNER_PATTERN = re.compile(r"(?:label|tag):[^\s=][^=]*")
PROTECTED_PATTERN = re.compile(r"(?:label|tag):[^\s=][^=]*(?:=.*)?")
"""Labels only: one machine is protected by `costguard protect ID`."""
GROUP_PATTERN = re.compile(r"(?:label|tag):[^\s=+][^=+]*(?: \+ (?:label|tag):[^\s=+][^=+]*)*")
LABEL_FIELDS = (
    ("owner_from", OWNER_PATTERN, "label:owner"),
    ("protect", PROTECTED_PATTERN, "label:costguard=never"),
    ("group_from", GROUP_PATTERN, "label:cluster"),
)
PASSWORD_PATTERN = re.compile(r"://[^/?#@\s]*:[^/?#@\s]+@|[?&](?:ssl)?password=[^&]")
PROXY_PATTERN = re.compile(r"https?://(?:(?P<who>[^\s/@]*)@)?[^\s/@]+/?", re.IGNORECASE)


def check_sections(settings: Settings, where: str) -> None:
    """InputError for what [watch], [defaults], [network], [display], [reconcile] or [web] cannot mean."""
    parse_duration(settings.watch.interval, describe_origin("watch", "interval", where), least=INTERVAL_MIN, most=INTERVAL_MAX)
    parse_duration(settings.watch.jitter, describe_origin("watch", "jitter", where))
    if settings.watch.heartbeat_url is not None:
        from costguard.settings.addresses import check_address

        check_address(settings.watch.heartbeat_url, describe_origin("watch", "heartbeat_url", where), "HEARTBEAT_URL")
    for key, pattern, example in LABEL_FIELDS:
        for text in getattr(settings.defaults, key):
            hint = f'write ["{example}"]' + ("; one machine: costguard protect ID" if key == "protect" else "")
            told = f"'{shorten(text)}' says not where to look"
            require(bool(pattern.fullmatch(text)), describe_origin("defaults", key, where), told, hint)
    if settings.ledger.url is not None and not settings.ledger.url.startswith(SQLITE_PREFIX):
        _check_server(settings.ledger.url, describe_origin("ledger", "url", where))
    if settings.reconcile.tolerance is not None:
        from costguard.bills.tolerance import parse_tolerance

        parse_tolerance(settings.reconcile.tolerance, describe_origin("reconcile", "tolerance", where))
    if settings.network.proxy is not None:
        _check_proxy(settings.network.proxy, describe_origin("network", "proxy", where))
    if settings.web != WebSettings():
        from costguard.settings.web import check_web

        check_web(settings.web, where)
    _check_display(settings, where)


def _check_display(settings: Settings, where: str) -> None:
    """Every rate can be read, and there is one of the currency that is asked for."""
    from costguard.values.display import EXCHANGE_EXAMPLE, parse_exchange_rate

    field, currency = describe_origin("display", "rates", where), settings.display.currency
    known = [parse_exchange_rate(text, field).currency for text in settings.display.rates]
    if currency is not None and currency != "USD":
        told = f"states no rate of {shorten(currency)}"
        require(currency in known, field, told, f'write rates = ["{EXCHANGE_EXAMPLE.replace("EUR", currency[:3].upper())}"]')


def _check_server(url: str, field: str) -> None:
    """The address of a server; one with a password stands in the variable only. What else is wrong with it, its reader says."""
    variable = format_variable("ledger", "url")
    found = PASSWORD_PATTERN.search(url)
    hint = f"keep it in ~/.pgpass (0600), or export {variable} with the whole address and take the line out"
    require(field == variable or not found, field, "holds a password, and the settings file holds none", hint)


def _check_proxy(proxy: str, field: str) -> None:
    """An http(s) address; one with a password stands in the variable only, as this file holds no secret."""
    found = PROXY_PATTERN.fullmatch(proxy)
    require(found is not None, field, "is no address of a proxy", 'write "http://proxy.example:3128"')
    variable = format_variable("network", "proxy")
    hidden = field == variable or not (found and found["who"])
    hint = f"export {variable} with the whole address, and take the line out"
    require(hidden, field, "holds a password, and the settings file holds none", hint)
