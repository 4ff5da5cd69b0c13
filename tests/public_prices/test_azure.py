"""Azure's retail prices: sizes with whole GPUs, prices that hold today, and pages that stay on its host."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from costguard_public.azure import FIRST_PAGE, MOST_PAGES, source
from costguard_public.instance_types import find_azure_type

from costguard.errors import ThrottledError
from tests.public_prices.answers import (
    GPUS,
    StubFetcher,
    change_capture,
    list_offers,
    read_capture,
    sum_up,
)

FIRST, SECOND = "azure/page_1.json", "azure/page_2.json"

H100, A100 = "Standard_ND96isr_H100_v5", "Standard_NC24ads_A100_v4"


def with_row(**changes: object) -> bytes:
    """The second page, which has no next one, with changes to its first row (an A100 in westus2)."""
    return change_capture(SECOND, lambda page: page["Items"][0].update(changes))


def with_link(link: object) -> bytes:
    return change_capture(FIRST, lambda page: page.update(NextPageLink=link))


def test_prices_are_of_whole_machines_on_demand_and_spot() -> None:
    assert sum_up(list_offers(source, read_capture(FIRST), read_capture(SECOND))) == {
        (H100, "eastus", "H100-SXM", 8, "on-demand", Decimal("98.32")),
        (H100, "eastus", "H100-SXM", 8, "spot", Decimal("18.1695")),
        (H100, "westeurope", "H100-SXM", 8, "on-demand", Decimal("127.816")),
        (A100, "westus2", "A100-80GB-PCIe", 1, "on-demand", Decimal("3.673")),
        (A100, "eastus", "A100-80GB-PCIe", 1, "on-demand", Decimal("3.673")),
        ("Standard_ND128isr_NDR_GB200_v6", "westus3", "GB200", 4, "on-demand", Decimal("108.16")),
    }


def test_spot_machine_states_its_price_on_demand() -> None:
    (spot,) = [offer for offer in list_offers(source, read_capture(FIRST)).offers if offer.tier == "spot"]
    assert spot.on_demand_rate is not None
    assert spot.on_demand_rate.format(2) == "98.32"
    assert spot.pricing == "dynamic"


def test_second_page_is_asked_below_the_same_path() -> None:
    fetch = StubFetcher((read_capture(FIRST), read_capture(SECOND)))
    source.list_public_offers(fetch, GPUS)
    assert [path for _, path, _ in fetch.asked] == [
        FIRST_PAGE,
        "/api/retail/prices?api-version=2023-01-01-preview&$filter=serviceName%20eq%20%27Virtual%20Machines%27&$skip=1000",
    ]


@pytest.mark.parametrize(
    "link",
    [
        "https://prices.azure.com.evil.example/api/retail/prices?$skip=1000",
        "https://evil.example/api/retail/prices?$skip=1000",
        "http://prices.azure.com/api/retail/prices?$skip=1000",
        "https://prices.azure.com:8443/api/retail/prices?$skip=1000",
        "https://prices.azure.com:x/api/retail/prices?$skip=1000",
        "https://prices.azure.com@evil.example/api/retail/prices?$skip=1000",
        "https://prices.azure.com/other?$skip=1000",
        "https://prices.azure.com/api/retail/prices",
        "//evil.example/api/retail/prices?$skip=1",
        "file:///etc/passwd",
        "https://[::1/api/retail/prices?x",
        "https://prices.azure.com/api/retail/prices?" + "x" * 5000,
        7,
        ["https://prices.azure.com/api/retail/prices?$skip=1"],
    ],
)
def test_next_page_elsewhere_is_never_asked(link: object) -> None:
    fetch = StubFetcher((with_link(link),))
    listing = source.list_public_offers(fetch, GPUS)["azure"]
    assert len(fetch.asked) == 1
    assert listing.offers
    assert "the next page is on another host and was not fetched" in listing.why


def test_line_breaks_in_a_link_are_not_passed_on() -> None:
    fetch = StubFetcher(
        (with_link("https://prices.azure.com/api/retail/prices?$skip=1 HTTP/1.1\r\nHost: evil"), read_capture(SECOND))
    )
    source.list_public_offers(fetch, GPUS)
    assert not {"\r", "\n", " "} & set(fetch.asked[1][1])


def test_endless_pages_end() -> None:
    pages = tuple(with_link(f"https://prices.azure.com/api/retail/prices?$skip={n}") for n in range(1, 100))
    fetch = StubFetcher(pages)
    listing = source.list_public_offers(fetch, GPUS)["azure"]
    assert len(fetch.asked) == MOST_PAGES
    assert listing.why == f"the pages did not end after {MOST_PAGES}"


@pytest.mark.parametrize("broken", [b"<html>", ThrottledError("was asked too often", provider="azure")])
def test_later_page_that_fails_leaves_the_earlier_ones(broken: Any) -> None:  # noqa: ANN401 - bytes or an error
    listing = list_offers(source, read_capture(FIRST), broken)
    assert listing.offers
    assert listing.why.startswith("page 2 cannot be read: ")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"currencyCode": "EUR"}, "1 row in another currency than dollars"),
        ({"unitOfMeasure": "1 GB/Month"}, "1 row in another unit than hours"),
        ({"tierMinimumUnits": 100.0}, "1 row in another unit than hours"),
        ({"effectiveStartDate": "soon"}, "1 row that cannot be read"),
        ({"effectiveStartDate": None}, "1 row that cannot be read"),
        ({"armRegionName": ""}, "1 row that cannot be read"),
    ],
)
def test_row_on_other_terms_is_left_out_and_counted(changes: dict[str, object], reason: str) -> None:
    listing = list_offers(source, with_row(**changes))
    assert reason in listing.left_out
    assert len(listing.offers) == 2


def test_price_of_tomorrow_counts_from_tomorrow() -> None:
    page = read_capture(SECOND)
    today, tomorrow = list_offers(source, page), list_offers(source, page, today=date(2026, 11, 24))
    assert (A100, "westus2", "A100-80GB-PCIe", 1, "on-demand", Decimal("3.673")) in sum_up(today)
    assert today.left_out == "1 row with a price of a later day"
    assert (A100, "westus2", "A100-80GB-PCIe", 1, "on-demand", Decimal("3.5")) in sum_up(tomorrow)
    assert tomorrow.left_out == ""


def test_cent_for_eight_h100_is_a_placeholder() -> None:
    listing = list_offers(source, read_capture(FIRST), read_capture(SECOND))
    assert "ukwest" not in {offer.region for offer in listing.offers}
    assert "1 row with a placeholder for a price" in listing.left_out


@pytest.mark.parametrize(
    "change",
    [
        {"productName": "Virtual Machines NCADS A100 v4 Series Windows"},
        {"productName": "NCADSA100v4 Series Dedicated Host"},
        {"skuName": "NC24ads A100 v4 Low Priority"},
        {"type": "DevTestConsumption"},
        {"isPrimaryMeterRegion": False},
        {"armSkuName": "Standard_NV6ads_A10_v5"},
    ],
)
def test_other_products_are_no_offers_and_no_fault(change: dict[str, object]) -> None:
    listing = list_offers(source, with_row(**change))
    assert len(listing.offers) == 2
    assert (listing.why, listing.unnamed) == ("", ())
    assert "cannot be read" not in listing.left_out


@pytest.mark.parametrize(
    ("name", "gpu", "count"),
    [
        ("Standard_NC64as_T4_v3", "T4", 4),
        ("Standard_NC80adis_H100_v5", "H100-NVL", 2),
        ("Standard_ND96asr_v4", "A100-40GB-SXM", 8),
        ("Standard_ND96amsr_A100_v4", "A100-80GB-SXM", 8),
        ("Standard_ND96isr_H200_v5", "H200-SXM", 8),
        ("Standard_NV36adms_A10_v5", "A10", 1),
    ],
)
def test_size_names_its_gpus(name: str, gpu: str, count: int) -> None:
    machine = find_azure_type(name)
    assert machine is not None
    assert (machine.gpu, machine.gpu_count) == (gpu, count)
    assert GPUS.resolve(machine.gpu).canonical == machine.gpu


def test_a_later_price_replaces_an_earlier_one_in_any_order() -> None:
    turned: Callable[[Any], None] = lambda page: page["Items"].reverse()  # noqa: E731 - one line
    for body in (read_capture(SECOND), change_capture(SECOND, turned)):
        assert (A100, "eastus", "A100-80GB-PCIe", 1, "on-demand", Decimal("3.673")) in sum_up(list_offers(source, body))
