"""What acts saved: what they ended, for as long as it would have gone on, less what went on at rest."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.metering.meter import COMPUTE, GB_MONTH_730, STORAGE, Meter, PriceRange
from costguard.metering.span import EDGE, SEEN, Span
from costguard.reporting.statement.savings import ConfirmedAction, Savings, compute_savings, order_actions
from costguard.values.calendar import Period
from costguard.values.resource import Incarnation, ResourceKey
from tests.books import at, attribution, meter

KEY = ResourceKey("aws", "123", "us-east-1", "i-1")
A100X8, DISK = meter(32_770_000_000), meter(80_000_000, charge=STORAGE, unit=GB_MONTH_730, quantity=500)
FRIDAY, MONDAY = at(6, 19, 5), at(9, 9)
NOVEMBER = Period(start=at(1), end=at(1, month=12))


def span(of: Meter, start: datetime, end: datetime | None, presence: str = SEEN) -> Span:
    return Span(key=KEY, attribution=attribution(), meter=of, start=start, anchor=start, end=end, presence=presence)


def act(*spans: Span, kind: str = "stop", sent: datetime = FRIDAY, after: int = 2) -> ConfirmedAction:
    confirmed = sent + timedelta(minutes=after)
    return ConfirmedAction(
        intent_id="1", life=Incarnation(KEY, at(5)), act=kind, policy="idle", sent_at=sent, confirmed_at=confirmed, spans=spans
    )


def net(found: Savings) -> tuple[str, str, str]:
    low, expected, high = found.get_net("USD").format_ends().values()
    return low, expected, high


RAN, LAY = span(A100X8, at(5), FRIDAY), span(DISK, at(5), None)


def test_a_weekend_is_saved_until_monday_less_its_disk() -> None:
    again = span(A100X8, MONDAY, None)
    found = compute_savings([act(RAN, LAY, again)], NOVEMBER, at(20))
    assert net(found) == ("0.00", "2025.62", "2025.62")  # 61 h 55 min at $32.77, less $3.39
    assert [one.false for one in found.savings] == [False]


def test_nobody_is_taken_to_leave_it_running_for_longer_than_three_days_or_at_most_a_month() -> None:
    low, expected, high = net(compute_savings([act(RAN)], Period(start=at(1), end=at(28, month=12)), at(28, month=12)))
    assert (low, expected) == ("0.00", f"{72 * 32.77:.2f}")
    assert high == f"{31 * 24 * 32.77:.2f}"


def test_what_ran_again_within_the_hour_saved_nothing() -> None:
    found = compute_savings([act(RAN, LAY, span(A100X8, FRIDAY + timedelta(minutes=59), None))], NOVEMBER, at(20))
    assert net(found) == ("0.00", "0.00", "0.00")
    assert (len(found.counted), len(found.false)) == (0, 1)


def test_where_nobody_saw_the_end_the_last_span_of_the_line_says_when_it_was() -> None:
    edge = span(A100X8, FRIDAY, FRIDAY + timedelta(minutes=1), presence=EDGE)
    (one,) = compute_savings([act(RAN, edge)], NOVEMBER, at(20)).savings
    assert one.at == FRIDAY + timedelta(minutes=1)


def test_a_termination_ends_the_disk_too() -> None:
    gone = span(DISK, at(5), FRIDAY)
    found = compute_savings([act(RAN, gone, kind="terminate")], NOVEMBER, FRIDAY + timedelta(hours=73))
    assert net(found)[1] == f"{72 * (32.77 + 500 * 0.08 / 730):.2f}"


def test_two_acts_on_one_machine_are_not_counted_twice() -> None:
    first, second = act(RAN), act(span(DISK, at(5), at(7, 19, 5)), kind="terminate", sent=at(7, 19, 5))
    found = compute_savings(order_actions([replace(second, intent_id="2"), first]), NOVEMBER, at(20))
    assert {one.act.intent_id: one.until for one in found.savings}["1"] == second.confirmed_at


def test_of_an_unknown_price_nothing_is_expected_and_a_bound_is_said() -> None:
    unknown = Meter(COMPUTE, PriceRange(0, 8 * 10**9, 16 * 10**9, known=False))
    found = compute_savings([act(span(unknown, at(5), FRIDAY))], NOVEMBER, FRIDAY + timedelta(hours=10))
    assert net(found) == ("0.00", "0.00", "160.00")


def test_a_doubled_price_at_rest_can_make_it_a_loss() -> None:
    cheap, dear = meter(1_000_000), meter(10**9, charge=STORAGE)
    found = compute_savings([act(span(cheap, at(5), FRIDAY), span(dear, FRIDAY, None))], NOVEMBER, FRIDAY + timedelta(hours=10))
    assert net(found) == ("-9.99", "-9.99", "-9.99")


@given(st.lists(st.integers(1, 30 * 24 * 60), min_size=1, max_size=4, unique=True))
def test_the_parts_of_a_period_add_up(cuts: list[int]) -> None:
    """To the nano-unit and as expected, wherever a month is cut."""
    bounds = [NOVEMBER.start, *(NOVEMBER.start + timedelta(minutes=cut) for cut in sorted(cuts)), NOVEMBER.end]
    one = act(RAN, LAY, span(A100X8, MONDAY, None))
    parts = [
        compute_savings([one], Period(start=a, end=b), at(1, month=12)).get_net("USD").expected.nano
        for a, b in pairwise(bounds)
    ]
    assert sum(parts) == compute_savings([one], NOVEMBER, at(1, month=12)).get_net("USD").expected.nano


def test_acts_of_another_time_save_nothing_here() -> None:
    january = Period(start=at(1, month=12), end=at(31, month=12))
    found = compute_savings([act(RAN)], january, at(31, month=12))
    assert net(found)[:2] == ("0.00", "0.00")
    assert compute_savings([act(RAN)], Period(start=at(1, month=10), end=at(1)), at(20)).savings == ()
    assert found.get_net("EUR").expected.nano == 0
    assert pytest.approx(float(net(found)[2])) == (FRIDAY + timedelta(days=31) - january.start) / timedelta(hours=1) * 32.77
