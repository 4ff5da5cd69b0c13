"""Akamai's machine types: class "gpu" only, a price for all regions, and those of regions with their own."""

from __future__ import annotations

from decimal import Decimal

import pytest
from costguard_public.akamai import MOST_PAGES, source

from tests.public_prices.answers import GPUS, StubFetcher, change_capture, list_offers, read_capture, sum_up

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


@pytest.mark.parametrize("changes", [{"gpus": 0}, {"gpus": None}, {"gpus": 0.5}, {"id": None}])
def test_type_that_cannot_be_read_is_counted(changes: dict[str, object]) -> None:
    assert list_offers(source, with_type(**changes)).left_out == "1 row that cannot be read"


def test_all_pages_are_asked_and_endless_ones_end() -> None:
    for pages, asked, why in ((2, 2, ""), (10**6, MOST_PAGES, f"only {MOST_PAGES} of 1000000 pages were read"), ("x", 1, "")):
        body = change_capture(CAPTURE, lambda document, pages=pages: document.update(pages=pages))  # type: ignore[misc]
        fetch = StubFetcher((body,))
        assert source.list_public_offers(fetch, GPUS)["akamai"].why == why
        assert [path for _, path, _ in fetch.asked] == [
            f"/v4/linode/types?page={number}&page_size=500" for number in range(1, asked + 1)
        ]
