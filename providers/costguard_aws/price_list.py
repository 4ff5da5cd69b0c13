"""On-demand prices from AWS's Price List: one price for each (type, region, operation, tenancy), cached for a day.

A product is in the list several times, by `capacitystatus`. `AllocatedCapacityReservation` costs $0 and
`UnusedCapacityReservation` is billed while nothing runs, so only `Used` is requested and accepted. The remaining entries must
state one price; two different ones count as no price.

The price list is public: every account reads the same one, and its prices are not secret.

Products are parsed to prices by pure functions. The requested filters are checked again in the answer, in case the list ignores
one. Prices of storage and addresses are learned beside them, in `storage_prices`.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from costguard.errors import ProviderError
from costguard.metering.observation import Price, parse_hourly_rate
from costguard.providers.ports import Cache
from costguard.system.clock import Clock
from costguard.values.instant import EARLIEST
from costguard.values.money import Rate
from costguard_aws.errors import AwsClients
from costguard_aws.instance_types import load_known_types
from costguard_aws.price_products import ListedProduct, PriceFilter, fetch_products, match_fields, parse_product

FRESH, FRESH_NONE = timedelta(hours=24), timedelta(hours=1)
"""How long a price and a "there is none" are taken to hold. AWS cut P4 and P5 without notice in June 2025."""

USABLE = timedelta(days=30)
"""How old a kept price may be where the list cannot be asked: as long as a list price counts as fresh (quoting/offer.py)."""

QUIET = timedelta(minutes=5)
"""How long the list is left alone after it could not be asked, so that a poll does not wait for it again and again."""

SOURCE = "AWS price list"
LONGEST_VALUE = 1024
"""Characters of a filter's value: botocore's model."""


class PriceKey(NamedTuple):
    """What determines a price. `region`: or the Local or Wavelength Zone, as in the price list.

    `operation`: an instance's UsageOperation. `tenancy`: default, dedicated or host.
    """

    instance_type: str
    region: str
    operation: str = "RunInstances"
    tenancy: str = "default"


class _CachedPrice(msgspec.Struct):
    """A cached price.

    `nano`: None if there is no price, for the reason `why`.
    """

    at: datetime
    nano: int | None
    since: datetime | None = None
    why: str = ""
    doubtful: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceAnswer:
    """A price, or an unknown one with its reason `why`; with a known price `why` states how old it is and why.

    `doubtful`: the list could not be fetched or read; False if the list has no such price.
    """

    price: Price
    why: str = ""
    doubtful: bool = False


class OnDemandPrices:
    """Prices for all accounts of one process.

    Thread-safe.
    """

    def __init__(self, aws: AwsClients, cache: Cache, clock: Clock) -> None:
        self._aws, self._cache, self._clock = aws, cache, clock
        self._asking = defaultdict[str, threading.Lock](threading.Lock)
        self._kept: dict[PriceKey, _CachedPrice] = {}
        self._quiet_until, self._silence = EARLIEST, ""
        self._several: bool | None = None

    def find_rate(self, instance_type: str, region: str, operation: str = "RunInstances", tenancy: str = "default") -> Price:
        """Return the price of one type; unknown (never zero) if the list has none or several, or cannot be read."""
        return self.find_price(PriceKey(instance_type, region, operation or "RunInstances", tenancy or "default")).price

    def find_price(self, key: PriceKey) -> PriceAnswer:
        """Return the price with its reason; the list is read at most once a day for each key."""
        self.learn((key,))
        return self.peek_price(key)

    def peek_price(self, key: PriceKey) -> PriceAnswer:
        """Return the learned price without a request, which is fast for thousands of machines of one type."""
        return _make_answer(self._kept.get(key), self._clock.now(), self._silence)

    def learn(self, keys: Collection[PriceKey]) -> None:
        """Fetch all of `keys` whose price is missing or old, many types in one request; failures stay unknown.

        Regions are fetched concurrently by the threads that poll them, each region by one thread.
        """
        now = self._clock.now()
        missing = [key for key in dict.fromkeys(keys) if not self._peek_cached(key, now)]
        for region in dict.fromkeys(key.region for key in missing):
            with self._asking[region]:
                if self._clock.now() >= self._quiet_until:
                    self._learn_region([key for key in missing if key.region == region and not self._peek_cached(key, now)])

    def _learn_region(self, missing: list[PriceKey]) -> None:
        groups: dict[tuple[str, str, str], list[str]] = {}
        for key in missing:
            groups.setdefault((key.region, key.operation, key.tenancy), []).append(key.instance_type)
        try:
            for (region, operation, tenancy), types in groups.items():
                self._learn(types, region, operation, tenancy)
        except ProviderError as broken:
            self._silence = f"the price list cannot be queried: {broken.what}"
            self._quiet_until = self._clock.now() + QUIET

    def _peek_cached(self, key: PriceKey, now: datetime) -> bool:
        entry = self._kept.get(key) or self._read_cached(key, now)
        if entry is None:
            return False
        self._kept[key] = entry
        return now - entry.at < (FRESH if entry.nano is not None else FRESH_NONE)

    def _read_cached(self, key: PriceKey, now: datetime) -> _CachedPrice | None:
        data = self._cache.get(_build_cache_name(key), now - USABLE)
        try:
            return None if data is None else msgspec.json.decode(data, type=_CachedPrice)
        except msgspec.DecodeError:
            return None

    def _learn(self, types: list[str], region: str, operation: str, tenancy: str) -> None:
        priced = self._fetch(types, region, operation, tenancy)
        now = self._clock.now()
        for instance_type in types:
            key = PriceKey(instance_type, region, operation, tenancy)
            one = priced.get(instance_type, ListedPrice())
            nano = one.rate.nano_per_hour if one.rate else None
            entry = _CachedPrice(
                at=now,
                nano=nano,
                since=one.since,
                why=one.why or ("" if nano else _explain_no_price(key)),
                doubtful=bool(one.why),
            )
            self._kept[key] = entry
            self._cache.put(_build_cache_name(key), msgspec.json.encode(entry))

    def _fetch(self, types: list[str], region: str, operation: str, tenancy: str) -> Mapping[str, ListedPrice]:
        """Return the list's prices of `types`."""
        if tenancy == "host" or region.startswith("cn-"):
            return {}
        products: list[object] = []
        for batch in _split_batches(types):
            products += self._fetch_batch(batch, region, operation, tenancy)
        gpus = {name: _bound_gpu_count(name) for name in types}
        return parse_prices(products, gpus, region=region, operation=operation, tenancy=tenancy, now=self._clock.now())

    def _fetch_batch(self, types: list[str], region: str, operation: str, tenancy: str) -> list[object]:
        """Fetch all types in one request; singly if the list does not support that, or has not yet been seen to support it."""
        if len(types) > 1 and self._several is not False:
            products = fetch_products(self._aws, build_filters(types, region, operation, tenancy))
            self._several = False if products is None else True if products else self._several
            if products or self._several:
                return products or []
        singly = (fetch_products(self._aws, build_filters([one], region, operation, tenancy)) for one in types)
        return [product for products in singly for product in products or ()]


