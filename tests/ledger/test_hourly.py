"""Costs by hour: what spans spread evenly come to, in any period, whatever polls, bills and corrections did to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.bills.bill_line import BillLine
from costguard.budgets.budget import MATCH_ALL, ResourceFilter, matches_filter
from costguard.ledger.bills.staging import StagedStatement
from costguard.ledger.bills.store import BillStore, GatheredStatement
from costguard.ledger.db import maintenance
from costguard.ledger.db.codecs import Query
from costguard.ledger.reports import reader
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.hourly import load_hours, split_by_hour
from costguard.ledger.spans.scope_state import load_attributions
from costguard.ledger.spans.sums import PeriodSums
from costguard.metering.inventory import Poll
from costguard.reporting.statement.history import HourlyRateChanges, compute_weekly_burn
from costguard.values.calendar import Period
from costguard.values.instant import HOUR_US, to_micros
from tests.ledger.fleet import DAY, HOUR, RULES, START, asked, histories
from tests.ledger.test_monthly import BERLIN, FEW, SETTLED, bills, find_late, fresh, record, take_in

__all__ = ["fresh"]


@given(st.integers(0, 3 * HOUR_US), st.integers(0, 400 * HOUR_US), st.integers(0, 10**19))
def test_the_hours_of_a_span_add_up_to_it_and_none_is_negative(start: int, length: int, expected: int) -> None:
    costs, steps = defaultdict[int, int](int), defaultdict[int, int](int)
    for hour, cost, step in split_by_hour(start, start + length, expected):
        costs[hour] += cost
        steps[hour] += step
    hours, filled = list[int](), 0
    for hour in range(start // HOUR_US, -(-(start + length) // HOUR_US)):
        filled += steps[hour]
        hours.append(costs[hour] + filled)
    assert sum(hours) == (expected if length else 0)
    assert all(hour >= 0 for hour in hours)
    assert (filled, max(steps, default=0) <= (start + length) // HOUR_US) == (0, True)
    rate = expected / max(1, length)
    for number, cost in enumerate(hours, start // HOUR_US):
        share = min(start + length, (number + 1) * HOUR_US) - max(start, number * HOUR_US)
        assert cost == pytest.approx(rate * share, rel=1e-9, abs=400)


def withdraw(url: str, *lines: BillLine) -> None:
    """State the bill of the year anew with `lines` alone, so that the others are withdrawn."""
    year = Period(start=START - 60 * DAY, end=START + 300 * DAY)
    with StagedStatement() as staged, BillStore(url, rules=RULES) as store:
        staged.add((one, one.amount.to_decimal() * 0) for one in lines)
        one = GatheredStatement(staged=staged, source="a bill", stated_at=SETTLED + HOUR, asked=(("acme",), year))
        store.import_statements([one], who="ada", now=SETTLED + HOUR)


def find_rates(url: str, period: Period, *, from_spans: bool) -> dict[int, HourlyRateChanges]:
    """What closed spans cost by hour, from the roll-up or from the spans alone."""

    def find(ask: Query) -> dict[int, HourlyRateChanges]:
        if not from_spans:
            return reader.load_hourly_rates(ask, period, lambda *_: pytest.fail("no span is open"))
        found = defaultdict[int, list[float]](lambda: [0.0] * 5)
        reader._add_closed_rates(ask, to_micros(period.start), to_micros(period.end), found)
        return {hour: HourlyRateChanges(*sums) for hour, sums in found.items()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "iterate_open_spans", lambda *_: [])
        return asked(url, find)


@FEW
@given(said=histories(), billed=bills(), kept=st.integers(0, 3), hours=st.tuples(st.integers(-50, 900), st.integers(1, 1500)))
def test_any_period_burns_what_its_spans_do(
    fresh: Callable[[], str], said: list[Poll], billed: list[BillLine], kept: int, hours: tuple[int, int]
) -> None:
    url = fresh()
    record(url, said)
    find_late(url)
    take_in(url, *billed)
    assert maintenance.check_ledger(url) == []
    withdraw(url, *billed[:kept])
    assert maintenance.check_ledger(url) == [], "each row of an hour is what its spans say"
    begun = START + hours[0] * HOUR
    for off in (timedelta(), timedelta(minutes=7), timedelta(microseconds=1)):
        period = Period(start=begun + off, end=begun + hours[1] * HOUR + 3 * off)
        burns = [
            compute_weekly_burn(
                find_rates(url, period, from_spans=from_spans), to_micros(period.start), to_micros(period.end), BERLIN
            )
            for from_spans in (False, True)
        ]
        for row, other in zip(burns[0].cells, burns[1].cells, strict=True):
            for cell, same in zip(row, other, strict=True):
                assert (cell is None) == (same is None)
                assert (cell or 0) == pytest.approx(same or 0, rel=1e-6, abs=1e-5)


@FEW
@given(said=histories(), billed=bills(), hours=st.integers(1, 900))
def test_past_hours_of_all_owners_add_up_to_what_closed_spans_cost(
    fresh: Callable[[], str], said: list[Poll], billed: list[BillLine], hours: int
) -> None:
    url = fresh()
    record(url, said)
    find_late(url)
    take_in(url, *billed)
    until = START + hours * HOUR

    def sum_closed(ask: Query, match: ResourceFilter) -> int:
        attributions = load_attributions(ask)
        sums = PeriodSums(ask, attributions)
        sums.add_closed(Period(start=until - 80 * DAY, end=until))
        sums_of = (
            amounts[1]
            for place, amounts in sums.raw.items()
            if place.currency == "USD" and matches_filter(match, attributions[place.attribution])
        )
        return sum(sums_of)

    hers, nobodys = (ResourceFilter(owners=(owner,)) for owner in ("ada", ""))
    with SpendingReader(url, rules=RULES) as books:
        past = books.load_past_hours(until, [(one, "USD") for one in (MATCH_ALL, hers, nobodys)])
        assert not any(books.load_past_hours(until, [(MATCH_ALL, "EUR")])[MATCH_ALL, "EUR"].costs)
    sums = {match: sum(one.costs) for (match, _), one in past.items()}
    for match, expected in sums.items():  # a minimum of a minute is not spread evenly over its span
        assert expected == pytest.approx(asked(url, partial(sum_closed, match=match)), rel=0.01, abs=5 * 10**7)
    for day in range(0, hours // 24 * 24, 24):
        everything, *parts = (sum(one.costs[-24 - day :][:24]) for one in past.values())
        assert sum(parts) == pytest.approx(everything, rel=0.02, abs=5 * 10**7)


def test_past_hours_of_an_owner_end_where_those_of_all_do(fresh: Callable[[], str]) -> None:
    url = fresh()
    find_late(url)  # it ran for 30 hours from START (22:00) on, at $2 an hour: until 04:00 two days later
    nobodys = ResourceFilter(owners=("",))
    with SpendingReader(url, rules=RULES) as books:
        past = books.load_past_hours(START + 27 * HOUR, [(one, "USD") for one in (MATCH_ALL, nobodys)])
    everything, part = (one.costs for one in past.values())
    assert sum(part) == pytest.approx(54 * 10**9, rel=1e-6), "the last day is counted until 01:00"
    assert part == pytest.approx(everything, rel=1e-6)


def test_a_span_that_began_before_a_period_fills_its_first_hours(fresh: Callable[[], str]) -> None:
    url = fresh()
    find_late(url)  # it ran for 30 hours from START on, at $2 an hour
    running, rows = asked(url, lambda ask: load_hours(ask, to_micros(START) // HOUR_US + 10, 2**40, "USD"))
    assert running == pytest.approx(2 * 10**9, rel=0.01)
    assert sum(step for _, _, step in rows) == -running
