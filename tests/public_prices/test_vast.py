"""Vast's marketplace: asks and bids of whole machines, the cheapest few of each kind, from a bounded number of searches."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from costguard_public.vast import GROUPS, KEPT, SEARCH_ROWS, source
from costguard_vast.offers import NAMES
from jsonschema import Draft202012Validator

from costguard.errors import ThrottledError
from costguard.quoting.offer import ASK, BID
from tests.public_prices.answers import (
    GPUS,
    StubFetcher,
    change_capture,
    get_dollars,
    list_offers,
    load_capture,
    read_capture,
    sum_up,
)

CAPTURE, NONE = "vast/h100.json", read_capture("vast/none.json")
SPEC = Path(__file__).parents[3] / "shared/providers/specs/vast-openapi.yaml"


def with_ask(**changes: object) -> bytes:
    """The capture, with changes to its first ask: the machine with 8 H100."""
    return change_capture(CAPTURE, lambda answer: answer["offers"][0].update(changes))


def many(count: int) -> bytes:
    ask = load_capture(CAPTURE)["offers"][1]
    return json.dumps({"offers": [{**ask, "id": n} for n in range(count)]}).encode()


def test_machine_is_offered_at_its_ask_and_at_its_least_bid() -> None:
    listing = list_offers(source, read_capture(CAPTURE), NONE)
    ask, bid = (offer for offer in listing.offers if offer.gpu_count == 8)
    assert (ask.tier, get_dollars(ask), ask.drift_class, ask.pricing) == ("on-demand", Decimal("17.6"), ASK, "dynamic")
    assert (bid.tier, get_dollars(bid), bid.drift_class) == ("spot", Decimal("9.6"), BID)
    assert bid.on_demand_rate == ask.rate
    assert (ask.region, ask.instance_type, ask.vcpus, ask.ram_gb) == ("Texas, US", "H100-SXM x8", 192.0, 2064.0)
    assert ask.note == "machine 7011, verified, reliability 99.8%, datacenter, disk and traffic extra"


def test_only_the_cheapest_few_of_a_gpu_count_and_country_are_kept() -> None:
    offers = [offer for offer in list_offers(source, read_capture(CAPTURE), NONE).offers if offer.gpu_count == 1]
    asks = [get_dollars(offer) for offer in offers if offer.tier == "on-demand"]
    assert asks == [Decimal("1.87"), Decimal("2.1"), Decimal("2.4")]
    assert len(asks) == KEPT


def test_machine_that_is_not_verified_is_no_offer() -> None:
    assert Decimal("0.2") not in {row[5] for row in sum_up(list_offers(source, read_capture(CAPTURE), NONE))}


def test_memory_tells_the_sizes_of_a_gpu_apart() -> None:
    large = list_offers(source, with_ask(gpu_name="A100 SXM4", gpu_ram=81920), NONE)
    small = list_offers(source, with_ask(gpu_name="A100 SXM4", gpu_ram=40960), NONE)
    assert {offer.gpu for offer in large.offers if offer.gpu_count == 8} == {"A100-80GB-SXM"}
    assert {offer.gpu for offer in small.offers if offer.gpu_count == 8} == {"A100-40GB-SXM"}


def test_every_name_is_known_and_asked_once() -> None:
    names = [name for group in GROUPS for name in group]
    assert len(names) == len(set(names))
    assert set(names) <= set(NAMES)
    assert len(GROUPS) <= 10


def test_search_that_is_refused_ends_the_searches() -> None:
    fetch = StubFetcher((read_capture(CAPTURE), NONE, ThrottledError("was asked too often", provider="vast")))
    listing = source.list_public_offers(fetch, GPUS)["vast"]
    assert len(fetch.asked) == 3
    assert listing.offers
    assert listing.why.startswith("not queried for A100 SXM4, A100 PCIE, A800 PCIE, L40S")
    assert listing.why.endswith("was asked too often")


@pytest.mark.parametrize("count", [64, SEARCH_ROWS, SEARCH_ROWS + 1])
def test_search_that_was_cut_short_is_named(count: int) -> None:
    why = list_offers(source, many(count), NONE).why
    assert why == f"only the {count} cheapest of H100 SXM, H100 NVL, H100 PCIE were listed"


def test_question_and_answers_fit_the_published_specification() -> None:
    if not SPEC.exists():
        pytest.skip(f"{SPEC.name} is not on this machine")
    search: dict[str, Any] = yaml.safe_load(SPEC.read_text())["paths"]["/api/v0/bundles"]["post"]
    fetch = StubFetcher((NONE,))
    source.list_public_offers(fetch, GPUS)
    asked = search["requestBody"]["content"]["application/json"]["schema"]
    asked["properties"]["type"].pop("enum")  # "ondemand" there, "on-demand" in Vast's own clients (vast.md, section 4)
    asked["properties"]["order"].pop("minItems")  # of the list, where each of its entries is meant
    for method, path, body in fetch.asked:
        query = json.loads(body)
        assert (method, path) == ("POST", "/api/v0/bundles/")
        assert set(query) <= set(asked["properties"])
        Draft202012Validator(asked).validate(query)
    answer = search["responses"]["200"]["content"]["application/json"]
    Draft202012Validator(answer["schema"]).validate(load_capture(CAPTURE))
    example = answer["example"]["offers"]
    assert set().union(*load_capture(CAPTURE)["offers"]) <= set(example)
