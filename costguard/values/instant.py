"""Instants as whole microseconds since 1970 in UTC, which is how the ledger keeps them: no float ever touches time.

Example: 2026-11-21T00:00:00Z is 1_795_219_200_000_000.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

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
    """Microseconds since 1970 of the aware instant `at`."""
    return (at - EPOCH) // MICROSECOND


def from_micros(us: int) -> datetime:
    """The instant `us` microseconds after 1970, in UTC."""
    return EPOCH + us * MICROSECOND


def require_instant(at: datetime, field: str) -> datetime:
    """`at` if it is in UTC and between 2000 and 2200; InputError otherwise."""
    require(at.tzinfo is UTC, field, f"must be an instant in UTC, not {at!r}", "use datetime(..., tzinfo=UTC)")
    require(EARLIEST <= at < LATEST, field, f"is no instant between 2000 and 2200: {at}", "check the clock")
    return at
