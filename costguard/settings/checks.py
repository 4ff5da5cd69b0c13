"""Checks the settings as a whole when they are read, and that `[providers.NAME]` tables contain no secret.

Secrets come from each provider's own place (its environment variable, its own file), never from the settings file, which is
committed, copied and shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta

from costguard.errors import InputError, shorten
from costguard.settings.fields import describe_unlike, parse_duration
from costguard.settings.sections import (
    REFRESHES,
    SHARE,
    SQLITE_PREFIX,
    WORKERS,
    Settings,
    WebSettings,
    describe_origin,
    format_variable,
)
from costguard.values.checks import require, require_one_of

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
    ("tenant_labels", OWNER_PATTERN, "label:team"),
)
PASSWORD_PATTERN = re.compile(r"://[^/?#@\s]*:[^/?#@\s]+@|[?&](?:ssl)?password=[^&]")
ENDPOINT_PATTERN = re.compile(
    r"(?:https|(?P<plain>http))://(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(?::\d{1,5})?(?:/[A-Za-z0-9._~-]+)*/?", re.ASCII
)
ENDPOINT_HINT = 'write "https://mirror.example", or "http://127.0.0.1:8080" for a server on this machine'
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
PROXY_PATTERN = re.compile(r"https?://(?:(?P<who>[^\s/@]*)@)?[^\s/@]+/?", re.IGNORECASE)


def check_sections(settings: Settings, where: str) -> None:
    """Raise InputError for invalid values of a section of plain fields: [watch], [defaults], [network], [prices] and so on."""
    parse_duration(settings.watch.interval, describe_origin("watch", "interval", where), least=INTERVAL_MIN, most=INTERVAL_MAX)
    parse_duration(settings.watch.jitter, describe_origin("watch", "jitter", where))
    _check_workers(settings, where)
    if settings.watch.heartbeat_url is not None:
        from costguard.settings.notify import check_address

        check_address(settings.watch.heartbeat_url, describe_origin("watch", "heartbeat_url", where), "HEARTBEAT_URL")
    for key, pattern, example in LABEL_FIELDS:
        for text in getattr(settings.defaults, key):
            hint = f'write ["{example}"]' + ("; one machine: costguard protect ID" if key == "protect" else "")
            told = f"'{shorten(text)}' does not say where to look"
            require(bool(pattern.fullmatch(text)), describe_origin("defaults", key, where), told, hint)
    if settings.ledger.url is not None and not settings.ledger.url.startswith(SQLITE_PREFIX):
        _check_server(settings.ledger.url, describe_origin("ledger", "url", where))
    if settings.reconcile.tolerance is not None:
        from costguard.bills.drift import parse_tolerance

        parse_tolerance(settings.reconcile.tolerance, describe_origin("reconcile", "tolerance", where))
    require_one_of(settings.prices.refresh, REFRESHES, describe_origin("prices", "refresh", where))
    for name, endpoint in settings.prices.sources.items():
        _check_endpoint(endpoint, f"{where}: prices.sources.{name}.endpoint")
    if settings.telemetry.traces is not None:
        _check_endpoint(settings.telemetry.traces, describe_origin("telemetry", "traces", where))
    if settings.network.proxy is not None:
        _check_proxy(settings.network.proxy, describe_origin("network", "proxy", where))
    if settings.web != WebSettings():
        from costguard.settings.web import check_web

        check_web(settings.web, where)
    _check_display(settings, where)


def _check_workers(settings: Settings, where: str) -> None:
    """Raise InputError if watchdogs are to share the accounts of a ledger that is a file: it has one writer at a time."""
    origin, url = describe_origin("scale", "workers", where), settings.ledger.url or SQLITE_PREFIX
    require_one_of(settings.scale.workers, WORKERS, origin)
    hint = 'set [ledger] url = "postgresql+psycopg://HOST/NAME", or leave workers out'
    fits = settings.scale.workers != SHARE or not url.startswith(SQLITE_PREFIX)
    require(fits, origin, "needs a ledger on a PostgreSQL server", hint)


def check_tenant_labels(settings: Settings, where: str) -> None:
    """Raise InputError if an act on one machine could be caused by a label that a tenant sets on another.

    A tenant who can set a hard budget's label puts machines into that budget, and others are stopped for what those cost. One
    who can set a label that a policy with a priority selects has others stopped first.
    """
    tenants = {text.partition(":")[2].casefold(): text for text in settings.defaults.tenant_labels}
    owners = [tenants[key] for text in settings.defaults.owner_from if (key := text.partition(":")[2].casefold()) in tenants]
    selects = [
        *((f"budget {one.name}", one.match, "makes this hard budget stop machines") for one in settings.budgets if one.hard),
        *((f"policy {one.name}", one.target.match, "gives them a priority") for one in settings.policies if one.priority),
    ]
    for called, match, does in selects:
        used = [tenants[key.casefold()] for key, _ in match.labels or () if key.casefold() in tenants]
        used += owners if match.owners is not None else []
        told = f"selects by {', '.join(used)}, which tenants set (defaults.tenant_labels) and which {does}"
        require(not used, f"{where}: {called}", told, "match accounts or regions instead, or take the label from tenant_labels")


def _check_endpoint(endpoint: str, field: str) -> None:
    """Raise InputError if this is no address that may be asked: https anywhere, plain http on this machine only."""
    found = ENDPOINT_PATTERN.fullmatch(endpoint)
    require(found is not None, field, "is not an address of a host", ENDPOINT_HINT)
    plain = found is not None and found["plain"] is not None
    near = found is not None and found["host"].lower() in LOOPBACK_HOSTS
    require(near or not plain, field, "is plain http to another machine, which anybody on the way can change", ENDPOINT_HINT)


def _check_display(settings: Settings, where: str) -> None:
    """Raise InputError if a rate cannot be parsed, or if the display currency has no rate."""
    from costguard.values.money import EXCHANGE_EXAMPLE, parse_exchange_rate

    field, currency = describe_origin("display", "rates", where), settings.display.currency
    known = [parse_exchange_rate(text, field).currency for text in settings.display.rates]
    if currency is not None and currency != "USD":
        told = f"has no exchange rate for {shorten(currency)}"
        require(currency in known, field, told, f'write rates = ["{EXCHANGE_EXAMPLE.replace("EUR", currency[:3].upper())}"]')


def _check_server(url: str, field: str) -> None:
    """Raise InputError for a server address with a password, which is only allowed in the environment variable.

    Other errors in the address are reported when it is opened.
    """
    variable = format_variable("ledger", "url")
    found = PASSWORD_PATTERN.search(url)
    hint = f"keep it in ~/.pgpass (0600), or export {variable} with the whole address and remove the line"
    require(field == variable or not found, field, "holds a password; the settings file must not contain one", hint)


def _check_proxy(proxy: str, field: str) -> None:
    """Raise InputError if this is no http(s) address, or if it has a password outside the environment variable."""
    found = PROXY_PATTERN.fullmatch(proxy)
    require(found is not None, field, "is not an address of a proxy", 'write "http://proxy.example:3128"')
    variable = format_variable("network", "proxy")
    hidden = field == variable or not (found and found["who"])
    hint = f"export {variable} with the whole address, and remove the line"
    require(hidden, field, "holds a password; the settings file must not contain one", hint)


SECRET_KEY_PATTERN = re.compile(
    r"(?:^|_)(?:api_?key|access_?key|private_?key|secret|token|password|passwd|passphrase|authorization|bearer)(?:$|_)"
)
REFERENCE_KEY_PATTERN = re.compile(r"_(?:file|path|dir|folder|env|variable|command|name|profile|url|ttl|ttl_s)$")
"""Ends of keys that say where a secret is or how long it holds, and do not hold it."""
WORD_EDGE_PATTERN = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
SECRET_VALUE_PATTERN = re.compile(r"(?:sk-|rpa_|secret_|-----BEGIN )\w|[0-9a-f]{64}$")
"""How the keys begin that RunPod, Lambda and others make, and all of one of Vast's (`providers/*/README.md`, 2026-11)."""
PASTED_KEY_PATTERN = re.compile(r"(?=.*[a-z])(?=.*[0-9])[A-Za-z0-9_+=-]{20,}")
"""Letters and digits in a row: no name of a variable has small letters and digits at such length, no path lacks `/` and `.`."""
NESTING_MAX = 16
"""Tables within tables. No settings need four."""


