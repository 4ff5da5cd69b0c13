"""The period of a report: a month, a day, a week, or from one instant to another, in a time zone; and the one before.

Example: --week 2026-W40 in Europe/Berlin is [2026-09-27T22:00Z, 2026-10-04T22:00Z), and 2026-W39 is the week before it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

from costguard.errors import InputError
from costguard.values import calendar
from costguard.values.calendar import Period
from costguard.values.checks import describe_value, require
from costguard.values.instant import EARLIEST, LATEST

MONTH_TEXT = re.compile(r"(\d{4})-(\d{2})", re.ASCII)
WEEK_TEXT = re.compile(r"(\d{4})-?[Ww](\d{2})", re.ASCII)
DAY_TEXT = re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)
MONTHS_A_YEAR = 12
LAST_TEXT = re.compile(r"(\d{1,6})\s*([hdw])", re.ASCII)
LAST_UNITS = {"h": timedelta(hours=1), "d": calendar.DAY, "w": calendar.WEEK}
LONGEST_INSTANT_TEXT = 64
"""Characters of a time that somebody types."""
LONGEST_DAYS = calendar.LONGEST_ROLLING_DAYS
FROM_OPTION, TO_OPTION = "from", "to"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPeriod:
    """The requested period with its label, and the one before it; None: there is none to compare with."""

    period: Period
    label: str
    before: Period | None = None
    before_label: str = ""


def parse_report_period(values: Mapping[str, str | None], now: datetime, zone: tzinfo) -> ReportPeriod:
    """Return the period of --month, --day, --week, --last, or --from and --to; the current month if none is stated.

    They cannot be combined. --from alone reaches to `now`, and so does --last.
    """
    options = {name: text for name, text in values.items() if text is not None}
    kinds = list(dict.fromkeys(FROM_OPTION if name == TO_OPTION else name for name in options))
    if len(kinds) > 1:
        first, second, *_ = kinds
        raise InputError(f"--{first} and --{second} cannot be used together", hint="keep one of them")
    if "day" in options:
        return _make_day(parse_day(options["day"]), zone)
    if "last" in options:
        return _make_last(options["last"], now, zone)
    if "week" in options:
        return _make_week(parse_week(options["week"]), zone)
    if kinds == [FROM_OPTION]:
        return _make_stretch(options, now, zone)
    if "month" in options:
        return _make_month(*parse_month(options["month"], now), zone)
    middle = _find_middle(calendar.find_month(now, zone), zone)
    return _make_month(middle.year, middle.month, zone)


MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def _find_month_named(text: str, now: datetime | None) -> str:
    """Return the last month that a word such as "november" or "Nov" names, "2026-11"; "" if it names none."""
    start = text.strip().lower()[:3]
    if now is None or start not in MONTH_NAMES:
        return ""
    number = MONTH_NAMES.index(start) + 1
    return f"{now.year - (number > now.month)}-{number:02d}"


def parse_month(text: str, now: datetime | None = None) -> tuple[int, int]:
    """Parse "2026-10" to (year, month). With `now` the error for a month's name proposes the last month of that name."""
    match = MONTH_TEXT.fullmatch(text.strip())
    hint = f"write --month {_find_month_named(text, now) or '2026-10'}"
    require(match is not None, "--month", f"must be a year and a month, not {describe_value(text)}", hint)
    year, month = (int(part) for part in match.groups()) if match else (0, 0)
    require(
        1 <= month <= MONTHS_A_YEAR, "--month", f"there is no month {month:02d} in {describe_value(text)}", "write 01 to 12"
    )
    _require_known_year(year, "--month", text, hint)
    return year, month


def parse_day(text: str) -> date:
    """Parse the day "2026-10-03"."""
    match = DAY_TEXT.fullmatch(text.strip())
    hint = "write --day 2026-10-03"
    require(match is not None, "--day", f"must be a year, a month and a day, not {describe_value(text)}", hint)
    year, month, day = (int(part) for part in match.groups()) if match else (0, 0, 0)
    try:
        on = date(year, month, day)
    except ValueError:
        raise InputError(f"there is no such day: {describe_value(text)}", field="--day", hint=hint) from None
    _require_known_year(year, "--day", text, hint)
    return on


def parse_week(text: str) -> date:
    """Return the Monday of the ISO week "2026-W40"."""
    match = WEEK_TEXT.fullmatch(text.strip())
    hint = "write --week 2026-W40"
    require(match is not None, "--week", f"must be a year and an ISO week, not {describe_value(text)}", hint)
    year, week = (int(part) for part in match.groups()) if match else (0, 0)
    _require_known_year(year, "--week", text, hint)
    try:
        return date.fromisocalendar(year, week, 1)
    except ValueError:
        raise InputError(
            f"there is no week {week:02d} in {year}: {describe_value(text)}",
            field="--week",
            hint="write W01 to W52, in some years W53",
        ) from None


