"""Charge items as rows of FOCUS 1.2, 1.3 or 1.4. Rows contain values; an output format converts them.

Example: 1.5 Hours of i-0abc at $2.49 have PricingQuantity 1.5, ListUnitPrice 2.49 and ListCost 3.735.

ListCost and ContractedCost are price times quantity in exact decimals, unrounded: at the price that the provider lists, and at
the agreed one, if there is one. BilledCost and EffectiveCost are the expected amounts of the ledger, to the nano-unit, and add
up to it; they differ from the product by its rounding (decision 0029), or where a settled bill states another price (0139).

A charge that is unpriced has no amount and no unit price: `x_PriceSource` says why, and `x_CostHigh` what it costs at most.

A FOCUS service has one category, so disks are a service of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal

from costguard.metering.charge_item import ChargeItem, ChargeItems
from costguard.metering.cost_entry import AGREEMENT
from costguard.metering.meter import ADDRESS_CHARGE, COMPUTE, FIXED_UNITS, MONTH_UNITS, STORAGE, get_measure
from costguard.metering.observation import find_list_price, find_price_basis
from costguard.reporting.focus.columns import NEWEST_VERSION, get_columns
from costguard.values import calendar
from costguard.values.instant import HOUR_US
from costguard.values.provider import Seller, get_seller
from costguard.values.resource import ADDRESS, ENTERED, SPOT, VOLUME

RowValue = str | Decimal | datetime | bool | Mapping[str, object] | None
"""A cell. A mapping is a JSON object, a datetime an instant in UTC, None is null."""

ONE_SECOND = timedelta(seconds=1)
EXACT = Context(prec=60)
"""Products of prices and quantities without any rounding."""

CUSTOM_COLUMNS: Mapping[str, type] = {
    "x_ChargeKind": str,
    "x_Corrected": bool,
    "x_CostHigh": Decimal,
    "x_CostLow": Decimal,
    "x_GpuCount": Decimal,
    "x_GpuModel": str,
    "x_Owner": str,
    "x_PriceBasis": str,
    "x_PriceKnown": bool,
    "x_PriceSource": str,
    "x_Project": str,
    "x_Team": str,
    "x_Tier": str,
    "x_UnitPriceHigh": Decimal,
    "x_UnitPriceLow": Decimal,
}
"""What FOCUS has no column for, in alphabetical order. `x_CostLow`, `x_CostHigh`: between them lies the truth."""

_LEFT_OUT = (
    *("AllocatedMethodDetails", "AllocatedMethodId", "AllocatedResourceId", "AllocatedResourceName", "AllocatedTags"),
    *("AvailabilityZone", "CapacityReservationId", "CapacityReservationStatus", "ContractApplied"),
    *("CommitmentDiscountCategory", "CommitmentDiscountId", "CommitmentDiscountName", "CommitmentDiscountQuantity"),
    *("CommitmentDiscountType", "CommitmentDiscountUnit", "CommitmentProgramEligibilityDetails"),
)
"""Conditional columns whose condition is not met here: split costs, commitments, zones.

