"""The model of a policy's `schedule`: when its machines should be off, and whether it starts them again.

A time without an offset is in the schedule's zone. A date without a time is the whole day: an exemption whose `end` is
2026-11-26 ends at the end of the 26th.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from fractions import Fraction
from typing import Annotated, Self

from pydantic import model_validator

from costguard.errors import InputError, UnknownNameError
from costguard.guard.policy import Exemption, OffWindow, Schedule, ScheduledStartRule
from costguard.settings.fields import read_tables, read_texts
from costguard.settings.model import CheckFirst, ReadAs, SettingsModel, Text, describe_key, limit_duration, read_model, refuse
from costguard.settings.section_values import read_zone
from costguard.values.checks import describe_value, find_nearest_names, require
from costguard.values.instant import EARLIEST, LATEST

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
START_HINT = 'write start = true, or start = { within = "2h", price_rise = "10%" }'
PRICE_RISE_MAX = 1000
DAY_NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
OFF_PATTERN = re.compile(r"(?:([a-z,\s-]+?)\s*)?(?:(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2}))?", re.IGNORECASE)
OFF_HINT = 'write "20:00-08:00", "sat-sun" or "mon-fri 20:00-08:00"'
ENTRIES_MAX, ENTRY_CHARS_MAX = 1000, 100
"""Days of a list; characters of a text."""


def _read_off(value: object, field: str) -> tuple[OffWindow, ...]:
    return tuple(_parse_off(text, field) for text in read_texts(value, field))


def _read_holidays(value: object, field: str) -> frozenset[date]:
    if not isinstance(value, list) or len(value) > ENTRIES_MAX:
        raise InputError(f"must be a list of days, not {describe_value(value)}", field=field, hint="write [2026-12-25]")
    return frozenset(_parse_date(day, field) for day in value)


def _parse_percent(value: object, field: str) -> Fraction:
    match = re.fullmatch(r"\s*(\d{1,4}(?:\.\d{1,3})?)\s*%\s*", value) if isinstance(value, str) else None
    if match is None or Fraction(match[1]) > PRICE_RISE_MAX:
        raise InputError(f"must be a percentage, not {describe_value(value)}", field=field, hint='write "10%"')
    return Fraction(match[1]) / 100


def _parse_off(text: str, field: str) -> OffWindow:
    match = OFF_PATTERN.fullmatch(text.strip()) if len(text) <= ENTRY_CHARS_MAX else None
    if match is None or not text.strip():
        raise InputError(f"has no time: {describe_value(text)}", field=field, hint=OFF_HINT)
    days = _parse_days(match[1], field) if match[1] else frozenset(range(7))
    if match[2] is None:
        return OffWindow(start=time(), end=time(), days=days)
    start, end = _parse_clock(match[2], match[3], field), _parse_clock(match[4], match[5], field)
    if match[2] == "24":  # fri 24:00 is Saturday 00:00
        days = frozenset((day + 1) % 7 for day in days)
    whole_day = (match[2], match[4]) in (("00", "24"), ("0", "24"))
    require(start != end or whole_day, field, f"ends at its start: {describe_value(text)}", 'write "00:00-24:00" for a day')
    return OffWindow(start=start, end=end, days=days)


def _parse_clock(hours: str, minutes: str, field: str) -> time:
    """Return the time of day; 24:00 is the midnight at the end of a day."""
    clock_text = f"{hours}:{minutes}"
    require(clock_text == "24:00" or (int(hours) < 24 and int(minutes) < 60), field, f"there is no {clock_text}", OFF_HINT)  # noqa: PLR2004 - a clock
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


def _parse_date(value: object, field: str) -> date:
    try:
        day = date.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        day = None
    if not isinstance(day, date) or isinstance(day, datetime):
        raise InputError(f"must be a day, not {describe_value(value)}", field=field, hint="write 2026-12-25")
    return day


def _parse_instant(value: object, field: str, zone: tzinfo, *, day_offset: timedelta) -> datetime:
    """Return the instant that `value` gives; for a date without a time, its midnight plus `day_offset`."""
    if value is None:
        raise InputError("is missing", field=field, hint="write start = 2026-11-24T18:00:00 and end = 2026-11-26")
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else value
        if isinstance(value, str) and "T" not in value and ":" not in value:
            at = date.fromisoformat(value)
        if isinstance(at, date) and not isinstance(at, datetime):
            at = datetime.combine(at, time()) + day_offset
        if isinstance(at, datetime):
            at = (at if at.tzinfo else at.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        at = None
    if not isinstance(at, datetime) or not EARLIEST <= at <= LATEST:
        raise InputError(f"must be a time, not {describe_value(value)}", field=field, hint="write 2026-11-24T18:00:00")
    return at


class StartTable(SettingsModel):
    """`start` of a schedule as a table."""

    within: Annotated[timedelta, limit_duration(MINUTE, DAY)] = describe_key(ScheduledStartRule().within, "How late.", "2h")
    price_rise: Annotated[Fraction, ReadAs(_parse_percent)] = describe_key(
        ScheduledStartRule().price_rise, "How much dearer.", "10%"
    )


def _read_start(value: object, field: str) -> ScheduledStartRule | None:
    """Return how a schedule starts what it stopped; None for `false`."""
    if isinstance(value, bool):
        return ScheduledStartRule() if value else None
    if not isinstance(value, dict):
        raise InputError(f"must be true, false or a table, not {describe_value(value)}", field=field, hint=START_HINT)
    return ScheduledStartRule(**dict(read_model(StartTable, value, field, ())))


class ExemptionTable(SettingsModel):
    """A time when a schedule does not count. Read once the zone is known."""

    start: object = None
    end: object = None
    why: Text = ""


def _check_exemptions(value: object, _: str) -> object:
    return read_tables(value, "", "schedule.exemptions")


class ScheduleTable(SettingsModel):
    """`schedule` of a policy: when the machines should be off."""

    timezone: Annotated[tzinfo | None, ReadAs(read_zone)] = describe_key(None, "Default: that of [defaults].", "Europe/Berlin")
    off: Annotated[tuple[OffWindow, ...], ReadAs(_read_off)] = describe_key(
        (), 'Days, hours or both ("mon-fri 20:00-08:00"); the days are its first days.', ["20:00-08:00", "sat-sun"]
    )
    holidays: Annotated[frozenset[date], ReadAs(_read_holidays)] = describe_key(
        frozenset(), "Off all day.", [date(2026, 12, 25)]
    )
    exemptions: Annotated[tuple[ExemptionTable, ...], CheckFirst(_check_exemptions)] = ()
    start: Annotated[ScheduledStartRule | None, ReadAs(_read_start)] = describe_key(
        None,
        "true: start at the end of the off period what the policy stopped in it, if nobody else touched it; or a table: "
        '{ within = "2h", price_rise = "10%" } says how late and how much dearer.',
        example=False,
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(require, bool(self.off or self.holidays), ".off", "is missing", OFF_HINT)
        return self


def make_schedule(table: ScheduleTable, zone: tzinfo) -> Schedule:
    """Return the schedule that `table` states. `zone`: the zone if it states none."""
    zone = table.timezone or zone
    exemptions = []
    for number, one in enumerate(table.exemptions, 1):
        field = f".schedule.exemptions {number}"
        start = _parse_instant(one.start, f"{field}.start", zone, day_offset=timedelta())
        end = _parse_instant(one.end, f"{field}.end", zone, day_offset=DAY)
        require(start < end, f"{field}.end", "must be after its start", "exchange them")
        exemptions.append(Exemption(start=start, end=end, why=one.why))
    return Schedule(zone=zone, off=table.off, holidays=table.holidays, exemptions=tuple(exemptions))
