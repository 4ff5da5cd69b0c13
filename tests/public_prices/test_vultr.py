"""Vultr's plans: whole GPUs only, in each location, virtual and bare metal, over a bounded number of pages."""

from __future__ import annotations

from decimal import Decimal

import pytest
from costguard_public.vultr import source

from tests.public_prices.answers import GPUS, StubFetcher, change_capture, list_offers, read_capture, sum_up

PLANS, METAL, NO_METAL = "vultr/plans.json", read_capture("vultr/plans_metal.json"), b'{"plans_metal": []}'
A100 = 2
"""Index of the plan with one A100 in the capture."""


def with_plan(**changes: object) -> bytes:
    return change_capture(PLANS, lambda document: document["plans"][A100].update(changes))


def with_next(cursor: object) -> bytes:
    return change_capture(PLANS, lambda document: document["meta"]["links"].update(next=cursor))


def test_whole_gpus_are_offered_in_every_location() -> None:
    assert sum_up(list_offers(source, read_capture(PLANS), METAL)) == {
        ("vcg-a100-12c-120g-80vram", "ewr", "A100-80GB-SXM", 1, "on-demand", Decimal("2.397")),
        ("vcg-a100-12c-120g-80vram", "sjc", "A100-80GB-SXM", 1, "on-demand", Decimal("2.397")),
        ("vcg-l40s-32c-375g-96vram", "ord", "L40S", 2, "on-demand", Decimal("3.3425")),
        ("vcg-b200-248c-2826g-1536vram", "ord", "B200-SXM", 8, "on-demand", Decimal("23.288")),
        ("vbm-256c-2048gb-8-mi300x-gpu", "ord", "MI300X", 8, "on-demand", Decimal("17.52")),
        ("vbm-64c-2048gb-8-l40-gpu", "sjc", "L40S", 8, "on-demand", Decimal("12.329")),
    }


def test_plan_whose_memory_contradicts_its_gpus_is_counted() -> None:
    assert list_offers(source, read_capture(PLANS), METAL).left_out == "1 row that cannot be read"


@pytest.mark.parametrize("changes", [{"gpu_count": "1/2"}, {"gpu_vram_gb": 40}, {"deploy_ondemand": False}, {"locations": []}])
def test_share_of_a_gpu_and_a_plan_that_is_not_sold_are_no_offers(changes: dict[str, object]) -> None:
    listing = list_offers(source, with_plan(**changes), METAL)
    assert len(listing.offers) == 4
    assert listing.left_out == "1 row that cannot be read"  # the plan that contradicts itself


def test_next_page_is_asked_by_its_cursor_on_the_same_path() -> None:
    fetch = StubFetcher((with_next("https://evil.example/?a=b&c"), read_capture(PLANS), METAL))
    listing = source.list_public_offers(fetch, GPUS)["vultr"]
    assert [path for _, path, _ in fetch.asked] == [
        "/v2/plans?type=all&per_page=500",
        "/v2/plans?type=all&per_page=500&cursor=https%3A%2F%2Fevil.example%2F%3Fa%3Db%26c",
        "/v2/plans-metal?per_page=500",
    ]
    assert listing.why == ""


def test_cursor_that_returns_ends_the_pages() -> None:
    fetch = StubFetcher((with_next("again"), with_next("again"), METAL))
    listing = source.list_public_offers(fetch, GPUS)["vultr"]
    assert len(fetch.asked) == 3
    assert listing.why == "the list of plans did not end after 2 pages"
