"""Sums by month and resource: what their spans come to in any period, checked, and made anew for older ledgers."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costguard.ledger.db import maintenance
from costguard.ledger.db.codecs import Query
from costguard.ledger.db.connection import begin_write, open_engine, open_sql_session
from costguard.ledger.spans.monthly import rebuild_months
from costguard.ledger.spans.scope_state import load_attributions
from costguard.ledger.spans.sums import PeriodSums, SumKey
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Poll
from costguard.metering.meter import COMPUTE
from costguard.values.calendar import Period, make_month
from costguard.values.instant import to_micros
from tests.ledger.fleet import CEILINGS, HOUR, RULES, START, asked, copies, histories, machine, poll, rows

FEW = settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
BERLIN = ZoneInfo("Europe/Berlin")
OCTOBER, NOVEMBER = make_month(2026, 10, UTC), make_month(2026, 11, UTC)


@pytest.fixture
def fresh(url: str) -> Iterator[Callable[[], str]]:
    with copies(url) as made:
        yield made


def record(url: str, polls: list[Poll]) -> None:
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS) as book:
        book.record_polls(polls)


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
@given(said=histories(), hours=st.tuples(st.integers(-900, 900), st.integers(1, 2000)))
def test_any_period_comes_to_what_its_spans_do(fresh: Callable[[], str], said: list[Poll], hours: tuple[int, int]) -> None:
    url = fresh()
    record(url, said)
    begun = START + hours[0] * HOUR + timedelta(microseconds=1)
    drawn = Period(start=begun, end=begun + hours[1] * HOUR)
    year = Period(start=datetime(2026, 1, 1, tzinfo=UTC), end=datetime(2027, 1, 1, tzinfo=UTC))
    for period in (drawn, year, OCTOBER, NOVEMBER, make_month(2026, 11, BERLIN), make_month(2026, 10, BERLIN)):
        assert sums(url, period, from_spans=False) == sums(url, period, from_spans=True)
    assert maintenance.check_ledger(url) == []


@FEW
@given(said=histories())
def test_sums_made_for_an_older_ledger_are_those_that_polls_keep(fresh: Callable[[], str], said: list[Poll]) -> None:
    url = fresh()
    record(url, said)
    before, engine = rows(url)["monthly"], open_engine(url)
    with begin_write(engine) as connection:
        ask, tell = open_sql_session(connection)
        connection.exec_driver_sql("DELETE FROM monthly")
        rebuild_months(ask, tell)
    engine.dispose()
    assert rows(url)["monthly"] == before


def two_machines(url: str) -> None:
    """Two of one kind, from October 31 to November 2; both are in either month."""
    record(url, [poll(0, machine("a"), machine("b")), poll(50 * 60, machine("a", "stopped"), machine("b", "stopped"))])


EDITS = {
    "UPDATE monthly SET high = high + 1 WHERE month = (SELECT min(month) FROM monthly) AND resource_id = 1": "2026-10",
    "DELETE FROM monthly WHERE month = (SELECT max(month) FROM monthly) AND resource_id = 2": "2026-11",
    "UPDATE monthly SET us = us + CASE resource_id WHEN 1 THEN 5 ELSE -5 END WHERE charge = 'compute'": "resource 1, compute",
    """UPDATE monthly SET expected = expected + 5 * (3 - 2 * resource_id), high = high + 5 * (3 - 2 * resource_id)
    WHERE charge = 'compute'""": "resource 2, compute",
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


def test_a_month_in_another_zone_takes_its_edges_from_spans(sqlite_url: str) -> None:
    two_machines(sqlite_url)
    utc, berlin = (sums(sqlite_url, make_month(2026, 11, zone), from_spans=False) for zone in (UTC, BERLIN))
    assert utc.keys() == berlin.keys()
    more = [
        [one - other for one, other in zip(berlin[place], utc[place], strict=True)] for place in utc if place.charge == COMPUTE
    ]
    hour = [0, 10**9, 2 * 10**9, HOUR // timedelta(microseconds=2)]
    assert more == [hour, hour], "an hour of October 31, in which it may have begun: half of $2, at most all"
