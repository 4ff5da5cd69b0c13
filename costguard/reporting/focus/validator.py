"""What the cells of one row ask of each other: which are null together, price times quantity, periods, who collects the money.

Example: a row with ListUnitPrice 2.49 and PricingQuantity 1.5 has ListCost 3.735, and no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Context, Decimal

from costguard.reporting.focus.cells import Value
from costguard.reporting.focus.columns import SUBCATEGORIES
from costguard.reporting.focus.finding import CONDITION, IDENTITY, PERIOD, ROUNDED, VALUE, Fault

EXACT = Context(prec=130)
"""Products of any two numbers that a cell can hold, without rounding."""

Found = Iterator[tuple[str, Fault]]


@dataclass(frozen=True, slots=True)
class Row:
    """`values`: of the columns that are there; None is null. `broken`: whose cell cannot be read: nothing is known of it."""

    values: Mapping[str, Value | None]
    broken: frozenset[str]

    def null(self, name: str) -> bool:
        """Whether the column is there and its cell is empty."""
        return name in self.values and self.values[name] is None and name not in self.broken

    def full(self, name: str) -> bool:
        """Whether the cell holds anything, readable or not."""
        return self.values.get(name) is not None or name in self.broken

    def text(self, name: str) -> str:
        """Its text, "" for none."""
        value = self.values.get(name)
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> Decimal | None:
        """Its number."""
        value = self.values.get(name)
        return value if isinstance(value, Decimal) else None

    def at(self, name: str) -> datetime | None:
        """Its instant."""
        value = self.values.get(name)
        return value if isinstance(value, datetime) else None

    @property
    def correction(self) -> bool:
        """Whether it mends a bill that was closed, so that many rules do not hold for it."""
        return self.text("ChargeClass") == "Correction" or "ChargeClass" in self.broken

    @property
    def sold(self) -> bool:
        """Whether something was used or bought, at a price."""
        return self.text("ChargeCategory") in ("Usage", "Purchase") and not self.correction


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


def row_faults(row: Row) -> Found:
    """Every fault between the cells of `row`, with the column that it is best mended in."""
    yield from _together(row)
    yield from _by_category(row)
    yield from _identities(row)
    yield from _periods(row)
    yield from _service(row)


def _together(row: Row) -> Found:
    for first, others in NULL_WITH.items():
        for name in others if row.null(first) else ():
            if row.full(name):
                yield name, Fault(CONDITION, f"holds something where {first} is null", f"leave it empty, or fill {first}")
    for first, others in FULL_WITH.items():
        for name in others if row.full(first) else ():
            if row.null(name):
                yield name, Fault(CONDITION, f"is null where {first} is not", f"fill it, or leave {first} empty")


def _by_category(row: Row) -> Found:
    category = row.text("ChargeCategory")
    for name in OF_WHAT_IS_SOLD:
        if row.sold and row.null(name):
            yield name, Fault(CONDITION, f"is null for a {category} charge", "fill it; only a Correction may leave it out")
        if category == "Tax" and row.full(name):
            yield name, Fault(CONDITION, "holds something for a Tax charge", "leave it empty: a tax has no price of its own")
    unused = row.text("CommitmentDiscountStatus") == "Unused"
    if category and row.full("ConsumedQuantity") and (category != "Usage" or unused):
        of = "an Unused commitment" if category == "Usage" else f"a {category} charge"
        yield "ConsumedQuantity", Fault(CONDITION, f"holds something for {of}", "leave it empty: nothing was used")
    if category == "Usage" and row.null("ConsumedQuantity") and not (unused or row.correction):
        yield "ConsumedQuantity", Fault(CONDITION, "is null for a Usage charge", "write how much was used")
    for name in ("CommitmentDiscount", "CapacityReservation"):
        if category == "Usage" and row.full(f"{name}Id") and row.null(f"{name}Status"):
            yield f"{name}Status", Fault(CONDITION, f"is null where {name}Id is not", "write Used or Unused")
    consumed = row.number("ConsumedQuantity")
    if category == "Usage" and not row.correction and consumed is not None and consumed < 0:
        hint = "write what was used; only a Correction takes some of it back"
        yield "ConsumedQuantity", Fault(VALUE, f"is negative for a Usage charge: {_plain(consumed)}", hint)
    yield from _committed(row)
    if category == "Purchase" and row.text("ChargeFrequency") == "Usage-Based":
        yield "ChargeFrequency", Fault(CONDITION, "is Usage-Based for a Purchase", "write One-Time or Recurring")


def _committed(row: Row) -> Found:
    """Usage under a commitment is priced as Committed, and nothing else is."""
    priced = row.text("PricingCategory")
    if row.text("ChargeCategory") != "Usage" or row.correction:
        return
    if priced == "Committed" and row.null("CommitmentDiscountId"):
        hint = "write Standard or Dynamic, or name the commitment in CommitmentDiscountId"
        yield "PricingCategory", Fault(CONDITION, "is Committed where CommitmentDiscountId is null", hint)
    if priced == "Standard" and row.full("CommitmentDiscountId"):
        hint = "write Committed, or leave CommitmentDiscountId empty"
        yield "PricingCategory", Fault(CONDITION, "is Standard where CommitmentDiscountId is not null", hint)


def _identities(row: Row) -> Found:
    quantity = row.number("PricingQuantity")
    for cost, price in (("ListCost", "ListUnitPrice"), ("ContractedCost", "ContractedUnitPrice")):
        stated, each = row.number(cost), row.number(price)
        if row.correction or stated is None or each is None or quantity is None:
            continue
        product = EXACT.multiply(each, quantity)
        if stated != product:
            told = "was rounded" if (rounded := _rounded(stated, product)) else f"is {stated:f}"
            fault = Fault(
                ROUNDED if rounded else IDENTITY, f"{told}, and is not {price} x PricingQuantity", f"write {_plain(product)}"
            )
            yield cost, fault
    if row.text("PricingCurrency") and row.text("PricingCurrency") == row.text("BillingCurrency"):
        for name, other in SAME_CURRENCY.items():
            stated, same = row.number(name), row.number(other)
            if stated is not None and same is not None and stated != same:
                yield name, Fault(IDENTITY, f"is {stated:f}, and {other} in the same currency is not", f"write {_plain(same)}")
    payee = row.text("InvoiceIssuerName")
    for seller in ("ServiceProviderName", "ProviderName"):
        billed = row.number("BilledCost")
        if row.text(seller) and payee and payee != row.text(seller) and billed:
            hint = f"spell it as {seller}, or write BilledCost 0 where another party collects the money"
            yield "InvoiceIssuerName", Fault(CONDITION, f"is not {seller}, and BilledCost is not 0", hint)
            return


def _periods(row: Row) -> Found:
    ends = [row.at(name) for name in ("ChargePeriodStart", "ChargePeriodEnd", "BillingPeriodStart", "BillingPeriodEnd")]
    start, end, first, last = ends
    if start and end and start >= end:
        yield "ChargePeriodEnd", Fault(PERIOD, "is not after ChargePeriodStart", "the end is the first instant outside")
    if first and last and first >= last:
        yield "BillingPeriodEnd", Fault(PERIOD, "is not after BillingPeriodStart", "the end is the first instant outside")
    if row.text("ChargeCategory") == "Purchase" or row.correction:
        return  # what is bought may hold for years, and what is mended lies in an earlier period
    if start and first and last and not first <= start < last:
        yield "ChargePeriodStart", Fault(PERIOD, "lies outside the billing period", f"from {_at(first)} to before {_at(last)}")
    elif end and last and end > last:
        hint = f"split the charge at {_at(last)}: a row for each billing period"
        yield "ChargePeriodEnd", Fault(PERIOD, "lies beyond the end of the billing period", hint)


def _service(row: Row) -> Found:
    category, under = row.text("ServiceCategory"), row.text("ServiceSubcategory")
    if category in SUBCATEGORIES and under and under not in (known := (*SUBCATEGORIES[category], f"Other ({category})")):
        yield "ServiceSubcategory", Fault(VALUE, f"is no subcategory of {category}", f"write one of: {', '.join(known)}")


LEAST_DECIMALS = 4
"""With fewer decimals a cost is no product that was rounded, but another number."""


def _rounded(stated: Decimal, product: Decimal) -> bool:
    """Whether `stated` is the product to fewer decimals, up or down."""
    exponent = stated.as_tuple().exponent
    places = -exponent if isinstance(exponent, int) else 0
    return places >= LEAST_DECIMALS and abs(EXACT.subtract(stated, product)) < Decimal(1).scaleb(-places)


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _at(instant: datetime) -> str:
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}"
