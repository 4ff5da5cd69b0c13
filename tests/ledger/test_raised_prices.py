"""A price that one listing raises more than threefold is doubted until the next listing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from tests.ledger.fleet import CEILINGS, RULES, START, machine, poll

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("prices", "doubted"),
    [
        (("2", "2", "20"), True),
        (("2", "20", "20"), False),
        (("2", "2", "6"), False),
        (("2", "2", "6.01"), True),
        (("20", "20", "2"), False),
        (("20",), False),
    ],
    ids=["in this listing", "confirmed by this one", "threefold", "a little more", "fell", "first seen"],
)
def test_only_the_listing_that_raised_a_price_is_doubted(url: str, prices: tuple[str, ...], doubted: bool) -> None:  # noqa: FBT001 - the outcome
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS) as ledger:
        for number, usd in enumerate(prices):
            ledger.record_polls([poll(number, machine(usd=usd))])
    now = START + (len(prices) - 1) * MINUTE + timedelta(seconds=2)
    with SpendingReader(url, rules=RULES) as books:
        for late in (timedelta(), timedelta(hours=1)):  # a listing confirms it, and not time
            found = books.list_raised_prices(books.load_live(now + late))
            assert found == ({machine().key} if doubted else set())
