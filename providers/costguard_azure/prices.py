"""List prices of sizes and managed disks of one region, from Microsoft's Retail Prices API, which needs no key.

    GET /api/retail/prices?api-version=2023-01-01-preview&$filter=serviceName eq 'Virtual Machines' and ...

Only the sizes that were seen are asked for, once a day and region. Prices are in dollars an hour ("1 Hour"), of consumption.
One
whose day has not come is left out, of several the latest counts. Disks bill by the month ("1/Month") in tiers.
Sources: `shared/providers/azure.md` section 4; learn.microsoft.com azure-retail-prices; meters of disks from memory, 2026-12.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import TypeVar
from urllib.parse import quote, urlencode, urlsplit

from costguard.errors import InvalidAnswerError, ProviderError, to_one_line
from costguard.metering.observation import HIGHEST_PER_GPU, parse_hourly_rate
from costguard.providers.transport import Deadline, ProviderChannel, TokenBucket, Transport
from costguard.system.clock import Clock
from costguard_azure.translation import ListPrices
from costguard_azure.wire import PricePage, RetailPrice

K = TypeVar("K")

PATH, VERSION = "/api/retail/prices", "2023-01-01-preview"
KEPT = timedelta(days=1)
RETRIED = timedelta(minutes=10)
"""After a failure. The API answers 429 at times (gpuhunt waits 3 s)."""
LONGEST_S = 20.0
"""Seconds of a poll that may go to prices of one region."""
MOST_PAGES, MOST_SIZES = 20, 40
UNCHANGED = "%&=$'(),:+-._~/"
_REGION = re.compile(r"[a-z0-9]{1,40}")
_SIZE = re.compile(r"[A-Za-z0-9_-]{1,80}")
_DISK_METER = re.compile(r"([PES]\d{1,2}) (LRS|ZRS)(?: Disks?)?", re.IGNORECASE)
OTHER_PRODUCTS = ("Dedicated", "CloudServices", "Cloud Services")


@dataclass(slots=True)
class _RegionPrices:
    """`sizes`: those that were asked for. `why`: what is missing."""

    asked_at: datetime
    sizes: frozenset[str]
    prices: ListPrices
    why: str = ""


@dataclass(slots=True)
class _PriceTables:
    machines: dict[tuple[str, bool, bool], tuple[date, int]] = field(default_factory=dict)
    disks: dict[str, tuple[date, int]] = field(default_factory=dict)


class PriceList:
    """The list prices of all regions, each as of the last day."""

    def __init__(self, transport: Transport, base: str, clock: Clock) -> None:
        self._channel = ProviderChannel(
            transport,
            provider="azure",
            account="retail prices",
            base_url=base,
            headers={"Accept": "application/json"},
            buckets={"": TokenBucket(2.0, 10.0)},
        )
        self._base, self._clock = base, clock
        self._regions: dict[str, _RegionPrices] = {}

    def learn(self, region: str, sizes: Collection[str], deadline: Deadline) -> str:
        """Fetch the prices of `sizes` and of disks in `region`, unless they are known; return why some are missing."""
        region_prices, now = self._regions.get(region), self._clock.now()
        names = frozenset(one for one in sizes if _SIZE.fullmatch(one))
        if not _REGION.fullmatch(region):
            return f"region {to_one_line(repr(region[:40]))} has no list prices"
        if (
            region_prices is not None
            and names <= region_prices.sizes
            and now - region_prices.asked_at < (RETRIED if region_prices.why else KEPT)
        ):
            return region_prices.why
        names |= region_prices.sizes if region_prices is not None else frozenset()
        tables, whys, limited = _PriceTables(), list[str](), deadline.limit_to(LONGEST_S)
        texts = sorted(names)
        filters = [_make_machine_filter(region, texts[i : i + MOST_SIZES]) for i in range(0, len(texts), MOST_SIZES)]
        for filter_ in (*filters, _make_disk_filter(region)):
            try:
                for row in self._list_rows(filter_, limited):
                    _add_row(tables, row, now.date())
            except ProviderError as broken:
                whys.append(f"list prices of {region} cannot be fetched: {to_one_line(broken.what)}")
        old = region_prices.prices if region_prices is not None and whys else ListPrices()
        prices = ListPrices(
            machines={**old.machines, **{key: nano for key, (_, nano) in tables.machines.items()}},
            disks={**old.disks, **{key: nano for key, (_, nano) in tables.disks.items()}},
        )
        why = "; ".join(dict.fromkeys(whys))
        self._regions[region] = _RegionPrices(now, names, prices, why)
        return why

    def get(self, region: str) -> ListPrices:
        """Return what is known of `region`."""
        region_prices = self._regions.get(region)
        return region_prices.prices if region_prices is not None else ListPrices()

    def _list_rows(self, filter_: str, deadline: Deadline) -> Iterator[RetailPrice]:
        path, paths = f"{PATH}?{urlencode({'api-version': VERSION, '$filter': filter_})}", set[str]()
        while path and path not in paths and len(paths) < MOST_PAGES:
            paths.add(path)
            reply = self._channel.read(path, scope="prices", deadline=deadline)
            page = self._channel.decode(reply, PricePage, "the list of prices")
            yield from page.items
            path = self._follow_link(page.next_link)
        if path:
            raise InvalidAnswerError("the pages of prices do not end", provider="azure")

    def _follow_link(self, link: str | None) -> str:
        """Return path and query of the next page on the same host; "" if there is none."""
        if not link:
            return ""
        try:
            parts = urlsplit(link)
        except ValueError:
            parts = urlsplit("")
        if parts.hostname != urlsplit(self._base).hostname or parts.path != PATH or not parts.query or not link.isprintable():
            raise InvalidAnswerError("the next page of prices is at another address", provider="azure")
        return f"{PATH}?{quote(parts.query, safe=UNCHANGED)}"


def _make_machine_filter(region: str, sizes: Collection[str]) -> str:
    anyone = " or ".join(f"armSkuName eq '{one}'" for one in sizes)
    return (
        "serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and contains(meterName, 'Low Priority') eq false"
        f" and armRegionName eq '{region}' and ({anyone})"
    )


def _make_disk_filter(region: str) -> str:
    return (
        "serviceName eq 'Storage' and priceType eq 'Consumption' and contains(productName, 'Managed Disks')"
        f" and armRegionName eq '{region}'"
    )


def _add_row(tables: _PriceTables, row: RetailPrice, today: date) -> None:
    """Add the price of a row, if it is valid today and nothing else than a machine or a disk."""
    try:
        since = date.fromisoformat((row.effective_start_date or "")[:10])
    except ValueError:
        return
    usual = row.currency_code == "USD" and (row.type or "Consumption") == "Consumption" and not row.tier_minimum_units
    if since > today or not usual or row.is_primary_meter_region is False:
        return
    product, sold_as = row.product_name or "", f"{row.sku_name or ''} {row.meter_name or ''}"
    if "Managed Disks" in product:
        match = _DISK_METER.fullmatch((row.meter_name or "").strip())
        price = row.retail_price
        if match and row.unit_of_measure == "1/Month" and price is not None and price.is_finite() and 0 < price < HIGHEST_DISK:
            _keep_latest(tables.disks, f"{match[1]} {match[2]}".lower(), since, int(price.scaleb(9).to_integral_value()))
        return
    if row.unit_of_measure != "1 Hour" or "Low Priority" in sold_as or any(word in product for word in OTHER_PRODUCTS):
        return
    rate, _ = parse_hourly_rate(row.retail_price, gpus=8)
    if rate is not None and row.arm_sku_name:
        _keep_latest(
            tables.machines, (row.arm_sku_name.lower(), "Spot" in sold_as, "Windows" in product), since, rate.nano_per_hour
        )


HIGHEST_DISK = HIGHEST_PER_GPU * 100
"""USD a month of one disk: the dearest known is near $4,000."""


def _keep_latest(prices: dict[K, tuple[date, int]], key: K, since: date, nano: int) -> None:
    """Keep the latest valid price; of two of one day the dearer one."""
    if key not in prices or (since, nano) > prices[key]:
        prices[key] = since, nano
