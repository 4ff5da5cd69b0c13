"""How grave a finding is: what breaks a MUST is an error, a SHOULD a warning, a rounded product is rounding; by version."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest

from costguard.files.table import parse_json
from costguard.reporting.focus.columns import CHECKED_VERSIONS, get_columns
from tests.reporting.focus_rules.cells import ERROR, ROUNDING, WARNING
from tests.reporting.focus_rules.row_rules import is_rounded
from tests.reporting.focus_rules.validator import FocusCheckResult, check_focus_file, detect_version
from tests.reporting.test_focus_check import SEEDED, Rows, checked, sample

WARNED = {
    "a FOCUS column after custom ones",
    "a unit in words",
    "another payee with a bill",  # since 1.3 a marketplace may invoice for the provider
    "a charge that overlaps another",
    "a usage of less than nothing",
}
"""Seeded in 1.4, and no error there: SHOULD, or allowed and improbable."""


@pytest.mark.parametrize("name", SEEDED)
def test_a_seeded_error_has_its_grade(name: str) -> None:
    change, line, column, rule = SEEDED[name]
    rows = sample()
    change(rows)
    found = [one for one in checked(rows, "1.4").findings if (one.line, one.column, one.fault.rule) == (line, column, rule)]
    wanted = WARNING if name in WARNED else ROUNDING if rule == "rounded" else ERROR
    assert {one.fault.grade for one in found} == {wanted}


def graded(rows: Rows, version: str) -> set[tuple[str, str, str]]:
    return {(one.fault.grade, one.column, one.fault.rule) for one in checked(rows, version).findings}


def with_currency(text: str, version: str) -> Rows:
    rows = sample(version)
    virtual = {"PricingCurrency": text, "PricingCurrencyEffectiveCost": "29544", "PricingCurrencyListUnitPrice": "9848"}
    rows[0] |= virtual | {"PricingCurrencyContractedUnitPrice": "9848"}
    return rows


@pytest.mark.parametrize("version", ["1.2", "1.3"])
@pytest.mark.parametrize("text", ["Tokens", "Credits", "DBU credits", "EUR"])
def test_a_virtual_currency_prices_a_charge_in_1_2_and_1_3(version: str, text: str) -> None:
    assert graded(with_currency(text, version), version) == set()


def test_1_4_has_no_place_for_one_in_its_format_and_goes_on_to_speak_of_it() -> None:
    assert graded(with_currency("Tokens", "1.4"), "1.4") == {(WARNING, "PricingCurrency", "format")}
    assert graded(with_currency("EUR", "1.4"), "1.4") == set()


@pytest.mark.parametrize("version", ["1.2", "1.4"])
def test_a_national_currency_is_written_as_its_code(version: str) -> None:
    for text in ("usd", " USD", "US$", "€"):
        assert graded(with_currency(text, version), version) == {(ERROR, "PricingCurrency", "format")}, text
    assert graded(with_currency("USX", "1.2"), "1.2") == {(WARNING, "PricingCurrency", "format")}


def test_a_bill_is_in_a_national_currency_in_every_version() -> None:
    rows = sample("1.2")
    rows[0]["BillingCurrency"] = "Tokens"
    assert (ERROR, "BillingCurrency", "format") in graded(rows, "1.2")
    rows[0]["BillingCurrency"] = rows[0]["PricingCurrency"] = "BGN"  # withdrawn with 2025: bills of before stay sound
    assert graded(rows, "1.2") == set()


CHANGES: dict[str, tuple[int, dict[str, str], str, set[tuple[str, str, str]]]] = {
    # what: (the row, its cells, the version, what is found)
    "a credit of another list cost": (5, {"ListCost": "5"}, "1.2", {(ERROR, "ListCost", "identity")}),
    "a credit that costs more than is billed": (
        *(5, {"EffectiveCost": "-4", "PricingCurrencyEffectiveCost": "-4"}, "1.4"),
        {(ERROR, "EffectiveCost", "identity")},
    ),
    "the same in 1.2": (5, {"EffectiveCost": "-4", "PricingCurrencyEffectiveCost": "-4"}, "1.2", set()),
    "a credit in the plus": (
        *(5, dict.fromkeys(("BilledCost", "EffectiveCost", "ListCost", "ContractedCost"), "5"), "1.3"),
        {(ERROR, "PricingCurrencyEffectiveCost", "identity")},
    ),
    "a tax priced in its currency": (
        *(4, {"PricingCurrencyListUnitPrice": "1"}, "1.3"),
        {(ERROR, "PricingCurrencyListUnitPrice", "condition")},
    ),
    "a usage without a price in its currency": (
        *(0, {"PricingCurrencyListUnitPrice": ""}, "1.2"),
        {(ERROR, "PricingCurrencyListUnitPrice", "condition")},
    ),
    "a credit with a quantity and no price": (
        *(5, {"PricingQuantity": "1", "PricingUnit": "Hours"}, "1.3"),
        {(ERROR, "PricingQuantity", "condition")},
    ),
    "the same quantity in 1.2": (5, {"PricingQuantity": "1", "PricingUnit": "Hours"}, "1.2", set()),
    "a host that is not known": (0, {"HostProviderName": ""}, "1.4", set()),
    "an account without its name": (0, {"SubAccountName": ""}, "1.2", {(ERROR, "SubAccountName", "condition")}),
    "no description": (0, {"ChargeDescription": ""}, "1.4", {(WARNING, "ChargeDescription", "condition")}),
    "no meter": (0, {"SkuMeter": ""}, "1.3", {(WARNING, "SkuMeter", "condition")}),
    "a unit in the singular": (0, {"PricingUnit": "Hour"}, "1.4", {(WARNING, "PricingUnit", "format")}),
    "a type that is a number": (0, {"SkuPriceDetails": '{"InstanceType": 5}'}, "1.4", {(ERROR, "SkuPriceDetails", "value")}),
    "a property that is null": (0, {"SkuPriceDetails": '{"InstanceType": null, "GpuCount": null}'}, "1.4", set()),
    "a fraction of a second": (
        *(0, {"BillingPeriodStart": "2026-11-01T00:00:00.000Z"}, "1.4"),
        {(ERROR, "BillingPeriodStart", "format")},
    ),
    "another payee with a bill in 1.2": (
        *(0, {"InvoiceIssuerName": "Somebody"}, "1.2"),
        {(ERROR, "InvoiceIssuerName", "condition")},
    ),
    "a correction that takes back": (
        *(8, {"BilledCost": "-9", "ConsumedQuantity": "-3", "ConsumedUnit": "Hours", "ListCost": "-9"}, "1.4"),
        set(),
    ),
    "a correction at a price below nothing": (8, {"ListUnitPrice": "-1"}, "1.4", {(ERROR, "ListUnitPrice", "value")}),
    "a tag without a value, and one of null": (0, {"Tags": '{"gpu": true, "x": null, "n": 1.5e3}'}, "1.4", set()),
    "a tag of NaN": (0, {"Tags": '{"n": NaN}'}, "1.4", {(ERROR, "Tags", "json")}),
    "tags that are a list": (0, {"Tags": '["team"]'}, "1.4", {(ERROR, "Tags", "json")}),
    "numbers without a digit before the point": (
        *(0, {"ConsumedQuantity": ".5", "BilledCost": "295.", "EffectiveCost": "2.95E2"}, "1.2"),
        {(ERROR, "PricingCurrencyEffectiveCost", "identity")},
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_rule_is_as_strict_as_its_version(name: str) -> None:
    place, cells, version, wanted = CHANGES[name]
    rows = sample(version)
    rows[place] |= cells
    assert graded(rows, version) == wanted


def test_a_commitment_is_counted_and_an_unused_one_is_its_own_resource() -> None:
    rows = [{**row, "CommitmentDiscountQuantity": "", "CommitmentDiscountUnit": ""} for row in sample("1.4")]
    rows = [{name: row[name] for name in sorted(row, key=lambda name: (name.startswith("x_"), name))} for row in rows]
    assert graded(rows, "1.4") == {(ERROR, "CommitmentDiscountQuantity", "condition")}
    for place in (6, 7):
        rows[place] |= {"CommitmentDiscountQuantity": "1", "CommitmentDiscountUnit": "Hours"}
    assert graded(rows, "1.4") == set()
    rows[7] |= {"CommitmentDiscountStatus": "Unused", "ConsumedQuantity": "", "ConsumedUnit": ""}
    assert graded(rows, "1.4") == {(ERROR, "ResourceId", "condition")}
    rows[7] |= {"ResourceId": "sp-1", "ResourceName": ""}
    assert graded(rows, "1.4") == set()


def test_a_row_stated_twice_is_an_error_and_parts_of_one_charge_are_a_warning() -> None:
    rows = sample()
    rows.append(dict(rows[0]))
    assert graded(rows, "1.4") == {(ERROR, "ChargePeriodStart", "twice")}
    rows[-1] |= {"BilledCost": "1", "EffectiveCost": "1", "PricingCurrencyEffectiveCost": "1"}
    assert graded(rows, "1.4") == {(WARNING, "ChargePeriodStart", "twice")}


@pytest.mark.parametrize(
    ("header", "version"),
    [
        (("ProviderName", "PublisherName", "Tags"), "1.0"),
        (("ProviderName", "ServiceSubcategory", "Tags"), "1.1"),
        (("ProviderName", "SkuMeter", "InvoiceId"), "1.2"),
        (("ProviderName", "ServiceProviderName"), "1.3"),
        (("PublisherName", "ServiceProviderName", "InvoiceId"), "1.3"),
        (("ServiceProviderName", "InvoiceDetailId"), "1.4"),
        (("Cost",), "1.4"),
    ],
)
def test_a_version_is_known_by_its_columns(header: tuple[str, ...], version: str) -> None:
    assert detect_version(header) == version


def test_columns_of_a_later_version_are_none_of_an_earlier_one() -> None:
    sizes = [len(get_columns(version, among=CHECKED_VERSIONS)) for version in CHECKED_VERSIONS]
    assert sizes == [43, 50, 57, 65, 65]


@pytest.mark.parametrize(
    ("stated", "price", "quantity", "rounded"),
    [
        ("298.706320", "6.1139399837", "48.8566", True),  # 6 decimals of a cost, 10 of its price
        ("62.744981", "0.0000240551", "2608385.8051", True),  # the price was rounded, which counts 2.6 million times
        ("0.0103124999", "0.0138888889", "0.7425", True),
        ("0.30000000000000004", "0.1", "3", True),  # a binary double
        ("0.42", "0.4153", "1", True),  # cents, to the nearest
        ("0.41", "0.4153", "1", False),  # not the nearest
        ("0.3", "0.3000004", "1", True),  # a writer drops zeros at the end
        ("99", "0.4153", "1", False),
        ("295.440000002", "98.48", "3", False),
        ("0.4154", "0.4153", "1", False),
        ("3.74", "2.49", "1.5", True),
        ("3.75", "2.49", "1.5", False),
        ("0.00002", "0.00009", "1", False),
        ("200", "0.0001", "1000000", False),  # a price of one digit explains no double
        ("-3.7349999999", "2.49", "-1.5", True),
    ],
)
def test_a_rounded_product_is_told_from_another_number(stated: str, price: str, quantity: str, rounded: bool) -> None:  # noqa: FBT001 - a table
    each, number = Decimal(price), Decimal(quantity)
    assert is_rounded(Decimal(stated), each * number, (each, number)) == rounded


def foundation_sample(count: int) -> FocusCheckResult:
    """Rows of the shape of the Foundation's 1.0 sample: its 43 columns, each number rounded to ten decimals by itself."""
    names, chance = list(get_columns("1.0", among=CHECKED_VERSIONS)), random.Random(7)  # noqa: S311 - no secret
    row = dict.fromkeys(names, "")
    row |= {"BillingAccountId": "1", "BillingCurrency": "USD", "ChargeCategory": "Usage", "ServiceCategory": "Compute"}
    row |= {"ServiceName": "Amazon EC2", "ProviderName": "AWS", "PublisherName": "AWS", "InvoiceIssuerName": "AWS"}
    row |= {"BillingPeriodStart": "2024-09-01T00:00:00Z", "BillingPeriodEnd": "2024-10-01T00:00:00Z"}
    row |= {
        "ChargePeriodStart": "2024-09-01T00:00:00Z",
        "ChargePeriodEnd": "2024-09-01T01:00:00Z",
        "SkuId": "s",
        "SkuPriceId": "p",
    }
    row |= {"PricingUnit": "Hours", "ConsumedUnit": "Hours", "PricingCategory": "Standard", "ChargeFrequency": "Usage-Based"}
    row |= {"ChargeDescription": "an hour", "Tags": '{"env": "prod"}'}

    def lines() -> object:
        for number in range(count):
            price, quantity = chance.random() * 3, chance.random() * 24
            discounted = price * 0.9
            cells = {"ListUnitPrice": price, "ContractedUnitPrice": discounted, "PricingQuantity": quantity}
            cells |= {"ConsumedQuantity": quantity, "ListCost": price * quantity, "ContractedCost": discounted * quantity}
            cells |= {"BilledCost": discounted * quantity, "EffectiveCost": discounted * quantity}
            texts = {name: f"{value:.10f}".rstrip("0").rstrip(".") for name, value in cells.items()}
            yield number + 2, list((row | texts | {"SkuPriceId": f"p{number}", "SkuId": f"s{number}"}).values())

    return check_focus_file(names, lines(), parse_json)  # type: ignore[arg-type]  # a generator of lines


def test_the_roundings_of_a_sample_of_1_0_are_one_finding_a_column() -> None:
    found = foundation_sample(3_000)
    assert (found.version, found.rows, found.errors) == ("1.0", 3_000, 0)
    assert found.counts[ROUNDING] > 5_000
    assert {(one.column, one.fault.grade) for one in found.findings} == {("ContractedCost", ROUNDING), ("ListCost", ROUNDING)}
    assert len(found.findings) == 2
    for one in found.findings:
        assert one.line <= 3, "it stands at the first row"
        assert one.count > 2_500
        assert one.largest is not None
        assert Decimal(0) < one.largest < Decimal("1e-8")
        assert f"in {one.count:,} rows by" in one.fault.what
    assert sum(one.count for one in found.findings) == found.counts[ROUNDING]
