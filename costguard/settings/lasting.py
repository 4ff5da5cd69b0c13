"""How long, as people write it: "45m", "7d", "90s", "2h30m"."""

from __future__ import annotations

import re
from datetime import timedelta

from costguard.errors import InputError
from costguard.values.checks import describe_value

UNIT_SECONDS = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
DURATION_PATTERN = re.compile("".join(rf"(?:(\d{{1,9}}){unit})?" for unit in UNIT_SECONDS))
DURATION_MAX = timedelta(days=3660)
DURATION_HINT = 'write a number and its unit, such as "45m", "7d", "90s" or "2h30m"'


def parse_duration(stated: object, field: str, *, least: timedelta = timedelta(), most: timedelta = DURATION_MAX) -> timedelta:
    """The time that `stated` says, from `least` to `most`; InputError for `field` where it says none."""
    if stated is None:
        raise InputError("is missing", field=field, hint=DURATION_HINT)
    found = DURATION_PATTERN.fullmatch(stated.strip()) if isinstance(stated, str) and stated.strip() else None
    if found is None:
        unit = (
            "must say its unit, and not" if re.fullmatch(r"[\d.]+", str(stated)) else "must be a time that something takes, not"
        )
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
    """`time` as it would be written: 2h30m; whole seconds, weeks as days."""
    left, parts = int(time.total_seconds()), []
    for unit, size in UNIT_SECONDS.items():
        if unit != "w" and left >= size:
            parts.append(f"{left // size}{unit}")
            left %= size
    return "".join(parts) or "0s"
