"""Which period a report is of: as it is typed, half-open, in its zone; and the one before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.errors import InputError
from costguard.reporting.statement.period import ReportPeriod, parse_report_period

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")


def of(stated: dict[str, str], zone: tzinfo = UTC) -> ReportPeriod:
    return parse_report_period({**stated}, NOW, zone)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("stated", "zone", "bounds", "label", "before"),
    [
        ({}, UTC, ("2026-11-01", "2026-12-01"), "2026-11", "2026-10"),
        ({"month": "2026-01"}, BERLIN, ("2025-12-31T23:00", "2026-01-31T23:00"), "2026-01", "2025-12"),
        ({"day": "2026-10-03"}, UTC, ("2026-10-03", "2026-10-04"), "2026-10-03", "2026-10-02"),
        ({"day": "2026-11-01"}, NEW_YORK, ("2026-11-01T04:00", "2026-11-02T05:00"), "2026-11-01", "2026-10-31"),
        ({"week": "2026-W40"}, BERLIN, ("2026-09-27T22:00", "2026-10-04T22:00"), "2026-W40", "2026-W39"),
        ({"week": "2026w01"}, UTC, ("2025-12-29", "2026-01-05"), "2026-W01", "2025-W52"),
        ({"from": "2026-10-03", "to": "2026-10-05"}, UTC, ("2026-10-03", "2026-10-05"), "2026-10-03 to 2026-10-04",
         "2026-10-01 to 2026-10-02"),
        ({"from": "2026-11-20T18:00"}, BERLIN, ("2026-11-20T17:00", "2026-11-21T12:00"),
         "2026-11-20 18:00 to 2026-11-21 13:00", "2026-11-19 23:00 to 2026-11-20 18:00"),
        ({"from": "2026-10-03T00:00+02:00", "to": "2026-10-03T02:00Z"}, UTC, ("2026-10-02T22:00", "2026-10-03T02:00"),
         "2026-10-02 22:00 to 2026-10-03 02:00", "2026-10-02 18:00 to 2026-10-02 22:00"),
    ],
)  # fmt: skip
def test_a_period_is_what_people_call_it(
    stated: dict[str, str], zone: tzinfo, bounds: tuple[str, str], label: str, before: str
) -> None:
    found = of(stated, zone)
    assert (found.period.start, found.period.end) == tuple(map(utc, bounds))
    assert (found.label, found.before_label) == (label, before)
    assert found.before is not None
    assert found.before.end == found.period.start


@pytest.mark.parametrize(("word", "proposed"), [("november", "2026-11"), ("Dec", "2025-12"), ("tenth", "2026-10")])
def test_for_the_name_of_a_month_its_last_one_is_proposed(word: str, proposed: str) -> None:
    with pytest.raises(InputError) as refused:
        of({"month": word})
    assert refused.value.hint == f"write --month {proposed}"


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        ({"month": "2026-10", "day": "2026-10-01"}, "--month and --day cannot be used together"),
        ({"week": "2026-W40", "from": "2026-10-01"}, "--week and --from cannot be used together"),
        ({"day": "2026-10-01", "to": "2026-10-02"}, "--day and --from cannot be used together"),
        ({"to": "2026-10-01"}, "--to: needs a start"),
        ({"from": "2026-12-01"}, "--from: is in the future"),
        ({"from": "2026-10-02", "to": "2026-10-02"}, "--to: is not after --from"),
        ({"from": "2026-10-02", "to": "2026-10-01"}, "--to: is not after --from"),
        ({"from": "yesterday"}, "--from: is not a day or a time: 'yesterday'"),
        ({"from": "2026-02-30"}, "--from: is not a day or a time"),
        ({"from": "0001-01-01"}, "--from: is not between 2000 and 2199"),
        ({"from": "2010-01-01", "to": "2026-01-01"}, "--from: is more than ten years before --to"),
        ({"from": "1" * 500}, "--from: is not a day or a time"),
        ({"day": "2026-02-29"}, "--day: there is no such day"),
        ({"day": "2026-10"}, "--day: must be a year, a month and a day"),
        ({"day": "1999-01-01"}, "--day: is not between 2000 and 2199"),
        ({"week": "2026-40"}, "--week: must be a year and an ISO week"),
        ({"week": "2026-W54"}, "--week: there is no week 54 in 2026"),
        ({"week": "2027-W53"}, "--week: there is no week 53 in 2027"),
        ({"week": "2026-W00"}, "--week: there is no week 00"),
    ],
)
def test_what_is_no_period_is_refused_with_what_to_write(stated: dict[str, str], says: str) -> None:
    with pytest.raises(InputError) as refused:
        of(stated)
    assert str(refused.value).startswith(says)
    assert refused.value.hint


@given(st.dates(datetime(2001, 1, 1).date(), datetime(2199, 1, 1).date()), st.sampled_from((UTC, BERLIN, NEW_YORK)))  # noqa: DTZ001 - dates
def test_days_weeks_and_months_hold_the_day_that_names_them(on: object, zone: tzinfo) -> None:
    day = of({"day": f"{on}"}, zone)
    month = of({"month": f"{on:%Y-%m}"}, zone)
    week = of({"week": f"{on:%G-W%V}"}, zone)
    for larger in (week, month):
        assert larger.period.start <= day.period.start
        assert day.period.end <= larger.period.end
    assert timedelta(hours=22) <= day.period.length <= timedelta(hours=26)
    assert timedelta(days=6, hours=22) <= week.period.length <= timedelta(days=7, hours=2)
