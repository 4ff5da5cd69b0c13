from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from costguard_aws.live_offers import LiveOffers
from costguard_aws.price_list import OnDemandPrices, PriceKey, parse_prices
from costguard_aws.session import AwsSession
from hypothesis import given
from hypothesis import strategies as st

from costguard.values.money import Rate
from tests.fakes.aws_pricing import EFFECTIVE, FakePricing
from tests.fakes.aws_wire import amz_json_error
from tests.fakes.server import START
from tests.providers.aws.fuzz import FUZZ, mutated
from tests.providers.aws.services import Services

G5, P5 = Decimal("1.006"), Decimal("55.04")


@pytest.fixture
def services() -> Services:
    made = Services()
    made.pricing.rates = {
        ("g5.xlarge", "us-east-1"): G5,
        ("p5.48xlarge", "us-east-1"): P5,
        ("g5.xlarge", "eu-west-1"): Decimal("1.123"),
    }
    return made


@pytest.fixture
def session(services: Services, tmp_path: Path) -> Iterator[AwsSession]:
    with services.session(tmp_path) as made:
        yield made


@pytest.fixture
def prices(services: Services, session: AwsSession) -> OnDemandPrices:
    return OnDemandPrices(session, services.cache, services.clock)


def usd(text: str) -> Rate:
    return Rate.parse(text)


def test_a_price_is_that_of_used_capacity_and_never_the_zero_beside_it(prices: OnDemandPrices) -> None:
    price = prices.find_rate("g5.xlarge", "us-east-1")
    assert (price.rate, price.since, price.source) == (usd("1.006"), EFFECTIVE, "AWS price list")


def test_without_the_filter_on_capacity_the_answer_is_still_read_rightly() -> None:
    fake = FakePricing(rates={("g5.xlarge", "us-east-1"): G5})
    products = [json.dumps(product) for product in fake._all()]
    read = parse_prices(products, {"g5.xlarge": 1}, region="us-east-1", operation="RunInstances", tenancy="default", now=START)
    assert read["g5.xlarge"].rate == usd("1.006")


def test_windows_dedicated_and_other_regions_have_prices_of_their_own(prices: OnDemandPrices) -> None:
    assert prices.find_rate("g5.xlarge", "us-east-1", "RunInstances:0002").rate == usd("1.2575")
    assert prices.find_rate("g5.xlarge", "us-east-1", tenancy="dedicated").rate == usd("1.1066")
    assert prices.find_rate("g5.xlarge", "eu-west-1").rate == usd("1.123")


def test_a_machine_on_a_dedicated_host_has_no_price_and_nobody_is_asked(prices: OnDemandPrices, services: Services) -> None:
    stated = prices.find_price(PriceKey("g5.xlarge", "us-east-1", tenancy="host"))
    assert stated.price.rate is None
    assert "dedicated host" in stated.why
    assert not services.operations


def test_many_types_of_a_region_are_one_request(prices: OnDemandPrices, services: Services) -> None:
    keys = [PriceKey(name, "us-east-1") for name in ("g5.xlarge", "p5.48xlarge", "p5e.48xlarge")]
    prices.learn(keys)
    assert [prices.peek_price(key).price.rate for key in keys] == [usd("1.006"), usd("55.04"), None]
    assert services.asked_for("GetProducts") == 1


def test_where_any_of_is_not_known_each_type_is_asked_for(prices: OnDemandPrices, services: Services) -> None:
    services.pricing.knows_any_of = False
    keys = [PriceKey(name, "us-east-1") for name in ("g5.xlarge", "p5.48xlarge")]
    prices.learn(keys)
    assert [prices.peek_price(key).price.rate for key in keys] == [usd("1.006"), usd("55.04")]
    prices.learn([PriceKey("g5.xlarge", "eu-west-1"), PriceKey("p5.48xlarge", "eu-west-1")])
    assert services.asked_for("GetProducts") == 1 + 2 + 2


