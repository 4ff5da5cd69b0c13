"""The small words of a story: durations, moments, amounts, and what stands between commas.

length("2h30m")            2:30:00
cut('arm stop, when "a, b"')   ["arm stop", 'when "a, b"']
Moments(start, zone).at("Fri 18:05")    the first Friday from the day of the one before
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo

from costguard.errors import InputError
from costguard.values.money import Money

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_LENGTH = re.compile(r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")
_TOKENS = re.compile(r'"[^"]*"|\'[^\']*\'|\S+')
_PARTS = re.compile(r'(?:"[^"]*"|\'[^\']*\'|[^,"\'])+')
_DAY = r"(?:mon|tue|wed|thu|fri|sat|sun|day \d+|\d{4}-\d\d-\d\d)"
MOMENT = re.compile(rf"(?:(?P<day>{_DAY}) )?(?P<clock>\d\d:\d\d(?::\d\d)?)|\+(?P<after>[0-9.dhms]+)", re.IGNORECASE)


def build_line_error(line: int, what: str, hint: str) -> InputError:
    """An error that names the line."""
    return InputError(what, field=f"line {line}", hint=hint)


def parse_duration(text: str, line: int) -> timedelta:
    """A duration such as "45m", "7d", "2h30m", "90s"."""
    found = _LENGTH.fullmatch(text)
    if not found or not any(found.groups()):
        raise build_line_error(line, f"'{text}' is not a duration", 'write "45m", "7d", "90s" or "2h30m"')
    numbers = zip(found.groups(), _UNITS.values(), strict=True)
    return timedelta(seconds=sum(float(number) * unit for number, unit in numbers if number))


def parse_amount(text: str, line: int) -> Money:
    """An amount such as "$2,027.92" or "$32.77/h"."""
    sign, bare = text[:1], text[1:].removesuffix("/h").replace(",", "")
    try:
        return Money.parse(bare if sign == "$" else "")
    except InputError:
        raise build_line_error(line, f"'{text}' is not an amount", 'write "$33.86"') from None


def format_amount_plainly(amount: Money) -> str:
    """An amount as people write it: "32.77", "12000"."""
    whole, _, part = f"{amount.to_decimal():f}".partition(".")
    return f"{whole}.{part.rstrip('0')}" if part.rstrip("0") else whole


def split_tokens(text: str) -> list[str]:
    """The words of `text`; what stands in quotes is one, without them."""
    return [one[1:-1] if one[0] in "\"'" and one[0] == one[-1] and len(one) > 1 else one for one in _TOKENS.findall(text)]


def split_at_commas(text: str) -> list[str]:
    """`text` at its commas, but for those in quotes and in amounts ($2,027.92 holds none of ours)."""
    return [part.strip() for part in _PARTS.findall(re.sub(r"(?<=\d),(?=\d{3})", "", text)) if part.strip()]


@dataclass(slots=True)
class MomentReader:
    """Reads moments one after the other. `last`: the one before, at first the start, whose day a bare time shares."""

    last: datetime
    zone: tzinfo
    start: datetime

    def read(self, text: str, line: int) -> tuple[datetime | None, datetime | None, str]:
        """The moment or stretch that `text` begins with, and the rest; (None, None, text) where it begins with neither."""
        first = MOMENT.match(text)
        if not first:
            return None, None, text
        begin = self._moment(first, line)
        rest = text[first.end() :].lstrip()
        if rest.startswith("-"):
            second = MOMENT.match(rest[1:].lstrip())
            if not second:
                raise build_line_error(line, "a stretch has no end", 'write "19:55-20:40"')
            self.last = begin
            end = self._moment(second, line)
            end = end if end > begin or second["day"] else self._next_day(end)
            self.last = begin
            return begin, end, rest[1:].lstrip()[second.end() :].lstrip()
        self.last = begin
        return begin, None, rest

    def at(self, text: str, line: int) -> datetime:
        """The one moment that `text` is."""
        begin, end, rest = self.read(text, line)
        if begin is None or end is not None or rest:
            raise build_line_error(line, f"'{text}' is not a moment", 'write "Fri 18:05", "18:05", "day 7 10:00" or "+45m"')
        return begin

    def _next_day(self, at: datetime) -> datetime:
        return (at.astimezone(self.zone) + timedelta(days=1)).astimezone(UTC)

    def _moment(self, found: re.Match[str], line: int) -> datetime:
        if found["after"]:
            return self.last + parse_duration(found["after"], line)
        day = (found["day"] or "").lower()
        local = self.last.astimezone(self.zone)
        try:
            clock = time.fromisoformat(found["clock"])
            if day.startswith("day "):
                first = self.start.astimezone(self.zone).date()
                found_at = datetime.combine(first + timedelta(days=int(day[4:])), clock, self.zone)
            elif day[:1].isdigit():
                found_at = datetime.fromisoformat(f"{day}T{found['clock']}").replace(tzinfo=self.zone)
            else:
                dates = (local.date() + timedelta(days=number) for number in range(7))
                fit = next(one for one in dates if not day or DAYS[one.weekday()] == day)
                found_at = datetime.combine(fit, clock, self.zone)
        except ValueError:
            raise build_line_error(line, f"'{found[0]}' is no time of day", 'write "18:05"') from None
        return found_at.astimezone(UTC)
