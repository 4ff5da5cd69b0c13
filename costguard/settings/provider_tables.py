"""The `[providers.NAME]` tables: handed on as they stand, unless one holds a secret.

Secrets come from each provider's own place (its environment variable, its own file), never from the settings file: that is
committed, copied and shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from costguard.errors import InputError
from costguard.settings.fields import describe_unlike

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
    """Each provider's table by its name; InputError where one is no table or holds a secret. `where`: the file."""
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
    """InputError for the first key below `field` whose name is that of a secret. Its value is never shown."""
    if depth > NESTING_MAX:
        raise InputError("lies in too many tables", field=field, hint="write fewer levels")
    if isinstance(value, list):
        for item in value:
            _reject_secrets(item, field, provider, depth + 1)
    if not isinstance(value, Mapping):
        return
    for key, inner in value.items():
        if _is_secret_key(str(key)):
            raise InputError(
                "is a secret, and the settings file holds none",
                field=f"{field}.{key}",
                hint=f"take the line out, and keep it where {provider} looks for it: its environment variable or its own file",
            )
        if isinstance(inner, str) and _is_secret_value(str(key), inner):
            raise InputError(
                "looks like a key itself, and the settings file holds none",
                field=f"{field}.{key}",
                hint="write the name of the variable or the path of the file that holds it",
            )
        _reject_secrets(inner, f"{field}.{key}", provider, depth + 1)


def _is_secret_key(key: str) -> bool:
    words = WORD_EDGE_PATTERN.sub("_", key).replace("-", "_").lower()
    return bool(SECRET_KEY_PATTERN.search(words)) and not REFERENCE_KEY_PATTERN.search(words)


def _is_secret_value(key: str, value: str) -> bool:
    """Whether somebody pasted a key where its variable, its file or an account is named."""
    return bool(SECRET_VALUE_PATTERN.match(value)) or (
        key.endswith(("_env", "_file")) and bool(PASTED_KEY_PATTERN.fullmatch(value))
    )
