"""Prices and sizes of feeds are read exactly, within bounds, and what is left out is counted."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from costguard_public.rows import (
    MOST_UNNAMED,
    NO_PRICE,
    TOO_DEAR,
    UNREADABLE,
    MachinePrice,
    RowCollector,
    decode_json,
    parse_count,
    parse_rate,
    take_text,
)

from costguard.values.money import Rate
from tests.public_prices.answers import BAD_PRICES, GPUS, TODAY, get_dollars

H100 = MachinePrice(region="global", instance_type="x1", gpu="H100-SXM", gpu_count=1, tier="on-demand", price="2.69")


def collect() -> RowCollector:
    return RowCollector(gpus=GPUS, provider="akamai", source="a feed", observed_on=TODAY)


def test_price_is_read_from_its_text_without_a_float() -> None:
    assert parse_rate(decode_json(b"0.1", "a feed"), 1) == Rate(nano_per_hour=100_000_000)
    assert parse_rate(decode_json(b"2.697777777", "a feed"), 1) == Rate(nano_per_hour=2_697_777_777)
    assert parse_rate(" 2.69 ", 1) == Rate(nano_per_hour=2_690_000_000)
    assert parse_rate(7, 1) == Rate(nano_per_hour=7_000_000_000)


@pytest.mark.parametrize("price", BAD_PRICES)
def test_price_that_no_machine_costs_is_none(price: object) -> None:
    value = Decimal(str(price)) if isinstance(price, float) else price
    assert parse_rate(value, 8) in (NO_PRICE, TOO_DEAR)


def test_price_may_be_a_hundred_dollars_for_each_gpu_and_no_more() -> None:
    assert parse_rate(Decimal(800), 8) == Rate(nano_per_hour=800_000_000_000)
    assert parse_rate(Decimal("800.01"), 8) == TOO_DEAR


@pytest.mark.parametrize(("value", "count"), [(8, 8), ("8", 8), (Decimal("2.0"), 2), ("1/4", None), (Decimal("0.5"), None)])
def test_only_whole_gpus_are_counted(value: object, count: int | None) -> None:
    assert parse_count(value) == count


def test_text_is_one_short_line_without_control_characters() -> None:
    text = take_text({"name": "  a\x1b[31m\nb" + "x" * 500}, "name")
    assert len(text) <= 80
    assert "\n" not in text
    assert "\x1b" not in text


def test_listing_counts_what_was_left_out_by_reason() -> None:
    found = collect()
    for price in (0, None, "1e9", "2.69"):
        found.add(replace(H100, price=price))
    found.leave_out(UNREADABLE)
    listing = found.build_listing()
    assert listing.left_out == (
        "1 row above 100 dollars a GPU-hour; 1 row that cannot be read; 2 rows without a price above zero"
    )
    assert listing.why == ""
    assert [get_dollars(offer) for offer in listing.offers] == [Decimal("2.69")]


def test_of_one_machine_in_one_region_and_tier_the_cheapest_is_kept() -> None:
    found = collect()
    for price in ("3", "2.5", "2.75"):
        found.add(replace(H100, price=price))
    assert [get_dollars(offer) for offer in found.build_listing().offers] == [Decimal("2.5")]


def test_unknown_gpus_are_named_once() -> None:
    found = collect()
    for name in ("X900\nevil", "X900\nevil", "H100 SXM"):
        found.find_gpu(name)
    (name,) = found.build_listing().unnamed
    assert name.startswith("X900")
    assert "\n" not in name


def test_a_feed_of_unknown_gpus_fills_no_memory_with_their_names() -> None:
    found = collect()
    for number in range(1000):
        found.report_unknown(f"X{number}")
    assert len(found.build_listing().unnamed) == MOST_UNNAMED
