"""AWS's spot feed: JSON in a function call, one Linux price a type and region, GPUs from a table."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from importlib.resources import files
from typing import Any

import pytest
from costguard_public.aws_spot import source
from costguard_public.instance_types import read_aws_types

from costguard.errors import InvalidAnswerError
from tests.public_prices.answers import GPUS, TODAY, StubFetcher, list_offers, read_capture, sum_up

CAPTURE = read_capture("aws_spot/spot.js")
JSON = CAPTURE.strip().removeprefix(b"callback(").removesuffix(b");")


def change(edit: Callable[[Any], None]) -> bytes:
    document = json.loads(JSON)
    edit(document)
    return b"callback(" + json.dumps(document).encode() + b");"


def test_linux_prices_of_types_with_gpus_are_spot_offers_of_the_region() -> None:
    assert sum_up(list_offers(source, CAPTURE)) == {
        ("p5.48xlarge", "us-east-1", "H100-SXM", 8, "spot", Decimal("21.4871")),
        ("g4dn.xlarge", "us-east-1", "T4", 1, "spot", Decimal("0.2174")),
        ("g5.xlarge", "eu-central-1", "A10G", 1, "spot", Decimal("0.4719")),
    }


def test_offer_says_what_the_machine_has_and_that_zones_differ() -> None:
    offer = next(offer for offer in list_offers(source, CAPTURE).offers if offer.gpu_count == 8)
    assert (offer.vcpus, offer.ram_gb, offer.disk_gb) == (192.0, 2048.0, 30400.0)
    assert (offer.pricing, offer.note) == ("dynamic", "price of the region; zones differ")


def test_prices_are_dated_by_the_feed_and_never_ahead() -> None:
    for stated, day in ((TODAY - timedelta(days=3), date(2026, 11, 20)), (TODAY + timedelta(days=3), TODAY), (None, TODAY)):
        listing = source.list_public_offers(StubFetcher((CAPTURE,), as_of=stated), GPUS)["aws"]
        assert {offer.observed_on for offer in listing.offers} == {day}


def test_price_in_another_currency_is_left_out() -> None:
    def edit(document: Any) -> None:  # noqa: ANN401 - JSON
        column = document["config"]["regions"][0]["instanceTypes"][1]["sizes"][0]["valueColumns"][0]
        column["prices"] = {"CNY": "150.1"}

    assert list_offers(source, change(edit)).left_out == "1 row in another currency than dollars"


def test_prices_in_another_unit_refuse_the_feed() -> None:
    with pytest.raises(InvalidAnswerError, match="not per hour"):
        list_offers(source, change(lambda document: document["config"].update(rate="permonth")))


def test_odd_regions_and_sizes_are_counted() -> None:
    def edit(document: Any) -> None:  # noqa: ANN401 - JSON
        document["config"]["regions"] += [7, {"region": "mars-1"}, {"region": "x", "instanceTypes": [1, {"sizes": [{}, 2]}]}]

    listing = list_offers(source, change(edit))
    assert listing.left_out == "4 rows that cannot be read"
    assert len(listing.offers) == 3


def test_types_are_those_of_the_account_s_adapter() -> None:
    lines = (files("costguard_aws") / "types.csv").read_text().splitlines()
    stated = {
        row[0]: (row[1], row[2], float(row[4]), float(row[5]), float(row[6]) or None)
        for row in (line.split(",") for line in lines[1:])
        if "." not in row[2]
    }
    ours = {t.name: (t.gpu, str(t.gpu_count), t.vcpus, t.ram_gb, t.disk_gb) for t in read_aws_types().values()}
    assert ours == stated
    assert len(ours) > 80
