"""What an old price says about today's."""

from __future__ import annotations

import csv
from dataclasses import replace
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.data import FOLDER, ShippedFacts
from costguard.errors import InputError
from costguard.quoting.offer import DRIFT_CLASSES, Offer
from costguard.quoting.price_drift import AgedPrice, PriceDrift, age_price, is_placeholder, read_price_drift, shorten_age
from costguard.values.money import Rate

SHIPPED = ShippedFacts().get_price_drift()
TODAY = date(2026, 11, 23)
SPOT = Offer(
    provider="aws",
    region="us-east-2",
    instance_type="p5.48xlarge",
    gpu="H100-SXM",
    gpu_count=8,
    tier="spot",
    rate=Rate.parse("20"),
    observed_on=TODAY,
    source="a test",
    pricing="dynamic",
)
TERMS = PriceDrift(
    start=0.0, growth=0.034, grace_days=14, most=0.75, trend_per_day=0.0005, trend_days=326, fresh_days=14, ranked_days=365
)


def aged(days: int, offer: Offer = SPOT, drift: dict[str, PriceDrift] | None = None) -> AgedPrice:
    found = age_price(
        replace(offer, observed_on=TODAY - timedelta(days=days)), drift or dict.fromkeys(DRIFT_CLASSES, TERMS), TODAY
    )
    assert found is not None
    return found


def test_the_example_of_the_module() -> None:
    price = aged(100)
    assert (price.low.format(2), price.high.format(2)) == ("14.59", "27.41")


@pytest.mark.parametrize("days", [-1, 0, 14])
def test_a_price_within_its_grace_is_exact(days: int) -> None:
    assert aged(days).is_exact
    assert aged(days).expected == SPOT.rate
    assert aged(days).fresh


@given(st.sampled_from(DRIFT_CLASSES), st.integers(0, 2000), st.integers(1, 500))
def test_an_older_price_is_never_more_certain(name: str, days: int, more: int) -> None:
    young, old = SHIPPED[name].estimate_factor(days), SHIPPED[name].estimate_factor(days + more)
    assert old.low <= young.low <= 1 <= young.high <= old.high
    assert young.low <= young.expected <= young.high


@given(st.integers(-4000, 4000), st.sampled_from(DRIFT_CLASSES), st.integers(1, 10**15))
def test_every_age_of_every_price_gives_an_interval_around_it(days: int, name: str, nano: int) -> None:
    price = aged(days, replace(SPOT, drift=name, rate=Rate(nano_per_hour=nano)), dict(SHIPPED))
    assert price.low.nano_per_hour <= price.expected.nano_per_hour <= price.high.nano_per_hour
    assert price.low.nano_per_hour <= nano <= price.high.nano_per_hour
    assert not (price.fresh and days < -1)


def test_a_price_dated_ahead_is_as_unsure_as_one_of_that_age_and_still_ranked() -> None:
    ahead, old = aged(-300), aged(300)
    assert (ahead.low, ahead.high, ahead.fresh, ahead.unranked) == (old.low, old.high, False, "")
    assert ahead.format_age() == "dated 300d ahead"


@pytest.mark.parametrize(
    ("changed", "days", "why"),
    [
        ({}, -366, "dated 366 d ahead; a price of this kind is not ranked after 365 d"),
        ({"provider": "vast", "tier": "on-demand"}, -2, "dated 2 d ahead; a price of this kind is not ranked after 1 d"),
        ({"provider": "vast", "tier": "on-demand"}, -1, ""),
    ],
)
def test_a_price_dated_too_far_ahead_is_ranked_no_longer_than_an_old_one(changed: dict[str, str], days: int, why: str) -> None:
    assert aged(days, replace(SPOT, **changed), dict(SHIPPED)).unranked == why  # type: ignore[arg-type]  # a table of fields


def test_spot_costs_at_most_what_the_machine_costs_on_demand() -> None:
    capped = aged(300, replace(SPOT, on_demand_rate=Rate.parse("21")))
    assert capped.expected.nano_per_hour <= 21 * 10**9
    assert capped.high == Rate.parse("21")
    assert aged(300, replace(SPOT, on_demand_rate=Rate.parse("15"))).high == SPOT.rate  # seen above it: no less than seen


def test_an_unknown_price_has_no_age() -> None:
    assert age_price(replace(SPOT, rate=None), SHIPPED, TODAY) is None


@pytest.mark.parametrize(
    ("changed", "days", "why"),
    [
        ({}, 365, ""),
        ({}, 366, "is not ranked after 365 d"),
        ({"observed_to": TODAY}, 181, "an undated copy"),
        ({"observed_to": TODAY}, 180, ""),
        ({"provider": "vast", "tier": "on-demand"}, 1, ""),
        ({"provider": "vast", "tier": "on-demand"}, 2, "is not ranked after 1 d"),
        ({"provider": "vast"}, 0, "the minimum bid"),
        ({"tier": "on-demand", "pricing": "standard"}, 2000, ""),
        ({"provider": "runpod", "tier": "secure", "rate": Rate.parse("4")}, 0, "a placeholder"),
        ({"provider": "runpod", "tier": "secure", "gpu": "RTX-4090", "rate": Rate.parse("4")}, 0, ""),
    ],
)
def test_what_is_not_ranked_says_why(changed: dict[str, object], days: int, why: str) -> None:
    price = aged(days, replace(SPOT, **changed), dict(SHIPPED))  # type: ignore[arg-type]  # a table of fields
    assert price.unranked.startswith(why) if not why else why in price.unranked


@pytest.mark.parametrize(
    ("gpu", "count", "usd", "placeholder"),
    [("MI300X", 1, "0.5", True), ("H200-SXM", 8, "4", True), ("H200-SXM", 8, "0.5", False), ("L40S", 1, "0.5", False)],
)
def test_half_a_dollar_of_a_data_centre_card_is_no_price(gpu: str, count: int, usd: str, placeholder: bool) -> None:  # noqa: FBT001 - a column
    offer = replace(SPOT, provider="runpod", gpu=gpu, gpu_count=count, rate=Rate.parse(usd))
    assert is_placeholder(offer) is placeholder
    assert not is_placeholder(replace(offer, provider="aws"))


def test_an_age_is_told_and_shortened() -> None:
    assert [aged(days).format_age() for days in (3, 326)] == ["3d old", "seen 326d ago"]
    assert [aged(days).explain_age() for days in (326, -1, -9)] == [
        "was seen 326 d ago",
        "was seen 0 d ago",
        "is dated 9 d ahead",
    ]
    assert [shorten_age(aged(days).format_age()) for days in (3, 326, -9)] == ["3d", "326d", "dated 9d ahead"]


def read_rows() -> list[dict[str, str]]:
    with (FOLDER / "price_drift.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "is missing"),
        ("fast", "is not a number"),
        ("", "is not a number"),
        ("nan", "must be 0 to 10, not nan"),
        ("inf", "must be 0 to 10"),
        ("-0.1", "must be 0 to 10"),
    ],
)
def test_a_broken_row_is_named(value: str | None, words: str) -> None:
    rows = [
        row | {"value": value or ""} if (row["drift_class"], row["constant"]) == ("spot", "growth") else row
        for row in read_rows()
    ]
    if value is None:
        rows = [row for row in rows if (row["drift_class"], row["constant"]) != ("spot", "growth")]
    with pytest.raises(InputError, match=f"price_drift.csv spot.growth: {words}"):
        read_price_drift(rows)
