"""Our own FOCUS validator: what keeps to the standard has no finding; forty errors, put in one at a time, are each named."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from costguard.renderers import focus
from costguard.reporting.focus.columns import NEWEST_VERSION, VERSIONS
from costguard.views.document import Document
from tests.cells import parse_json
from tests.charges import ADA, START, charges, disk, item
from tests.reporting.focus_rules.cells import ERROR, WARNING
from tests.reporting.focus_rules.validator import FocusCheckResult, check_focus_file

SPOT = replace(ADA, tier="spot")
ITEMS = (
    item(),
    item("12.31", usd="98.48", hours="0.125", attribution=SPOT, start=START + timedelta(hours=5)),
    disk(),
    item(start=START + timedelta(days=1), tags=()),
)
HAND = {
    "CommitmentDiscountCategory": "",
    "CommitmentDiscountId": "",
    "CommitmentDiscountType": "",
    "CapacityReservationId": "",
    "CapacityReservationStatus": "",
}
Rows = list[dict[str, str]]


def sample(version: str = NEWEST_VERSION) -> Rows:
    """An export of four charges, then rows as a cloud would write them: a tax, a credit, a purchase and what it covers."""
    text = "".join(focus.render(Document(data={}, items=charges(ITEMS)), focus_version=version))
    rows = [{**row, **HAND} for row in csv.DictReader(io.StringIO(text))]
    own = [name for name in rows[0] if name.startswith("x_")]
    rows = [{name: row[name] for name in sorted(row, key=lambda name: (name in own, name))} for row in rows]
    tax = dict.fromkeys(("SkuId", "SkuPriceId", "SkuMeter", "SkuPriceDetails", "PricingQuantity", "PricingUnit"), "")
    tax |= dict.fromkeys(("ListUnitPrice", "ContractedUnitPrice", "PricingCategory", "ConsumedQuantity", "ConsumedUnit"), "")
    tax |= {f"PricingCurrency{name}UnitPrice": "" for name in ("List", "Contracted")}
    costs = dict.fromkeys(("BilledCost", "EffectiveCost", "ListCost", "ContractedCost"), "-5")
    credit = {**rows[0], **tax, "ChargeCategory": "Credit", **costs}
    bought = {"ChargeCategory": "Purchase", "ChargeFrequency": "Recurring", "ConsumedQuantity": "", "ConsumedUnit": ""}
    committed = {
        "CommitmentDiscountId": "sp-1",
        "CommitmentDiscountCategory": "Spend",
        "CommitmentDiscountType": "Savings Plan",
    }
    rows += [
        {**rows[0], **tax, "ChargeCategory": "Tax"},
        credit | {"PricingCurrencyEffectiveCost": "-5"},
        {**rows[0], **bought, **committed},
        {**rows[0], **committed, "CommitmentDiscountStatus": "Used", "PricingCategory": "Committed"},
        {**rows[0], "ChargeClass": "Correction", "ListCost": "-1", "ConsumedQuantity": "", "ConsumedUnit": ""},
    ]
    return rows


TAX, CREDIT, PURCHASE, COMMITTED = 4, 5, 6, 7


def checked(rows: Rows, version: str | None = None) -> FocusCheckResult:
    names = list(rows[0])
    return check_focus_file(names, ((number, list(row.values())) for number, row in enumerate(rows, 2)), parse_json, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_export_has_no_finding_and_is_known_for_its_version(version: str) -> None:
    found = checked(sample(version))
    assert [(one.line, one.column, one.fault) for one in found.findings] == []
    assert (found.version, found.rows) == (version, 9)


def cell(name: str, text: str, row: int = 0) -> Callable[[Rows], None]:
    return lambda rows: rows[row].__setitem__(name, text)


def cells(row: int = 0, **texts: str) -> Callable[[Rows], None]:
    return lambda rows: rows[row].update(texts)


def everywhere(change: Callable[[dict[str, str]], object]) -> Callable[[Rows], None]:
    def of_all(rows: Rows) -> None:
        for row in rows:
            change(row)

    return of_all


def renamed(old: str, new: str) -> Callable[[Rows], None]:
    def change(row: dict[str, str]) -> None:
        pairs = [(new if name == old else name, text) for name, text in row.items()]
        row.clear()
        row.update(pairs)

    return everywhere(change)


def again(row: int, **texts: str) -> Callable[[Rows], None]:
    return lambda rows: rows.append({**rows[row], **texts})


def moved_last(name: str) -> Callable[[Rows], None]:
    return everywhere(lambda row: row.__setitem__(name, row.pop(name)))


SEEDED: dict[str, tuple[Callable[[Rows], None], int, str, str]] = {
    # what: (the error, the line and the column that are named, the rule)
    "a required column is missing": (everywhere(lambda row: row.pop("BilledCost")), 1, "BilledCost", "column"),
    "a column is spelt in small letters": (renamed("ListCost", "listcost"), 1, "ListCost", "column"),
    "a column of an older version": (renamed("x_Tier", "ProviderName"), 1, "ProviderName", "column"),
    "a column that FOCUS does not know": (renamed("x_Team", "Team"), 1, "Team", "column"),
    "a FOCUS column after custom ones": (moved_last("Tags"), 1, "Tags", "column"),
    "a cost is null": (cell("BilledCost", ""), 2, "BilledCost", "null"),
    "an account is blank": (cell("BillingAccountId", "  "), 2, "BillingAccountId", "null"),
    "a word for null": (cell("RegionName", "N/A", 2), 4, "RegionName", "null"),
    "a cost with a currency sign": (cell("EffectiveCost", "$295.44"), 2, "EffectiveCost", "type"),
    "a cost with a comma": (cell("EffectiveCost", "1,295.44"), 2, "EffectiveCost", "type"),
    "an exponent with a plus": (cell("EffectiveCost", "2.9544E+2"), 2, "EffectiveCost", "type"),
    "an exponent of a fraction": (cell("EffectiveCost", "2.9544E2.5"), 2, "EffectiveCost", "type"),
    "another number by its exponent": (cell("ListCost", "2.9544E1"), 2, "ListCost", "identity"),
    "a cost with a plus": (cell("BilledCost", "+295.44"), 2, "BilledCost", "type"),
    "a quantity in words": (cell("PricingQuantity", "three"), 2, "PricingQuantity", "type"),
    "a negative price": (cell("ContractedUnitPrice", "-98.48"), 2, "ContractedUnitPrice", "value"),
    "a time without T and Z": (cell("ChargePeriodStart", "2026-11-02 00:00:00"), 2, "ChargePeriodStart", "format"),
    "a time with an offset": (cell("ChargePeriodEnd", "2026-11-02T04:00:00+01:00"), 2, "ChargePeriodEnd", "format"),
    "a day that does not exist": (cell("BillingPeriodEnd", "2026-11-31T00:00:00Z"), 2, "BillingPeriodEnd", "format"),
    "a currency by its sign": (cell("BillingCurrency", "US$"), 2, "BillingCurrency", "format"),
    "a currency that does not exist": (cell("BillingCurrency", "USX"), 2, "BillingCurrency", "format"),
    "a unit in words": (cell("PricingUnit", "gigabyte hours", 2), 4, "PricingUnit", "format"),
    "a category of a service for a charge": (cell("ChargeCategory", "Compute"), 2, "ChargeCategory", "value"),
    "a class that does not exist": (cell("ChargeClass", "Correct"), 2, "ChargeClass", "value"),
    "a pricing category in small letters": (cell("PricingCategory", "dynamic", 1), 3, "PricingCategory", "value"),
    "a service category that does not exist": (cell("ServiceCategory", "GPU"), 2, "ServiceCategory", "value"),
    "a subcategory of another category": (cell("ServiceSubcategory", "Block Storage"), 2, "ServiceSubcategory", "value"),
    "tags that are no JSON": (cell("Tags", "team=vision"), 2, "Tags", "json"),
    "a tag twice": (cell("Tags", '{"team": "a", "team": "b"}'), 2, "Tags", "json"),
    "a tag that is a list": (cell("Tags", '{"team": ["a"]}'), 2, "Tags", "json"),
    "a price detail without x_": (cell("SkuPriceDetails", '{"GpuModel": "H100"}'), 2, "SkuPriceDetails", "value"),
    "a list cost that is not price x quantity": (cell("ListCost", "99"), 2, "ListCost", "identity"),
    "a contracted cost off by two nano-dollars": (cell("ContractedCost", "295.440000002"), 2, "ContractedCost", "identity"),
    "a list cost that was rounded": (
        *(cells(ListUnitPrice="0.3333333", PricingCurrencyListUnitPrice="0.3333333", ListCost="1.0000"), 2),
        *("ListCost", "identity"),
    ),
    "another effective cost in the same currency": (
        *(cell("PricingCurrencyEffectiveCost", "1"), 2, "PricingCurrencyEffectiveCost", "identity"),
    ),
    "a charge that ends before it starts": (
        *(cell("ChargePeriodEnd", "2026-11-01T23:00:00Z"), 2, "ChargePeriodEnd", "period"),
    ),
    "a charge beyond its billing period": (
        *(cells(ChargePeriodStart="2026-11-30T23:00:00Z", ChargePeriodEnd="2026-12-01T02:00:00Z"), 2),
        *("ChargePeriodEnd", "period"),
    ),
    "a charge before its billing period": (
        *(cell("ChargePeriodStart", "2026-10-31T23:00:00Z"), 2, "ChargePeriodStart", "period"),
    ),
    "a billing period that is turned round": (
        *(cells(BillingPeriodStart="2026-12-01T00:00:00Z", BillingPeriodEnd="2026-11-01T00:00:00Z"), 2),
        *("BillingPeriodEnd", "period"),
    ),
    "a tax with a price": (cell("ListUnitPrice", "1", TAX), 6, "ListUnitPrice", "condition"),
    "a credit that was consumed": (
        cells(CREDIT, ConsumedQuantity="1", ConsumedUnit="Hours"),
        7,
        "ConsumedQuantity",
        "condition",
    ),
    "a usage without quantity": (cells(ConsumedQuantity="", ConsumedUnit=""), 2, "ConsumedQuantity", "condition"),
    "a usage without price": (cells(SkuPriceId="", SkuPriceDetails="", ListUnitPrice=""), 2, "SkuPriceId", "condition"),
    "a purchase that is usage-based": (cell("ChargeFrequency", "Usage-Based", PURCHASE), 8, "ChargeFrequency", "condition"),
    "a resource without type": (cell("ResourceType", ""), 2, "ResourceType", "condition"),
    "a name without its resource": (cells(ResourceId="", ResourceType=""), 2, "ResourceName", "condition"),
    "a commitment without status": (
        cell("CommitmentDiscountStatus", "", COMMITTED),
        9,
        "CommitmentDiscountStatus",
        "condition",
    ),
    "a status without reservation": (cell("CapacityReservationStatus", "Used"), 2, "CapacityReservationStatus", "condition"),
    "another payee with a bill": (cell("InvoiceIssuerName", "Amazon Web Services"), 2, "InvoiceIssuerName", "condition"),
    "a charge stated twice": (again(1), 11, "ChargePeriodStart", "twice"),
    "a charge that overlaps another": (
        *(again(1, ChargePeriodStart="2026-11-02T06:00:00Z", ChargePeriodEnd="2026-11-02T09:00:00Z"), 11),
        *("ChargePeriodStart", "twice"),
    ),
    "a service of two categories": (
        *(again(2, ServiceCategory="Compute", ServiceSubcategory="Containers", ResourceId="i-2"), 11),
        *("ServiceCategory", "consistent"),
    ),
    "a price of two SKUs": (again(0, SkuId="other", ResourceId="i-2"), 11, "SkuId", "consistent"),
    "a billing period that overlaps another": (
        *(again(0, BillingPeriodStart="2026-11-01T12:00:00Z", ResourceId="i-2"), 11),
        *("BillingPeriodStart", "consistent"),
    ),
    "a usage of less than nothing": (cell("ConsumedQuantity", "-3"), 2, "ConsumedQuantity", "value"),
    "a count of GPUs in words": (cell("SkuPriceDetails", '{"GpuCount": "8"}'), 2, "SkuPriceDetails", "value"),
    "committed to nothing": (cell("PricingCategory", "Committed"), 2, "PricingCategory", "condition"),
    "a commitment at the standard price": (cell("PricingCategory", "Standard", COMMITTED), 9, "PricingCategory", "condition"),
    "a custom column without a name": (renamed("x_Team", "x_"), 1, "x_", "column"),
    "a column without a name": (renamed("x_Team", ""), 1, "", "column"),
}


WARNED = {
    "a FOCUS column after custom ones",
    "a unit in words",
    "another payee with a bill",  # since 1.3 a marketplace may invoice for the provider
    "a charge that overlaps another",
    "a usage of less than nothing",
}
"""No error in 1.4: SHOULD, or allowed and improbable."""


@pytest.mark.parametrize("name", SEEDED)
def test_a_seeded_error_is_found_named_and_graded(name: str) -> None:
    change, line, column, rule = SEEDED[name]
    rows = sample()
    change(rows)
    found = checked(rows, NEWEST_VERSION).findings
    grades = {one.fault.grade for one in found if (one.line, one.column, one.fault.rule) == (line, column, rule)}
    assert grades == {WARNING if name in WARNED else ERROR}, found
    assert len(found) <= 3, found  # it is named once or twice, and not drowned


def test_a_line_with_a_cell_too_few_is_named() -> None:
    rows = sample()
    lines = [(2, list(rows[0].values())), (3, list(rows[1].values())[:-1])]
    (found,) = check_focus_file(list(rows[0]), lines, parse_json).findings
    assert (found.line, found.column, found.fault.rule) == (3, "", "column")


def test_charges_of_other_prices_or_owners_may_overlap() -> None:
    rows = sample()
    rows += [{**rows[0], "ListUnitPrice": "98.48", "x_Owner": "ben"}, {**rows[0], "SkuPriceId": "another"}]
    assert checked(rows).findings == ()


def test_a_number_may_have_an_exponent() -> None:
    rows = sample()
    for name in ("BilledCost", "EffectiveCost", "PricingCurrencyEffectiveCost", "ListCost", "ContractedCost"):
        rows[0][name] = "2.9544E2"
    rows[0] |= dict.fromkeys(("ListUnitPrice", "PricingCurrencyListUnitPrice"), "9848e-2") | {"ConsumedQuantity": "3E-07"}
    assert checked(rows).findings == ()


def test_each_account_and_issuer_has_billing_periods_of_its_own() -> None:
    rows = sample()
    middle = {"BillingPeriodStart": "2026-11-01T12:00:00Z", "ResourceId": "i-2"}
    december = {"BillingPeriodStart": "2026-12-01T00:00:00Z", "BillingPeriodEnd": "2027-01-01T00:00:00Z"}
    later = {"ChargePeriodStart": "2026-12-01T00:00:00Z", "ChargePeriodEnd": "2026-12-01T01:00:00Z"}
    rows += [{**rows[0], **middle, "BillingAccountId": "other"}, {**rows[0], **december, **later}]
    assert checked(rows).findings == ()