def _make_answer(entry: _CachedPrice | None, now: datetime, silence: str) -> PriceAnswer:
    if entry is None or now - entry.at >= USABLE:
        return PriceAnswer(price=Price(None, None, SOURCE), why=silence or "the price list was not asked", doubtful=True)
    if entry.nano is None:
        return PriceAnswer(price=Price(None, None, SOURCE), why=entry.why, doubtful=entry.doubtful)
    old = f"price of {entry.at:%Y-%m-%d}: {silence or 'the price list was not asked since'}" if now - entry.at >= FRESH else ""
    return PriceAnswer(price=Price(Rate(nano_per_hour=entry.nano), entry.since, SOURCE), why=old, doubtful=bool(old))


def _explain_no_price(key: PriceKey) -> str:
    if key.tenancy == "host":
        return f"{key.instance_type} is on a dedicated host, which is billed instead"
    if key.region.startswith("cn-"):
        return f"{key.region} has a price list of its own, which is not read"
    return f"the price list has no on-demand price of {key.instance_type} ({key.operation}, {key.tenancy}) in {key.region}"


def _build_cache_name(key: PriceKey) -> str:
    """Return the name of a cache entry: letters, digits, dots and dashes."""
    return "-".join(("aws-price", *("".join(c if c.isalnum() or c == "." else "-" for c in part) for part in key)))


