"""Books in plain text: what Beancount itself makes of them, and that they add up to the ledger."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from costguard.metering.charge_item import ChargeItem
from costguard.renderers import beancount
from costguard.views.document import Document
from tests.charges import ADA, START, charges, disk, item
from tests.renderers.test_focus import ITEMS

loader = pytest.importorskip("beancount.loader", reason="pip install '.[dev]' brings beancount")
GOLDEN = Path(__file__).parent.parent / "golden" / "report.beancount"
EURO = item("3", usd="1", currency="EUR")


def text(*items: ChargeItem) -> str:
    return "".join(beancount.render(Document(data={}, items=charges(items))))


def sums(told: str) -> dict[tuple[str, str], Decimal]:
    """What Beancount sums up in each account and currency; it finds nothing wrong."""
    entries, errors, _ = loader.load_string(told)
    assert errors == []
    found: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for entry in entries:
        for posting in getattr(entry, "postings", ()):
            found[posting.account, posting.units.currency] += posting.units.number
    return dict(found)


def test_the_books_are_the_sample_to_the_letter(request: pytest.FixtureRequest) -> None:
    printed = text(*ITEMS, EURO)
    if request.config.getoption("--write-golden"):
        GOLDEN.write_text(printed)
    assert printed == GOLDEN.read_text()


def test_accounts_add_up_to_the_ledger_to_the_nano_and_to_zero_together() -> None:
    items = [item(f"{n}.{n:09}", start=START + timedelta(days=n % 5), low="0", high="2000000") for n in range(1, 60)]
    found = sums(text(*items, disk(), EURO))
    spent = defaultdict[str, Decimal](Decimal)
    for one in (*items, disk(), EURO):
        spent[one.money.low.currency] += one.money.expected.to_decimal()
    for currency, amount in spent.items():
        expenses = sum(number for (account, unit), number in found.items() if unit == currency and account.startswith("Exp"))
        assert expenses == amount
        assert sum(number for (_, unit), number in found.items() if unit == currency) == 0


def test_what_is_not_known_exactly_is_flagged() -> None:
    told = text(item(), item("1", low="0", high="2", attribution=replace(ADA, owner="ben")))
    assert [line.split()[1] for line in told.splitlines() if '"AWS"' in line] == ["*", "!"]


def test_owners_whose_names_differ_in_odd_letters_have_accounts_of_their_own() -> None:
    names = ("a.b", "a-b", "a b", "ä", "ö", "", "=", ":", "x" * 60, "x" * 61)
    told = text(*(item(attribution=replace(ADA, owner=name)) for name in names))
    assert len({account for account, _ in sums(told) if account.startswith("Expenses")}) == len(names)


def test_what_nobody_owns_is_in_no_account_of_a_user_called_nobody() -> None:
    owners = ("", "  ", "nobody", "Nobody")
    found = sums(text(*(item(attribution=replace(ADA, owner=owner)) for owner in owners)))
    whose = {account.rsplit(":", 1)[1]: number for (account, _), number in found.items() if account.startswith("Exp")}
    assert whose.pop("Nobody") == 2 * Decimal("295.44")
    assert (len(whose), all(name.startswith("Nobody-") for name in whose)) == (2, True)


def test_an_empty_period_is_a_file_without_transactions() -> None:
    assert sums(text()) == {}
