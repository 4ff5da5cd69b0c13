"""Reads single settings: texts, lists, names, flags, durations ("45m", "7d", "2h30m"); errors name the field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta

from costguard.errors import InputError
from costguard.values.checks import describe_value, require

SettingsTable = Mapping[str, object]
NAME_CHARS_MAX = 80
"""Characters of a name: it stands in every message."""
TABLES_MAX = 1000


def read_tables(value: object, where: str, kind: str) -> list[SettingsTable]:
    """Return the `[[kind]]` tables of the file `where`."""
    if not isinstance(value, list) or not all(isinstance(table, Mapping) for table in value):
        what = "must be a list of tables"
        raise InputError(what, field=f"{where}: {kind}", hint=f"write [[{kind}]], and its keys below it")
    require(len(value) <= TABLES_MAX, f"{where}: {kind}", f"has {len(value)} tables", f"write at most {TABLES_MAX}")
    return value


def read_name(value: object, field: str) -> str:
    """Return a name of printable characters; raise InputError if it is too long."""
    name = read_text(value, field).strip()
    plain = 0 < len(name) <= NAME_CHARS_MAX and name.isprintable()
    what = f"must be a name of at most {NAME_CHARS_MAX} plain characters, not {describe_value(name)}"
    require(plain, field, what, 'write a name such as "vision"')
    return name


def read_texts(value: object, field: str) -> tuple[str, ...]:
    """Return a list of texts; a single text is taken as a list of one."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InputError(f"must be a list of texts, not {describe_unlike(value)}", field=field, hint='write ["a", "b"]')
    return tuple(texts)


def read_text(value: object, field: str) -> str:
    """A text."""
    if not isinstance(value, str):
        raise InputError(f"must be text, not {describe_unlike(value)}", field=field, hint='write it in "quotes"')
    return value


def read_flag(value: object, field: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise InputError(f"must be true or false, not {describe_value(value)}", field=field, hint="write it without quotes")
    return value


def read_inner(value: object, field: str, example: str) -> SettingsTable:
    """Return a table that is not empty."""
    if not isinstance(value, Mapping) or not value:
        what = "is empty" if value == {} else f"must be a table, not {describe_unlike(value)}"
        raise InputError(what, field=field, hint=f"write {example}, or leave it out")
    return value


def read_section(value: object, field: str, header: str) -> SettingsTable:
    """Return a section's table, which may be empty."""
    if not isinstance(value, Mapping):
        raise InputError(f"must be a table, not {describe_unlike(value)}", field=field, hint=f"write {header}")
    return value


def describe_unlike(value: object) -> str:
    """Return a description of `value` for an error about its type.

    The content of texts, lists and tables is not shown, because it may be secret.
    """
    if isinstance(value, str):
        return "a text"
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        other = next((one for one in value if not isinstance(one, str)), "")
        return "a list of texts" if isinstance(other, str) else f"a list that holds {describe_unlike(other)}"
    return describe_value(value)


UNIT_SECONDS = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
DURATION_PATTERN = re.compile("".join(rf"(?:(\d{{1,9}}){unit})?" for unit in UNIT_SECONDS))
DURATION_MAX = timedelta(days=3660)
DURATION_HINT = 'write a number and its unit, such as "45m", "7d", "90s" or "2h30m"'


def parse_duration(value: object, field: str, *, least: timedelta = timedelta(), most: timedelta = DURATION_MAX) -> timedelta:
    """Return the duration that `value` gives, from `least` to `most`; raise InputError for `field` if it gives none."""
    if value is None:
        raise InputError("is missing", field=field, hint=DURATION_HINT)
    match = DURATION_PATTERN.fullmatch(value.strip()) if isinstance(value, str) and value.strip() else None
    if match is None:
        problem = "must have a unit" if re.fullmatch(r"[\d.]+", str(value)) else "must be a duration"
        raise InputError(f"{problem}, not {describe_value(value)}", field=field, hint=DURATION_HINT)
    seconds = sum(int(count or 0) * size for count, size in zip(match.groups(), UNIT_SECONDS.values(), strict=True))
    if seconds < least.total_seconds():
        what = f"must be at least {format_duration(least)}, not {describe_value(value)}"
        raise InputError(what, field=field, hint=f'write "{format_duration(least)}" or more')
    if seconds > most.total_seconds():
        what = f"must be at most {format_duration(most)}, not {describe_value(value)}"
        raise InputError(what, field=field, hint=f'write "{format_duration(most)}" or less')
    return timedelta(seconds=seconds)


def format_duration(time: timedelta) -> str:
    """Return `time` as a user would write it: 2h30m. Whole seconds; weeks are written as days."""
    left, parts = int(time.total_seconds()), []
    for unit, size in UNIT_SECONDS.items():
        if unit != "w" and left >= size:
            parts.append(f"{left // size}{unit}")
            left %= size
    return "".join(parts) or "0s"
