"""Azure's prices of GPU sizes, on demand and spot, in each region: Microsoft's retail prices.

    GET /api/retail/prices?api-version=2023-01-01-preview&$filter=...
    {"Items": [{"armSkuName": "Standard_ND96isr_H100_v5", "armRegionName": "eastus", "skuName": "ND96isr H100 v5 Spot",
                "meterName": ..., "productName": "Virtual Machines NDsr H100 v5 Series", "retailPrice": 18.1695,
                "currencyCode": "USD", "unitOfMeasure": "1 Hour", "type": "Consumption",
                "effectiveStartDate": "2026-10-01T00:00:00Z", "tierMinimumUnits": 0.0, "isPrimaryMeterRegion": true}],
     "NextPageLink": "https://prices.azure.com:443/api/retail/prices?...&$skip=1000", "Count": 1}

A price is of the whole machine. Which GPUs it holds is read from the name of the size (`instance_types.py`). A price whose
`effectiveStartDate` is later than today is not valid yet; of several that are valid the latest counts. Windows, dedicated
hosts, Low Priority, DevTest and reservations are other products.
Left out as placeholders: prices below a fifth of the median of their size and tier over regions, such as $0.01 an hour for an
H100 in ukwest (seen by a public collector in 2026). Links to a next page are followed on the same host only.
Sources: `providers/azure.md` section 4; learn.microsoft.com azure-retail-prices; dstackai/gpuhunt providers/azure.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from statistics import median_low
from urllib.parse import quote, urlsplit

from costguard.errors import ProviderError, shorten, to_one_line
from costguard.providers.ports.price_source import PriceFetcher, PriceSourceFacts
from costguard.quoting.offer import OfferListing
from costguard.values.gpu import GpuNames
from costguard.values.resource import SPOT
from costguard_public.instance_types import AZURE_PREFIX, MachineType, find_azure_type, is_azure_share
from costguard_public.rows import (
    MIB,
    NOT_YET,
    OTHER_CURRENCY,
    OTHER_UNIT,
    PLACEHOLDER,
    UNREADABLE,
    MachinePrice,
    Row,
    RowCollector,
    decode_json,
    parse_decimal,
    take_rows,
    take_text,
)

PROVIDER, TITLE = "azure", "Azure's retail prices"
HOST, PATH = "prices.azure.com", "/api/retail/prices"
FILTER = " and ".join(
    (
        "serviceName eq 'Virtual Machines'",
        "priceType eq 'Consumption'",
        f"contains(armSkuName, '{AZURE_PREFIX}N')",
        "contains(productName, 'Windows') eq false",
        "contains(meterName, 'Low Priority') eq false",
    )
)
FIRST_PAGE = f"{PATH}?api-version=2023-01-01-preview&$filter={quote(FILTER, safe='')}"
MOST_PAGES = 30
"""Of 1,000 rows. About 40 sizes in 60 regions in two tiers are five."""

MOST_BYTES, LONGEST_LINK = 4 * MIB, 4096
UNCHANGED = "%&=$'(),:+-._~"
"""Characters of a link's query that are passed on as they are."""

OTHER_PRODUCTS = ("Windows", "Dedicated", "CloudServices", "Cloud Services")
LEAST_OF_MEDIAN = Decimal("0.2")


class AzureSource:
    """See the module."""

    facts = PriceSourceFacts(
        name="azure",
        title=TITLE,
        endpoint=f"https://{HOST}",
        providers=(PROVIDER,),
        terms="documented API, unauthenticated; Microsoft's terms of use",
        size="about 5 pages of 1,000 rows, 0.7 MB each",
        freshness="list prices with the day from which each holds; spot prices change at most daily",
        checked_on=date(2026, 11, 23),
        order=10,
    )

    def list_public_offers(self, fetch: PriceFetcher, gpus: GpuNames) -> Mapping[str, OfferListing]:
        """Return every Linux size with whole GPUs in every region, on demand and as spot."""
        collector, whys = (
            RowCollector(gpus=gpus, provider=PROVIDER, source="GET /api/retail/prices", observed_on=fetch.today),
            list[str](),
        )
        table = _PriceTable(today=fetch.today, found=collector)
        for row in _list_rows(fetch, whys):
            table.add(row)
        table.list_machines()
        return {PROVIDER: collector.build_listing(why="; ".join(whys))}


def _list_rows(fetch: PriceFetcher, whys: list[str]) -> Iterator[Row]:
    """Yield the rows of every page. What ends the pages early is noted in `whys`; the first page must be readable."""
    path, paths = FIRST_PAGE, set[str]()
    while path and path not in paths:
        paths.add(path)
        try:
            answer = decode_json(fetch.get(path, most_bytes=MOST_BYTES).body, TITLE)
            rows = take_rows(answer, ("Items",), TITLE)
        except ProviderError as failed:
            if len(paths) == 1:
                raise
            whys.append(f"page {len(paths)} cannot be read: {failed.what}")
            return
        yield from rows
        path = _follow_link(answer.get("NextPageLink") if isinstance(answer, dict) else None, whys)
        if path in paths or len(paths) == MOST_PAGES:
            whys += [f"the pages did not end after {len(paths)}"] if path else []
            return


