"""An offer's age, and what cannot be one."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest

from costguard.errors import InputError
from costguard.quoting.offer import Offer
from costguard.values.money import Rate
from costguard.values.resource import TIERS

TODAY = date(2026, 11, 21)
OFFER = Offer(
    provider="runpod",
    region="global",
    instance_type="H100-SXM x1",
    gpu="H100-SXM",
    gpu_count=1,
    tier="secure",
    rate=Rate.parse("3.99"),
    observed_on=date(2026, 10, 10),
    source="a test",
)


def seen(days_ago: int, pricing: str = "standard") -> Offer:
    return replace(OFFER, observed_on=TODAY - timedelta(days=days_ago), pricing=pricing)


def test_a_list_price_is_fresh_for_a_month() -> None:
    assert [seen(days).is_stale(TODAY) for days in (0, 30, 31)] == [False, False, True]


def test_a_price_made_by_demand_is_fresh_for_two_days() -> None:
    assert [seen(days, "dynamic").is_stale(TODAY) for days in (0, 2, 3)] == [False, False, True]


def test_a_stale_price_says_its_age() -> None:
    assert OFFER.format_staleness(TODAY) == "stale 42d"


def test_a_fresh_price_says_nothing() -> None:
    assert seen(3).format_staleness(TODAY) == ""


def test_a_price_of_tomorrow_is_fresh_where_the_observer_is_ahead() -> None:
    assert seen(-1).format_staleness(TODAY) == ""


def test_a_price_from_the_future_proves_nothing() -> None:
    assert seen(-3).is_stale(TODAY)
    assert seen(-3).format_staleness(TODAY) == "dated 3d ahead"


@pytest.mark.parametrize("tier", TIERS)
def test_every_tier_can_be_offered(tier: str) -> None:
    assert replace(OFFER, tier=tier).tier == tier


@pytest.mark.parametrize(
    "wrong",
    [
        {"provider": ""},
        {"region": ""},
        {"instance_type": ""},
        {"gpu": ""},
        {"source": ""},
        {"gpu_count": 0},
        {"gpu_count": True},
        {"gpu_count": 1.0},
        {"tier": "interruptible"},
        {"pricing": "haggled"},
    ],
    ids=str,
)
def test_an_illegal_offer_cannot_be_built(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        replace(OFFER, **wrong)
