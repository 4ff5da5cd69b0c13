"""Reads the `[rails]` section (limits on all acts, whatever the policies state) and the `[[hook]]` tables.

    [rails]
    acts = { per_run = 1, per_10m = 3, fleet_percent = 10, fleet_percent_day = 20, irreversible_per_h = 1 }
    caps = { per_10m = 20 }      # hard caps that a person accepted: the keys of acts; default: as many as a cap needs
    starts = { per_run = 2, per_h = 20 }
    breaker = { percent = 25, least = 5, window = "10m", recovery = "30m" }
    first_seen = "15m"

A hook is a command or a request that a policy's escalation may run before its next step:

    [[hook]]
    name = "checkpoint"
    command = ["/usr/local/bin/save", "--all"]      # run without a shell; or a url
    env = ["AWS_PROFILE"]                           # variables passed to the command; no other key or secret is passed
    url = "https://example.com/save"                # called by POST; "env:NAME" and "file:PATH" name the source of the address
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction

from costguard.errors import InputError
from costguard.guard.escalation import Hook
from costguard.guard.policy import Rails
from costguard.settings.fields import (
    SettingsTable,
    describe_unlike,
    parse_duration,
    read_inner,
    read_name,
    read_tables,
    read_text,
    read_texts,
    require_unique_names,
)
from costguard.settings.notify import check_address
from costguard.values.checks import describe_value, require, require_known_keys, require_number, require_whole_number

ACTS_MAX = 1000
ONE_DAY = timedelta(days=1)


def _read_count(stated: object, field: str) -> int:
    return require_whole_number(stated, field, least=0, most=ACTS_MAX)


def _read_machines(stated: object, field: str) -> int:
    return require_whole_number(stated, field, least=1, most=10**6)


def _read_percent(stated: object, field: str) -> Fraction:
    if isinstance(stated, str):
        raise InputError(f"must be a number, not {describe_value(stated)}", field=field, hint="write 10 for 10 %")
    return Fraction(str(require_number(stated, field, least=1, most=100))) / 100


def _read_time(stated: object, field: str) -> timedelta:
    return parse_duration(stated, field, most=7 * ONE_DAY)


def _read_period(stated: object, field: str) -> timedelta:
    return parse_duration(stated, field, least=timedelta(minutes=1), most=ONE_DAY)


FieldReader = Callable[[object, str], object]
RAIL_FIELDS: Mapping[str, Mapping[str, tuple[str, FieldReader]]] = {
    "acts": {
        "per_run": ("acts_per_run", _read_count),
        "per_10m": ("acts_per_10m", _read_count),
        "fleet_percent": ("fleet_share_10m", _read_percent),
        "fleet_percent_day": ("fleet_share_day", _read_percent),
        "least_per_day": ("acts_least_day", _read_machines),
        "irreversible_per_h": ("irreversible_per_h", _read_count),
    },
    "starts": {
        "per_run": ("starts_per_run", _read_count),
        "per_h": ("starts_per_h", _read_count),
    },
    "breaker": {
        "percent": ("breaker_share", _read_percent),
        "least": ("breaker_least", _read_machines),
        "window": ("breaker_window", _read_period),
        "recovery": ("breaker_recovery", _read_period),
        "asks": ("breaker_asks", _read_period),
        "lasts": ("breaker_lasts", _read_time),
    },
}
"""Key -> inner key -> the field of Rails, and how it is read."""
CAP_FIELDS: Mapping[str, tuple[str, FieldReader]] = {
    name: (field, _read_machines if read is _read_count else read) for name, (field, read) in RAIL_FIELDS["acts"].items()
}
"""The keys of `caps`: those of `acts`, but none may be 0."""
RAIL_EXAMPLES = {
    "acts": "{ per_10m = 3 }",
    "caps": "{ per_10m = 20 }",
    "starts": "{ per_h = 20 }",
    "breaker": "{ percent = 25 }",
}


def read_rails(stated: object, where: str) -> Rails:
    """Return the rails of the file `where`; missing values take the defaults of Rails."""
    place = f"{where}: rails"
    if not isinstance(stated, Mapping):
        raise InputError(f"must be a table, not {describe_unlike(stated)}", field=place, hint="write a [rails] section")
    require_known_keys(stated, (*RAIL_FIELDS, "caps", "first_seen"), place)
    values = dict[str, object]()
    for key, fields in RAIL_FIELDS.items():
        values |= _read_fields(stated, key, fields, place)
    if caps := _read_fields(stated, "caps", CAP_FIELDS, place):
        values["caps"] = replace(Rails.unlimited(), **caps)  # type: ignore[arg-type]  # each read as its field wants it
    if "fleet_share_day" in values and "acts_least_day" not in values:
        values["acts_least_day"] = 1  # who states a share of the day means it for small fleets too
    if "first_seen" in stated:
        values["first_seen"] = _read_time(stated["first_seen"], f"{place}.first_seen")
    return Rails(**values)  # type: ignore[arg-type]  # each read as its field wants it


def _read_fields(
    stated: Mapping[str, object], key: str, fields: Mapping[str, tuple[str, FieldReader]], place: str
) -> dict[str, object]:
    """Return the fields of Rails that the inner table `key` states; empty if there is none."""
    if key not in stated:
        return {}
    table = read_inner(stated[key], f"{place}.{key}", f"{key} = {RAIL_EXAMPLES[key]}")
    require_known_keys(table, tuple(fields), f"{place}.{key}")
    return {fields[name][0]: fields[name][1](value, f"{place}.{key}.{name}") for name, value in table.items()}


HOOK_KEYS = ("name", "command", "url", "env")
VARIABLE_NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
HOOK_VARIABLES_MAX = 32
COMMAND_HINT = 'write a list (no shell is used): command = ["/usr/local/bin/save", "--all"]'


def read_hooks(stated: object, where: str) -> tuple[Hook, ...]:
    """Return the hooks of the file `where` in their order."""
    hooks = tuple(_read_hook(table, f"{where}: hook {n}") for n, table in enumerate(read_tables(stated, where, "hook"), 1))
    require_unique_names([hook.name for hook in hooks], where, "hook")
    return hooks


def _read_hook(table: SettingsTable, place: str) -> Hook:
    name = read_name(table.get("name"), f"{place}.name", "checkpoint")
    place = f"{place} ({name})"
    require_known_keys(table, HOOK_KEYS, place)
    require(("command" in table) != ("url" in table), place, "needs a command or a url, and not both", COMMAND_HINT)
    if "url" in table:
        require("env" not in table, f"{place}.env", "belongs to a command", "remove it: a web server gets no variables")
        return Hook(name=name, url=check_address(read_text(table["url"], f"{place}.url"), f"{place}.url", "HOOK_URL"))
    if isinstance(table["command"], str):
        raise InputError("must be a list of texts, not one text", field=f"{place}.command", hint=COMMAND_HINT)
    command = read_texts(table["command"], f"{place}.command")
    require(bool(command) and bool(command[0].strip()), f"{place}.command", "names no program", COMMAND_HINT)
    env = read_texts(table.get("env", []), f"{place}.env")
    require(len(env) <= HOOK_VARIABLES_MAX, f"{place}.env", f"names {len(env)} variables", f"name {HOOK_VARIABLES_MAX} at most")
    for variable in env:
        require(
            bool(VARIABLE_NAME_PATTERN.fullmatch(variable)),
            f"{place}.env",
            f"'{variable}' is not a name of a variable",
            'write "AWS_PROFILE"',
        )
    return Hook(name=name, command=command, env=env)
