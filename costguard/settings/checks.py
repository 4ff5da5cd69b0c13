"""What sections of plain fields say, checked as a whole when they are read, so that a slip is told at the start."""

from __future__ import annotations

import re
from datetime import timedelta

from costguard.errors import shorten
from costguard.settings.environment import origin, variable_of
from costguard.settings.lasting import lasting
from costguard.settings.sections import SQLITE, Settings, WebSettings
from costguard.values.checks import require

SHORTEST, LONGEST = timedelta(seconds=1), timedelta(hours=1)
"""Between two polls."""
OWNER = re.compile(r"(?:label|tag):[^\s=][^=]*")
PROTECTED = re.compile(r"(?:label|tag):[^\s=][^=]*(?:=.*)?")
"""Labels only: one machine is protected by `costguard protect ID`."""
GROUP = re.compile(r"(?:label|tag):[^\s=+][^=+]*(?: \+ (?:label|tag):[^\s=+][^=+]*)*")
LABELS = (
    ("owner_from", OWNER, "label:owner"),
    ("protect", PROTECTED, "label:costguard=never"),
    ("group_from", GROUP, "label:cluster"),
)
PASSWORD = re.compile(r"://[^/?#@\s]*:[^/?#@\s]+@|[?&](?:ssl)?password=[^&]")
PROXY = re.compile(r"https?://(?:(?P<who>[^\s/@]*)@)?[^\s/@]+/?", re.IGNORECASE)


def check_sections(settings: Settings, where: str) -> None:
    """InputError for what [watch], [defaults], [network], [display], [reconcile] or [web] cannot mean."""
    lasting(settings.watch.interval, origin("watch", "interval", where), least=SHORTEST, most=LONGEST)
    lasting(settings.watch.jitter, origin("watch", "jitter", where))
    if settings.watch.heartbeat_url is not None:
        from costguard.settings.addresses import check_address

        check_address(settings.watch.heartbeat_url, origin("watch", "heartbeat_url", where), "HEARTBEAT_URL")
    for key, pattern, example in LABELS:
        for text in getattr(settings.defaults, key):
            hint = f'write ["{example}"]' + ("; one machine: costguard protect ID" if key == "protect" else "")
            told = f"'{shorten(text)}' says not where to look"
            require(bool(pattern.fullmatch(text)), origin("defaults", key, where), told, hint)
    if settings.ledger.url is not None and not settings.ledger.url.startswith(SQLITE):
        _check_server(settings.ledger.url, origin("ledger", "url", where))
    if settings.reconcile.tolerance is not None:
        from costguard.bills.tolerance import parse_tolerance

        parse_tolerance(settings.reconcile.tolerance, origin("reconcile", "tolerance", where))
    if settings.network.proxy is not None:
        _check_proxy(settings.network.proxy, origin("network", "proxy", where))
    if settings.web != WebSettings():
        from costguard.settings.web import check_web

        check_web(settings.web, where)
    _check_display(settings, where)


def _check_display(settings: Settings, where: str) -> None:
    """Every rate can be read, and there is one of the currency that is asked for."""
    from costguard.values.display import EXCHANGE_EXAMPLE, parse_exchange_rate

    field, currency = origin("display", "rates", where), settings.display.currency
    known = [parse_exchange_rate(text, field).currency for text in settings.display.rates]
    if currency is not None and currency != "USD":
        told = f"states no rate of {shorten(currency)}"
        require(currency in known, field, told, f'write rates = ["{EXCHANGE_EXAMPLE.replace("EUR", currency[:3].upper())}"]')


def _check_server(url: str, field: str) -> None:
    """The address of a server; one with a password stands in the variable only. What else is wrong with it, its reader says."""
    variable = variable_of("ledger", "url")
    found = PASSWORD.search(url)
    hint = f"keep it in ~/.pgpass (0600), or export {variable} with the whole address and take the line out"
    require(field == variable or not found, field, "holds a password, and the settings file holds none", hint)


def _check_proxy(proxy: str, field: str) -> None:
    """An http(s) address; one with a password stands in the variable only, as this file holds no secret."""
    found = PROXY.fullmatch(proxy)
    require(found is not None, field, "is no address of a proxy", 'write "http://proxy.example:3128"')
    variable = variable_of("network", "proxy")
    hidden = field == variable or not (found and found["who"])
    hint = f"export {variable} with the whole address, and take the line out"
    require(hidden, field, "holds a password, and the settings file holds none", hint)