def test_pages_are_followed(prices: OnDemandPrices, services: Services) -> None:
    services.pricing.page = 1
    prices.learn([PriceKey("g5.xlarge", "us-east-1"), PriceKey("p5.48xlarge", "us-east-1")])
    assert prices.peek_price(PriceKey("p5.48xlarge", "us-east-1")).price.rate == usd("55.04")
    assert services.asked_for("GetProducts") == 2


def test_a_type_that_is_sold_by_capacity_blocks_alone_is_unknown_and_not_free(prices: OnDemandPrices) -> None:
    stated = prices.find_price(PriceKey("p5e.48xlarge", "us-east-1"))
    assert stated.price.rate is None
    assert not stated.doubtful
    assert "no on-demand price of p5e.48xlarge" in stated.why


def test_two_prices_for_one_machine_are_no_price(prices: OnDemandPrices, services: Services) -> None:
    services.pricing.extra = [services.pricing.product("g5.xlarge", "us-east-1", "0.5000000000", usagetype="Odd:g5.xlarge")]
    stated = prices.find_price(PriceKey("g5.xlarge", "us-east-1"))
    assert stated.price.rate is None
    assert stated.why == "the price list has several prices: 0.5000, 1.0060"
    assert stated.doubtful


@pytest.mark.parametrize("odd", ["0", "-1", "1001"])
def test_an_impossible_price_is_unknown(prices: OnDemandPrices, services: Services, odd: str) -> None:
    services.pricing.rates["g5.xlarge", "us-east-1"] = Decimal(odd)
    assert prices.find_rate("g5.xlarge", "us-east-1").rate is None


def test_a_price_of_the_future_is_not_in_force(prices: OnDemandPrices, services: Services) -> None:
    services.pricing.effective = START + timedelta(days=1)
    assert prices.find_rate("g5.xlarge", "us-east-1").rate is None


def test_a_price_is_asked_for_once_a_day_and_a_missing_one_once_an_hour(prices: OnDemandPrices, services: Services) -> None:
    for _ in range(3):
        prices.find_rate("g5.xlarge", "us-east-1")
        prices.find_rate("p5e.48xlarge", "us-east-1")
    assert services.asked_for("GetProducts") == 2
    services.later(hours=2)
    prices.find_rate("g5.xlarge", "us-east-1")
    prices.find_rate("p5e.48xlarge", "us-east-1")
    assert services.asked_for("GetProducts") == 3
    services.later(hours=23)
    services.pricing.rates["g5.xlarge", "us-east-1"] = Decimal("0.9")
    assert prices.find_rate("g5.xlarge", "us-east-1").rate == usd("0.9")


@pytest.mark.proof
def test_where_the_list_is_down_an_old_price_is_said_to_be_old(services: Services, session: AwsSession) -> None:
    OnDemandPrices(session, services.cache, services.clock).find_rate("g5.xlarge", "us-east-1")
    services.later(days=3)
    services.fault("POST /", "status", status=500)
    stated = OnDemandPrices(session, services.cache, services.clock).find_price(PriceKey("g5.xlarge", "us-east-1"))
    assert stated.price.rate == usd("1.006")
    assert "price of 2026-11-21: the price list cannot be queried" in stated.why
    services.later(days=40)
    stated = OnDemandPrices(session, services.cache, services.clock).find_price(PriceKey("g5.xlarge", "us-east-1"))
    assert stated.price.rate is None


def test_the_list_is_left_alone_for_a_while_after_it_failed(prices: OnDemandPrices, services: Services) -> None:
    fault = services.fault("POST /", "status", status=403, body=amz_json_error("AccessDeniedException", "no").body)
    stated = prices.find_price(PriceKey("g5.xlarge", "us-east-1"))
    assert stated.price.rate is None
    assert "AccessDenied" in stated.why
    asked = len(services.asked)
    prices.find_rate("p5.48xlarge", "us-east-1")
    assert len(services.asked) == asked == 1
    services.faults.remove(fault)
    services.later(minutes=6)
    assert prices.find_rate("p5.48xlarge", "us-east-1").rate == usd("55.04")


