"""Drift constants of one's own history, against simulated prices whose drift is known."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from datetime import date, timedelta

import pytest

from costguard.data import ShippedFacts
from costguard.quoting.own_drift import (
    DAYS_MIN,
    NARROWEST,
    PAIRS_MIN,
    SERIES_MIN,
    OwnDrift,
    describe_own_drift,
    estimate_own_drift,
    find_quantile,
    replace_drift,
)
from costguard.quoting.price_drift import PriceDrift
from costguard.quoting.price_series import PricedMachine, PriceRun, PriceSeries
from costguard.values.money import Rate

START = date(2026, 1, 1)
Z80 = 1.2816
"""80 % of a normal distribution lie within so many standard deviations of its mean."""
SPOT = PriceDrift(start=0, growth=0.034, grace_days=0, most=0.75, trend_per_day=0, trend_days=0, fresh_days=14, ranked_days=365)


def machine(number: int, drift: str = "spot") -> PricedMachine:
    return PricedMachine(
        provider="aws", gpu="T4", gpu_count=1, tier="spot", drift=drift, region=f"r{number:03}", instance_type="g4dn.xlarge"
    )


def walk(number: int, days: int, daily: float, *, every: int = 1, drift: str = "spot") -> PriceSeries:
    """A price that is seen each `every` days and whose logarithm moves by `daily` (one standard deviation) a day."""
    chance, log, runs = random.Random(number), math.log(2e9), list[PriceRun]()  # noqa: S311 - a simulation from a seed
    for day in range(days):
        log += chance.gauss(0, daily)
        if day % every == 0:
            seen = START + timedelta(days=day)
            runs.append(PriceRun(seen_on=seen, last_seen_on=seen, rate=Rate(nano_per_hour=round(math.exp(log)))))
    return PriceSeries(machine=machine(number, drift), runs=tuple(runs))


def still(number: int, days: int, drift: str = "spot") -> PriceSeries:
    """A price that never moved."""
    run = PriceRun(seen_on=START, last_seen_on=START + timedelta(days=days - 1), rate=Rate(nano_per_hour=2 * 10**9))
    return PriceSeries(machine=machine(number, drift), runs=(run,))


def estimate(series: list[PriceSeries], shipped: PriceDrift = SPOT) -> OwnDrift:
    (found,) = estimate_own_drift(series, {"spot": shipped})
    return found


@pytest.mark.parametrize("every", [1, 7])
@pytest.mark.parametrize("daily", [0.05, 0.08])
def test_prices_that_move_faster_than_shipped_widen_to_the_drift_that_made_them(daily: float, every: int) -> None:
    found = estimate([walk(n, 200, daily, every=every) for n in range(60)])
    assert found.is_used, found.why_not
    assert found.growth == pytest.approx(Z80 * daily, rel=0.15)


def test_slower_prices_narrow_the_more_machines_and_days_there_are_and_never_far() -> None:
    few, many, long = (
        estimate([walk(n, days, 0.01) for n in range(count)]).growth for count, days in ((8, 200), (60, 200), (60, 1200))
    )
    assert NARROWEST * SPOT.growth <= long < many < few < SPOT.growth
    assert many > Z80 * 0.01


def test_a_class_that_loses_its_grace_period_is_not_narrowed() -> None:
    found = estimate([walk(n, 900, 0.01) for n in range(60)], replace(SPOT, grace_days=30))
    assert (found.grace_days, found.growth) == (0, SPOT.growth)


@pytest.mark.parametrize("daily", [0.025, 0.03, 0.06])
def test_the_interval_holds_80_percent_of_prices_that_were_not_used(daily: float) -> None:
    terms = replace_drift({"spot": SPOT}, [estimate([walk(n, 180, daily) for n in range(80)])])["spot"]
    held = count = 0
    for number in range(1000, 1150):
        one = walk(number, 180, daily)
        for age in (7, 30, 90, 170):
            late, early = one.runs[-1].rate.nano_per_hour, one.runs[-1 - age].rate.nano_per_hour
            factor = terms.estimate_factor(age)
            held += factor.low <= late / early <= factor.high
            count += 1
    assert 0.76 <= held / count <= 0.95


def test_prices_that_never_moved_are_not_taken_for_certain() -> None:
    found = estimate([still(n, 120) for n in range(10)])
    assert found.is_used
    assert 0 < found.growth < SPOT.growth
    assert found.most == SPOT.most  # nothing is known of a year


def test_most_is_raised_by_what_old_pairs_need() -> None:
    found = estimate([walk(n, 500, 0.06) for n in range(60)], replace(SPOT, most=0.2))
    assert found.most > 0.6


def test_most_is_lowered_only_by_prices_of_a_year() -> None:
    assert estimate([walk(n, 200, 0.002) for n in range(60)]).most == SPOT.most
    assert 0.05 < estimate([walk(n, 900, 0.002) for n in range(60)]).most < SPOT.most


def test_a_grace_period_within_which_prices_move_is_shortened() -> None:
    moved = estimate([walk(n, 200, 0.05) for n in range(30)], replace(SPOT, grace_days=90))
    assert moved.grace_days == 0
    kept = estimate([still(n, 200) for n in range(30)], replace(SPOT, grace_days=90))
    assert kept.grace_days == 90


@pytest.mark.parametrize(
    ("series", "why"),
    [
        ([walk(n, DAYS_MIN - 5, 0.05) for n in range(30)], f"{DAYS_MIN} are needed"),
        ([walk(n, 200, 0.05) for n in range(SERIES_MIN - 1)], f"only {SERIES_MIN - 1} machines"),
        ([walk(n, 200, 0.05, every=199) for n in range(6)], f"{PAIRS_MIN} are needed"),
        ([walk(n, 181, 0.05, every=180) for n in range(30)], "different ages"),
    ],
)
def test_too_little_history_leaves_the_shipped_constants_and_says_why(series: list[PriceSeries], why: str) -> None:
    found = estimate(series)
    assert not found.is_used
    assert why in found.why_not
    assert replace_drift({"spot": SPOT}, [found]) == {"spot": SPOT}
    assert why in describe_own_drift(found, SPOT)


def test_only_classes_with_prices_are_named_and_others_stay_as_shipped() -> None:
    shipped = ShippedFacts().get_price_drift()
    own = estimate_own_drift([walk(n, 200, 0.08, drift="list") for n in range(30)], shipped)
    assert [one.drift for one in own] == ["list"]
    after = replace_drift(shipped, own)
    assert after["list"].growth > shipped["list"].growth
    assert (after["list"].trend_per_day, after["list"].fresh_days) == (shipped["list"].trend_per_day, 30)
    assert {name: terms for name, terms in after.items() if name != "list"} == {
        name: terms for name, terms in shipped.items() if name != "list"
    }
    assert "from your own history (30 machines" in describe_own_drift(own[0], shipped["list"])


def test_a_quantile_of_few_values_is_careful() -> None:
    assert find_quantile([1.0, 2.0, 3.0, 4.0]) == 4.0
    assert find_quantile([float(n) for n in range(1, 10)]) == 8.0
    assert find_quantile([float(n) for n in range(1, 1000)]) == 800.0
