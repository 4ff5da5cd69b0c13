"""RunPod's GPU types: secure and community prices per GPU, and prices that are none."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from costguard_public.runpod import QUERY, source

from costguard.errors import InvalidAnswerError
from tests.public_prices.answers import (
    GPUS,
    StubFetcher,
    change_capture,
    list_offers,
    load_capture,
    read_capture,
    sum_up,
)

CAPTURE = "runpod/gpu_types.json"
FIELDS = Path(__file__).parents[3] / "shared/providers/specs/runpod-graphql-known-fields.json"


def with_gpu(**changes: object) -> bytes:
    """The capture, with changes to its first GPU."""
    return change_capture(CAPTURE, lambda document: document["data"]["gpuTypes"][0].update(changes))


def test_price_of_a_gpu_is_multiplied_for_machines_of_more() -> None:
    offers = sum_up(list_offers(source, read_capture(CAPTURE)))
    assert {o for o in offers if o[2] == "H100-SXM"} == {
        (f"H100-SXM x{count}", "global", "H100-SXM", count, tier, Decimal(price) * count)
        for count in (1, 2, 4, 8)
        for tier, price in (("secure", "2.99"), ("community", "2.69"))
    }


def test_machine_has_no_more_gpus_than_a_host_holds() -> None:
    offers = list_offers(source, read_capture(CAPTURE)).offers
    assert {offer.gpu_count for offer in offers if offer.gpu == "RTX-4090"} == {1, 2, 4}


def test_null_and_zero_mean_not_offered_and_are_no_fault() -> None:
    listing = list_offers(source, read_capture(CAPTURE))
    assert {offer.tier for offer in listing.offers if offer.gpu in ("A40", "L4")} == {"secure"}
    assert listing.why == ""
    assert listing.unnamed == ()


def test_half_a_dollar_is_a_placeholder_of_a_data_centre_card_and_a_price_of_another() -> None:
    listing = list_offers(source, with_gpu(id="NVIDIA RTX A4500", memoryInGb=20, securePrice=0.5))
    assert {offer.tier for offer in listing.offers if offer.gpu == "H200-SXM"} == {"secure"}
    assert listing.left_out == "1 row with a placeholder for a price"
    assert Decimal("0.5") in {row[5] for row in sum_up(listing) if row[2] == "RTX-A4500"}


def test_graphql_error_is_the_error() -> None:
    with pytest.raises(InvalidAnswerError, match="RunPod's GPU types: answered with an error: gone for good"):
        list_offers(source, b'{"errors": [{"message": "gone for good"}], "data": null}')


def test_query_and_capture_use_known_fields_of_the_api() -> None:
    if not FIELDS.exists():
        pytest.skip(f"{FIELDS.name} is not on this machine")
    known: dict[str, Any] = json.loads(FIELDS.read_text())["types"]["GpuType"]
    kinds: dict[str, tuple[type, ...]] = {"String": (str,), "Int": (int,), "Float": (int, float), "Boolean": (bool,)}
    assert set(re.findall(r"\w+", QUERY)) - {"gpuTypes"} <= set(known)
    for row in load_capture(CAPTURE)["data"]["gpuTypes"]:
        for name, value in row.items():
            assert value is None or isinstance(value, kinds[known[name]])


def test_one_question_is_sent_as_json() -> None:
    fetch = StubFetcher((read_capture(CAPTURE),))
    source.list_public_offers(fetch, GPUS)
    (method, path, body), *others = fetch.asked
    assert (method, path, json.loads(body), others) == ("POST", "/graphql", {"query": QUERY}, [])
