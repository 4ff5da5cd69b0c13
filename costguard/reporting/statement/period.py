"""Which period a report is of: a month, a day, a week, or from one instant to another, in some time zone; and the one before.

Example: --week 2026-W40 in Europe/Berlin is [2026-09-27T22:00Z, 2026-10-04T22:00Z), and 2026-W39 is the week before it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo

from costguard.errors import InputError
from costguard.values import calendar
from costguard.values.checks import described, require
from costguard.values.instant import EARLIEST, LATEST
from costguard.values.period import Period

MONTH = re.compile(r"(\d{4})-(\d{2})", re.ASCII)
WEEK = re.compile(r"(\d{4})-?[Ww](\d{2})", re.ASCII)
DAY = re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)
MONTHS = 12
LONGEST = 64
"""Characters of a time that somebody types."""
LONGEST_DAYS = calendar.LONGEST_ROLLING
FROM, TO = "from", "to"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The period that was asked for, as people call it, and the one before it; None: there is none to compare with."""

    period: Period
    label: str
    before: Period | None = None
    before_label: str = ""


def asked(stated: Mapping[str, str | None], now: datetime, zone: tzinfo) -> Asked:
    """The period of --month, --day, --week, or --from and --to, by their names; the running month where none is stated.

    They exclude each other. --from alone reaches to `now`.
    """
    given = {name: text for name, text in stated.items() if text is not None}
    kinds = list(dict.fromkeys(FROM if name == TO else name for name in given))
    if len(kinds) > 1:
        first, second, *_ = kinds
        raise InputError(f"--{first} and --{second} exclude each other", hint="keep one of them")
    if "day" in given:
        return _day(day_stated(given["day"]), zone)
    if "week" in given:
        return _week(week_stated(given["week"]), zone)
    if kinds == [FROM]:
        return _stretch(given, now, zone)
    if "month" in given:
        return _month(*month_stated(given["month"]), zone)
    middle = _middle(calendar.month_of(now, zone), zone)
    return _month(middle.year, middle.month, zone)


def month_stated(text: str) -> tuple[int, int]:
    """(year, month) of "2026-10"."""
    found = MONTH.fullmatch(text.strip())
    hint = "write --month 2026-10"
    require(found is not None, "--month", f"must be a year and a month, not {described(text)}", hint)
    year, month = (int(part) for part in found.groups()) if found else (0, 0)
    require(1 <= month <= MONTHS, "--month", f"there is no month {month:02d} in {described(text)}", "write 01 to 12")
    _known_year(year, "--month", text, hint)
    return year, month


def day_stated(text: str) -> date:
    """The day "2026-10-03"."""
    found = DAY.fullmatch(text.strip())
    hint = "write --day 2026-10-03"
    require(found is not None, "--day", f"must be a year, a month and a day, not {described(text)}", hint)
    year, month, day = (int(part) for part in found.groups()) if found else (0, 0, 0)
    try:
        on = date(year, month, day)
    except ValueError:
        raise InputError(f"there is no such day: {described(text)}", field="--day", hint=hint) from None
    _known_year(year, "--day", text, hint)
    return on


def week_stated(text: str) -> date:
    """The Monday of the ISO week "2026-W40"."""
    found = WEEK.fullmatch(text.strip())
    hint = "write --week 2026-W40"
    require(found is not None, "--week", f"must be a year and an ISO week, not {described(text)}", hint)
    year, week = (int(part) for part in found.groups()) if found else (0, 0)
    _known_year(year, "--week", text, hint)
    try:
        return date.fromisocalendar(year, week, 1)
    except ValueError:
        raise InputError(
            f"there is no week {week:02d} in {year}: {described(text)}",
            field="--week",
            hint="write W01 to W52, in some years W53",
        ) from None


def instant_stated(text: str, field: str, zone: tzinfo) -> datetime:
    """The instant that `text` names: a day begins in `zone`, and a time without a zone of its own is one of `zone`."""
    hint = f"write {field} 2026-10-01, or {field} 2026-10-01T18:00"
    bare, at = text.strip(), None
    if len(bare) <= LONGEST and bare.isascii():
        if DAY.fullmatch(bare):
            try:
                at = calendar.day(date.fromisoformat(bare), zone).start
            except (ValueError, OverflowError):
                at = None
        else:
            at = _time(bare, zone)
    if at is None:
        raise InputError(f"is no day and no time: {described(text)}", field=field, hint=hint)
    known = EARLIEST <= at < LATEST
    require(known, field, f"lies not between {EARLIEST.year} and {LATEST.year - 1}: {described(text)}", hint)
    return at


def _time(text: str, zone: tzinfo) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=zone).astimezone(UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _month(year: int, month: int, zone: tzinfo) -> Asked:
    last = (year, month - 1) if month > 1 else (year - 1, MONTHS)
    there = last >= (EARLIEST.year, EARLIEST.month)
    return Asked(
        period=calendar.month(year, month, zone),
        label=f"{year:04}-{month:02}",
        before=calendar.month(*last, zone) if there else None,
        before_label=f"{last[0]:04}-{last[1]:02}" if there else "",
    )


def _day(on: date, zone: tzinfo) -> Asked:
    last = on - calendar.DAY
    there = last >= EARLIEST.date()
    before = calendar.day(last, zone) if there else None
    return Asked(
        period=calendar.day(on, zone), label=f"{on:%Y-%m-%d}", before=before, before_label=f"{last:%Y-%m-%d}" if there else ""
    )


def _week(monday: date, zone: tzinfo) -> Asked:
    last = monday - calendar.WEEK
    there = last >= EARLIEST.date()
    before = calendar.week(last, zone) if there else None
    return Asked(
        period=calendar.week(monday, zone),
        label=_week_label(monday),
        before=before,
        before_label=_week_label(last) if there else "",
    )


def _week_label(monday: date) -> str:
    year, week, _ = monday.isocalendar()
    return f"{year:04}-W{week:02}"


def _stretch(given: Mapping[str, str], now: datetime, zone: tzinfo) -> Asked:
    require(FROM in given, "--to", "needs a beginning", "write --from as well")
    start = instant_stated(given[FROM], "--from", zone)
    if TO in given:
        end = instant_stated(given[TO], "--to", zone)
        require(
            start < end, "--to", "does not lie after --from", "it is the first instant that does not belong: state a later one"
        )
    else:
        require(start < now, "--from", "lies in the future", "state --to as well")
        end = now
    require((end - start).days <= LONGEST_DAYS, "--from", "lies more than ten years before --to", "ask for less at once")
    period = Period(start=start, end=end)
    there = start - period.length >= EARLIEST
    before = Period(start=start - period.length, end=start) if there else None
    return Asked(
        period=period,
        label=_stretch_label(period, zone),
        before=before,
        before_label=_stretch_label(before, zone) if before else "",
    )


def _stretch_label(period: Period, zone: tzinfo) -> str:
    return f"{_short(period.start, zone)} to {_short(period.end, zone)}"


def _short(at: datetime, zone: tzinfo) -> str:
    local = at.astimezone(zone)
    begins = calendar.day_of(at, zone).start == at
    return f"{local:%Y-%m-%d}" if begins else f"{local:%Y-%m-%d %H:%M}"


def _middle(month: Period, zone: tzinfo) -> datetime:
    return (month.start + month.length / 2).astimezone(zone)


def _known_year(year: int, field: str, text: str, hint: str) -> None:
    known = EARLIEST.year <= year < LATEST.year
    require(known, field, f"lies not between {EARLIEST.year} and {LATEST.year - 1}: {described(text)}", hint)
