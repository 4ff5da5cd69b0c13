"""Akamai's machine types: class "gpu" only, a price for all regions, and those of regions with their own."""

from __future__ import annotations

from decimal import Decimal

import pytest
from costguard_public.akamai import MOST_PAGES, source

from tests.public_prices.answers import BAD_PRICES, GPUS, StubFetcher, change_capture, list_offers, read_capture, sum_up

CAPTURE = "akamai/types.json"


def with_type(**changes: object) -> bytes:
    """The capture, with changes to its first GPU type: two RTX 4000 Ada."""
    return change_capture(CAPTURE, lambda document: document["data"][1].update(changes))


def test_types_are_offered_everywhere_and_at_the_price_of_a_region() -> None:
    assert sum_up(list_offers(source, read_capture(CAPTURE))) == {
        ("g2-gpu-rtx4000a2-s", "global", "RTX-4000-Ada", 2, "on-demand", Decimal("1.05")),
        ("g2-gpu-rtx4000a2-s", "br-gru", "RTX-4000-Ada", 2, "on-demand", Decimal("1.47")),
        ("g1-gpu-rtx6000-1", "global", "Quadro-RTX-6000", 1, "on-demand", Decimal("1.5")),
    }


def test_memory_and_disk_are_in_mb() -> None:
    offer = list_offers(source, read_capture(CAPTURE)).offers[0]
    assert (offer.vcpus, offer.ram_gb, offer.disk_gb, offer.note) == (16.0, 32.0, 1024.0, "dearer in some regions")


@pytest.mark.parametrize("price", BAD_PRICES)
def test_bad_price_leaves_its_row_out_and_keeps_the_others(price: object) -> None:
    listing = list_offers(source, with_type(price={"hourly": price}, region_prices=[]))
    assert {offer.instance_type for offer in listing.offers} == {"g1-gpu-rtx6000-1"}
    assert listing.left_out.startswith("1 row ")


@pytest.mark.parametrize("changes", [{"gpus": 0}, {"gpus": None}, {"gpus": 0.5}, {"id": None}])
def test_type_that_cannot_be_read_is_counted(changes: dict[str, object]) -> None:
    assert list_offers(source, with_type(**changes)).left_out == "1 row that cannot be read"


def test_odd_regional_prices_do_not_harm_the_others() -> None:
    listing = list_offers(source, with_type(region_prices=[7, {"id": None, "hourly": 2}, {"id": "id-cgk", "hourly": None}]))
    assert len(listing.offers) == 2
    assert listing.left_out == "1 row that cannot be read; 1 row without a price above zero"


def test_unknown_card_is_named_by_its_type() -> None:
    assert list_offers(source, with_type(id="g9-gpu-x900-2")).unnamed == ("g9-gpu-x900-2",)


def test_blackwell_type_is_known() -> None:
    listing = list_offers(source, with_type(id="g3-gpu-rtxpro6000-blackwell-2"))
    assert "RTX-PRO-6000-Blackwell-Server" in {offer.gpu for offer in listing.offers}


def test_all_pages_are_asked_and_endless_ones_end() -> None:
    for pages, asked, why in ((2, 2, ""), (10**6, MOST_PAGES, f"only {MOST_PAGES} of 1000000 pages were read"), ("x", 1, "")):
        body = change_capture(CAPTURE, lambda document, pages=pages: document.update(pages=pages))  # type: ignore[misc]
        fetch = StubFetcher((body,))
        assert source.list_public_offers(fetch, GPUS)["akamai"].why == why
        assert [path for _, path, _ in fetch.asked] == [
            f"/v4/linode/types?page={number}&page_size=500" for number in range(1, asked + 1)
        ]
