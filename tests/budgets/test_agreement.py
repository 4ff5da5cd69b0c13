"""Agreements: whose price a machine has, when, and what its source keeps of the list."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from costguard.budgets.agreement import Agreement, apply_agreements
from costguard.budgets.budget import ResourceFilter
from costguard.metering.observation import AGREED, LIST, Estimate, Price, find_list_price, find_price_basis
from costguard.metering.scope_state import KnownResource
from costguard.values.money import Rate
from tests.ledger.fleet import machine

JUNE, JULY, AUGUST = (datetime(2026, month, 1, tzinfo=UTC) for month in (6, 7, 8))


def agreement(**more: Any) -> Agreement:  # noqa: ANN401 - any field
    said: dict[str, Any] = {"name": "EDP", "source": "contract 4711", "discount": Fraction(42, 100)}
    return Agreement(**said | more)


def rates(one: Agreement, *prices: Price, is_new: bool = True, at: datetime = AUGUST) -> list[tuple[str, datetime | None]]:
    listed = machine(prices=prices)
    resource = None if is_new else KnownResource(observation=listed, first_seen_at=JUNE, logged_at=JUNE)
    found = apply_agreements([one], listed, at, resource)
    return [(price.rate.format(2) if price.rate else "-", price.since) for price in found.prices]


def test_a_discount_is_of_the_list_price_which_its_source_keeps() -> None:
    (price,) = apply_agreements([agreement()], machine(usd="2"), JULY).prices
    assert price.rate == Rate.parse("1.16"), "0.58 of 2.00"
    assert price.source == "agreed, EDP (contract 4711); list 2.000000000 USD: listing"
    assert find_price_basis(price.source) == AGREED
    assert find_list_price(price.source) == Decimal(2)
    assert (find_price_basis("listing"), find_list_price("listing")) == (LIST, None)


def test_a_price_that_is_agreed_already_is_not_reduced_again() -> None:
    once = apply_agreements([agreement()], machine(usd="2"), JULY)
    assert apply_agreements([agreement()], once, JULY) == once


def test_a_rate_is_the_price_of_the_machine_also_where_none_is_listed() -> None:
    one = agreement(discount=None, rate=Rate.parse("1.20", "EUR"))
    (price,) = apply_agreements([one], machine(prices=(Price(None),)), JULY).prices
    assert (price.rate, price.estimate) == (Rate.parse("1.20", "EUR"), None)
    assert find_list_price(price.source) is None, "the list price is unknown"


def test_an_estimate_keeps_its_doubt() -> None:
    doubt = Price(Rate.parse("2"), estimate=Estimate(10**9, 3 * 10**9, "same-type"))
    (price,) = apply_agreements([agreement()], machine(prices=(doubt,)), JULY).prices
    assert price.estimate == Estimate(580_000_000, 1_740_000_000, "same-type")


def test_a_machine_that_is_found_late_cost_the_list_price_before_the_agreement() -> None:
    one = agreement(start=JULY)
    assert rates(one, Price(Rate.parse("2"))) == [("2.00", None), ("1.16", JULY)]
    assert rates(one, Price(Rate.parse("2")), is_new=False) == [("1.16", None)], "what is recorded stays"
    assert rates(agreement(end=JULY), Price(Rate.parse("2"))) == [("1.16", None), ("2.00", JULY)]
    assert rates(agreement(start=AUGUST), Price(Rate.parse("2")), at=JULY) == [("2.00", None)], "it has not begun"


def test_dated_prices_of_a_spot_machine_are_each_reduced() -> None:
    dated = (Price(Rate.parse("1"), since=JUNE), Price(Rate.parse("3"), since=AUGUST))
    assert rates(agreement(start=JULY), *dated) == [("1.00", JUNE), ("0.58", JULY), ("1.74", AUGUST)]


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ({}, {}, True),
        ({"end": JULY}, {"start": JULY}, False),
        ({"match": ResourceFilter(providers=("aws",))}, {"match": ResourceFilter(providers=("gcp",))}, False),
        ({"match": ResourceFilter(providers=("aws",))}, {"match": ResourceFilter(accounts=("lab",))}, True),
        ({"types": ("h1",)}, {"types": ("h2",)}, False),
        ({"match": ResourceFilter(labels=(("team", ("a",)),))}, {"match": ResourceFilter(labels=(("team", ("b",)),))}, False),
        ({"match": ResourceFilter(labels=(("team", ("a",)),))}, {"types": ("h1",)}, True),
    ],
)
def test_agreements_overlap_if_one_machine_may_have_both(one: dict[str, Any], other: dict[str, Any], *, overlap: bool) -> None:
    assert agreement(**one).overlaps(agreement(**other)) is overlap
    assert agreement(**other).overlaps(agreement(**one)) is overlap


def test_a_machine_of_another_type_or_account_has_the_list_price() -> None:
    for one in (agreement(types=("h2",)), agreement(match=ResourceFilter(accounts=("other",)))):
        assert rates(one, Price(Rate.parse("2"))) == [("2.00", None)]
