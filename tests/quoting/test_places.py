"""A place names the regions that lie in it: of every region of the shipped market its country is known, or it is global."""

from __future__ import annotations

import pytest

from costguard.data import MARKET
from costguard.ledger.market import MarketReader
from costguard.quoting.places import expand_region, find_country, list_countries

REGIONS = (
    "us-east-1",
    "us-central1",
    "eu-west-1",
    "eu-west-2",
    "europe-west4",
    "uksouth",
    "Sweden, SE",
    "California, US",
    "global",
)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("us", ("us-east-1", "us-central1", "California, US")),
        ("usa", ("us-east-1", "us-central1", "California, US")),
        ("eu", ("eu-west-1", "europe-west4", "Sweden, SE")),
        ("Europe", ("eu-west-1", "eu-west-2", "europe-west4", "uksouth", "Sweden, SE")),
        ("united kingdom", ("eu-west-2", "uksouth")),
        ("us-east-1", ("us-east-1",)),
        ("global", ("global",)),
        ("atlantis", ()),
        ("asia", ()),
    ],
)
def test_a_place_names_its_regions(place: str, expected: tuple[str, ...]) -> None:
    assert expand_region(place, REGIONS) == expected


def test_the_country_of_every_region_of_the_market_is_known() -> None:
    with MarketReader(MARKET) as market:
        unknown = [region for region in market.regions() if region != "global" and not find_country(region)]
    assert unknown == []


def test_a_country_is_known_by_its_code_and_its_name() -> None:
    assert list_countries("de") == list_countries("Germany") == frozenset(("de",))
    assert list_countries("xx") == frozenset()
