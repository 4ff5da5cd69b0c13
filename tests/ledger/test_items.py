"""Charge items add up to the spending of their period, to the nano-unit, and each of them holds what it says of itself."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.billing import BillingRule
from costguard.metering.charge_item import ChargeItem
from costguard.metering.inventory import Poll
from costguard.metering.meter import COMPUTE, GB, GB_MONTH
from costguard.metering.meter import HOUR as HOURS
from costguard.metering.observation import Disk, TrafficCounter
from costguard.renderers import focus
from costguard.reporting.focus.columns import VERSIONS
from costguard.values.calendar import Period
from costguard.values.instant import DAY_US, to_micros
from costguard.values.resource import INSTANCE, Attribution
from costguard.views.document import Document
from tests.campaign import examples
from tests.cells import parse_json
from tests.charges import charges
from tests.ledger.fleet import CEILINGS, DAY, HOUR, RULES, START, copies, histories, key, machine, poll
from tests.reporting.focus_rules.validator import check_focus_file

FEW = settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
MOMENTS = st.integers(-2 * DAY_US, 20 * DAY_US).map(lambda us: START + timedelta(microseconds=us))
Sums = dict[tuple[Attribution, str, str, bool], list[int]]


@pytest.fixture
def fresh(url: str) -> Iterator[Callable[[], str]]:
    with copies(url) as copy:
        yield copy


STATED = {"acme": replace(RULES["acme"], restarts="stated")}


def recorded(url: str, *polls: Poll, rules: Mapping[str, BillingRule] = RULES) -> SpendingReader:
    with LedgerWriter(url, rules=rules, ceilings=CEILINGS) as book:
        book.record_polls(polls)
    return SpendingReader(url, rules=rules)


def summed(found: list[ChargeItem]) -> Sums:
    sums: Sums = defaultdict(lambda: [0, 0, 0, 0])
    for one in found:
        place = sums[one.attribution, one.charge, one.money.low.currency, one.price.known]
        us = one.us if one.charge == COMPUTE and one.attribution.kind == INSTANCE else 0
        for index, more in enumerate((one.money.low.nano, one.money.expected.nano, one.money.high.nano, us)):
            place[index] += more
    return {place: amounts for place, amounts in sums.items() if amounts[2] or amounts[3]}


@FEW
@given(said=histories(), ends=st.tuples(MOMENTS, MOMENTS).map(sorted), as_of=MOMENTS)
def test_items_add_up_to_the_spending_of_any_period_to_the_nano(
    fresh: Callable[[], str], said: list[Poll], ends: list[datetime], as_of: datetime
) -> None:
    period = Period(start=ends[0], end=ends[1])
    with recorded(fresh(), *said) as books:
        found, spending = list(books.items(period, as_of)), books.load_spending(period, as_of)
    expected = {
        (one.attribution, one.charge, one.money.low.currency, one.known): [
            *(money.nano for money in (one.money.low, one.money.expected, one.money.high)),
            one.us,
        ]
        for one in spending
    }
    assert summed(found) == expected
    places = [
        (one.key, one.attribution, one.charge, one.part, one.unit, one.price, one.source, one.start.date()) for one in found
    ]
    assert len(set(places)) == len(found)
    for one in found:
        assert period.start <= one.start < one.end <= period.end
        assert to_micros(one.start) // DAY_US == (to_micros(one.end) - 1) // DAY_US
        assert abs(one.unit_price * one.quantity - one.money.expected.to_decimal()) <= off(one)
        assert one.quantity >= 0


def off(one: ChargeItem) -> Decimal:
    """How far price x quantity may lie from the amount: two layers, rounded at both ends, and twelve decimals of a quantity.

    Runs of one day that were put together may each be off by as much; there are no more than thirty in a history.
    """
    return 30 * (2 * Decimal("1e-9") + one.unit_price * Decimal("1e-12"))


@settings(FEW, max_examples=examples(12))
@given(said=histories(), as_of=MOMENTS, version=st.sampled_from(VERSIONS))
def test_a_focus_export_of_any_history_has_no_finding_and_bills_what_the_ledger_holds(
    fresh: Callable[[], str], said: list[Poll], as_of: datetime, version: str
) -> None:
    period = Period(start=START - 40 * DAY, end=START + 40 * DAY)
    with recorded(fresh(), *said) as books:
        document = Document(data={}, items=charges(list(books.items(period, as_of))))
        spent = sum(one.money.expected.nano for one in books.load_spending(period, as_of))
    header, *lines = csv.reader(io.StringIO("".join(focus.render(document, focus_version=version))))
    cost = header.index("BilledCost")
    priced, unpriced = ([line for line in lines if bool(line[cost]) is known] for known in (True, False))
    found = check_focus_file(header, enumerate(priced, 2), parse_json, version)
    assert (found.findings, found.rows) == ((), len(priced))
    faults = check_focus_file(header, enumerate(unpriced, 2), parse_json, version).findings
    assert all(one.column.endswith(("Cost", "UnitPrice")) for one in faults), "FOCUS wants amounts, and nobody knows these"
    assert all(line[header.index("x_PriceSource")] for line in unpriced), "which the row explains"
    assert sum(Decimal(line[cost]) for line in priced) == Decimal(spent).scaleb(-9)


def test_a_run_over_the_end_of_a_month_is_an_item_of_each_day(url: str) -> None:
    began = poll(60, machine(started_at=START + HOUR / 2, disks=(Disk(100, "ssd"),)))
    ended = poll(180, machine(state="stopped", started_at=START + HOUR / 2, stopped_at=START + 3 * HOUR))
    whole = Period(start=START - DAY, end=START + DAY)
    with recorded(url, began, ended, rules=STATED) as books:
        computing = [one for one in books.items(whole, START + 3 * HOUR) if one.charge == COMPUTE]
        disk = [one for one in books.items(whole, START + 3 * HOUR) if one.charge == "storage"]
    assert [
        (one.start.isoformat(), one.end.isoformat(), str(one.quantity), one.money.expected.format(9)) for one in computing
    ] == [
        ("2026-10-31T22:30:00+00:00", "2026-11-01T00:00:00+00:00", "1.5", "3.000000000"),
        ("2026-11-01T00:00:00+00:00", "2026-11-01T01:00:00+00:00", "1", "2.000000000"),
    ]
    assert {one.unit for one in computing} == {HOURS}
    assert {(one.unit, one.used_unit) for one in disk} == {(GB_MONTH, "GB-Hours")}


def test_an_item_tells_the_name_and_the_tags_that_were_last_seen(url: str) -> None:
    said = [
        poll(0, replace(machine(started_at=START), name="first", labels=(("team", "a"),))),
        poll(60, replace(machine(started_at=START), name="train", labels=(("team", "b"), ("x", "")))),
    ]
    with recorded(url, *said) as books:
        found = list(books.items(Period(start=START, end=START + DAY), START + HOUR))
    assert {(one.key, one.name, one.tags) for one in found} == {(key("i-1"), "train", (("team", "b"), ("x", "")))}


def test_traffic_is_an_amount_and_no_time(url: str) -> None:
    said = [
        poll(0, machine(started_at=START, counters=(TrafficCounter("traffic", 500),))),
        poll(60, machine(started_at=START, counters=(TrafficCounter("traffic", 4500),))),
    ]
    with recorded(url, *said) as books:
        found = [one for one in books.items(Period(start=START, end=START + DAY), START + HOUR) if one.unit == GB]
    assert (sum(one.quantity for one in found), {one.used_unit for one in found}) == (Decimal(4), {GB})