CommitmentDiscountStatus stays, null: consumers (and focus-validator) ask whether it is Unused before they add up what was used.
"""
FEE_SOURCE = f"entered by {AGREEMENT}"
"""Of what a month left unused of a commitment: a purchase that covers no later charge, so that all its costs are its amount."""
PLACEHOLDERS = frozenset(("null", "none", "nil", "n/a", "na", "nan", "not applicable", "unknown", "undefined", "-", "\\n"))
"""Words that stand for nothing; FOCUS wants the cell to be empty."""


def list_header(version: str = NEWEST_VERSION) -> tuple[str, ...]:
    """Return the columns of a row of `version`, those of FOCUS first."""
    return (*(name for name in get_columns(version) if name not in _LEFT_OUT), *CUSTOM_COLUMNS)


def build_rows(items: ChargeItems | None) -> Iterator[dict[str, RowValue]]:
    """Yield each item with every column of every version; a format selects those of `list_header`. None: no items."""
    if items is not None:
        sellers = items.sellers
        for item in items:
            yield _build_row(item, get_seller(sellers, item.attribution.provider))


def _build_row(item: ChargeItem, seller: Seller) -> dict[str, RowValue]:
    of = item.attribution
    service, month = get_focus_service(seller, item.charge), calendar.find_month(item.start, UTC)
    sku, price_details = _build_sku(item)
    price, cost, amount = _find_amounts(item)
    is_fee = item.source.startswith(FEE_SOURCE)
    list_price = None if price is None else find_list_price(item.source) or price
    list_cost = None if list_price is None else EXACT.multiply(list_price, item.quantity)
    resource = _get_resource_type(item)
    return {
        "BilledCost": amount,
        "BillingAccountId": of.account,
        "BillingAccountName": of.account,
        "BillingAccountType": seller.account,
        "BillingCurrency": item.money.low.currency,
        "BillingPeriodEnd": month.end,
        "BillingPeriodStart": month.start,
        "ChargeCategory": "Purchase" if is_fee else "Usage",
        "ChargeClass": "Correction" if of.kind == ENTERED and item.corrected else None,
        "ChargeDescription": _build_description(item, service.meter),
        "ChargeFrequency": "Recurring" if is_fee else "Usage-Based",
        **_build_period(item),
        "CommitmentDiscountStatus": None,
        "ConsumedQuantity": None if is_fee else item.used,
        "ConsumedUnit": None if is_fee else item.used_unit,
        "ContractedCost": cost,
        "ContractedUnitPrice": price,
        "EffectiveCost": amount,
        "HostProviderName": seller.name,
        "InvoiceDetailId": None,
        "InvoiceId": None,
        "InvoiceIssuerName": seller.name,
        "ListCost": list_cost,
        "ListUnitPrice": list_price,
        "PricingCategory": _get_pricing_category(item),
        "PricingCurrency": item.money.low.currency,
        "PricingCurrencyContractedUnitPrice": price,
        "PricingCurrencyEffectiveCost": amount,
        "PricingCurrencyListUnitPrice": list_price,
        "PricingQuantity": item.quantity,
        "PricingUnit": f"{get_measure(item.unit)}-Months" if item.unit in MONTH_UNITS else item.priced_unit,
        "ProviderName": seller.name,
        "PublisherName": seller.name,
        "RegionId": _format_region(of.region),
        "RegionName": _format_region(of.region),
        "ResourceId": item.key.id,
        "ResourceName": _drop_blank(item.name),
        "ResourceType": resource,
        "ServiceCategory": service.category,
        "ServiceName": service.name,
        "ServiceProviderName": seller.name,
        "ServiceSubcategory": service.subcategory,
        "SkuId": sku,
        "SkuMeter": service.meter,
        "SkuPriceDetails": price_details,
        "SkuPriceId": f"{sku}|{_escape_part(of.tier)}",
        "SubAccountId": of.account,
        "SubAccountName": of.account,
        "SubAccountType": seller.account,
        "Tags": {name: value or True for name, value in item.tags},
        **_build_custom_columns(item),
    }


def _find_amounts(item: ChargeItem) -> tuple[Decimal | None, Decimal | None, Decimal | None]:
    """Return unit price, price times quantity and the amount of the ledger; None for what is unpriced."""
    if item.unpriced:
        return None, None, None
    return item.unit_price, EXACT.multiply(item.unit_price, item.quantity), item.money.expected.to_decimal()


def _build_period(item: ChargeItem) -> dict[str, RowValue]:
    """Return the period in whole seconds, as FOCUS requires: both ends rounded down, at least one second long."""
    start, end = item.start.replace(microsecond=0), item.end.replace(microsecond=0)
    return {"ChargePeriodEnd": max(end, start + ONE_SECOND), "ChargePeriodStart": start}


def _build_sku(item: ChargeItem) -> tuple[str, dict[str, object]]:
    """Return the SKU id, without terms of its price, and its details: equal ids have equal details."""
    of, details = item.attribution, dict[str, object]()
    if item.computes:
        count = int(of.gpu_count) if of.gpu_count == int(of.gpu_count) else of.gpu_count
        what = (of.instance_type, f"{count}x{of.gpu}" if of.gpu else "")
        details = {"InstanceType": of.instance_type, "GpuCount": count if of.gpu else "", "x_GpuModel": of.gpu}
    else:
        what = (item.part, "")
        if item.unit in MONTH_UNITS:
            hours = str(FIXED_UNITS[item.unit] // HOUR_US) if item.unit in FIXED_UNITS else "calendar"
            what = (item.part, f"{hours}-hour month" if hours.isdigit() else "calendar month")
            details = {"DiskType": item.part, "x_HoursOfMonth": hours}
    details |= {"x_Tier": of.tier}
    names = (item.charge, *what, of.region)
    return "|".join(_escape_part(name) for name in names if name), {key: value for key, value in details.items() if value != ""}


def _escape_part(name: str) -> str:
    """Escape `name` as a part of an id, so that two different lists of parts never give the same id."""
    return name.replace("\\", "\\\\").replace("|", "\\|")


def _get_pricing_category(item: ChargeItem) -> str:
    """Return the category: for computing by its tier; disks and addresses have fixed prices."""
    if item.computes and item.attribution.tier == SPOT:
        return "Dynamic"
    return "Other" if item.computes and item.attribution.tier == "reserved" else "Standard"


def _get_resource_type(item: ChargeItem) -> str:
    if item.attribution.kind == VOLUME:
        return "Volume"
    if item.attribution.kind == ADDRESS:
        return "IP Address"
    if item.attribution.kind == ENTERED:
        return "Entered Cost"
    return "GPU Instance" if item.attribution.gpu else "Instance"


def _build_description(item: ChargeItem, meter: str) -> str:
    of = item.attribution
    gpus = f"{of.gpu_count:g}x {of.gpu}" if of.gpu else ""
    parts = (gpus, of.instance_type, of.tier) if item.computes else (meter, item.part)
    parts = ("", item.name, "") if of.kind == ENTERED else parts
    return " ".join(word for word in (*parts, of.region) if word.strip())


def _build_custom_columns(item: ChargeItem) -> dict[str, RowValue]:
    of, labels = item.attribution, dict(item.attribution.labels)
    return {
        "x_ChargeKind": item.charge,
        "x_Corrected": item.corrected,
        "x_CostHigh": item.money.high.to_decimal(),
        "x_CostLow": item.money.low.to_decimal(),
        "x_GpuCount": Decimal(f"{of.gpu_count:g}") if of.gpu else None,
        "x_GpuModel": _drop_blank(of.gpu),
        "x_Owner": _drop_blank(of.owner),
        "x_PriceBasis": find_price_basis(item.source),
        "x_PriceKnown": item.price.known,
        "x_PriceSource": _drop_blank(item.source),
        "x_Project": _drop_blank(labels.get("project", "")),
        "x_Team": _drop_blank(labels.get("team", "")),
        "x_Tier": _drop_blank(of.tier),
        "x_UnitPriceHigh": Decimal(item.price.high).scaleb(-9),
        "x_UnitPriceLow": Decimal(item.price.low).scaleb(-9),
    }


def _format_region(region: str) -> str | None:
    """Return the region, or None if it is blank or a placeholder ("unknown", "N/A"), which FOCUS does not allow."""
    return None if region.strip().casefold() in PLACEHOLDERS else _drop_blank(region)


def _drop_blank(text: str) -> str | None:
    """Return `text`, or None if it is blank."""
    return text if text.strip() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FocusService:
    """The FOCUS service of a charge. `meter`: what is counted."""

    name: str
    category: str
    subcategory: str
    meter: str


def get_focus_service(seller: Seller, charge: str) -> FocusService:
    """Return the service of a charge; a charge that is neither compute, storage nor address is data transfer."""
    if charge == COMPUTE:
        return FocusService(name=seller.compute, category="Compute", subcategory=seller.runs, meter="Instance Hours")
    if charge == STORAGE:
        return FocusService(name=seller.storage, category="Storage", subcategory="Block Storage", meter="Block Volume Usage")
    if charge == ENTERED:
        return FocusService(
            name=f"{seller.name} Entered Costs", category="Other", subcategory="Other (Other)", meter="Entered Costs"
        )
    name, meter = ("IP Addresses", "IP Address Hours") if charge == ADDRESS_CHARGE else ("Data Transfer", "Data Transfer")
    return FocusService(name=f"{seller.name} {name}", category="Networking", subcategory="Network Connectivity", meter=meter)
