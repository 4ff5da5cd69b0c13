"""What to write instead of an unknown time zone, and what a zone means that is only an offset: for settings and flags.

A hint goes by what a word means, never by its letters: `UTC+2` is two hours ahead of UTC, and the IANA name `Etc/GMT+2` two
hours behind it. A word with several meanings lists them and chooses none:

    CST can mean America/Chicago (UTC-6), Asia/Shanghai (UTC+8), America/Havana (UTC-5)

Abbreviations and offsets are those of the tz database in this year; other words are in `data/time_zones.csv`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from costguard.data import FOLDER
from costguard.errors import InputError, UnknownNameError, shorten
from costguard.values.checks import find_nearest_names, fold_name

ZONE_HINT = 'write an IANA name such as "Europe/Berlin"'
OFFSET_PATTERN = re.compile(r"(?:UTC|GMT|Z)?\s*([+\u2212-])\s*(\d{1,2})(?:[.:]?(\d{1,2}))?(?:\s*h)?", re.IGNORECASE)
FRACTIONS = {"5": 30, "50": 30, "25": 15, "75": 45}  # minutes of UTC+5.5; others are minutes as they stand (UTC+5.30)
TYPO_CUTOFF, TYPO_CHARS_MIN = 0.8, 5
"""How much of a misspelt city must agree, and its least length: shorter words are abbreviations, which are not guessed."""
MEANINGS_SHOWN = 8


class _Zone(NamedTuple):
    key: str
    words: frozenset[str]  # folded
    times: Mapping[str, timedelta]  # abbreviation of this year, folded -> its offset


def make_unknown_zone_error(name: str, field: str) -> InputError:
    """Return the error of an unknown zone `name`: with the zone that it means, or those that it can mean."""
    if not available_timezones():
        what = "cannot be looked up: this machine has no time zone data"
        return InputError(what, field=field, hint="pip install tzdata, or write UTC")
    near, hint = _suggest_for_word(name.strip())
    if match := OFFSET_PATTERN.fullmatch(name.strip()):
        minutes = 60 * int(match[2]) + FRACTIONS.get(match[3], int(match[3] or 0))
        near, hint = _suggest_for_offset(timedelta(minutes=minutes if match[1] == "+" else -minutes))
    return UnknownNameError("time zone", name, field=field, nearest=near, hint=hint)


def describe_fixed_zone(zone: tzinfo) -> str:
    """Return what a name of an offset means that looks like the zone of a place (EST, Etc/GMT+5); "" for any other zone."""
    key = getattr(zone, "key", "UTC")
    times = list(_list_times(key).items())
    if len(times) > 1 or key.endswith(("UTC", "UCT")) or not (fold_name(key) == times[0][0] or "GMT" in key):
        return ""
    offset, sign = times[0][1], " (the sign in its name is the opposite)" if "GMT" in key and times[0][1] else ""
    place = next((one.key for one in _list_zones()[1:] if min(one.times.values()) == offset), "the zone of a place")
    return f"{key} is always {_format_offset(offset)}{sign}, without daylight saving time: write {place}, or leave it if meant"


def _format_offset(offset: timedelta) -> str:
    hours, minutes = divmod(abs(offset) // timedelta(minutes=1), 60)
    return f"UTC{'-' if offset < timedelta() else '+'}{hours}{f':{minutes:02}' if minutes else ''}"


def _suggest_for_offset(offset: timedelta) -> tuple[tuple[str, ...], str]:
    """Return the zones that have `offset`: one that always has it, and one with and without daylight saving time each."""
    shown = {"all year": "", "without daylight saving time": "", "with daylight saving time": ""}
    for zone in _list_zones():
        least, most = min(zone.times.values()), max(zone.times.values())
        when = list(shown)[0 if least == most else 1 if offset == least else 2]
        if offset in (least, most) and not shown[when]:
            shown[when] = f"{zone.key} ({when})"
    near = tuple(filter(None, shown.values())) if offset else ("UTC",)
    return near, "" if near else f"no place has {_format_offset(offset)}; {ZONE_HINT}"


def _suggest_for_word(word: str) -> tuple[tuple[str, ...], str]:
    folded, zones = fold_name(word), _list_zones()
    exact = next((zone for zone in sorted(available_timezones()) if fold_name(zone) == folded), None)
    if exact is not None:
        return (exact,), ""
    meanings = dict[object, tuple[str, timedelta]]()
    for zone in zones:
        offsets = tuple(sorted({*zone.times.values()}))
        if folded in zone.times:
            meanings.setdefault(zone.times[folded], (zone.key, zone.times[folded]))
        elif folded in zone.words and not meanings.keys() & {*offsets}:
            meanings.setdefault(offsets, (zone.key, offsets[0]))
    if len(meanings) == 1:
        return (next(iter(meanings.values()))[0],), ""
    if meanings:
        several = ", ".join(f"{key} ({_format_offset(offset)})" for key, offset in list(meanings.values())[:MEANINGS_SHOWN])
        return (), f"{shorten(word, 40)} can mean {several}: write the one you mean"
    names = {fold_name(one): zone.key for zone in reversed(zones) for one in ({zone.key} if "/" in word else zone.words)}
    near = find_nearest_names(word, names, most=1, cutoff=TYPO_CUTOFF) if len(folded) >= TYPO_CHARS_MIN else ()
    return tuple(names[one] for one in near), ZONE_HINT


@cache
def _list_zones() -> tuple[_Zone, ...]:
    """Return the places of the table that this machine knows, the preferred ones first."""
    installed = available_timezones()
    with (FOLDER / "time_zones.csv").open(encoding="utf-8", newline="") as file:
        words = {row["zone"]: (*row["words"].split("|"), row["zone"].rpartition("/")[2]) for row in csv.DictReader(file)}
    return tuple(
        _Zone(key, frozenset(map(fold_name, names)), _list_times(key)) for key, names in words.items() if key in installed
    )


def _list_times(key: str) -> Mapping[str, timedelta]:
    """Return abbreviation, folded -> offset of a zone in this year."""
    year, zone = datetime.now(UTC).year, ZoneInfo(key)
    times = (datetime(year, month, 15, tzinfo=zone) for month in range(1, 13))
    return {fold_name(at.tzname() or ""): at.utcoffset() or timedelta() for at in times}
