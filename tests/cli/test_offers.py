"""`costguard offers`: the market as it is, filtered and ordered, unknown prices shown and last."""

from __future__ import annotations

import pytest

from tests import shop
from tests.conftest import Command


def test_every_offer_is_listed_with_its_source_and_its_age(costguard: Command, market: str) -> None:
    data = costguard("offers", "--market", market, "--json").data
    assert data["schema"] == "costguard.offers/1"
    assert len(data["offers"]) == len(shop.SHOP) == data["market"]["offers"]
    old = next(o for o in data["offers"] if o["provider"] == "gcp" and o["gpu"] == "A100-80GB-SXM")
    assert (old["observed_at"], old["age_days"], old["stale"]) == ("2026-10-11", 41, False)
    assert next(o for o in data["offers"] if o["provider"] == "lambda" and o["gpu_count"] == 8)["stale"] is True
    assert old["source"] == "gcp's price list"


def test_an_unknown_price_is_shown_as_unknown_and_comes_last(costguard: Command, market: str) -> None:
    for sort in ("usd_per_hour", "usd_per_gpu_hour", "age", "provider"):
        offers = costguard("offers", "--market", market, "--json", "--sort", sort).data["offers"]
        assert (offers[-1]["gpu"], offers[-1]["usd_per_hour"]) == ("L4", None)
    row = next(r for r in costguard("offers", "--market", market).out.splitlines() if " L4 " in r)
    assert "unknown" in row
    assert "0.0000" not in row


@pytest.mark.parametrize(
    ("flags", "count"),
    [
        (("--provider", "aws"), 5), (("--tier", "spot"), 2), (("--region", "us-west-2"), 1),
        (("--gpu", "H100", "--count", "8"), 5), (("--count", "8", "--provider", "runpod"), 1), (("--top", "3"), 3),
        (("--top", "0"), 12),
    ],
)  # fmt: skip
def test_a_filter_leaves_what_it_names(costguard: Command, market: str, flags: tuple[str, ...], count: int) -> None:
    assert len(costguard("offers", "--market", market, "--json", *flags).data["offers"]) == count


@pytest.mark.parametrize("command", [("offers",), ("quote", "--hours", "10")])
def test_a_gpu_that_is_sold_in_other_numbers_says_in_which(costguard: Command, market: str, command: tuple[str, ...]) -> None:
    ran = costguard(*command, "--gpu", "H100", "--count", "2", "--provider", "aws", "--market", market)
    assert ran.code == 3
    assert "no offer of H100-SXM or H100-PCIe or H100-NVL x2: sold here in machines of 8" in ran.err
    assert "--count 8" in ran.err
