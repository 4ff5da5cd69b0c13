"""A price that fell far is doubted until a second source or a second day states it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from costguard.data import ShippedFacts
from costguard.quoting.offer import Offer
from costguard.quoting.price_drift import age_price
from costguard.quoting.price_falls import FallJudge, describe_doubts
from costguard.values.money import Rate
from tests import shop

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
DAY = timedelta(days=1)
KNOWN = shop.offer("runpod", "H100-SXM", "0.52", tier="secure", seen=NOON.date())
Step = tuple[timedelta, str, dict[str, str]]
"""When, what the feed states, and what other sources state."""


def constantly(nano: int | None) -> Callable[[Offer], int | None]:
    return lambda _: nano


def refresh(steps: list[Step], *, shipped: str | None = "0.52", known: Offer | None = KNOWN) -> Offer:
    """The offer in use after each step in turn."""
    offer = known
    for after, usd, others in steps:
        stated = replace(KNOWN, rate=Rate.parse(usd), observed_on=(NOON + after).date(), source="feed")
        statements = {"feed": [stated], **{name: [replace(stated, rate=Rate.parse(one))] for name, one in others.items()}}
        lowest = Rate.parse(shipped).nano_per_hour if shipped else None
        offer = FallJudge([offer] if offer else [], statements, constantly(lowest), NOON + after).judge(stated)
    assert offer is not None
    return offer


@pytest.mark.parametrize(
    ("steps", "low", "expected", "high"),
    [
        pytest.param([(DAY, "0.20", {})], "0.20", "0.20", "0.20", id="a fall of less than three times"),
        pytest.param([(DAY, "0.03", {})], "0.03", "0.52", "0.52", id="one source on one day"),
        pytest.param([(DAY, "0.03", {}), (DAY * 1.4, "0.03", {})], "0.03", "0.52", "0.52", id="twice a day"),
        pytest.param([(DAY, "0.03", {"b": "0.05"})], "0.03", "0.03", "0.03", id="a second source"),
        pytest.param([(DAY, "0.03", {"b": "0.50"})], "0.03", "0.52", "0.52", id="a second source that differs"),
        pytest.param([(DAY, "0.03", {}), (DAY * 2, "0.031", {})], "0.031", "0.031", "0.031", id="a second day"),
        pytest.param(
            [(DAY, "0.03", {}), (DAY * 2, "0.03", {"b": "0.50"})], "0.03", "0.52", "0.52", id="a second day, contradicted"
        ),
        pytest.param([(DAY, "0.03", {}), (DAY * 2, "0.009", {})], "0.009", "0.52", "0.52", id="another fall each day"),
        pytest.param([(DAY * n, "0.0001", {}) for n in range(1, 6)], "0.0001", "0.52", "0.52", id="no market's fall, for days"),
        pytest.param(
            [(DAY, "0.18", {}), (DAY * 2, "0.07", {}), (DAY * 3, "0.03", {})], "0.03", "0.18", "0.52", id="small steps"
        ),
        pytest.param([(DAY, "0.03", {}), (DAY * 2, "0.50", {})], "0.50", "0.50", "0.50", id="back to what it was"),
        pytest.param(
            [(DAY, "0.03", {}), (DAY * 2, "0.03", {}), (DAY * 3, "0.028", {})], "0.028", "0.028", "0.028", id="confirmed stays"
        ),
    ],
)
def test_what_is_used_after_a_fall(steps: list[Step], low: str, expected: str, high: str) -> None:
    offer = refresh(steps)
    price = age_price(offer, ShippedFacts().get_price_drift(), offer.observed_on)
    assert price is not None
    assert (price.low, price.expected, price.high) == (Rate.parse(low), Rate.parse(expected), Rate.parse(high))
    assert bool(describe_doubts([offer])) == (low != high)


@pytest.mark.parametrize("known", [None, replace(KNOWN, rate=Rate.parse("0.0001"))], ids=["a new machine", "an older lie"])
def test_a_price_far_below_the_snapshot_is_doubted_whatever_the_last_answer_was(known: Offer | None) -> None:
    offer = refresh([(DAY, "0.03", {})], known=known)
    assert offer.rate == Rate.parse("0.52")
    (text,) = describe_doubts([offer])
    assert "$0.03" in text
    assert "17 times below $0.52" in text
