"""The lake: closed months of charge items as files, and the sums that are read from them. Months are in UTC."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from costguard.values import calendar
from costguard.values.calendar import Period

CLOSED_AFTER = timedelta(days=5)
"""A month is closed so long after its end: late polls are in, and providers have settled most lines of their bills."""
LAKE_KEYS = ("month", "provider", "account", "region", "charge", "gpu", "tier", "owner", "project", "team", "resource", "name")
"""What sums can be grouped by."""
DEFAULT_LAKE_KEYS = ("month", "provider")


class LakeSum(NamedTuple):
    """One group. `by`: its values in the order asked for, "" where there is none. Amounts are in units of `currency`, exact.

    `low` and `high` bound the truth. `rows`: charge items.
    """

    by: tuple[str, ...]
    currency: str
    low: Decimal
    expected: Decimal
    high: Decimal
    rows: int


@dataclass(slots=True, kw_only=True)
class LakeChanges:
    """What writing did: paths within the lake, and charge items in files that were written."""

    written: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    rows: int = 0


def list_closed_months(begun: datetime, now: datetime) -> list[Period]:
    """Return the months from that of `begun` to the last one that is closed at `now`."""
    found, month = list[Period](), calendar.find_month(begun, UTC)
    while month.end + CLOSED_AFTER <= now:
        found.append(month)
        month = calendar.find_month(month.end, UTC)
    return found


def find_last_closed_month(now: datetime) -> str:
    """Return the newest month that is closed at `now`, such as "2026-10"."""
    return format_month(calendar.find_month(now - CLOSED_AFTER, UTC).start - timedelta(microseconds=1))


def format_month(at: datetime) -> str:
    """Return the month of `at`, such as "2026-10"."""
    return f"{at:%Y-%m}"
