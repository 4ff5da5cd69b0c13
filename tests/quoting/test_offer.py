"""An offer's age, and what cannot be one."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from costguard.errors import InputError
from costguard.quoting.offer import Offer
from costguard.values.money import Rate

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


@pytest.mark.parametrize(
    ("changed", "drift"),
    [
        ({}, "list"),
        ({"tier": "community"}, "community"),
        ({"tier": "spot", "pricing": "dynamic"}, "spot"),
        ({"provider": "vast", "tier": "on-demand", "pricing": "dynamic"}, "ask"),
        ({"provider": "vast", "tier": "spot", "pricing": "dynamic"}, "bid"),
        ({"provider": "acme", "tier": "spot", "pricing": "dynamic", "drift": "bid"}, "bid"),
        ({"provider": "acme", "tier": "on-demand", "pricing": "dynamic"}, "ask"),
        ({"provider": "aws", "tier": "on-demand"}, "hyperscaler"),
        ({"provider": "gcp", "tier": "on-demand", "gpu": "B200-SXM"}, "hyperscaler-new"),
        ({"provider": "lambda", "tier": "on-demand", "gpu": "B200-SXM"}, "list"),
    ],
)
def test_how_fast_a_price_moves_follows_from_who_sells_what_and_how(changed: dict[str, Any], drift: str) -> None:
    assert replace(OFFER, **changed).drift_class == drift


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
        {"drift": "continental"},
        {"observed_to": date(2026, 10, 9)},
    ],
    ids=str,
)
def test_an_illegal_offer_cannot_be_built(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        replace(OFFER, **wrong)
