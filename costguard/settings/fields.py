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


def read_tables(stated: object, where: str, kind: str) -> list[SettingsTable]:
    """Return the `[[kind]]` tables of the file `where`."""
    if not isinstance(stated, list) or not all(isinstance(table, Mapping) for table in stated):
        what = "must be a list of tables"
        raise InputError(what, field=f"{where}: {kind}", hint=f"write [[{kind}]], and its keys below it")
    require(len(stated) <= TABLES_MAX, f"{where}: {kind}", f"has {len(stated)} tables", f"write at most {TABLES_MAX}")
    return stated


def read_name(stated: object, field: str) -> str:
    """Return a name of printable characters; raise InputError if it is too long."""
    name = read_text(stated, field).strip()
    plain = 0 < len(name) <= NAME_CHARS_MAX and name.isprintable()
    what = f"must be a name of at most {NAME_CHARS_MAX} plain characters, not {describe_value(name)}"
    require(plain, field, what, 'write a name such as "vision"')
    return name


def read_texts(stated: object, field: str) -> tuple[str, ...]:
    """Return a list of texts; a single text is taken as a list of one."""
    texts = [stated] if isinstance(stated, str) else stated
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InputError(f"must be a list of texts, not {describe_unlike(stated)}", field=field, hint='write ["a", "b"]')
    return tuple(texts)


def read_text(stated: object, field: str) -> str:
    """A text."""
    if not isinstance(stated, str):
        raise InputError(f"must be text, not {describe_unlike(stated)}", field=field, hint='write it in "quotes"')
    return stated


def read_flag(stated: object, field: str) -> bool:
    """True or false."""
    if not isinstance(stated, bool):
        raise InputError(f"must be true or false, not {describe_value(stated)}", field=field, hint="write it without quotes")
    return stated


def read_inner(stated: object, field: str, example: str) -> SettingsTable:
    """Return a table that is not empty."""
    if not isinstance(stated, Mapping) or not stated:
        what = "is empty" if stated == {} else f"must be a table, not {describe_unlike(stated)}"
        raise InputError(what, field=field, hint=f"write {example}, or leave it out")
    return stated


def read_section(stated: object, field: str, header: str) -> SettingsTable:
    """Return a section's table, which may be empty."""
    if not isinstance(stated, Mapping):
        raise InputError(f"must be a table, not {describe_unlike(stated)}", field=field, hint=f"write {header}")
    return stated


def describe_unlike(stated: object) -> str:
    """Return a description of `stated` for an error about its type.

    The content of texts, lists and tables is not shown, because it may be secret.
    """
    if isinstance(stated, str):
        return "a text"
    if isinstance(stated, Mapping):
        return "a table"
    if isinstance(stated, list):
        other = next((one for one in stated if not isinstance(one, str)), "")
        return "a list of texts" if isinstance(other, str) else f"a list that holds {describe_unlike(other)}"
    return describe_value(stated)


UNIT_SECONDS = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
DURATION_PATTERN = re.compile("".join(rf"(?:(\d{{1,9}}){unit})?" for unit in UNIT_SECONDS))
DURATION_MAX = timedelta(days=3660)
DURATION_HINT = 'write a number and its unit, such as "45m", "7d", "90s" or "2h30m"'


def parse_duration(stated: object, field: str, *, least: timedelta = timedelta(), most: timedelta = DURATION_MAX) -> timedelta:
    """Return the duration that `stated` gives, from `least` to `most`; raise InputError for `field` if it gives none."""
    if stated is None:
        raise InputError("is missing", field=field, hint=DURATION_HINT)
    found = DURATION_PATTERN.fullmatch(stated.strip()) if isinstance(stated, str) and stated.strip() else None
    if found is None:
        unit = "must have a unit, not" if re.fullmatch(r"[\d.]+", str(stated)) else "must be a duration, not"
        raise InputError(f"{unit} {describe_value(stated)}", field=field, hint=DURATION_HINT)
    seconds = sum(int(count or 0) * size for count, size in zip(found.groups(), UNIT_SECONDS.values(), strict=True))
    if seconds < least.total_seconds():
        what = f"must be at least {format_duration(least)}, not {describe_value(stated)}"
        raise InputError(what, field=field, hint=f'write "{format_duration(least)}" or more')
    if seconds > most.total_seconds():
        what = f"must be at most {format_duration(most)}, not {describe_value(stated)}"
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
