"""Checks the settings as a whole when they are read, and that `[providers.NAME]` tables contain no secret.

Secrets come from each provider's own place (its environment variable, its own file), never from the settings file, which is
committed, copied and shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from costguard.errors import InputError, collect_errors, raise_errors, shorten
from costguard.settings.environment import describe_origin
from costguard.settings.fields import describe_unlike, read_section
from costguard.settings.section_values import SQLITE_PREFIX
from costguard.settings.sections import SHARE, Settings
from costguard.values.checks import require
from costguard.values.money import EXCHANGE_EXAMPLE


def check_whole_file(settings: Settings, where: str) -> None:
    """Raise InputErrors for sections that do not fit together."""
    errors: list[InputError] = []
    for check, path in (
        (_check_workers, ("scale", "workers")),
        (_check_display, ("display", "rates")),
        (check_tenant_labels, ()),
    ):
        with collect_errors(errors, path):
            check(settings, where)
    raise_errors(errors)


def _check_workers(settings: Settings, where: str) -> None:
    """Raise InputError if watchdogs are to share the accounts of a ledger that is a file: it has one writer at a time."""
    hint = 'set [ledger] url = "postgresql+psycopg://HOST/NAME", or leave workers out'
    fits = settings.scale.workers != SHARE or not (settings.ledger.url or SQLITE_PREFIX).startswith(SQLITE_PREFIX)
    require(fits, describe_origin("scale", "workers", where), "needs a ledger on a PostgreSQL server", hint)


def _check_display(settings: Settings, where: str) -> None:
    """Raise InputError if the display currency has no rate."""
    field, currency = describe_origin("display", "rates", where), settings.display.currency
    if currency is not None and currency != "USD":
        currencies = [rate.currency for rate in settings.display.rates]
        problem = f"has no exchange rate for {shorten(currency)}"
        require(
            currency in currencies, field, problem, f'write rates = ["{EXCHANGE_EXAMPLE.replace("EUR", currency[:3].upper())}"]'
        )


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
        problem = f"selects by {', '.join(used)}, which tenants set (defaults.tenant_labels) and which {does}"
        require(
            not used, f"{where}: {called}", problem, "match accounts or regions instead, or take the label from tenant_labels"
        )


SECRET_KEY_PATTERN = re.compile(
    r"(?:^|_)(?:api_?key|access_?key|private_?key|secret|token|password|passwd|passphrase|authorization|bearer)(?:$|_)"
)
REFERENCE_KEY_PATTERN = re.compile(r"_(?:file|path|dir|folder|env|variable|command|name|profile|url|ttl|ttl_s)$")
"""Ends of keys that say where a secret is or how long it holds, and do not hold it."""
REFERENCE_HINT = "write the name of the variable or the path of the file that holds it"
VALUE_HINT = 'write a name, such as "main", and in key_env the name of the variable that holds the key'
WORD_EDGE_PATTERN = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
SECRET_VALUE_PATTERN = re.compile(r"(?:sk-|rpa_|secret_|-----BEGIN )\w|[0-9a-f]{64}$")
"""How the keys begin that RunPod, Lambda and others make, and all of one of Vast's (`providers/*/README.md`, 2026-11)."""
PASTED_KEY_PATTERN = re.compile(r"(?=.*[a-z])(?=.*[0-9])[A-Za-z0-9_+=-]{20,}")
"""Letters and digits in a row: no name of a variable has small letters and digits at such length, no path lacks `/` and `.`."""
NESTING_MAX = 16
"""Tables within tables. No settings need four."""


def read_provider_tables(value: object, where: str) -> Mapping[str, Mapping[str, object]]:
    """Return each provider's table by name; raise InputError if one is not a table or holds a secret.

    `where`: the file.
    """
    if not isinstance(value, Mapping):
        raise InputError(
            f"must be tables, not {describe_unlike(value)}",
            field=f"{where}: providers",
            hint="write a [providers.NAME] section",
        )
    errors: list[InputError] = []
    for name, table in value.items():
        with collect_errors(errors, ("providers", str(name))):
            field = f"{where}: providers.{name}"
            read_section(table, field, "[providers.NAME], and its keys below it")
            _reject_secrets(table, field, str(name))
    raise_errors(errors)
    return {str(name): dict(table) for name, table in value.items()}


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
                hint=REFERENCE_HINT if REFERENCE_KEY_PATTERN.search(str(key)) else VALUE_HINT,
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
