from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from costguard_aws.session import AwsSession
from costguard_aws.spot import SpotHistory, SpotMarket
from hypothesis import given
from hypothesis import strategies as st

from costguard.metering.observation import Price
from costguard.values.money import Rate
from tests.fakes.server import START
from tests.providers.aws.fuzz import FUZZ, mutated
from tests.providers.aws.services import OnePage, Services

G5 = SpotMarket("g5.xlarge", "us-east-1a")
HOUR = timedelta(hours=1)
HISTORY = [(START - 30 * HOUR, "0.50"), (START - 5 * HOUR, "0.40"), (START - HOUR, "0.45")]


@pytest.fixture
def services() -> Services:
    made = Services()
    made.spot.markets[G5] = [(at, Decimal(usd)) for at, usd in HISTORY]
    return made


@pytest.fixture
def session(services: Services, tmp_path: Path) -> Iterator[AwsSession]:
    with services.session(tmp_path) as made:
        yield made


def shown(prices: tuple[Price, ...]) -> list[tuple[datetime | None, str]]:
    return [(price.since, price.rate.format(2) if price.rate else "?") for price in prices]


def test_a_machine_has_every_price_since_its_start_and_the_one_in_force_then(session: AwsSession) -> None:
    spot = SpotHistory(session)
    assert spot.refresh("us-east-1", {G5: START - 6 * HOUR}, START) == ""
    assert shown(spot.list_prices(G5, START - 6 * HOUR)) == HISTORY
    assert shown(spot.list_prices(G5, START - 2 * HOUR)) == HISTORY[1:]
    assert shown(spot.list_prices(G5, None)) == HISTORY[2:]


def test_the_second_poll_asks_once_and_only_for_what_is_new(session: AwsSession, services: Services) -> None:
    spot = SpotHistory(session)
    spot.refresh("us-east-1", {G5: START - 40 * HOUR}, START)
    services.spot.markets[G5].append((START + timedelta(minutes=3), Decimal("0.47")))
    services.later(minutes=5)
    spot.refresh("us-east-1", {G5: START - 40 * HOUR}, services.clock.now())
    assert shown(spot.list_prices(G5, START - 40 * HOUR)) == [*HISTORY, (START + timedelta(minutes=3), "0.47")]
    assert services.asked_for("DescribeSpotPriceHistory") == 2
    assert b"StartTime=2026-11-21T11" in services.asked[-1].body


def test_pages_in_any_order_are_put_in_order(session: AwsSession, services: Services) -> None:
    services.spot.page = 1
    spot = SpotHistory(session)
    spot.refresh("us-east-1", {G5: START - 40 * HOUR}, START)
    assert shown(spot.list_prices(G5, START - 40 * HOUR)) == HISTORY
    assert services.asked_for("DescribeSpotPriceHistory") == 3


def test_the_product_is_meant_with_and_without_vpc(session: AwsSession, services: Services) -> None:
    services.spot.markets["g5.xlarge", "us-east-1a", "Linux/UNIX (Amazon VPC)"] = [(HISTORY[2][0], Decimal("0.46"))]
    services.spot.markets["g5.xlarge", "us-east-1a", "Windows"] = [(START - HOUR, Decimal("0.90"))]
    spot = SpotHistory(session)
    windows = SpotMarket("g5.xlarge", "us-east-1a", "Windows")
    spot.refresh("us-east-1", {G5: START, windows: START}, START)
    assert shown(spot.list_prices(G5, START)) == [(START - HOUR, "0.46")]
    assert shown(spot.list_prices(windows, START)) == [(START - HOUR, "0.90")]


def test_a_market_without_a_price_is_named_and_unknown(session: AwsSession) -> None:
    spot, other = SpotHistory(session), SpotMarket("p5.48xlarge", "us-east-1b")
    assert (
        spot.refresh("us-east-1", {G5: START, other: START}, START) == "no spot price of p5.48xlarge in us-east-1b in us-east-1"
    )
    assert spot.list_prices(other, START)[0].rate is None


def test_where_it_cannot_be_asked_the_known_prices_stay(session: AwsSession, services: Services) -> None:
    spot = SpotHistory(session)
    spot.refresh("us-east-1", {G5: START - 6 * HOUR}, START)
    services.fault("POST /", "status", status=500)
    why = spot.refresh("us-east-1", {G5: START - 6 * HOUR}, START + HOUR)
    assert why.startswith("spot prices of us-east-1 could not be fetched")
    assert shown(spot.list_prices(G5, START - 6 * HOUR)) == HISTORY


def test_a_page_that_is_lost_teaches_nothing_rather_than_half(session: AwsSession, services: Services) -> None:
    services.spot.page = 1
    services.fault("POST /", "status", status=500, skip=1)
    spot = SpotHistory(session)
    assert "could not be fetched" in spot.refresh("us-east-1", {G5: START - 40 * HOUR}, START)
    assert spot.list_prices(G5, START)[0].rate is None


def test_a_token_that_comes_again_ends_in_an_error(session: AwsSession, services: Services) -> None:
    odd = b"<DescribeSpotPriceHistoryResponse><spotPriceHistorySet/><nextToken>9</nextToken></DescribeSpotPriceHistoryResponse>"
    services.fault("POST /", "body", body=odd)
    assert "does not end" in SpotHistory(session).refresh("us-east-1", {G5: START}, START)


ENTRY: Mapping[str, Any] = {
    "InstanceType": "g5.xlarge",
    "AvailabilityZone": "us-east-1a",
    "ProductDescription": "Linux/UNIX",
    "SpotPrice": "0.4567",
    "Timestamp": START - HOUR,
}


class Told:
    """An account whose history is what a test says."""

    account = "111122223333"

    def __init__(self, entries: list[Any]) -> None:
        self.entries = entries

    def client(self, service: str, region: str) -> Told:  # noqa: ARG002 - the seam's signature
        return self

    def get_paginator(self, operation: str) -> OnePage:
        return OnePage(getattr(self, operation))

    def describe_spot_price_history(self, **_: Any) -> Mapping[str, Any]:  # noqa: ANN401 - as botocore's
        return {"SpotPriceHistory": self.entries}


@FUZZ
@given(st.data())
def test_whatever_an_entry_says_no_price_and_no_time_is_invented(data: st.DataObject) -> None:
    entry = mutated(data, dict(ENTRY))
    if data.draw(st.booleans()):
        entry["Timestamp"] = data.draw(
            st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=9))])) | st.datetimes()
        )
    spot = SpotHistory(Told([entry]))
    spot.refresh("us-east-1", {G5: START - timedelta(days=1)}, START)
    for price in spot.list_prices(G5, START - HOUR):
        if price.rate is not None:
            stated = Decimal(str(entry["SpotPrice"])).scaleb(9)
            assert price.rate == Rate(nano_per_hour=int(stated.to_integral_value()))
            assert price.since == entry["Timestamp"]
