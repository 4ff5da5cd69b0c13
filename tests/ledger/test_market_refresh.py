"""Live offers beside the shipped ones in one market file, and what the market says of its own bounds and ages."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from costguard.ledger.market import CEILING_MARGIN, MarketReader, select_newest_market, write_market
from costguard.ledger.market_refresh import refresh_market
from costguard.quoting.offer import OfferListing, OfferSelection
from tests import shop
from tests.shop import offer

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return Path(shop.market(tmp_path))


def rows(path: Path, providers: tuple[str, ...] | None = None) -> set[tuple[str, str, str, str | None]]:
    with MarketReader(path) as market:
        return {
            (o.provider, o.gpu, o.tier, o.rate.format() if o.rate else None)
            for o in market.list_offers(OfferSelection(providers=providers))
        }


def test_a_ceiling_is_twice_the_dearest_gpu_that_is_rented_out_on_demand(base: Path) -> None:
    with MarketReader(base) as market:
        ceilings = market.load_price_ceilings()
    assert ceilings["H100-SXM"] == CEILING_MARGIN * 5 * 10**9  # aws: 40 for 8
    assert ceilings["T4"] == CEILING_MARGIN * 526_000_000
    assert "L4" not in ceilings


def test_a_spot_price_bounds_nothing(tmp_path: Path) -> None:
    write_market(tmp_path / "m", [offer("aws", "T4", "9", tier="spot"), offer("aws", "T4", "1")])
    with MarketReader(tmp_path / "m") as market:
        assert market.load_price_ceilings() == {"T4": CEILING_MARGIN * 10**9}


def test_a_whole_listing_replaces_its_provider_in_the_tiers_and_gpus_that_it_names(base: Path, tmp_path: Path) -> None:
    listing = OfferListing(offers=(offer("aws", "H100-SXM", "30", count=8, region="eu"), offer("aws", "L4", "0.8")))
    refresh_market(tmp_path / "fresh", base, {"aws": listing}, AT)
    assert rows(tmp_path / "fresh", providers=("aws",)) == {
        ("aws", "H100-SXM", "on-demand", "30.0000"),
        ("aws", "L4", "on-demand", "0.8000"),
        ("aws", "H100-SXM", "spot", "16.0000"),
        ("aws", "T4", "on-demand", "0.5260"),
        ("aws", "T4", "spot", "0.1600"),
    }
    others = ("gcp", "runpod", "lambda")
    assert rows(tmp_path / "fresh", providers=others) == rows(base, providers=others)
    with MarketReader(tmp_path / "fresh") as market:
        assert (market.describe_file()["refreshed_at"], market.describe_file()["live"]) == ("2026-11-21T12:00:00Z", ["aws"])


def test_a_region_that_was_not_asked_for_keeps_its_rows(tmp_path: Path) -> None:
    here, there = offer("aws", "T4", "1", region="us-east-1"), offer("aws", "T4", "2", region="eu-west-1")
    write_market(tmp_path / "base", [here, there])
    listed = OfferListing(offers=(offer("aws", "T4", "3", region="us-east-1"),))
    refresh_market(tmp_path / "new", tmp_path / "base", {"aws": listed}, AT)
    assert {price for *_, price in rows(tmp_path / "new")} == {"3.0000", "2.0000"}


def test_a_part_of_a_listing_takes_nothing_away(base: Path, tmp_path: Path) -> None:
    part = OfferListing(offers=(offer("aws", "T4", "0.6", region="us-east-1", name="g4dn.xlarge"),), why="page 2 was lost")
    refresh_market(tmp_path / "fresh", base, {"aws": part}, AT)
    assert rows(base) - rows(tmp_path / "fresh") == {("aws", "T4", "on-demand", "0.5260")}
    assert rows(tmp_path / "fresh") - rows(base) == {("aws", "T4", "on-demand", "0.6000")}


def test_what_a_refresh_did_not_ask_keeps_its_own_date(base: Path, tmp_path: Path) -> None:
    refresh_market(tmp_path / "fresh", base, {"aws": OfferListing(offers=(offer("aws", "L4", "0.8"),))}, AT)
    with MarketReader(tmp_path / "fresh") as market:
        found = {
            o.provider: o.observed_on for o in market.list_offers(OfferSelection(gpus=("H100-SXM",), providers=("lambda",)))
        }
    assert found == {"lambda": shop.OLD}


def test_the_newer_of_two_is_used_and_a_damaged_one_never(base: Path, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    assert select_newest_market(base, fresh) == base
    refresh_market(fresh, base, {"aws": OfferListing(offers=(offer("aws", "L4", "0.8", seen=shop.TODAY),))}, AT)
    assert select_newest_market(base, fresh) == fresh
    write_market(tmp_path / "newer", [offer("aws", "T4", "1", seen=shop.TODAY.replace(day=30))])
    assert select_newest_market(tmp_path / "newer", fresh) == tmp_path / "newer"
    fresh.write_bytes(b"no market")
    assert select_newest_market(base, fresh) == base


@pytest.mark.parametrize("why", ["", "page 2 was lost"])
def test_a_mix_of_tiers_goes_where_a_listing_states_them_apart(tmp_path: Path, why: str) -> None:
    mixed = [offer("runpod", "T4", "0.2"), offer("runpod", "T4", "0.4", count=2), offer("runpod", "L4", "0.5")]
    write_market(tmp_path / "base", mixed)
    stated = (offer("runpod", "T4", "0.3", tier="secure"), offer("runpod", "T4", "0.25", tier="community"))
    refresh_market(tmp_path / "new", tmp_path / "base", {"runpod": OfferListing(offers=stated, why=why)}, AT)
    left = {("runpod", "L4", "on-demand", "0.5000")} | ({("runpod", "T4", "on-demand", "0.4000")} if why else set())
    both = {("runpod", "T4", "secure", "0.3000"), ("runpod", "T4", "community", "0.2500")}
    assert rows(tmp_path / "new") == left | both


def test_an_on_demand_row_stays_where_the_listing_states_on_demand_itself(tmp_path: Path) -> None:
    write_market(tmp_path / "base", [offer("runpod", "T4", "0.2", region="eu")])
    stated = (offer("runpod", "T4", "0.3", tier="secure", region="us"), offer("runpod", "T4", "0.4", region="us"))
    refresh_market(tmp_path / "new", tmp_path / "base", {"runpod": OfferListing(offers=stated)}, AT)
    assert ("runpod", "T4", "on-demand", "0.2000") in rows(tmp_path / "new")


def test_an_older_listing_replaces_no_newer_row_and_adds_none_of_the_same_machine(tmp_path: Path) -> None:
    write_market(tmp_path / "base", [offer("aws", "T4", "1", region="eu", seen=shop.FRESH)])
    stated = (offer("aws", "T4", "2", region="eu", seen=shop.OLD), offer("aws", "L4", "3", region="eu", seen=shop.OLD))
    refresh_market(tmp_path / "new", tmp_path / "base", {"aws": OfferListing(offers=stated)}, AT)
    assert rows(tmp_path / "new") == {("aws", "T4", "on-demand", "1.0000"), ("aws", "L4", "on-demand", "3.0000")}