def read_provider_tables(stated: object, where: str) -> Mapping[str, Mapping[str, object]]:
    """Return each provider's table by name; raise InputError if one is not a table or holds a secret.

    `where`: the file.
    """
    if not isinstance(stated, Mapping):
        raise InputError(
            f"must be tables, not {describe_unlike(stated)}",
            field=f"{where}: providers",
            hint="write a [providers.NAME] section",
        )
    for name, table in stated.items():
        field = f"{where}: providers.{name}"
        if not isinstance(table, Mapping):
            raise InputError(
                f"must be a table, not {describe_unlike(table)}",
                field=field,
                hint="write [providers.NAME], and its keys below it",
            )
        _reject_secrets(table, field, str(name))
    return {str(name): dict(table) for name, table in stated.items()}


def _reject_secrets(value: object, field: str, provider: str, depth: int = 0) -> None:
    """Raise InputError for the first key below `field` that is named like a secret or holds one.

    Its value is never shown.
    """
    if depth > NESTING_MAX:
        raise InputError("is nested too deeply", field=field, hint="use fewer levels")
    if isinstance(value, list):
        for item in value:
            _reject_secrets(item, field, provider, depth + 1)
    if not isinstance(value, Mapping):
        return
    for key, inner in value.items():
        if _is_secret_key(str(key)):
            raise InputError(
                "is a secret; the settings file must not contain one",
                field=f"{field}.{key}",
                hint=f"remove the line, and store it where {provider} looks for it: its environment variable or its own file",
            )
        if isinstance(inner, str) and _is_secret_value(str(key), inner):
            raise InputError(
                "looks like a key itself; the settings file must not contain one",
                field=f"{field}.{key}",
                hint="write the name of the variable or the path of the file that holds it",
            )
        _reject_secrets(inner, f"{field}.{key}", provider, depth + 1)


def _is_secret_key(key: str) -> bool:
    words = WORD_EDGE_PATTERN.sub("_", key).replace("-", "_").lower()
    return bool(SECRET_KEY_PATTERN.search(words)) and not REFERENCE_KEY_PATTERN.search(words)


def _is_secret_value(key: str, value: str) -> bool:
    """Return whether a key itself was pasted instead of the name of its variable, its file or an account."""
    return bool(SECRET_VALUE_PATTERN.match(value)) or (
        key.endswith(("_env", "_file")) and bool(PASTED_KEY_PATTERN.fullmatch(value))
    )
