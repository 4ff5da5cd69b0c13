"""Sums by month and resource: what their spans come to in any period, checked, and made anew for older ledgers."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costguard.bills.bill_line import BillLine
from costguard.ledger.bills.staging import StagedStatement
from costguard.ledger.bills.store import BillStore, GatheredStatement
from costguard.ledger.db import maintenance
from costguard.ledger.db.codecs import Query
from costguard.ledger.reports.reader import ReportReader
from costguard.ledger.spans.scope_state import load_attributions
from costguard.ledger.spans.sums import PeriodSums, SumKey
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Poll
from costguard.metering.meter import COMPUTE
from costguard.values.calendar import Period, make_month
from costguard.values.instant import HOUR_US, to_micros
from costguard.values.money import Money, sum_intervals
from costguard.values.resource import ResourceKey, ScopeKey
from tests.campaign import examples
from tests.ledger.fleet import CEILINGS, DAY, HOUR, RULES, START, asked, copies, histories, machine, poll, rows

FEW = settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
BERLIN = ZoneInfo("Europe/Berlin")
LATE = ResourceKey("acme", "late", "west-1", "i-7")
LAST = datetime(2026, 10, 31, tzinfo=UTC)
SETTLED = LAST + 60 * DAY
OCTOBER, NOVEMBER = make_month(2026, 10, UTC), make_month(2026, 11, UTC)


@pytest.fixture
def fresh(url: str) -> Iterator[Callable[[], str]]:
    with copies(url) as made:
        yield made


def record(url: str, polls: list[Poll]) -> None:
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS) as book:
        book.record_polls(polls)


def find_late(url: str) -> None:
    """A machine at $2 an hour that was found when it was 30 hours old, and ended a minute later."""
    scope = ScopeKey("acme", "late", "west-1")
    listed = [poll(minutes, machine(key=LATE, created_at=START), scope=scope) for minutes in (1800, 1801)]
    record(url, [*listed, *(poll(minutes, scope=scope) for minutes in (1802, 1804, 1804 + 4 * 1440))])


def day_line(key: ResourceKey, number: int, nano: int) -> BillLine:
    """What `key` was billed for the day `number` after October 31."""
    start = LAST + number * DAY
    return BillLine(
        id=f"{key.id}:{number}",
        provider=key.provider,
        account=key.account,
        start=start,
        end=start + DAY,
        amount=Money(nano=nano),
        charge=COMPUTE,
        resource_id=key.id,
        region=key.region,
    )


def take_in(url: str, *lines: BillLine, at: datetime = SETTLED) -> None:
    with StagedStatement() as staged, BillStore(url, rules=RULES) as bills:
        staged.add((one, Decimal(0)) for one in lines)
        bills.import_statements([GatheredStatement(staged=staged, source="a bill", stated_at=at)], who="ada", now=at)


@st.composite
def bills(draw: st.DrawFn) -> list[BillLine]:
    """Settled lines: of October 31 and November 1 of the machine that was found late, and of any days of the others."""
    others = [ResourceKey("acme", "lab", "west-1", f"i-{number}") for number in (1, 2, 3)]
    found = [day_line(LATE, number, draw(st.integers(0, most * 10**9))) for number, most in ((0, 4), (1, 48))]
    for key, number in draw(st.lists(st.tuples(st.sampled_from(others), st.integers(0, 34)), unique=True, max_size=12)):
        found.append(day_line(key, number, draw(st.integers(0, 30 * 10**9))))
    return found


def sums(url: str, period: Period, *, from_spans: bool) -> dict[SumKey, list[int]]:
    """By line of each resource: low, expected, high and microseconds, from the monthly sums or from the spans alone."""

    def add(ask: Query) -> dict[SumKey, list[int]]:
        made = PeriodSums(ask, load_attributions(ask), each=True)
        if from_spans:
            made.add_edge(to_micros(period.start), to_micros(period.end))
        else:
            made.add_closed(period)
        return {place: found for place, found in made.raw.items() if any(found)}

    return asked(url, add)


@FEW
@given(said=histories(), billed=bills(), hours=st.tuples(st.integers(-900, 900), st.integers(1, 2000)))
def test_any_period_comes_to_what_its_spans_do(
    fresh: Callable[[], str], said: list[Poll], billed: list[BillLine], hours: tuple[int, int]
) -> None:
    url = fresh()
    record(url, said)
    find_late(url)
    take_in(url, *billed)
    assert rows(url)["correction"], "the bill bounds the machine that was found late, at the least"
    begun = START + hours[0] * HOUR + timedelta(microseconds=1)
    drawn = Period(start=begun, end=begun + hours[1] * HOUR)
    year = Period(start=datetime(2026, 1, 1, tzinfo=UTC), end=datetime(2027, 1, 1, tzinfo=UTC))
    for period in (drawn, year, OCTOBER, NOVEMBER, make_month(2026, 11, BERLIN), make_month(2026, 10, BERLIN)):
        assert sums(url, period, from_spans=False) == sums(url, period, from_spans=True)
    assert maintenance.check_ledger(url) == []


def test_a_bill_that_bounds_parts_counts_once_in_months_and_rates(url: str) -> None:
    find_late(url)
    take_in(url, day_line(LATE, 0, 3 * 10**9), day_line(LATE, 1, 24 * 10**9))
    for period, low, high in ((OCTOBER, 3, 3), (NOVEMBER, 24, 24 + 9)):  # and the hours of November 2, at $2, are in doubt
        (found,) = [one for place, one in sums(url, period, from_spans=False).items() if place.charge == COMPUTE]
        assert low * 10**9 - 5_000_000 <= found[0] <= found[2] <= high * 10**9 + 5_000_000
    berlin = Period(start=START + HOUR, end=LAST + 2 * DAY - 2 * HOUR)  # which cuts both of the days that are billed
    assert sums(url, berlin, from_spans=False) == sums(url, berlin, from_spans=True)
    year = Period(start=datetime(2026, 1, 1, tzinfo=UTC), end=datetime(2027, 1, 1, tzinfo=UTC))
    with ReportReader(url, rules=RULES, ceilings=lambda: CEILINGS) as books:
        for period in (year, OCTOBER, NOVEMBER, Period(start=LAST + DAY, end=LAST + 2 * DAY)):
            rates = books.load_rate_changes(period, SETTLED)
            spread = sum(
                (one.began - one.ended) * (to_micros(period.end) - hour * HOUR_US)
                - one.began_offset
                + one.ended_offset
                + one.cost
                for hour, one in rates.items()
            )
            spent = sum_intervals(one.money for one in books.load_spending(period, SETTLED))
            assert spread == pytest.approx(spent.expected.nano, rel=1e-6, abs=1000)
    assert maintenance.check_ledger(url) == []
    take_in(url, day_line(LATE, 1, 30 * 10**9), at=SETTLED + HOUR)
    assert maintenance.check_ledger(url) == []


def two_machines(url: str) -> None:
    """Two of one kind, from October 31 to November 2; both are in either month."""
    record(url, [poll(0, machine("a"), machine("b")), poll(50 * 60, machine("a", "stopped"), machine("b", "stopped"))])


EDITS = {
    "UPDATE monthly SET high = high + 1 WHERE month = (SELECT min(month) FROM monthly) AND resource_id = 1": "2026-10",
    "DELETE FROM monthly WHERE month = (SELECT max(month) FROM monthly) AND resource_id = 2": "2026-11",
    "UPDATE monthly SET us = us + CASE resource_id WHEN 1 THEN 5 ELSE -5 END WHERE charge = 'compute'": "resource 1, compute",
    """UPDATE monthly SET expected = expected + 5 * (3 - 2 * resource_id), high = high + 5 * (3 - 2 * resource_id)
    WHERE charge = 'compute'""": "resource 2, compute",
    "UPDATE hourly SET cost = cost + 1 WHERE hour = (SELECT min(hour) FROM hourly)": "the hour 2026-10-31",
    "UPDATE hourly SET step = step - 1 WHERE hour = (SELECT max(hour) FROM hourly)": "the hour 2026-11-02",
}


@pytest.mark.parametrize("sql", EDITS)
def test_the_check_names_the_month_or_the_resource_that_was_edited(sqlite_url: str, sql: str) -> None:
    two_machines(sqlite_url)
    assert maintenance.check_ledger(sqlite_url) == []
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)) as file:
        file.execute(sql)
    found = maintenance.check_ledger(sqlite_url)
    assert found
    assert any(EDITS[sql] in one for one in found), found