def _split_batches(types: list[str]) -> list[list[str]]:
    """Split `types` into lists whose comma-joined names fit into a filter."""
    batches: list[list[str]] = [[]]
    for one in sorted(types):
        if batches[-1] and sum(map(len, batches[-1])) + len(batches[-1]) + len(one) > LONGEST_VALUE:
            batches.append([])
        batches[-1].append(one)
    return batches


def _bound_gpu_count(instance_type: str) -> float:
    """Return the number of GPUs that bounds the price; 16 (p2.16xlarge, trn1.32xlarge) if the type is unknown."""
    kind = load_known_types().get(instance_type)
    return max(1.0, kind.gpu_count) if kind else 16.0


OUTPOSTS = "AWS Outposts"
"""Where products of a region's code are sold that have other prices. Local and Wavelength Zones have codes of their own."""
TENANCIES = {"default": "Shared", "dedicated": "Dedicated", "host": "Host"}
PLAIN = "RunInstances"
"""The UsageOperation of Linux without paid software."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPrice:
    """The list's price of one type.

    `why`: the reason if there is not one price.
    """

    rate: Rate | None = None
    since: datetime | None = None
    why: str = ""


def build_filters(types: Collection[str], region: str, operation: str, tenancy: str) -> list[PriceFilter]:
    """Return the filters that select one product of each type.

    One type uses TERM_MATCH, which every endpoint supports; several use ANY_OF.
    """
    attributes = {
        "regionCode": region,
        "tenancy": TENANCIES.get(tenancy, tenancy),
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "operation": operation,
    }
    if operation == PLAIN:
        attributes |= {"operatingSystem": "Linux", "preInstalledSw": "NA", "licenseModel": "No License required"}
    kind = "TERM_MATCH" if len(types) == 1 else "ANY_OF"
    return [PriceFilter(Type=kind, Field="instanceType", Value=",".join(types)), *match_fields(**attributes)]


def parse_prices(
    products: Iterable[object], types: Mapping[str, float], *, region: str, operation: str, tenancy: str, now: datetime
) -> dict[str, ListedPrice]:
    """Return the price of each of `types` in `products`, or why it has none; types without a product are left out.

    `types`: with their number of GPUs, which bounds the accepted price.
    """
    by_type: dict[str, list[ListedPrice]] = {}
    for product in products:
        listed = parse_product(product)
        if listed is None:
            continue
        attrs = listed.product.attributes
        key = (attrs.region_code, attrs.operation, attrs.tenancy)
        fits = key == (region, operation, TENANCIES.get(tenancy, tenancy)) and attrs.location_type != OUTPOSTS
        if fits and attrs.instance_type in types and attrs.capacitystatus == "Used" and attrs.marketoption == "OnDemand":
            by_type.setdefault(attrs.instance_type, []).extend(_list_prices(listed, types[attrs.instance_type], now))
    return {name: _agree_on_price(prices) for name, prices in by_type.items()}


def _list_prices(listed: ListedProduct, gpus: float, now: datetime) -> list[ListedPrice]:
    """Return every hourly price in USD that is in force at `now`."""
    prices = list[ListedPrice]()
    for since, dimension in listed.list_dimensions(now.astimezone(UTC)):
        if dimension.unit.lower() in {"hrs", "hours", "hour"} and "USD" in dimension.price_per_unit:
            rate, why = parse_hourly_rate(dimension.price_per_unit["USD"], gpus=gpus)
            prices.append(ListedPrice(rate=rate, since=since, why=why))
    return prices


def _agree_on_price(prices: list[ListedPrice]) -> ListedPrice:
    """Return the one price that all entries state, with its oldest date; without a rate if they differ."""
    rates = {price.rate for price in prices if price.rate}
    odd = next((price.why for price in prices if price.why), "")
    if len(rates) != 1 or odd:
        amounts = sorted({price.rate.format(4) for price in prices if price.rate})
        return ListedPrice(why=odd or (f"the price list has several prices: {', '.join(amounts[:4])}" if amounts else ""))
    since = [price.since for price in prices if price.since is not None]
    return ListedPrice(rate=rates.pop(), since=min(since) if since else None)
