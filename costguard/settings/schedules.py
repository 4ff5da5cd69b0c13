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
from costguard.settings.zones import zone_named
from costguard.values.checks import describe_value, find_nearest_names, require, require_known_keys
from costguard.values.instant import EARLIEST, LATEST

KEYS = ("timezone", "off", "holidays", "exemptions")
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
OFF = re.compile(r"(?:([a-z,\s-]+?)\s*)?(?:(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2}))?", re.IGNORECASE)
SAMPLE = 'write "20:00-08:00", "sat-sun" or "mon-fri 20:00-08:00"'
MOST, LONGEST = 1000, 100
"""Days of a list; characters of a text."""


def read_schedule(stated: object, field: str, zone: tzinfo) -> Schedule:
    """The schedule that `stated` says. `zone`: where it states none."""
    table = read_inner(stated, field, '{ off = ["20:00-08:00"] }')
    require_known_keys(table, KEYS, field)
    if "timezone" in table:
        zone = zone_named(read_text(table["timezone"], f"{field}.timezone"), f"{field}.timezone")
    off = tuple(_off(text, f"{field}.off") for text in read_texts(table.get("off", []), f"{field}.off"))
    holidays = frozenset(_date(day, f"{field}.holidays") for day in _list(table.get("holidays", []), f"{field}.holidays"))
    require(bool(off or holidays), f"{field}.off", "is missing", SAMPLE)
    exemptions = read_tables(table.get("exemptions", []), field.rpartition(".")[0], "schedule.exemptions")
    return Schedule(
        zone=zone,
        off=off,
        holidays=holidays,
        exemptions=tuple(_exemption(one, f"{field}.exemptions {n}", zone) for n, one in enumerate(exemptions, 1)),
    )


def _list(stated: object, field: str) -> list[object]:
    if not isinstance(stated, list) or len(stated) > MOST:
        raise InputError(f"must be a list of days, not {describe_value(stated)}", field=field, hint="write [2026-12-25]")
    return stated


def _off(text: str, field: str) -> OffWindow:
    found = OFF.fullmatch(text.strip()) if len(text) <= LONGEST else None
    if found is None or not text.strip():
        raise InputError(f"says no time: {describe_value(text)}", field=field, hint=SAMPLE)
    days = _days(found[1], field) if found[1] else frozenset(range(7))
    if found[2] is None:
        return OffWindow(start=time(), end=time(), days=days)
    start, end = _clock(found[2], found[3], field), _clock(found[4], found[5], field)
    whole_day = (found[2], found[4]) in (("00", "24"), ("0", "24"))
    require(start != end or whole_day, field, f"ends when it starts: {describe_value(text)}", 'write "00:00-24:00" for a day')
    return OffWindow(start=start, end=end, days=days)


def _clock(hours: str, minutes: str, field: str) -> time:
    """24:00 is the midnight at a day's end."""
    said = f"{hours}:{minutes}"
    require(said == "24:00" or (int(hours) < 24 and int(minutes) < 60), field, f"there is no {said}", SAMPLE)  # noqa: PLR2004 - a clock
    return time(int(hours) % 24, int(minutes))


def _days(text: str, field: str) -> frozenset[int]:
    days = set[int]()
    for part in text.lower().split(","):
        first, _, last = part.strip().partition("-")
        start, end = _day(first, field), _day(last or first, field)
        days |= {(start + number) % 7 for number in range((end - start) % 7 + 1)}
    return frozenset(days)


def _day(text: str, field: str) -> int:
    name = text.strip()[:3]
    if name not in DAYS:
        raise UnknownNameError("day", text.strip(), field=field, nearest=find_nearest_names(text.strip(), DAYS), hint=SAMPLE)
    return DAYS.index(name)


def _date(stated: object, field: str) -> date:
    try:
        day = date.fromisoformat(stated) if isinstance(stated, str) else stated
    except ValueError:
        day = None
    if not isinstance(day, date) or isinstance(day, datetime):
        raise InputError(f"must be a day, not {describe_value(stated)}", field=field, hint="write 2026-12-25")
    return day


def _exemption(table: Mapping[str, object], field: str, zone: tzinfo) -> Exemption:
    require_known_keys(table, ("start", "end", "why"), field)
    start = _instant(table.get("start"), f"{field}.start", zone, after=timedelta())
    end = _instant(table.get("end"), f"{field}.end", zone, after=timedelta(days=1))
    require(start < end, f"{field}.end", "must be after its start", "exchange them")
    return Exemption(start=start, end=end, why=read_text(table.get("why", ""), f"{field}.why"))


def _instant(stated: object, field: str, zone: tzinfo, *, after: timedelta) -> datetime:
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
