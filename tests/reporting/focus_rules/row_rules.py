"""Rules within one row of a FOCUS file: which cells are null together, what a category asks for, products, periods, services.

Example: with ListUnitPrice 2.49 and PricingQuantity 1.5, ListCost must be 3.735.

Each rule is as strict as the specification: what breaks a MUST is an error, what breaks a SHOULD is a warning, from the
specifications of 1.2, 1.3 and 1.4 (read on 2026-11-25).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Context, Decimal

from costguard.errors import shorten
from tests.reporting.focus_rules.cells import (
    CONDITION_RULE,
    ERROR,
    IDENTITY_RULE,
    PERIOD_RULE,
    VALUE_RULE,
    WARNING,
    CellFault,
    CellValue,
)
from tests.reporting.focus_rules.vocabulary import SUBCATEGORIES

EXACT = Context(prec=130)
"""Products of any two numbers that a cell can hold, without rounding."""

RowFaults = Iterator[tuple[str, CellFault]]


@dataclass(frozen=True, slots=True)
class FocusRow:
    """A parsed row of `version`. `values`: by column; None is null. `broken`: columns whose cell is invalid."""

    values: Mapping[str, CellValue | None]
    broken: frozenset[str]
    version: str

    def is_null(self, name: str) -> bool:
        """Return whether the column exists and its cell is empty."""
        return name in self.values and self.values[name] is None and name not in self.broken

    def is_full(self, name: str) -> bool:
        """Return whether the cell is not empty, valid or not."""
        return self.values.get(name) is not None or name in self.broken

    def get_text(self, name: str) -> str:
        """Return its text, "" for none."""
        value = self.values.get(name)
        return value if isinstance(value, str) else ""

    def get_number(self, name: str) -> Decimal | None:
        """Return its number; None: it has none."""
        value = self.values.get(name)
        return value if isinstance(value, Decimal) else None

    def get_instant(self, name: str) -> datetime | None:
        """Return its instant; None: it has none."""
        value = self.values.get(name)
        return value if isinstance(value, datetime) else None

    @property
    def correction(self) -> bool:
        """Return whether it corrects a closed bill; many rules do not apply to it."""
        return self.get_text("ChargeClass") == "Correction" or "ChargeClass" in self.broken

    @property
    def sold(self) -> bool:
        """Return whether it is usage or a purchase, which has a price."""
        return self.get_text("ChargeCategory") in ("Usage", "Purchase") and not self.correction


NULL_WITH: Mapping[str, tuple[str, ...]] = {
    "AllocatedMethodId": ("AllocatedResourceId", "AllocatedResourceName", "AllocatedMethodDetails", "AllocatedTags"),
    "CapacityReservationId": ("CapacityReservationStatus",),
    "CommitmentDiscountId": (
        *("CommitmentDiscountCategory", "CommitmentDiscountName", "CommitmentDiscountQuantity"),
        *("CommitmentDiscountStatus", "CommitmentDiscountType", "CommitmentDiscountUnit"),
    ),
    "CommitmentDiscountQuantity": ("CommitmentDiscountUnit",),
    "ConsumedQuantity": ("ConsumedUnit",),
    "PricingQuantity": ("PricingUnit",),
    "RegionId": ("RegionName",),
    "ResourceId": ("ResourceName", "ResourceType"),
    "SkuId": ("SkuMeter", "SkuPriceId"),
    "SkuPriceId": ("SkuPriceDetails", "ListUnitPrice"),
    "SubAccountId": ("SubAccountName", "SubAccountType"),
}
"""Where the first is null, the others are."""

NULL_WITHOUT_PRICE = (
    *("CommitmentDiscountQuantity", "ConsumedQuantity", "ContractedUnitPrice", "PricingCategory", "PricingQuantity"),
    *("PricingCurrencyContractedUnitPrice", "PricingCurrencyListUnitPrice"),
)
"""Null where SkuPriceId is, since 1.3. Of usage and purchases that lack it, it alone is named."""

FULL_WITH: Mapping[str, tuple[str, ...]] = {
    "AllocatedResourceId": ("AllocatedMethodId", "AllocatedResourceName"),
    "BillingAccountId": ("BillingAccountType",),
    "CommitmentDiscountId": ("CommitmentDiscountCategory", "CommitmentDiscountType"),
    "CommitmentDiscountQuantity": ("CommitmentDiscountUnit",),
    "ConsumedQuantity": ("ConsumedUnit",),
    "PricingQuantity": ("PricingUnit",),
    "RegionId": ("RegionName",),
    "ResourceId": ("ResourceType",),
    "SkuPriceId": ("SkuId",),
    "SubAccountId": ("SubAccountType",),
}
"""Where the first holds something, the others do."""

FULL_WITH_PRICE = (
    *("ContractedUnitPrice", "ListUnitPrice", "PricingCurrencyContractedUnitPrice", "PricingCurrencyListUnitPrice"),
)
"""Full where SkuPriceId is, since 1.4."""

OF_WHAT_IS_SOLD = (
    *("SkuId", "SkuPriceId", "PricingQuantity", "PricingUnit", "ListUnitPrice", "ContractedUnitPrice", "PricingCategory"),
    *("PricingCurrencyContractedUnitPrice", "PricingCurrencyListUnitPrice"),
)
"""Full where something was used or bought, and null for a tax."""

SAME_CURRENCY = {
    "PricingCurrencyContractedUnitPrice": "ContractedUnitPrice",
    "PricingCurrencyEffectiveCost": "EffectiveCost",
    "PricingCurrencyListUnitPrice": "ListUnitPrice",
}


def find_row_faults(row: FocusRow) -> RowFaults:
    """Yield every fault between cells of `row`, with the column in which to correct it."""
    yield from _check_null_pairs(row)
    yield from _check_category(row)
    yield from _check_products(row)
    yield from _check_amounts(row)
    yield from _check_periods(row)
    yield from _check_service(row)


def _check_null_pairs(row: FocusRow) -> RowFaults:
    for first, others in NULL_WITH.items():
        for name in (*others, *_list_later_null(row, first)) if row.is_null(first) else ():
            if row.is_full(name):
                yield name, CellFault(CONDITION_RULE, f"holds something where {first} is null")
    for first, others in FULL_WITH.items():
        for name in (*others, *_list_later_full(row, first)) if row.is_full(first) else ():
            if row.is_null(name):
                yield name, CellFault(CONDITION_RULE, f"is null where {first} is not")
    for name in RECOMMENDED_CELLS:
        if row.is_null(name) and (name != "SkuMeter" or row.is_full("SkuId")):
            yield name, CellFault(CONDITION_RULE, "is null, and FOCUS recommends to fill it", grade=WARNING)


def _list_later_null(row: FocusRow, first: str) -> Sequence[str]:
    """Return what later versions add to `NULL_WITH`."""
    return NULL_WITHOUT_PRICE if first == "SkuPriceId" and row.version >= "1.3" and not row.sold else ()


def _list_later_full(row: FocusRow, first: str) -> Sequence[str]:
    """Return what later versions add to `FULL_WITH`."""
    if first == "SkuPriceId" and row.version >= "1.4" and not row.sold:
        return FULL_WITH_PRICE
    return ("SubAccountName",) if first == "SubAccountId" and row.version >= "1.2" else ()


RECOMMENDED_CELLS = ("ChargeDescription", "SkuMeter")
"""Cells that SHOULD NOT be null; SkuMeter only where there is a SkuId."""


def _check_category(row: FocusRow) -> RowFaults:
    category = row.get_text("ChargeCategory")
    for name in OF_WHAT_IS_SOLD:
        if row.sold and row.is_null(name):
            yield (
                name,
                CellFault(CONDITION_RULE, f"is null for a {category} charge"),
            )
        if category == "Tax" and row.is_full(name):
            yield (
                name,
                CellFault(CONDITION_RULE, "holds something for a Tax charge"),
            )
    unused = row.get_text("CommitmentDiscountStatus") == "Unused"
    if category and row.is_full("ConsumedQuantity") and (category != "Usage" or unused):
        of = "an Unused commitment" if category == "Usage" else f"a {category} charge"
        yield "ConsumedQuantity", CellFault(CONDITION_RULE, f"holds something for {of}")
    if category == "Usage" and row.is_null("ConsumedQuantity") and not (unused or row.correction):
        yield "ConsumedQuantity", CellFault(CONDITION_RULE, "is null for a Usage charge")
    for name in ("CommitmentDiscount", "CapacityReservation"):
        if category == "Usage" and row.is_full(f"{name}Id") and row.is_null(f"{name}Status"):
            yield f"{name}Status", CellFault(CONDITION_RULE, f"is null where {name}Id is not")
    consumed = row.get_number("ConsumedQuantity")
    if category == "Usage" and not row.correction and consumed is not None and consumed < 0:  # any decimal is valid there
        what = f"is negative for a Usage charge: {_format_plain(consumed)}"
        yield "ConsumedQuantity", CellFault(VALUE_RULE, what, grade=WARNING)
    yield from _check_commitment(row)
    if category == "Purchase" and row.get_text("ChargeFrequency") == "Usage-Based":
        yield "ChargeFrequency", CellFault(CONDITION_RULE, "is Usage-Based for a Purchase")


def _check_commitment(row: FocusRow) -> RowFaults:
    """Check that usage under a commitment, and no other usage, is priced as Committed, and how much of it was counted."""
    category, committed = row.get_text("ChargeCategory"), row.is_full("CommitmentDiscountId")
    if row.sold and committed and row.is_null("CommitmentDiscountQuantity"):
        yield "CommitmentDiscountQuantity", CellFault(CONDITION_RULE, "is null where CommitmentDiscountId is not")
    if category in ("Tax", "Credit", "Adjustment") and committed and row.is_full("CommitmentDiscountQuantity"):
        yield (
            "CommitmentDiscountQuantity",
            CellFault(CONDITION_RULE, f"holds something for a {category} charge"),
        )
    if category != "Usage" or row.correction:
        return
    priced = row.get_text("PricingCategory")
    if priced == "Committed" and row.is_null("CommitmentDiscountId"):
        yield "PricingCategory", CellFault(CONDITION_RULE, "is Committed where CommitmentDiscountId is null")
    if priced == "Standard" and committed:
        yield "PricingCategory", CellFault(CONDITION_RULE, "is Standard where CommitmentDiscountId is not null")
    unused = row.get_text("CommitmentDiscountStatus") == "Unused" and row.version >= "1.4"
    if unused and "ResourceId" in row.values and row.get_text("ResourceId") != row.get_text("CommitmentDiscountId"):
        yield "ResourceId", CellFault(CONDITION_RULE, "is not CommitmentDiscountId for an Unused commitment")


COST_PRICES = {"ListCost": "ListUnitPrice", "ContractedCost": "ContractedUnitPrice"}
"""Each cost, and the unit price that it is the product of."""


def _check_products(row: FocusRow) -> RowFaults:
    quantity = row.get_number("PricingQuantity")
    for cost, price in COST_PRICES.items():
        stated, each = row.get_number(cost), row.get_number(price)
        if row.correction or stated is None or each is None or quantity is None:
            continue
        product = EXACT.multiply(each, quantity)
        if stated != product:
            yield cost, _build_product_fault(stated, f"{price} x PricingQuantity")
    if row.get_text("PricingCurrency") and row.get_text("PricingCurrency") == row.get_text("BillingCurrency"):
        for name, other in SAME_CURRENCY.items():
            stated, same = row.get_number(name), row.get_number(other)
            if stated is not None and same is not None and stated != same:
                yield name, _build_product_fault(stated, f"{other}, which is in the same currency")


def _build_product_fault(stated: Decimal, what: str) -> CellFault:
    return CellFault(IDENTITY_RULE, f"is {_format_plain(stated)}, and is not {what}")


def _check_amounts(row: FocusRow) -> RowFaults:
    """Check the costs that have no price of their own, and who collects the money."""
    billed, effective, category = row.get_number("BilledCost"), row.get_number("EffectiveCost"), row.get_text("ChargeCategory")
    for cost, price in COST_PRICES.items() if category == "Credit" and not row.correction else ():
        stated = row.get_number(cost)
        if not row.is_full(price) and stated is not None and billed is not None and stated != billed:
            what = f"is {_format_plain(stated)} for a Credit without {price}, and is not BilledCost"
            yield cost, CellFault(IDENTITY_RULE, what)
    settled = category in ("Tax", "Credit") and row.version >= "1.4"
    if settled and billed and effective is not None and effective != billed:
        what = f"is {_format_plain(effective)} for a {category} charge, and is not BilledCost"
        yield "EffectiveCost", CellFault(IDENTITY_RULE, what)
    payee = row.get_text("InvoiceIssuerName")
    for seller in ("ServiceProviderName", "ProviderName"):
        if row.get_text(seller) and payee and payee != row.get_text(seller) and billed:
            grade = WARNING if row.version >= "1.3" else ERROR  # 1.3 lets a marketplace invoice for the provider
            yield "InvoiceIssuerName", CellFault(CONDITION_RULE, f"is not {seller}, and BilledCost is not 0", grade=grade)
            return


def _check_periods(row: FocusRow) -> RowFaults:
    ends = [
        row.get_instant(name) for name in ("ChargePeriodStart", "ChargePeriodEnd", "BillingPeriodStart", "BillingPeriodEnd")
    ]
    start, end, first, last = ends
    if start and end and start >= end:
        yield (
            "ChargePeriodEnd",
            CellFault(PERIOD_RULE, "is not after ChargePeriodStart"),
        )
    if first and last and first >= last:
        yield (
            "BillingPeriodEnd",
            CellFault(PERIOD_RULE, "is not after BillingPeriodStart"),
        )
    if row.get_text("ChargeCategory") == "Purchase" or row.correction:
        return  # what is bought may hold for years, and what is mended lies in an earlier period
    if start and first and last and not first <= start < last:
        yield (
            "ChargePeriodStart",
            CellFault(PERIOD_RULE, "lies outside the billing period"),
        )
    elif end and last and end > last:
        yield "ChargePeriodEnd", CellFault(PERIOD_RULE, "lies beyond the end of the billing period")


def _check_service(row: FocusRow) -> RowFaults:
    category, under = row.get_text("ServiceCategory"), row.get_text("ServiceSubcategory")
    if category in SUBCATEGORIES and under and under not in (*SUBCATEGORIES[category], f"Other ({category})"):
        yield (
            "ServiceSubcategory",
            CellFault(VALUE_RULE, f"is not a subcategory of {category}"),
        )


def _format_plain(number: Decimal) -> str:
    if abs(number.adjusted()) > LONGEST_PLAIN:
        return f"{number:e}"
    text = f"{number:f}"
    return shorten(text.rstrip("0").rstrip(".") if "." in text else text, LONGEST_PLAIN)


LONGEST_PLAIN = 130
"""Digits that a message has at most: a cell may say 1E999."""
