"""What an alert says of the cost of a machine whose price nobody states."""

from __future__ import annotations

from dataclasses import replace

from costguard.guard.alerts.rates import describe_hourly_cost
from costguard.metering.meter import COMPUTE, Meter, PriceRange
from tests.books import NOW, live, meter


def test_a_stated_price_an_estimate_and_none_are_told_apart() -> None:
    estimate = Meter(COMPUTE, PriceRange(50_000_000, 100_000_000, 120_000_000, known=False))
    nothing = replace(estimate, price=PriceRange(0, 0, 3_440_000_000, known=False))
    said = [describe_hourly_cost(live("i-1", one), NOW) for one in (meter(10**9), estimate, nothing)]
    assert said == ["$1.0000", "about $0.10 (an estimate: $0.05 to $0.12)", "unpriced, at most $3.44"]


def test_a_machine_that_bills_nothing_has_no_rate() -> None:
    assert "unpriced" not in describe_hourly_cost(live("i-1"), NOW)