def test_another_endpoint_is_asked_where_the_first_is_down(prices: OnDemandPrices, services: Services) -> None:
    services.fault("POST /", "status", status=503, times=3)
    assert prices.find_rate("g5.xlarge", "us-east-1").rate == usd("1.006")
    assert [region for region, _ in services.operations] == ["eu-central-1"]


@pytest.mark.parametrize("body", [b"{}", b'{"PriceList": null}', b'{"PriceList": [1, "x", "{}", "[]"]}', b'{"PriceList": "x"}'])
def test_an_odd_answer_is_no_price(prices: OnDemandPrices, services: Services, body: bytes) -> None:
    services.fault("POST /", "body", body=body)
    assert prices.find_rate("g5.xlarge", "us-east-1").rate is None


def test_live_offers_are_priced_by_list_and_by_the_cheapest_zone(
    prices: OnDemandPrices, services: Services, session: AwsSession
) -> None:
    at = START - timedelta(hours=3)
    services.spot.markets = {
        ("g5.xlarge", "us-east-1a", "Linux/UNIX"): [(at, Decimal("0.45")), (at + timedelta(hours=1), Decimal("0.41"))],
        ("g5.xlarge", "us-east-1b", "Linux/UNIX"): [(at, Decimal("0.40"))],
    }
    listing = LiveOffers(session, prices, services.clock).list_offers(("us-east-1",), {"A10G", "H100-SXM"})
    told = {(o.instance_type, o.tier, o.gpu, o.gpu_count): o.rate for o in listing.offers}
    assert told == {
        ("g5.xlarge", "on-demand", "A10G", 1): usd("1.006"),
        ("g5.xlarge", "spot", "A10G", 1): usd("0.40"),
        ("p5.48xlarge", "on-demand", "H100-SXM", 8): usd("55.04"),
    }
    assert listing.why == ""
    assert next(o.note for o in listing.offers if o.tier == "spot") == "in us-east-1b, the cheapest of 2 zones"
    assert len(services.asked) == 2


def test_live_offers_say_which_half_is_missing(prices: OnDemandPrices, services: Services, session: AwsSession) -> None:
    services.fault("POST /", "status", status=403, body=amz_json_error("AccessDeniedException", "no").body, times=1)
    services.spot.markets = {("g5.xlarge", "us-east-1b", "Linux/UNIX"): [(START, Decimal("0.40"))]}
    listing = LiveOffers(session, prices, services.clock).list_offers(("us-east-1",), {"A10G"})
    assert [offer.tier for offer in listing.offers] == ["spot"]
    assert "the price list cannot be queried" in listing.why


@FUZZ
@given(st.data())
def test_whatever_a_product_says_no_price_is_invented(data: st.DataObject) -> None:
    fake = FakePricing(rates={("g5.xlarge", "us-east-1"): G5})
    product: Any = mutated(data, fake.product("g5.xlarge", "us-east-1", G5))
    text = json.dumps(product)
    read = parse_prices(
        [text],
        {"g5.xlarge": 1},
        region="us-east-1",
        operation="RunInstances",
        tenancy="default",
        now=datetime(2026, 11, 21, tzinfo=UTC),
    )
    for one in read.values():
        if one.rate:
            shown = Decimal(one.rate.nano_per_hour).scaleb(-9).normalize()
            assert any(_is(number, shown) for number in _leaves(product["terms"]["OnDemand"]))


def _is(leaf: object, wanted: Decimal) -> bool:
    try:
        return Decimal(str(leaf)).quantize(Decimal("1E-9")) == wanted
    except ArithmeticError:
        return False


def _leaves(value: Any) -> list[object]:  # noqa: ANN401 - any shape
    if isinstance(value, dict):
        return [leaf for one in value.values() for leaf in _leaves(one)]
    if isinstance(value, list):
        return [leaf for one in value for leaf in _leaves(one)]
    return [value]
