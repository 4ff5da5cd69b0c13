"""Products of AWS's Price List: fetch them page by page, and read one.

A product is a JSON text; its prices are under opaque keys (`sku.offerTermCode.rateCode`), so all of them are read. The list
answers in a few regions only, whichever region is priced; the next one is asked if one does not answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import TypedDict

import msgspec

from costguard.bills.bill_files import parse_export_instant
from costguard.errors import InvalidAnswerError, ProviderError, ThrottledError, UnreachableError
from costguard_aws.errors import AWS, AwsClients, call_operation

ENDPOINTS = ("us-east-1", "eu-central-1", "ap-south-1")
"""The regions where the Price List answers, whichever region is priced: botocore's endpoint list, 2026-11."""

COMPUTE_SERVICE = "AmazonEC2"
"""The service code of machines and of EBS."""

MOST_PAGES = 20


class PriceFilter(TypedDict):
    """One condition of `get_products`."""

    Type: str
    Field: str
    Value: str


class ProductAttributes(msgspec.Struct, rename="camel"):
    """What a product is. `location_type`: "AWS Region", or where it is sold instead (Outposts, a Local Zone)."""

    instance_type: str = ""
    region_code: str = ""
    operation: str = ""
    tenancy: str = ""
    capacitystatus: str = ""
    marketoption: str = "OnDemand"
    usagetype: str = ""
    location_type: str = "AWS Region"


class _Product(msgspec.Struct):
    attributes: ProductAttributes


class PriceDimension(msgspec.Struct, rename="camel"):
    """One price: `price_per_unit` by currency, as text."""

    unit: str = ""
    price_per_unit: dict[str, object] = {}


class _Term(msgspec.Struct, rename="camel"):
    price_dimensions: dict[str, PriceDimension] = {}
    effective_date: object = None


class _Terms(msgspec.Struct):
    on_demand: dict[str, _Term] = msgspec.field(default_factory=dict, name="OnDemand")


class ListedProduct(msgspec.Struct):
    """One entry of the list, as far as it is read."""

    product: _Product
    terms: _Terms = msgspec.field(default_factory=_Terms)

    def list_dimensions(self, now: datetime) -> Iterator[tuple[datetime | None, PriceDimension]]:
        """Yield every price on demand that is in force at `now`, with the instant since when."""
        for term in self.terms.on_demand.values():
            since = parse_export_instant(term.effective_date)
            if since is None or since <= now:
                for dimension in term.price_dimensions.values():
                    yield since, dimension


_decoder = msgspec.json.Decoder(ListedProduct, float_hook=Decimal)


def parse_product(product: object) -> ListedProduct | None:
    """Parse one entry of PriceList, JSON in a string; None if it cannot be read."""
    if not isinstance(product, str):
        return None
    try:
        return _decoder.decode(product)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None


def match_fields(**values: str) -> list[PriceFilter]:
    """Return the filters that select products whose attributes equal `values`."""
    return [PriceFilter(Type="TERM_MATCH", Field=field, Value=value) for field, value in values.items()]


def fetch_products(aws: AwsClients, filters: list[PriceFilter], service: str = COMPUTE_SERVICE) -> list[object] | None:
    """Return the products of every page; None if the list does not support this kind of filter.

    Raises ProviderError if no endpoint answers, or one refuses.
    """
    products: list[object] = []
    token, page_tokens = "", set[str]()
    endpoints: tuple[str, ...] = ENDPOINTS
    for _ in range(MOST_PAGES):
        try:
            page, token, endpoint = _fetch_page(aws, filters, service, token, endpoints)
        except ProviderError as refused:
            if refused.code == "InvalidParameterException" and not products:
                return None
            raise
        products += page
        if not token or token in page_tokens:
            break
        page_tokens.add(token)
        endpoints = (endpoint,)
    return products


def _fetch_page(
    aws: AwsClients, filters: list[PriceFilter], service: str, token: str, endpoints: tuple[str, ...]
) -> tuple[list[object], str, str]:
    """Return one page, the next token, and the endpoint: the first that answers.

    A definite refusal is not tried elsewhere.
    """
    more = {"MaxResults": 100, **({"NextToken": token} if token else {})}
    for endpoint in endpoints:
        try:
            page = call_operation(aws, "pricing", endpoint, "get_products", ServiceCode=service, Filters=filters, **more)
            products = _list_products(page)
        except (UnreachableError, InvalidAnswerError, ThrottledError):
            if endpoint == endpoints[-1]:
                raise
        else:
            return products, str(page.get("NextToken") or ""), endpoint
    raise AssertionError(endpoints)


def _list_products(page: Mapping[str, object]) -> list[object]:
    """Return a page's list; raises InvalidAnswerError if it is missing: a missing list is not an empty one."""
    products = page.get("PriceList")
    if not isinstance(products, list):
        raise InvalidAnswerError("answered without its PriceList", provider=AWS)
    return products
