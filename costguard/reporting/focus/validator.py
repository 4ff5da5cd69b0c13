"""What the cells of one row ask of each other: which are null together, price times quantity, periods, who collects the money.

Example: a row with ListUnitPrice 2.49 and PricingQuantity 1.5 has ListCost 3.735, and no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Context, Decimal

from costguard.reporting.focus.cells import CellValue
from costguard.reporting.focus.columns import SUBCATEGORIES
from costguard.reporting.focus.finding import CONDITION_RULE, IDENTITY_RULE, PERIOD_RULE, ROUNDED_RULE, VALUE_RULE, CellFault

EXACT = Context(prec=130)
"""Products of any two numbers that a cell can hold, without rounding."""

RowFaults = Iterator[tuple[str, CellFault]]


@dataclass(frozen=True, slots=True)
class FocusRow:
    """`values`: of the columns that are there; None is null. `broken`: whose cell cannot be read: nothing is known of it."""

    values: Mapping[str, CellValue | None]
    broken: frozenset[str]

    def is_null(self, name: str) -> bool:
        """Whether the column is there and its cell is empty."""
        return name in self.values and self.values[name] is None and name not in self.broken

    def is_full(self, name: str) -> bool:
        """Whether the cell holds anything, readable or not."""
        return self.values.get(name) is not None or name in self.broken

    def get_text(self, name: str) -> str:
        """Its text, "" for none."""
        value = self.values.get(name)
        return value if isinstance(value, str) else ""

    def get_number(self, name: str) -> Decimal | None:
        """Its number."""
        value = self.values.get(name)
        return value if isinstance(value, Decimal) else None

    def get_instant(self, name: str) -> datetime | None:
        """Its instant."""
        value = self.values.get(name)
        return value if isinstance(value, datetime) else None

    @property
    def correction(self) -> bool:
        """Whether it mends a bill that was closed, so that many rules do not hold for it."""
        return self.get_text("ChargeClass") == "Correction" or "ChargeClass" in self.broken

    @property
    def sold(self) -> bool:
        """Whether something was used or bought, at a price."""
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

FULL_WITH: Mapping[str, tuple[str, ...]] = {
    "AllocatedResourceId": ("AllocatedMethodId",),
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

OF_WHAT_IS_SOLD = (
    *("SkuId", "SkuPriceId", "PricingQuantity", "PricingUnit", "ListUnitPrice", "ContractedUnitPrice", "PricingCategory"),
)
"""Full where something was used or bought, and null for a tax."""

SAME_CURRENCY = {
    "PricingCurrencyContractedUnitPrice": "ContractedUnitPrice",
    "PricingCurrencyEffectiveCost": "EffectiveCost",
    "PricingCurrencyListUnitPrice": "ListUnitPrice",
}


def find_row_faults(row: FocusRow) -> RowFaults:
    """Every fault between the cells of `row`, with the column that it is best mended in."""
    yield from _check_null_pairs(row)
    yield from _check_category(row)
    yield from _check_products(row)
    yield from _check_periods(row)
    yield from _check_service(row)


def _check_null_pairs(row: FocusRow) -> RowFaults:
    for first, others in NULL_WITH.items():
        for name in others if row.is_null(first) else ():
            if row.is_full(name):
                yield (
                    name,
                    CellFault(CONDITION_RULE, f"holds something where {first} is null", f"leave it empty, or fill {first}"),
                )
    for first, others in FULL_WITH.items():
        for name in others if row.is_full(first) else ():
            if row.is_null(name):
                yield name, CellFault(CONDITION_RULE, f"is null where {first} is not", f"fill it, or leave {first} empty")


def _check_category(row: FocusRow) -> RowFaults:
    category = row.get_text("ChargeCategory")
    for name in OF_WHAT_IS_SOLD:
        if row.sold and row.is_null(name):
            yield (
                name,
                CellFault(CONDITION_RULE, f"is null for a {category} charge", "fill it; only a Correction may leave it out"),
            )
        if category == "Tax" and row.is_full(name):
            yield (
                name,
                CellFault(CONDITION_RULE, "holds something for a Tax charge", "leave it empty: a tax has no price of its own"),
            )
    unused = row.get_text("CommitmentDiscountStatus") == "Unused"
    if category and row.is_full("ConsumedQuantity") and (category != "Usage" or unused):
        of = "an Unused commitment" if category == "Usage" else f"a {category} charge"
        yield "ConsumedQuantity", CellFault(CONDITION_RULE, f"holds something for {of}", "leave it empty: nothing was used")
    if category == "Usage" and row.is_null("ConsumedQuantity") and not (unused or row.correction):
        yield "ConsumedQuantity", CellFault(CONDITION_RULE, "is null for a Usage charge", "write how much was used")
    for name in ("CommitmentDiscount", "CapacityReservation"):
        if category == "Usage" and row.is_full(f"{name}Id") and row.is_null(f"{name}Status"):
            yield f"{name}Status", CellFault(CONDITION_RULE, f"is null where {name}Id is not", "write Used or Unused")
    consumed = row.get_number("ConsumedQuantity")
    if category == "Usage" and not row.correction and consumed is not None and consumed < 0:
        hint = "write what was used; only a Correction takes some of it back"
        yield "ConsumedQuantity", CellFault(VALUE_RULE, f"is negative for a Usage charge: {_format_plain(consumed)}", hint)
    yield from _check_commitment(row)
    if category == "Purchase" and row.get_text("ChargeFrequency") == "Usage-Based":
        yield "ChargeFrequency", CellFault(CONDITION_RULE, "is Usage-Based for a Purchase", "write One-Time or Recurring")


def _check_commitment(row: FocusRow) -> RowFaults:
    """Usage under a commitment is priced as Committed, and nothing else is."""
    priced = row.get_text("PricingCategory")
    if row.get_text("ChargeCategory") != "Usage" or row.correction:
        return
    if priced == "Committed" and row.is_null("CommitmentDiscountId"):
        hint = "write Standard or Dynamic, or name the commitment in CommitmentDiscountId"
        yield "PricingCategory", CellFault(CONDITION_RULE, "is Committed where CommitmentDiscountId is null", hint)
    if priced == "Standard" and row.is_full("CommitmentDiscountId"):
        hint = "write Committed, or leave CommitmentDiscountId empty"
        yield "PricingCategory", CellFault(CONDITION_RULE, "is Standard where CommitmentDiscountId is not null", hint)


def _check_products(row: FocusRow) -> RowFaults:
    quantity = row.get_number("PricingQuantity")
    for cost, price in (("ListCost", "ListUnitPrice"), ("ContractedCost", "ContractedUnitPrice")):
        stated, each = row.get_number(cost), row.get_number(price)
        if row.correction or stated is None or each is None or quantity is None:
            continue
        product = EXACT.multiply(each, quantity)
        if stated != product:
            told = "was rounded" if (rounded := _is_rounded(stated, product)) else f"is {stated:f}"
            fault = CellFault(
                ROUNDED_RULE if rounded else IDENTITY_RULE,
                f"{told}, and is not {price} x PricingQuantity",
                f"write {_format_plain(product)}",
            )
            yield cost, fault
    if row.get_text("PricingCurrency") and row.get_text("PricingCurrency") == row.get_text("BillingCurrency"):
        for name, other in SAME_CURRENCY.items():
            stated, same = row.get_number(name), row.get_number(other)
            if stated is not None and same is not None and stated != same:
                yield (
                    name,
                    CellFault(
                        IDENTITY_RULE, f"is {stated:f}, and {other} in the same currency is not", f"write {_format_plain(same)}"
                    ),
                )
    payee = row.get_text("InvoiceIssuerName")
    for seller in ("ServiceProviderName", "ProviderName"):
        billed = row.get_number("BilledCost")
        if row.get_text(seller) and payee and payee != row.get_text(seller) and billed:
            hint = f"spell it as {seller}, or write BilledCost 0 where another party collects the money"
            yield "InvoiceIssuerName", CellFault(CONDITION_RULE, f"is not {seller}, and BilledCost is not 0", hint)
            return


def _check_periods(row: FocusRow) -> RowFaults:
    ends = [
        row.get_instant(name) for name in ("ChargePeriodStart", "ChargePeriodEnd", "BillingPeriodStart", "BillingPeriodEnd")
    ]
    start, end, first, last = ends
    if start and end and start >= end:
        yield (
            "ChargePeriodEnd",
            CellFault(PERIOD_RULE, "is not after ChargePeriodStart", "the end is the first instant outside"),
        )
    if first and last and first >= last:
        yield (
            "BillingPeriodEnd",
            CellFault(PERIOD_RULE, "is not after BillingPeriodStart", "the end is the first instant outside"),
        )
    if row.get_text("ChargeCategory") == "Purchase" or row.correction:
        return  # what is bought may hold for years, and what is mended lies in an earlier period
    if start and first and last and not first <= start < last:
        yield (
            "ChargePeriodStart",
            CellFault(PERIOD_RULE, "lies outside the billing period", f"from {_format_at(first)} to before {_format_at(last)}"),
        )
    elif end and last and end > last:
        hint = f"split the charge at {_format_at(last)}: a row for each billing period"
        yield "ChargePeriodEnd", CellFault(PERIOD_RULE, "lies beyond the end of the billing period", hint)


def _check_service(row: FocusRow) -> RowFaults:
    category, under = row.get_text("ServiceCategory"), row.get_text("ServiceSubcategory")
    if category in SUBCATEGORIES and under and under not in (known := (*SUBCATEGORIES[category], f"Other ({category})")):
        yield (
            "ServiceSubcategory",
            CellFault(VALUE_RULE, f"is no subcategory of {category}", f"write one of: {', '.join(known)}"),
        )


LEAST_DECIMALS = 4
"""With fewer decimals a cost is no product that was rounded, but another number."""


def _is_rounded(stated: Decimal, product: Decimal) -> bool:
    """Whether `stated` is the product to fewer decimals, up or down."""
    exponent = stated.as_tuple().exponent
    places = -exponent if isinstance(exponent, int) else 0
    return places >= LEAST_DECIMALS and abs(EXACT.subtract(stated, product)) < Decimal(1).scaleb(-places)


def _format_plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _format_at(instant: datetime) -> str:
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}"
