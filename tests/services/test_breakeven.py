"""The break-even flow: what is stated wins over what is looked up, and every assumption is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from costguard.data import ShippedFacts
from costguard.errors import InputError
from costguard.ledger.market import MarketReader
from costguard.quoting.breakeven import PurchaseAnswer
from costguard.services.quote.breakeven import compute_purchase
from costguard.values.money import Money, Rate
from tests.shop import OLD, TODAY, market, offer

DRIFT = ShippedFacts().get_price_drift()
T4 = ShippedFacts().get_gpus()["T4"]


def asked(folder: Path, **stated: object) -> PurchaseAnswer:
    given: dict[str, object] = dict.fromkeys(("gpu", "price", "rate", "power_w", "usd_per_kwh", "resale", "hours_week"))
    with MarketReader(Path(market(folder, [offer("aws", "T4", "0.5"), offer("aws", "T4", "3", count=8)]))) as source:
        return compute_purchase(**(given | {"count": 1, "market": source, "drift": DRIFT, "today": TODAY} | stated))  # type: ignore[arg-type]  # keywords of a table


def test_stated_figures_leave_nothing_to_assume(tmp_path: Path) -> None:
    found = asked(tmp_path, price=Money.parse(1000), rate=Rate.parse("0.5"), power_w=100, usd_per_kwh="0.2")
    assert found.warnings == ()
    assert found.plain.hours == 2000
    assert found.full.hours == pytest.approx(1000 / 0.48)


def test_eight_gpus_cost_eight_times_draw_eight_times_and_rent_as_a_machine_of_eight(tmp_path: Path) -> None:
    found = asked(tmp_path, gpu=T4, count=8)
    assert T4.price_usd
    assert T4.tdp_w
    assert found.price == Money.parse(round(T4.price_usd) * 8)
    assert found.power_w == T4.tdp_w * 8
    assert found.rent == Rate.parse(3)


def test_an_old_rent_says_what_it_may_be_today_and_what_that_makes_of_the_hours(tmp_path: Path) -> None:
    path = market(tmp_path, [offer("lambda", "T4", "0.5", seen=OLD)])
    given: dict[str, object] = dict.fromkeys(("rate", "power_w", "usd_per_kwh", "resale", "hours_week"))
    with MarketReader(Path(path)) as source:
        found = compute_purchase(
            gpu=T4,
            price=Money.parse(1000),
            count=1,
            market=source,
            drift=DRIFT,
            today=TODAY,
            **given,  # type: ignore[arg-type]  # Nones
        )
    assert Rate.parse("0.5").nano_per_hour <= found.rent.nano_per_hour
    (told,) = [warning for warning in found.warnings if "seen 41 d ago" in warning]
    low, high = map(float, re.search(r"today \$([\d.]+) to \$([\d.]+) an hour", told).groups())  # type: ignore[union-attr]  # it is there
    assert low < 0.5 < high
    hours = re.search(r"so ([\d,]+) to ([\d,]+) hours before power and resale", told).groups()  # type: ignore[union-attr]  # it is there
    assert [int(text.replace(",", "")) for text in hours] == pytest.approx([1000 / high, 1000 / low], rel=0.001)  # as shown


def test_electricity_matters_only_where_power_is_known(tmp_path: Path) -> None:
    found = asked(tmp_path, price=Money.parse(1000), rate=Rate.parse("0.5"))
    assert found.warnings == ()
    assert found.full.hours == found.plain.hours


@pytest.mark.parametrize("wrong", [{"usd_per_kwh": "-0.1"}, {"usd_per_kwh": "cheap"}, {"resale": Money.parse(-1)}])
def test_figures_below_zero_are_refused_even_where_they_would_not_count(tmp_path: Path, wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"--usd-per-kwh|--resale"):
        asked(tmp_path, price=Money.parse(1000), rate=Rate.parse(1), **wrong)


def test_what_nobody_rents_asks_for_a_rate(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no offer in the market for T4 x3"):
        asked(tmp_path, gpu=T4, count=3)
