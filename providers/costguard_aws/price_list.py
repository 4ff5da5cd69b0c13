"""The Price List's products to prices: pure. What is asked for is checked again in the answer, as filters are easily forgotten.

A product is a JSON text. Its price stands under keys that mean nothing (`sku.offerTermCode.rateCode`), so all are looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TypedDict

import msgspec

from costguard.bills.focus_rows import parse_export_instant
from costguard.metering.observation import parse_hourly_rate
from costguard.values.money import Rate

TENANCIES = {"default": "Shared", "dedicated": "Dedicated", "host": "Host"}
PLAIN = "RunInstances"
"""The UsageOperation of Linux without paid software."""


class PriceFilter(TypedDict):
    """One condition of `get_products`."""

    Type: str
    Field: str
    Value: str


class _Attributes(msgspec.Struct, rename="camel"):
    instance_type: str = ""
    region_code: str = ""
    operation: str = ""
    tenancy: str = ""
    capacitystatus: str = ""
    marketoption: str = "OnDemand"


class _Product(msgspec.Struct):
    attributes: _Attributes


class _Dimension(msgspec.Struct, rename="camel"):
    unit: str = ""
    price_per_unit: dict[str, object] = {}


class _Term(msgspec.Struct, rename="camel"):
    price_dimensions: dict[str, _Dimension] = {}
    effective_date: object = None


class _Terms(msgspec.Struct):
    on_demand: dict[str, _Term] = msgspec.field(default_factory=dict, name="OnDemand")


class _Listed(msgspec.Struct):
    product: _Product
    terms: _Terms = msgspec.field(default_factory=_Terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPrice:
    """What the list says of one type. `why`: what it says instead of one price."""

    rate: Rate | None = None
    since: datetime | None = None
    why: str = ""


_decoder = msgspec.json.Decoder(_Listed, float_hook=Decimal)


def build_filters(types: Collection[str], region: str, operation: str, tenancy: str) -> list[PriceFilter]:
    """What pins one product of each type. One type by TERM_MATCH, which every endpoint knows; several by ANY_OF."""
    wanted = {
        "regionCode": region,
        "tenancy": TENANCIES.get(tenancy, tenancy),
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "operation": operation,
    }
    if operation == PLAIN:
        wanted |= {"operatingSystem": "Linux", "preInstalledSw": "NA", "licenseModel": "No License required"}
    kind = "TERM_MATCH" if len(types) == 1 else "ANY_OF"
    pinned = [PriceFilter(Type="TERM_MATCH", Field=field, Value=value) for field, value in wanted.items()]
    return [PriceFilter(Type=kind, Field="instanceType", Value=",".join(types)), *pinned]


def parse_prices(
    products: Iterable[object], types: Mapping[str, float], *, region: str, operation: str, tenancy: str, now: datetime
) -> dict[str, ListedPrice]:
    """The price of each of `types` that `products` state, or why it has none; a type that they do not state is left out.

    `types`: with the number of their GPUs, which bounds the price that is believed.
    """
    stated: dict[str, list[ListedPrice]] = {}
    for product in products:
        listed = _parse_product(product)
        if listed is None:
            continue
        told = listed.product.attributes
        fits = told.region_code == region and told.operation == operation and told.tenancy == TENANCIES.get(tenancy, tenancy)
        if fits and told.instance_type in types and told.capacitystatus == "Used" and told.marketoption == "OnDemand":
            stated.setdefault(told.instance_type, []).extend(_list_prices(listed.terms, types[told.instance_type], now))
    return {name: _agree_on_price(prices) for name, prices in stated.items()}


def _parse_product(product: object) -> _Listed | None:
    """One entry of PriceList: JSON in a string. One that cannot be read is as if it were not there."""
    if not isinstance(product, str):
        return None
    try:
        return _decoder.decode(product)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None


def _list_prices(terms: _Terms, gpus: float, now: datetime) -> list[ListedPrice]:
    """Every hourly price in USD that is in force by `now`."""
    prices = list[ListedPrice]()
    for term in terms.on_demand.values():
        since = parse_export_instant(term.effective_date)
        if since is not None and since > now.astimezone(UTC):
            continue
        for dimension in term.price_dimensions.values():
            if dimension.unit.lower() in {"hrs", "hours", "hour"} and "USD" in dimension.price_per_unit:
                rate, why = parse_hourly_rate(dimension.price_per_unit["USD"], gpus=gpus)
                prices.append(ListedPrice(rate=rate, since=since, why=why))
    return prices


def _agree_on_price(prices: list[ListedPrice]) -> ListedPrice:
    """The one price that all agree on; the oldest date of it."""
    known = {price.rate for price in prices if price.rate}
    odd = next((price.why for price in prices if price.why), "")
    if len(known) != 1 or odd:
        told = sorted({price.rate.format(4) for price in prices if price.rate})
        return ListedPrice(why=odd or (f"the price list has several prices: {', '.join(told[:4])}" if told else ""))
    since = [price.since for price in prices if price.since is not None]
    return ListedPrice(rate=known.pop(), since=min(since) if since else None)
