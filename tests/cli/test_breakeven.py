"""`costguard breakeven`: the source documents' rows through the real command, and what it assumes said aloud."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from tests import shop
from tests.conftest import Command


@pytest.mark.parametrize(
    ("gpu", "price", "rate", "hours"),
    [("RTX-4090", "1600", "0.40", 4000), ("A100-80GB", "15000", "4", 3750), ("H100", "150000", "32", 4687.5)],
)
def test_the_sources_three_rows_come_out_right(costguard: Command, gpu: str, price: str, rate: str, hours: float) -> None:
    data = costguard("breakeven", "--gpu", gpu, "--price", price, "--rate", rate, "--json").data
    assert data["schema"] == "costguard.breakeven/1"
    assert data["hours"]["before_power_and_resale"] == hours
    assert data["hours"]["with_power_and_resale"] > hours


def test_hours_a_week_give_weeks_and_months(costguard: Command) -> None:
    flags = ("--price", "1600", "--rate", "0.40", "--hours-week", "40", "--json")
    data = costguard("breakeven", *flags).data
    assert data["weeks"]["before_power_and_resale"] == 100
    assert data["months"]["before_power_and_resale"] == pytest.approx(100 * 12 / 52, abs=0.001)


def test_the_life_of_the_machine_says_how_many_hours_a_week_buying_needs(costguard: Command) -> None:
    flags = ("breakeven", "--price", "1600", "--rate", "0.40", "--hours-week", "20", "--json")
    data = costguard(*flags).data
    assert (data["years"], data["hours_per_week_least"]) == (3, pytest.approx(4000 / 156, abs=0.001))
    assert costguard(*flags, "--years", "5").data["hours_per_week_least"] == pytest.approx(4000 / 260, abs=0.001)
    assert "from 25.6 hours of use a week; 20 a week are too few: renting is cheaper" in costguard(*flags[:-1]).out
    assert costguard(*flags[:2], "60000", *flags[3:]).data["hours_per_week_least"] is None  # 962 hours a week
    costguard(*flags[:-1], "--years", "0").says("--years")


def test_the_rent_is_the_cheapest_that_is_neither_spot_nor_reserved(costguard: Command, tmp_path: str) -> None:
    offers = [
        shop.offer("aws", "T4", "0.10", tier="spot"),
        shop.offer("gcp", "T4", "0.20", tier="reserved"),
        shop.offer("vast", "T4", "0.35", seen=shop.TODAY),
        shop.offer("lambda", "T4", "0.50"),
    ]
    path = shop.market(__import__("pathlib").Path(tmp_path), offers)
    data = costguard("breakeven", "--gpu", "T4", "--price", "1000", "--market", path, "--json").data
    assert (data["rented_from"], data["usd_per_hour"]) == ("vast", "0.3500")
    assert "the rental price is vast's on-demand price of 2026-11-21" in data["warnings"]


def test_what_was_assumed_is_said(costguard: Command, market: str) -> None:
    warnings = " ".join(costguard("breakeven", "--gpu", "T4", "--market", market, "--json").data["warnings"])
    for word in ("the price was not stated", "the rental price is aws's", "power was not stated", "electricity was not stated"):
        assert word in warnings


def test_power_dearer_than_the_rent_never_pays_back_and_says_why(costguard: Command) -> None:
    ran = costguard("breakeven", "--gpu", "A100-80GB", "--price", "15000", "--rate", "0.01", "--json")
    assert ran.code == 3
    assert ran.data["hours"]["with_power_and_resale"] is None
    assert "never: an hour on your own costs 0.0600, a rented hour 0.0100" in ran.err


def test_a_gpu_nobody_rents_asks_for_a_rate(costguard: Command, market: str) -> None:
    costguard("breakeven", "--gpu", "B300", "--price", "50000", "--market", market).says("--rate", "no offer in the market")


def test_an_old_price_is_a_rent_where_no_younger_one_is_known(costguard: Command, tmp_path: Path) -> None:
    ask = shop.offer("vast", "RTX-3090", "0.16", seen=date(2026, 9, 1))
    path = shop.market(tmp_path, [ask])
    data = costguard("breakeven", "--gpu", "RTX-3090", "--market", path, "--json").data
    assert data["rented_from"] == "vast"
    assert any("it was seen 81 d ago: today $" in warning for warning in data["warnings"])
    younger = shop.market(tmp_path, [ask, shop.offer("runpod", "RTX-3090", "0.46")])
    assert costguard("breakeven", "--gpu", "RTX-3090", "--market", younger, "--json").data["rented_from"] == "runpod"
