"""The width of an interval, as a share of its bill."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from fractions import Fraction

from bench.widths import describe_widths
from costguard.bills.simulated_bill import CloudBillCheck, ResourceBillCheck, SimulatedBillCheck
from costguard.values.calendar import Period
from costguard.values.money import NANO, Money, MoneyInterval
from costguard.values.resource import ResourceKey


def _check(low: str, high: str, billed: str) -> ResourceBillCheck:
    money = MoneyInterval(low=Money.parse(low), expected=Money.parse(low), high=Money.parse(high))
    return ResourceBillCheck(key=ResourceKey("sim-aws", "a", "r", "i"), money=money, billed=Fraction(billed), spans=1)


def _played(*resources: ResourceBillCheck) -> SimulatedBillCheck:
    period = Period(start=datetime(2026, 11, 1, tzinfo=UTC), end=datetime(2026, 11, 15, tzinfo=UTC))
    clouds = (CloudBillCheck(provider="sim-aws", resources=resources),)
    return SimulatedBillCheck(seed=1, period=period, scopes=1, listings=1, faults={}, met={}, clouds=clouds)


def test_the_width_is_a_share_of_the_bill_and_unknown_where_nothing_was_billed() -> None:
    assert _check("1.00", "1.50", "1.25").width == Fraction(2, 5)
    assert _check("0.00", "1.50", "0").width is None


def test_the_median_leaves_out_what_was_not_billed() -> None:
    played = _played(_check("1", "1", "1"), _check("1", "2", "1"), _check("1", "4", "1"), _check("0", "9", "0"))
    assert played.width_median == 1
    assert _played(_check("0", "9", "0")).width_median is None


def test_the_bench_says_what_makes_intervals_wide() -> None:
    causes: Counter[tuple[str, ...]] = Counter(
        {("sim-aws", "compute", "edge", "stated"): 3 * NANO, ("sim-aws", "storage", "gap", "stated"): NANO}
    )
    told = describe_widths([_played(_check("1", "1", "1"), _check("1", "2", "1"), _check("1", "4", "1"))], causes)
    assert told[0] == "seed 1: median width 100.00% of the bill"
    assert "3 resources: median 100.00%" in told[1]
    assert " 75.0% of the width in dollars: sim-aws, compute, edge, stated" in told
