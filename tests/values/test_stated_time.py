"""Every form in which a provider may write a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.values.instant import parse_instant

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
EPOCH = 1795262400


@pytest.mark.parametrize(
    "stated",
    [
        "2026-11-21T12:00:00Z",
        "2026-11-21T12:00:00z",
        "2026-11-21T12:00:00+00:00",
        "2026-11-21T04:00:00.000-08:00",
        "2026-11-21T17:30:00+0530",
        "2026-11-21 12:00:00",
        "2026-11-21 12:00:00 UTC",
        "2026-11-21 12:00:00 GMT",
        "2026-11-21T12:00:00.000000000Z",
        " 2026-11-21T12:00:00Z\n",
        "20261121T120000Z",
        EPOCH,
        float(EPOCH),
        str(EPOCH),
        f"{EPOCH}.0",
        EPOCH * 10**3,
        EPOCH * 10**6,
        EPOCH * 10**9,
        "1.7952624e9",
    ],
)
def test_every_form_of_noon_is_noon(stated: object) -> None:
    assert parse_instant(stated) == NOON


@pytest.mark.parametrize(
    "stated",
    ["", " ", "never", "0", 0, 0.0, -1, None, True, [], {},
     "0000-00-00T00:00:00Z", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59Z",
     float("nan"), float("inf"), 10**30, "1" * 400, "2026-13-01T00:00:00Z", "12:00:00", "2026-11-21T25:00:00Z"],
)  # fmt: skip
def test_what_states_no_time_is_none(stated: object) -> None:
    assert parse_instant(stated) is None


@given(st.text() | st.integers() | st.floats() | st.none() | st.binary())
def test_nothing_makes_it_fail_and_what_it_says_is_in_utc(stated: object) -> None:
    at = parse_instant(stated)
    assert at is None or (at.tzinfo is UTC and 2000 <= at.year < 2200)


@given(st.datetimes(datetime(2000, 1, 2), datetime(2199, 12, 30)), st.integers(-14 * 60, 14 * 60))  # noqa: DTZ001 - made aware here
def test_an_instant_comes_back_whatever_offset_it_is_written_with(at: datetime, minutes: int) -> None:
    from datetime import timezone

    aware = at.replace(tzinfo=UTC)
    assert parse_instant(aware.astimezone(timezone(timedelta(minutes=minutes))).isoformat()) == aware
