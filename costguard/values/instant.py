"""Instants as whole microseconds since 1970 in UTC, as the ledger stores them; no float is used for time.

Example: 2026-11-21T00:00:00Z is 1_795_219_200_000_000.

Also parses times of providers: RFC 3339 with any offset and fraction, other forms of ISO 8601, or a count since 1970.

Example: "2026-11-21T04:00:00.123456789-08:00", "1795262400", 1795262400.5 and 1795262400123 (milliseconds) are all accepted.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from costguard.values.checks import require

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
SECOND_US = 1_000_000
HOUR_US = 3600 * SECOND_US
DAY_US = 24 * HOUR_US
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
"""No cloud is older: an instant before it is a field that was empty (1970) or misread."""
LATEST = datetime(2200, 1, 1, tzinfo=UTC)


def to_micros(at: datetime) -> int:
    """Return the microseconds since 1970 of the aware instant `at`."""
    return (at - EPOCH) // MICROSECOND


def from_micros(us: int) -> datetime:
    """Return the instant `us` microseconds after 1970, in UTC."""
    return EPOCH + us * MICROSECOND


def to_hours(us: float) -> float:
    """Return microseconds as hours, to a third of a second, as records of JSON and CSV show them."""
    return round(us / HOUR_US, 4)


def require_instant(at: datetime, field: str) -> datetime:
    """Return `at` if it is in UTC and between 2000 and 2200; raise InputError otherwise."""
    require(at.tzinfo is UTC, field, f"must be a time in UTC, not {at!r}", "use datetime(..., tzinfo=UTC)")
    require(EARLIEST <= at < LATEST, field, f"is not a time between 2000 and 2200: {at}", "check the clock")
    return at


LONGEST_TIME_TEXT = 64
"""Characters that a time may have."""
PER_SECOND = ((10**11, 1), (10**14, 10**3), (10**17, 10**6), (10**20, 10**9))
"""A number below the first is a count of such parts of a second since 1970: s, ms, us, ns."""
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d{1,2})?", re.ASCII)
_ZONE = re.compile(r"\s*(?:UTC|GMT|[zZ])$")
_FINER = re.compile(r"([.,]\d{6})\d+", re.ASCII)


def parse_instant(value: object) -> datetime | None:
    """Parse `value` to an instant in UTC; None if it states none between 2000 and 2200.

    A text without a zone is taken as UTC. Zero, a common value of an unset time, gives None.
    """
    if isinstance(value, str):
        return _drop_unlikely(_parse_text(value))
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    return _drop_unlikely(_parse_count(value))


def _parse_text(text: str) -> datetime | None:
    try:  # the form that nearly every answer has, at the speed of C
        at = datetime.fromisoformat(text)
    except ValueError:
        return _parse_unusual(text.strip())
    if at.tzinfo is UTC:
        return at
    return at.replace(tzinfo=UTC) if at.tzinfo is None and "-" in text else _parse_unusual(text.strip())


def _parse_unusual(text: str) -> datetime | None:
    if not text or len(text) > LONGEST_TIME_TEXT:
        return None
    if _NUMBER.fullmatch(text):
        return _parse_count(Decimal(text))
    try:
        at = datetime.fromisoformat(_FINER.sub(r"\1", _ZONE.sub("+00:00", text)))
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _parse_count(number: float | Decimal) -> datetime | None:
    try:
        count = number if isinstance(number, Decimal) else Decimal(repr(number))
        per = next((per for limit, per in PER_SECOND if abs(count) < limit), None)
        return None if per is None else EPOCH + timedelta(microseconds=int((count * 10**6 / per).to_integral_value()))
    except (ArithmeticError, ValueError):
        return None


def _drop_unlikely(at: datetime | None) -> datetime | None:
    return at if at is not None and EARLIEST <= at < LATEST else None
