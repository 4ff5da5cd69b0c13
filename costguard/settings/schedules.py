"""The `schedule` of a `[[policy]]`: when its machines should be off, by the clock of a zone.

    [policy.schedule]
    timezone = "Europe/Berlin"                      # usually [defaults] timezone
    off = ["20:00-08:00", "sat-sun"]                # days, hours or both ("mon-fri 20:00-08:00"); days are those it starts on
    holidays = [2026-12-25]                         # off all day
    exemptions = [{ start = 2026-11-24T18:00:00, end = 2026-11-26, why = "release" }]

A time without an offset is meant in the schedule's zone. A day without a time is meant whole: the exemption above ends when the
26th does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from costguard.errors import InputError, UnknownNameError
from costguard.guard.schedule import Exemption, OffWindow, Schedule
from costguard.settings.fields import read_inner, read_tables, read_text, read_texts
from costguard.settings.zones import load_zone
from costguard.values.checks import describe_value, find_nearest_names, require, require_known_keys
from costguard.values.instant import EARLIEST, LATEST

SCHEDULE_KEYS = ("timezone", "off", "holidays", "exemptions")
DAY_NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
OFF_PATTERN = re.compile(r"(?:([a-z,\s-]+?)\s*)?(?:(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2}))?", re.IGNORECASE)
OFF_HINT = 'write "20:00-08:00", "sat-sun" or "mon-fri 20:00-08:00"'
ENTRIES_MAX, ENTRY_CHARS_MAX = 1000, 100
"""Days of a list; characters of a text."""


def read_schedule(stated: object, field: str, zone: tzinfo) -> Schedule:
    """The schedule that `stated` says. `zone`: where it states none."""
    table = read_inner(stated, field, '{ off = ["20:00-08:00"] }')
    require_known_keys(table, SCHEDULE_KEYS, field)
    if "timezone" in table:
        zone = load_zone(read_text(table["timezone"], f"{field}.timezone"), f"{field}.timezone")
    off = tuple(_parse_off(text, f"{field}.off") for text in read_texts(table.get("off", []), f"{field}.off"))
    holidays = frozenset(
        _parse_date(day, f"{field}.holidays") for day in _read_list(table.get("holidays", []), f"{field}.holidays")
    )
    require(bool(off or holidays), f"{field}.off", "is missing", OFF_HINT)
    exemptions = read_tables(table.get("exemptions", []), field.rpartition(".")[0], "schedule.exemptions")
    return Schedule(
        zone=zone,
        off=off,
        holidays=holidays,
        exemptions=tuple(_read_exemption(one, f"{field}.exemptions {n}", zone) for n, one in enumerate(exemptions, 1)),
    )


def _read_list(stated: object, field: str) -> list[object]:
    if not isinstance(stated, list) or len(stated) > ENTRIES_MAX:
        raise InputError(f"must be a list of days, not {describe_value(stated)}", field=field, hint="write [2026-12-25]")
    return stated


def _parse_off(text: str, field: str) -> OffWindow:
    found = OFF_PATTERN.fullmatch(text.strip()) if len(text) <= ENTRY_CHARS_MAX else None
    if found is None or not text.strip():
        raise InputError(f"says no time: {describe_value(text)}", field=field, hint=OFF_HINT)
    days = _parse_days(found[1], field) if found[1] else frozenset(range(7))
    if found[2] is None:
        return OffWindow(start=time(), end=time(), days=days)
    start, end = _parse_clock(found[2], found[3], field), _parse_clock(found[4], found[5], field)
    whole_day = (found[2], found[4]) in (("00", "24"), ("0", "24"))
    require(start != end or whole_day, field, f"ends when it starts: {describe_value(text)}", 'write "00:00-24:00" for a day')
    return OffWindow(start=start, end=end, days=days)


def _parse_clock(hours: str, minutes: str, field: str) -> time:
    """24:00 is the midnight at a day's end."""
    said = f"{hours}:{minutes}"
    require(said == "24:00" or (int(hours) < 24 and int(minutes) < 60), field, f"there is no {said}", OFF_HINT)  # noqa: PLR2004 - a clock
    return time(int(hours) % 24, int(minutes))


def _parse_days(text: str, field: str) -> frozenset[int]:
    days = set[int]()
    for part in text.lower().split(","):
        first, _, last = part.strip().partition("-")
        start, end = _parse_day(first, field), _parse_day(last or first, field)
        days |= {(start + number) % 7 for number in range((end - start) % 7 + 1)}
    return frozenset(days)


def _parse_day(text: str, field: str) -> int:
    name = text.strip()[:3]
    if name not in DAY_NAMES:
        raise UnknownNameError(
            "day", text.strip(), field=field, nearest=find_nearest_names(text.strip(), DAY_NAMES), hint=OFF_HINT
        )
    return DAY_NAMES.index(name)


def _parse_date(stated: object, field: str) -> date:
    try:
        day = date.fromisoformat(stated) if isinstance(stated, str) else stated
    except ValueError:
        day = None
    if not isinstance(day, date) or isinstance(day, datetime):
        raise InputError(f"must be a day, not {describe_value(stated)}", field=field, hint="write 2026-12-25")
    return day


def _read_exemption(table: Mapping[str, object], field: str, zone: tzinfo) -> Exemption:
    require_known_keys(table, ("start", "end", "why"), field)
    start = _parse_instant(table.get("start"), f"{field}.start", zone, after=timedelta())
    end = _parse_instant(table.get("end"), f"{field}.end", zone, after=timedelta(days=1))
    require(start < end, f"{field}.end", "must be after its start", "exchange them")
    return Exemption(start=start, end=end, why=read_text(table.get("why", ""), f"{field}.why"))


def _parse_instant(stated: object, field: str, zone: tzinfo, *, after: timedelta) -> datetime:
    """The instant; of a day without a time its midnight, or `after` that."""
    if stated is None:
        raise InputError("is missing", field=field, hint="write start = 2026-11-24T18:00:00 and end = 2026-11-26")
    try:
        at = datetime.fromisoformat(stated) if isinstance(stated, str) else stated
        if isinstance(stated, str) and "T" not in stated and ":" not in stated:
            at = date.fromisoformat(stated)
        if isinstance(at, date) and not isinstance(at, datetime):
            at = datetime.combine(at, time()) + after
        if isinstance(at, datetime):
            at = (at if at.tzinfo else at.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        at = None
    if not isinstance(at, datetime) or not EARLIEST <= at <= LATEST:
        raise InputError(f"must be an instant, not {describe_value(stated)}", field=field, hint="write 2026-11-24T18:00:00")
    return at
