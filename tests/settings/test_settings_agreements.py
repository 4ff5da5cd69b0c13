"""What `[[agreement]]` tables say, and how slips in them are told: with the line and the field, and nothing is taken in."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

import pytest

from costguard.budgets.agreement import Agreement
from costguard.budgets.budget import ResourceFilter
from costguard.errors import InputError
from costguard.settings import check_settings
from costguard.values.money import Rate

FIRST = '[[agreement]]\nname = "EDP"\nsource = "contract 4711"\ndiscount = "42%"\n'


def test_an_agreement_is_read_whole() -> None:
    text = FIRST + (
        'from = 2026-01-01\nuntil = "2027-01-01"\nmatch = { providers = ["aws"], types = ["p4d.24xlarge"] }\n'
        '[[agreement]]\nname = "core"\nsource = "order 7"\nrate = "19.60 EUR/h"\nmatch = { providers = ["coreweave"] }\n'
    )
    assert check_settings(text, "costguard.toml").agreements == (
        Agreement(
            name="EDP",
            source="contract 4711",
            match=ResourceFilter(providers=("aws",)),
            types=("p4d.24xlarge",),
            discount=Fraction(42, 100),
            start=datetime(2026, 1, 1, tzinfo=UTC),
            end=datetime(2027, 1, 1, tzinfo=UTC),
        ),
        Agreement(
            name="core",
            source="order 7",
            match=ResourceFilter(providers=("coreweave",)),
            rate=Rate.parse("19.60", "EUR"),
        ),
    )


@pytest.mark.parametrize(
    ("text", "field", "what", "line"),
    [
        (FIRST.replace("42%", "-42%"), "agreement 1 (EDP).discount", "must be more than 0 %", 4),
        (FIRST.replace("42%", "100%"), "agreement 1 (EDP).discount", "less than 100 %", 4),
        (FIRST.replace('"42%"', "0.42"), "agreement 1 (EDP).discount", "must be a percentage", 4),
        (FIRST.replace('discount = "42%"', 'rate = "1.20"'), "agreement 1 (EDP).rate", "must say its currency", 4),
        (FIRST.replace('discount = "42%"', 'rate = "0 USD/h"'), "agreement 1 (EDP).rate", "must be more than zero", 4),
        (FIRST + 'rate = "1.20 USD/h"\n', "agreement 1 (EDP)", "needs either discount or rate", 1),
        (FIRST.replace('discount = "42%"\n', ""), "agreement 1 (EDP)", "needs either discount or rate", 1),
        (FIRST + "from = 2026-02-01\nuntil = 2026-01-01\n", "agreement 1 (EDP).until", "is not after from", 6),
        (FIRST.replace('source = "contract 4711"\n', ""), "agreement 1 (EDP).source", "is missing", 1),
        (FIRST + "match = {}\n", "agreement 1 (EDP).match", "is empty", 5),
        (FIRST + 'commitment = "500"\n', "agreement 1 (EDP).commitment", "with its currency", 5),
        (FIRST + 'commitment = "500 USD"\n', "agreement 1 (EDP).match", "must name one provider", 1),
        (
            FIRST + 'commitment = "500 USD"\nfrom = 2026-02-03\nmatch = { providers = ["aws"] }\n',
            "agreement 1 (EDP).from",
            "is within a month",
            6,
        ),
        (FIRST + FIRST.replace("EDP", "second"), "agreement 2 (second).match", "overlaps agreement 1 (EDP)", 5),
    ],
)
def test_a_slip_is_named_with_its_line_and_field(text: str, field: str, what: str, line: int) -> None:
    with pytest.raises(InputError) as caught:
        check_settings(text, "costguard.toml")
    error = str(caught.value)
    assert field in error
    assert what in error
    assert f"line {line}" in error or f":{line}" in error, error


def test_two_agreements_one_after_the_other_are_apart() -> None:
    text = FIRST + "until = 2027-01-01\n" + FIRST.replace("EDP", "next") + "from = 2027-01-01\n"
    assert [one.name for one in check_settings(text, "costguard.toml").agreements] == ["EDP", "next"]
