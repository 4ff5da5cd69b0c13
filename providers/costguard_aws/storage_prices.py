"""List prices of EBS volumes and public IPv4 addresses from AWS's Price List, by region, cached for a day.

One request learns everything about one volume type in one region: its capacity (`EBS:VolumeUsage.gp3`, a GB-month), the IOPS
provisioned for it (`EBS:VolumeP-IOPS.gp3`, an IOPS-month) and its throughput (`EBS:VolumeP-Throughput.gp3`, a GiBps-month, of
which 1,024th is kept). One more learns the address, which is sold by Amazon VPC. A product is identified by its usage type
alone, whose prefix names the region ("USE1-"); a Local Zone is a region of the list, and Outposts are left out.

Example: gp3 in ap-northeast-1, 2026-11: $0.096 a GB-month, $0.006 an IOPS-month above 3,000, $0.048 a MiB/s-month above 125.

What the list does not answer stays unknown, and the billing rule prices it (`storage_rates.csv`, moved by region): each volume
type is asked for by itself, so that a list that answers half is used by half.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import NamedTuple

import msgspec

from costguard.errors import ProviderError, ThrottledError, UnreachableError
from costguard.metering.billing import HIGHEST_PER_GB
from costguard.providers.ports import Cache
from costguard.system.clock import Clock
from costguard.values.instant import EARLIEST
from costguard_aws.errors import AwsClients
from costguard_aws.price_list import FRESH, FRESH_NONE, OUTPOSTS, QUIET, SOURCE, USABLE
from costguard_aws.price_products import COMPUTE_SERVICE, PriceFilter, fetch_products, match_fields, parse_product

__all__ = ["ADDRESS_IDLE", "ADDRESS_IN_USE", "ADDRESS_KIND", "SOURCE", "StorageKey", "StoragePrices"]

ADDRESS_KIND, ADDRESS_SERVICE, ADDRESS_GROUP = "public-ipv4", "AmazonVPC", "VPCPublicIPv4Address"
"""Public IPv4 addresses are sold by Amazon VPC since 2024-02, in a group of the list and in no product family."""
ADDRESS_IN_USE, ADDRESS_IDLE = "address-in-use", "address-idle"

LINES = {
    "EBS:VolumeUsage": "standard",
    "EBS:VolumeUsage.gp2": "gp2",
    "EBS:VolumeUsage.gp3": "gp3",
    "EBS:VolumeUsage.piops": "io1",
    "EBS:VolumeUsage.io2": "io2",
    "EBS:VolumeUsage.st1": "st1",
    "EBS:VolumeUsage.sc1": "sc1",
    "EBS:VolumeP-IOPS.gp3": "gp3-iops",
    "EBS:VolumeP-IOPS.piops": "io1-iops",
    "EBS:VolumeP-IOPS.io2": "io2-iops",
    "EBS:VolumeP-IOPS.io2.tier2": "io2-iops-tier2",
    "EBS:VolumeP-IOPS.io2.tier3": "io2-iops-tier3",
    "EBS:VolumeP-Throughput.gp3": "gp3-mibps",
    "PublicIPv4:InUseAddress": ADDRESS_IN_USE,
    "PublicIPv4:IdleAddress": ADDRESS_IDLE,
}
"""Usage type -> the line that it prices (the type of disk of `billing.toml`). Seen in public price readers, 2026-11."""

CAPACITY_UNITS, IOPS_UNITS = {"gb-mo": 1, "gb-month": 1}, {"iops-mo": 1}
THROUGHPUT_UNITS, ADDRESS_UNITS = {"gibps-mo": 1024, "mibps-mo": 1}, {"hrs": 1}
"""Unit in lower case -> how many of the unit that is kept it holds. io2 alone is sold by the "GB-month"."""

_USAGE = re.compile(r"(?:[A-Z][A-Z0-9]{1,11}-)?(?P<usage>[^-].*)", re.ASCII)
"""A usage type after the prefix of its region: USE1-, EU-, APN1-; that of us-east-1 may be missing."""


class StorageKey(NamedTuple):
    """What one request learns: `kind`: a volume type ("gp3"), or `ADDRESS_KIND`."""

    region: str
    kind: str


class _CachedPrices(msgspec.Struct):
    """`nanos`: line -> nano-USD a month, or an hour of an address; empty if the list has none."""

    at: datetime
    nanos: dict[str, int]


class StoragePrices:
    """Prices for all accounts of one process.

    Thread-safe; nothing is requested before `learn`.
    """

    def __init__(self, aws: AwsClients, cache: Cache, clock: Clock) -> None:
        self._aws, self._cache, self._clock = aws, cache, clock
        self._asking = defaultdict[str, threading.Lock](threading.Lock)
        self._kept: dict[StorageKey, _CachedPrices] = {}
        self._quiet_until = defaultdict[StorageKey | str, datetime](lambda: EARLIEST)
        """By what is left alone: one kind in a region, or a whole service."""

    def find_price(self, region: str, kind: str, line: str) -> int | None:
        """Return the learned nano-USD of `line` ("gp3-iops") without a request; None if unknown or older than `USABLE`."""
        entry = self._kept.get(StorageKey(region, kind))
        return entry.nanos.get(line) if entry and self._clock.now() - entry.at < USABLE else None

    def learn(self, region: str, kinds: Collection[str]) -> tuple[str, ...]:
        """Fetch the prices of `kinds` in `region` that are missing or old; returns why some could not be fetched.

        After the list of a service could not be reached, it is left alone for `QUIET`; after it refused one kind, that kind is.
        """
        if region.startswith("cn-"):  # has a price list of its own
            return ()
        why: dict[str, None] = {}
        with self._asking[region]:
            for kind in sorted(kinds):
                key = StorageKey(region, kind)
                quiet_until = max(self._quiet_until[key], self._quiet_until[_get_service(kind)])
                if not self._is_fresh(key) and self._clock.now() >= quiet_until:
                    why |= dict.fromkeys(self._fetch(key))
        return tuple(why)

    def _is_fresh(self, key: StorageKey) -> bool:
        entry = self._kept.get(key) or self._read_cached(key)
        if entry is None:
            return False
        self._kept[key] = entry
        return self._clock.now() - entry.at < (FRESH if entry.nanos else FRESH_NONE)

    def _read_cached(self, key: StorageKey) -> _CachedPrices | None:
        data = self._cache.get(_build_cache_name(key), self._clock.now() - USABLE)
        try:
            return None if data is None else msgspec.json.decode(data, type=_CachedPrices)
        except msgspec.DecodeError:
            return None

    def _fetch(self, key: StorageKey) -> tuple[str, ...]:
        """Fetch one kind; returns why it could not be fetched."""
        try:
            products = fetch_products(self._aws, *_build_question(key))
        except ProviderError as broken:
            every = isinstance(broken, UnreachableError | ThrottledError)
            self._quiet_until[_get_service(key.kind) if every else key] = self._clock.now() + QUIET
            return (f"the price list cannot be queried for storage: {broken.what}",)
        now, old = self._clock.now(), self._kept.get(key)
        new = _CachedPrices(at=now, nanos=parse_storage_prices(products or (), key.region, now))
        if not new.nanos and old is not None and old.nanos and now - old.at < USABLE:
            self._quiet_until[key] = now + FRESH_NONE
            return (f"the price list has no prices for {key.kind} in {key.region}: prices of {old.at:%Y-%m-%d} are used",)
        self._kept[key] = new
        self._cache.put(_build_cache_name(key), msgspec.json.encode(new))
        return ()


def _get_service(kind: str) -> str:
    return ADDRESS_SERVICE if kind == ADDRESS_KIND else COMPUTE_SERVICE


def _build_question(key: StorageKey) -> tuple[list[PriceFilter], str]:
    """Return the filters and the service that select every product of `key`."""
    if key.kind == ADDRESS_KIND:
        return match_fields(regionCode=key.region, group=ADDRESS_GROUP), _get_service(key.kind)
    return match_fields(regionCode=key.region, volumeApiName=key.kind), _get_service(key.kind)


def _build_cache_name(key: StorageKey) -> str:
    return "-".join(("aws-storage-price", *("".join(c if c.isalnum() else "-" for c in part) for part in key)))


def parse_storage_prices(products: Iterable[object], region: str, now: datetime) -> dict[str, int]:
    """Return line -> nano-USD of every product of `region` that has one price above 0; two different prices are none.

    A price of 0 is that of the amount that is included (the first 3,000 IOPS of gp3).
    """
    by_line = defaultdict[str, set[int | None]](set)
    for product in products:
        listed = parse_product(product)
        if listed is None:
            continue
        attrs = listed.product.attributes
        usage = _USAGE.fullmatch(attrs.usagetype)
        line = LINES.get(usage["usage"]) if usage else None
        if line is None or attrs.region_code != region or attrs.location_type == OUTPOSTS:
            continue
        for _, dimension in listed.list_dimensions(now.astimezone(UTC)):
            size = _get_units(line).get(dimension.unit.lower())
            if size is not None and "USD" in dimension.price_per_unit:
                by_line[line].add(_parse_nano(dimension.price_per_unit["USD"], size))
    agreed = {line: tuple(nanos - {0}) for line, nanos in by_line.items()}
    return {line: nanos[0] for line, nanos in agreed.items() if len(nanos) == 1 and nanos[0] is not None}


def _get_units(line: str) -> Mapping[str, int]:
    if line in (ADDRESS_IN_USE, ADDRESS_IDLE):
        return ADDRESS_UNITS
    return IOPS_UNITS if "-iops" in line else THROUGHPUT_UNITS if line.endswith("-mibps") else CAPACITY_UNITS


def _parse_nano(price: object, size: int) -> int | None:
    """Return nano-USD of one of the `size` units that `price` is for; None if it is no possible price."""
    try:
        nano = Decimal(str(price)).scaleb(9) / size
    except (ArithmeticError, ValueError):
        return None
    return round(nano) if nano.is_finite() and 0 <= nano <= HIGHEST_PER_GB else None
