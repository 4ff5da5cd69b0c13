"""Oracle's price list: a price per GPU becomes the prices of the shapes it is of."""

from __future__ import annotations

from decimal import Decimal

from costguard_public.oci import SHAPES, source

from tests.public_prices.answers import GPUS, change_capture, list_offers, read_capture, sum_up

CAPTURE = "oci/products.json"


def with_product(**changes: object) -> bytes:
    """The capture, with changes to its first product: an H100."""
    return change_capture(CAPTURE, lambda document: document["items"][0].update(changes))


def with_price(value: object, *, currency: str = "USD", model: str = "PAY_AS_YOU_GO") -> bytes:
    return with_product(currencyCodeLocalizations=[{"currencyCode": currency, "prices": [{"model": model, "value": value}]}])


def test_shape_costs_the_price_of_its_gpus() -> None:
    assert sum_up(list_offers(source, read_capture(CAPTURE))) == {
        ("BM.GPU.H100.8", "global", "H100-SXM", 8, "on-demand", Decimal(80)),
        ("VM.GPU.A10.1", "global", "A10", 1, "on-demand", Decimal(2)),
        ("VM.GPU.A10.2", "global", "A10", 2, "on-demand", Decimal(4)),
        ("BM.GPU.A10.4", "global", "A10", 4, "on-demand", Decimal(8)),
        ("BM.GPU.A100-v2.8", "global", "A100-80GB-SXM", 8, "on-demand", Decimal(32)),
        ("BM.GPU.MI355X.8", "global", "MI355X", 8, "on-demand", Decimal("68.8")),
    }


def test_licences_nodes_cores_and_generations_are_no_offers() -> None:
    listing = list_offers(source, read_capture(CAPTURE))
    assert Decimal(20) not in {row[5] for row in sum_up(listing)}
    assert (listing.why, listing.left_out) == ("", "")


def test_price_in_another_currency_is_left_out() -> None:
    assert list_offers(source, with_price(9, currency="EUR")).left_out == "1 row in another currency than dollars"


def test_price_of_a_commitment_is_none() -> None:
    assert list_offers(source, with_price(7, model="ANNUAL_COMMIT")).left_out == "1 row without a price above zero"


def test_two_prices_of_one_product_are_not_guessed_between() -> None:
    prices = [{"model": "PAY_AS_YOU_GO", "value": 10}, {"model": "PAY_AS_YOU_GO", "value": 8}]
    listing = list_offers(source, with_product(currencyCodeLocalizations=[{"currencyCode": "USD", "prices": prices}]))
    assert listing.left_out == "1 row that cannot be read"


def test_every_shape_has_a_canonical_gpu_and_the_count_in_its_name() -> None:
    for gpu, shapes in SHAPES.values():
        assert GPUS.resolve(gpu).canonical == gpu
        assert all(shape.endswith(f".{count}") for shape, count in shapes.items())