def _follow_link(link: object, whys: list[str]) -> str:
    """Return the path and query of the next page, "" if there is none or it is not one of Azure's."""
    if not link:
        return ""
    try:
        parts = urlsplit(link) if isinstance(link, str) and len(link) <= LONGEST_LINK else None
        is_azure = parts is not None and (parts.scheme, parts.hostname, parts.path) == ("https", HOST, PATH)
        port = parts.port if parts is not None else None
    except ValueError:  # a port that is no number
        parts, is_azure, port = None, False, None
    if parts is None or not is_azure or port not in (None, 443) or not parts.query:
        whys.append(f"the next page is on another host and was not fetched: {shorten(to_one_line(str(link)), 80)}")
        return ""
    return f"{PATH}?{quote(parts.query, safe=UNCHANGED)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Price:
    """One valid price. `since`: the day from which it holds."""

    machine: MachineType
    amount: Decimal
    since: date


@dataclass(slots=True, kw_only=True)
class _PriceTable:
    """The valid prices by region, size and tier."""

    today: date
    found: RowCollector
    prices: dict[tuple[str, str, str], _Price] = field(default_factory=dict)

    def add(self, row: Row) -> None:
        """Add the price of `row`, or count why it is none; rows of other products are no offers."""
        name, region, product = (take_text(row, key) for key in ("armSkuName", "armRegionName", "productName"))
        sold_as = f"{take_text(row, 'skuName')} {take_text(row, 'meterName')}"
        if not name or not region:
            self.found.leave_out(UNREADABLE)
            return
        if _is_other_product(row, product, sold_as) or is_azure_share(name):
            return
        machine = find_azure_type(name)
        if machine is None:
            self.found.report_unknown(name)
            return
        if self.found.find_gpu(machine.gpu) is None:
            return
        since, reason = self._read_terms(row)
        amount = parse_decimal(row.get("retailPrice"))
        if since is None or amount is None:
            self.found.leave_out(reason or UNREADABLE)
            return
        key = (region, name, SPOT if "Spot" in sold_as else "on-demand")
        old_price = self.prices.get(key)
        if old_price is None or (since, -amount) > (old_price.since, -old_price.amount):
            self.prices[key] = _Price(machine=machine, amount=amount, since=since)

    def _read_terms(self, row: Row) -> tuple[date | None, str]:
        """Return the day from which a price in dollars an hour holds, or None and why it is left out."""
        if row.get("currencyCode") != "USD":
            return None, OTHER_CURRENCY
        if row.get("unitOfMeasure") != "1 Hour" or parse_decimal(row.get("tierMinimumUnits", 0)) != 0:
            return None, OTHER_UNIT
        try:
            since = date.fromisoformat(take_text(row, "effectiveStartDate")[:10])
        except ValueError:
            return None, UNREADABLE
        return (None, NOT_YET) if since > self.today else (since, "")

    def list_machines(self) -> None:
        """Add every price to the listing but those that are placeholders."""
        medians = self._compute_medians()
        for (region, name, tier), price in self.prices.items():
            if 0 < price.amount < LEAST_OF_MEDIAN * medians[name, tier]:
                self.found.leave_out(PLACEHOLDER)
                continue
            on_demand = self.prices.get((region, name, "on-demand")) if tier == SPOT else None
            self.found.add(
                MachinePrice(
                    region=region,
                    instance_type=name,
                    gpu=price.machine.gpu,
                    gpu_count=price.machine.gpu_count,
                    tier=tier,
                    price=price.amount,
                    on_demand_price=on_demand.amount if on_demand else None,
                    pricing="dynamic" if tier == SPOT else "standard",
                    vcpus=price.machine.vcpus,
                )
            )

    def _compute_medians(self) -> dict[tuple[str, str], Decimal]:
        """Return size and tier -> the median price over regions."""
        amounts: dict[tuple[str, str], list[Decimal]] = {}
        for (_, name, tier), price in self.prices.items():
            amounts.setdefault((name, tier), []).append(price.amount)
        return {key: median_low(values) for key, values in amounts.items()}


def _is_other_product(row: Row, product: str, sold_as: str) -> bool:
    """Return whether `row` prices something else than a Linux machine by consumption."""
    return (
        row.get("type", "Consumption") != "Consumption"
        or row.get("isPrimaryMeterRegion") is False
        or "Low Priority" in sold_as
        or any(word in product for word in OTHER_PRODUCTS)
    )


source = AzureSource()
