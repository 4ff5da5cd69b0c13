"""Verda's machine types: text or numbers for prices, spot beside the fixed price, everywhere the same."""

from __future__ import annotations

from decimal import Decimal

import pytest
from costguard_public.verda import source

from tests.public_prices.answers import change_capture, list_offers, read_capture, sum_up

CAPTURE = "verda/instance_types.json"


def with_type(**changes: object) -> bytes:
    """The capture, with changes to its first type: 8 H100."""
    return change_capture(CAPTURE, lambda document: document[0].update(changes))


def test_types_are_offered_on_demand_and_as_spot() -> None:
    assert sum_up(list_offers(source, read_capture(CAPTURE))) == {
        ("8H100.80S.176V", "global", "H100-SXM", 8, "on-demand", Decimal("18.32")),
        ("8H100.80S.176V", "global", "H100-SXM", 8, "spot", Decimal("6.41")),
        ("1A100.40S.22V", "global", "A100-40GB-SXM", 1, "on-demand", Decimal("0.7211")),
        ("2RTX6000ADA.20V", "global", "RTX-6000-Ada", 2, "on-demand", Decimal("1.66")),
        ("2RTX6000ADA.20V", "global", "RTX-6000-Ada", 2, "spot", Decimal("0.58")),
    }


def test_spot_machine_states_its_price_on_demand() -> None:
    spot = next(offer for offer in list_offers(source, read_capture(CAPTURE)).offers if offer.tier == "spot")
    assert spot.on_demand_rate is not None
    assert spot.on_demand_rate.format(2) == "18.32"
    assert (spot.pricing, spot.vcpus, spot.ram_gb) == ("dynamic", 176.0, 1480.0)


def test_price_in_euros_is_left_out() -> None:
    listing = list_offers(source, with_type(currency="eur"))
    assert "H100-SXM" not in {offer.gpu for offer in listing.offers}
    assert listing.left_out == "1 row in another currency than dollars"


@pytest.mark.parametrize(
    ("described", "vram_gb", "gpu"),
    [
        ("8x B200 SXM6 180GB", 1440, "B200-SXM"),
        ("8x B300 SXM6 262GB", 2096, "B300"),
        ("8x H200 SXM5 141GB", 1128, "H200-SXM"),
        ("8x RTX PRO 6000 96GB", 768, "RTX-PRO-6000-Blackwell"),
        ("8x RTX A6000 48GB", 384, "RTX-A6000"),
        ("8x Tesla V100 16GB", 128, "V100-16GB"),
        ("8x L40S 48GB", 384, "L40S"),
    ],
)
def test_descriptions_of_verda_name_gpus(described: str, vram_gb: int, gpu: str) -> None:
    changes = {"gpu": {"description": described, "number_of_gpus": 8}, "gpu_memory": {"size_in_gigabytes": vram_gb}}
    assert list_offers(source, with_type(**changes)).offers[0].gpu == gpu