def parse_report_instant(text: str, field: str, zone: tzinfo, hint: str = "") -> datetime:
    """Parse a day, which begins in `zone`, or a time, which is in `zone` unless it states a zone. `hint`: of its errors."""
    hint = hint or f"write {field} 2026-10-01, or {field} 2026-10-01T18:00"
    bare, at = text.strip(), None
    if len(bare) <= LONGEST_INSTANT_TEXT and bare.isascii():
        if DAY_TEXT.fullmatch(bare):
            try:
                at = calendar.make_day(date.fromisoformat(bare), zone).start
            except (ValueError, OverflowError):
                at = None
        else:
            at = _parse_time(bare, zone)
    if at is None:
        raise InputError(f"is not a day or a time: {describe_value(text)}", field=field, hint=hint)
    in_range = EARLIEST <= at < LATEST
    require(in_range, field, f"is not between {EARLIEST.year} and {LATEST.year - 1}: {describe_value(text)}", hint)
    return at


def _parse_time(text: str, zone: tzinfo) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=zone).astimezone(UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _make_month(year: int, month: int, zone: tzinfo) -> ReportPeriod:
    last = (year, month - 1) if month > 1 else (year - 1, MONTHS_A_YEAR)
    has_previous = last >= (EARLIEST.year, EARLIEST.month)
    return ReportPeriod(
        period=calendar.make_month(year, month, zone),
        label=f"{year:04}-{month:02}",
        before=calendar.make_month(*last, zone) if has_previous else None,
        before_label=f"{last[0]:04}-{last[1]:02}" if has_previous else "",
    )


def _make_day(on: date, zone: tzinfo) -> ReportPeriod:
    last = on - calendar.DAY
    has_previous = last >= EARLIEST.date()
    previous = calendar.make_day(last, zone) if has_previous else None
    return ReportPeriod(
        period=calendar.make_day(on, zone),
        label=f"{on:%Y-%m-%d}",
        before=previous,
        before_label=f"{last:%Y-%m-%d}" if has_previous else "",
    )


def _make_week(monday: date, zone: tzinfo) -> ReportPeriod:
    last = monday - calendar.WEEK
    has_previous = last >= EARLIEST.date()
    previous = calendar.make_week(last, zone) if has_previous else None
    return ReportPeriod(
        period=calendar.make_week(monday, zone),
        label=_format_week(monday),
        before=previous,
        before_label=_format_week(last) if has_previous else "",
    )


def _format_week(monday: date) -> str:
    year, week, _ = monday.isocalendar()
    return f"{year:04}-W{week:02}"


def _make_stretch(options: Mapping[str, str], now: datetime, zone: tzinfo) -> ReportPeriod:
    require(FROM_OPTION in options, "--to", "needs a start", "add --from")
    start = parse_report_instant(options[FROM_OPTION], "--from", zone)
    if TO_OPTION in options:
        end = parse_report_instant(options[TO_OPTION], "--to", zone)
        require(start < end, "--to", "is not after --from", "the end is exclusive: write a later time")
    else:
        require(start < now, "--from", "is in the future", "add --to")
        end = now
    require((end - start).days <= LONGEST_DAYS, "--from", "is more than ten years before --to", "choose a shorter period")
    return _compare_before(Period(start=start, end=end), zone)


def _make_last(text: str, now: datetime, zone: tzinfo) -> ReportPeriod:
    """Return the time before `now` that "7d", "24h" or "2w" states: days are of 24 hours."""
    match, hint = LAST_TEXT.fullmatch(text.strip().lower()), "write --last 7d, 24h or 2w"
    length = int(match[1]) * LAST_UNITS[match[2]] if match else timedelta()
    require(length > timedelta(), "--last", f"is not a length of time: {describe_value(text)}", hint)
    require(length.days <= LONGEST_DAYS, "--last", f"is more than ten years: {describe_value(text)}", hint)
    return _compare_before(Period(start=now - length, end=now), zone)


def _compare_before(period: Period, zone: tzinfo) -> ReportPeriod:
    """Return `period` with the time of the same length before it."""
    start = period.start
    has_previous = start - period.length >= EARLIEST
    previous = Period(start=start - period.length, end=start) if has_previous else None
    return ReportPeriod(
        period=period,
        label=_format_stretch(period, zone),
        before=previous,
        before_label=_format_stretch(previous, zone) if previous else "",
    )


def _format_stretch(period: Period, zone: tzinfo) -> str:
    """Format a period of whole days by its first and last day, which the exclusive end is not; others by start and end."""
    first, last = calendar.find_day(period.start, zone), calendar.find_day(period.end - timedelta.resolution, zone)
    if (first.start, last.end) != (period.start, period.end):
        return f"{_format_short(period.start, zone)} to {_format_short(period.end, zone)}"
    return " to ".join(dict.fromkeys(_format_short(day.start, zone) for day in (first, last)))


def _format_short(at: datetime, zone: tzinfo) -> str:
    local = at.astimezone(zone)
    begins = calendar.find_day(at, zone).start == at
    return f"{local:%Y-%m-%d}" if begins else f"{local:%Y-%m-%d %H:%M}"


def _find_middle(month: Period, zone: tzinfo) -> datetime:
    return (month.start + month.length / 2).astimezone(zone)


def _require_known_year(year: int, field: str, text: str, hint: str) -> None:
    in_range = EARLIEST.year <= year < LATEST.year
    require(in_range, field, f"is not between {EARLIEST.year} and {LATEST.year - 1}: {describe_value(text)}", hint)
