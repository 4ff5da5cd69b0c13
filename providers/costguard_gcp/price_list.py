"""The hourly cost of a machine from the Cloud Billing Catalog.

Pure, except the fetching. The catalogue has no price of a machine: it is the sum of its cores, memory, GPUs and bundled local
SSD. Prices are stored by `part|tier|region`, in nano-USD an hour of one core, GiB or GPU. A SKU is identified by its
description only.

Example: a2-highgpu-1g in us-central1: 12 x $0.031611 + 85 x $0.004237 + 1 x $2.933908 = $3.673385 an hour.

The price list of Compute Engine has tens of thousands of SKUs; it is fetched once a day and cached as a few thousand prices.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from math import ceil

import msgspec

from costguard.errors import InvalidAnswerError, ProviderError, to_one_line
from costguard.metering.billing import LICENCE_PER_VCPU
from costguard.metering.observation import Price, parse_hourly_rate, widen_price
from costguard.metering.price_ladder import VCPUS_UNKNOWN
from costguard.providers.ports import Cache
from costguard.providers.transport import Deadline
from costguard.system.clock import Clock
from costguard.values.money import Rate
from costguard_gcp.api import BILLING, GoogleApi
from costguard_gcp.machine_types import MachineShape
from costguard_gcp.wire import Sku, SkuPage, UnitPrice, parse_whole_number

SOURCE = "Cloud Billing Catalog"
SERVICE = "6F81-5844-456A"
"""Compute Engine in the catalogue (gcp.md, section 3)."""

ON_DEMAND, SPOT, FLEX = "on-demand", "spot", "flex"
"""`flex`: Flex-start, in the catalogue "DWS Defined Duration"."""

TORN = 0
"""Two SKUs fit one part and differ: the price is unknown, rather than the first, the last or the cheaper."""

AI_ZONE = re.compile(r"-ai\d")
"""In the names of AI zones (us-south1-ai1a), which the catalogue does not have; prices of their region say little of them."""
SOLE_TENANT = "sole-tenant node, billed in its place"
FREE_SOFTWARE = re.compile(
    r"/projects/((almalinux|centos|cos|debian|fedora|fedora-coreos|opensuse|oracle-linux|rocky-linux|ubuntu-os)-cloud|vm-options|"
    r"(click-to-deploy|confidential-vm|gke-node|ml|ubuntu-os-accelerator)-images|compute-image-tools|deeplearning-platform-release)/"
)
"""Whose licences cost nothing: Compute Engine's public images and its own options, from memory, 2026-11."""

HOURS_A_MONTH = 730
NANO = 10**9

Prices = Mapping[str, int]


def add_software(price: Price, licences: Iterable[str], vcpus: float) -> Price:
    """Return `price`, surcharged if a licence of its disks is not known to be free: Windows, RHEL, or from the Marketplace."""
    if all(FREE_SOFTWARE.search(one) for one in licences):
        return price
    return widen_price(price, "paid software", ceil(vcpus or VCPUS_UNKNOWN) * LICENCE_PER_VCPU)


def collect_prices(skus: Iterable[msgspec.Raw], prices: MutableMapping[str, int]) -> int:
    """Add the price of every SKU of a machine or a disk to `prices`, and return how many SKUs could not be read."""
    unread = 0
    for raw in skus:
        try:
            sku = msgspec.json.decode(raw, type=Sku)
        except (msgspec.DecodeError, RecursionError):
            unread += 1
            continue
        parts = classify_sku(sku) or classify_storage_sku(sku)
        nano = _parse_nano(sku, parts[0]) if parts else None
        if parts is None or nano is None:
            continue
        for region in sku.service_regions or ():
            key = "|".join((*parts, region))
            prices[key] = nano if prices.get(key, nano) == nano else TORN
    return unread


def classify_sku(sku: Sku) -> tuple[str, str] | None:
    """Return the (part, tier) that a SKU prices; None for others: commitments, sole tenancy, calendar mode ..."""
    text = (sku.description or "").lower()
    usage = (sku.category.usage_type if sku.category else None) or ""
    if usage.lower().startswith("commit") or any(word in text for word in _LEFT_OUT):
        return None
    tier = SPOT if "preemptible" in text or usage == "Preemptible" else FLEX if "dws" in text else ON_DEMAND
    head = _HEAD.match(_TIER_WORDS.sub("", text))
    part = _classify_words(re.sub(r"\s+", " ", head[1]).strip()) if head else None
    return None if part is None else (part, tier)


def classify_storage_sku(sku: Sku) -> tuple[str, str] | None:
    """Return the (part, tier) of a disk's capacity, IOPS or throughput, or of an idle address; None for other SKUs."""
    usage = (sku.category.usage_type if sku.category else None) or "OnDemand"
    words = (sku.description or "").lower().partition(" in ")[0].strip()
    line = DISKS.get(words.removeprefix(REGIONAL_WORD))
    if line is None or usage != "OnDemand":
        return ("address", ON_DEMAND) if words == "static ip charge" and usage == "OnDemand" else None
    if not words.startswith(REGIONAL_WORD):
        return _name_disk_part(line), ON_DEMAND
    return (_name_disk_part(f"{line}{REGIONAL}"), ON_DEMAND) if line.startswith("pd-") else None


def _name_disk_part(line: str) -> str:
    """Return the part that a line of storage is priced by: "iops:pd-extreme-iops"; its start says in which unit."""
    return f"{'iops' if line.endswith(IOPS_END) else 'mibps' if line.endswith(MIBPS_END) else 'disk'}:{line}"


_LEFT_OUT = (
    "commitment",
    "sole tenancy",
    "reserved",
    "reservation",
    "calendar",
    "virtual workstation",
    "vws",
    "capacity",
    "premium",
    "licensing",
    "license",
    "suspended",
    "confidential",
    "overcommit",
    "upgrade",
)
"""gcp.md, section 3, traps a and c. `custom` is no such word: custom machines pay SKUs of their own."""

_TIER_WORDS = re.compile(r"^(?:spot )?preemptible |^dws defined duration ")
_HEAD = re.compile(r"(.+?)(?= attached to | running in | in |$)")
_CORE = re.compile(
    r"(?:(?P<family>[a-z]\d+[a-z]{0,6})(?: (?P<kind>mega|ultra))? )?(?:amd |arm )?(?:predefined )?(?P<custom>custom )?"
    r"(?:instance )?(?P<part>core|cpu|ram)"
)
_SLICE = re.compile(r"(?:[a-z]\d+[a-z]* )?(?:nvidia )?(?:tesla )?(?P<gpu>.+?) \(?1 gpu slice\)?")
_GPU = re.compile(r"(?:nvidia )?(?:tesla )?(?P<gpu>.+?)(?: gpu)?")

GPUS = {
    "gb300": "nvidia-gb300",
    "gb200": "nvidia-gb200",
    "b200": "nvidia-b200",
    "h200 141gb": "nvidia-h200-141gb",
    "h100 80gb mega": "nvidia-h100-mega-80gb",
    "h100 mega 80gb": "nvidia-h100-mega-80gb",
    "h100 80gb plus": "nvidia-h100-mega-80gb",
    "h100 80gb": "nvidia-h100-80gb",
    "a100 80gb": "nvidia-a100-80gb",
    "a100": "nvidia-tesla-a100",
    "l4": "nvidia-l4",
    "rtx 6000 96gb": "nvidia-rtx-pro-6000",
    "rtx pro 6000": "nvidia-rtx-pro-6000",
    "rtx pro 6000 96gb": "nvidia-rtx-pro-6000",
    "t4": "nvidia-tesla-t4",
    "p4": "nvidia-tesla-p4",
    "v100": "nvidia-tesla-v100",
    "p100": "nvidia-tesla-p100",
}
"""What descriptions call a GPU, whole words only (A100 is not A100 80GB, L4 is not L40), and the API's name for it: gcp.md,
section 3, and descriptions quoted in public price readers, 2026-11. A3 Mega's has "Mega" and, in the Americas, "Plus"."""


DISKS = {
    "storage pd capacity": "pd-standard",
    "balanced pd capacity": "pd-balanced",
    "ssd backed pd capacity": "pd-ssd",
    "extreme pd capacity": "pd-extreme",
    "hyperdisk balanced capacity": "hyperdisk-balanced",
    "hyperdisk extreme capacity": "hyperdisk-extreme",
    "hyperdisk throughput capacity": "hyperdisk-throughput",
    "hyperdisk ml capacity": "hyperdisk-ml",
    "extreme pd iops": "pd-extreme-iops",
    "hyperdisk balanced iops": "hyperdisk-balanced-iops",
    "hyperdisk extreme iops": "hyperdisk-extreme-iops",
    "hyperdisk balanced throughput": "hyperdisk-balanced-mibps",
    "hyperdisk throughput throughput": "hyperdisk-throughput-mibps",
    "hyperdisk throughput throughput capacity": "hyperdisk-throughput-mibps",
    "hyperdisk ml throughput": "hyperdisk-ml-mibps",
}
"""What descriptions call the capacity of a disk and what is provisioned for it, and the line that it prices: the API's name of
the type and what is provisioned. Descriptions quoted in public price readers, 2026-11; unverified. Snapshots, storage pools and
confidential disks have others. A regional disk has the description of a zonal one with `REGIONAL_WORD` before it."""

REGIONAL_WORD, REGIONAL = "regional ", "-regional"
IOPS_END, MIBPS_END = "-iops", "-mibps"


def _classify_words(words: str) -> str | None:
    if words == "ssd backed local storage":
        return "ssd"
    if core := _CORE.fullmatch(words):
        family = (core["family"] or "n1") if core["family"] or core["custom"] else ""
        family += {"mega": "plus", "ultra": "ultra", None: ""}[core["kind"]]
        part = "ram" if core["part"] == "ram" else "core"
        return f"{part}:{family}{' custom' if core['custom'] else ''}" if family else None
    if sliced := _SLICE.fullmatch(words):
        return f"slice:{GPUS[sliced['gpu']]}" if sliced["gpu"] in GPUS else None
    gpu = _GPU.fullmatch(words)
    return f"gpu:{GPUS[gpu['gpu']]}" if gpu and gpu["gpu"] in GPUS else None


_UNITS = {
    "core": ("h",),
    "ram": ("GiBy.h",),
    "gpu": ("h",),
    "slice": ("h",),
    "ssd": ("GiBy.mo",),
    "disk": ("GiBy.mo",),
    "iops": ("mo", "{IOPS}.mo"),
    "mibps": ("mo", "MiBy/s.mo"),
    "address": ("h",),
}
"""By the start of a part. IOPS and throughput of Hyperdisk are sold by "mo" in the catalogue as quoted in 2026-11."""


def _parse_nano(sku: Sku, part: str) -> int | None:
    """Return nano-USD for one unit; None if it is free, in another unit or currency, or unreadable."""
    expression = sku.pricing_info[0].pricing_expression if sku.pricing_info else None
    if expression is None or not expression.tiered_rates or expression.usage_unit not in _UNITS[part.split(":", maxsplit=1)[0]]:
        return None
    price = expression.tiered_rates[-1].unit_price
    return None if price is None or price.currency_code not in (None, "USD") else _parse_amount(price)


def _parse_amount(price: UnitPrice) -> int | None:
    """Parse an amount in nano-units; `units` is text and missing if zero, and so is `nanos`."""
    units = 0 if price.units in (None, "") else parse_whole_number(price.units)
    nanos = price.nanos or 0
    if units is None or units > MOST_UNITS or not 0 <= nanos < NANO:
        return None
    return units * NANO + nanos or None


MOST_UNITS = 1000
"""USD for one core, GiB or GPU an hour: more is a wrong unit (`HIGHEST_PER_GPU`)."""


def compute_rate(
    machine: MachineShape | None, accelerators: tuple[tuple[str, int], ...], tier: str, region: str, prices: Prices
) -> tuple[Rate | None, str]:
    """Return the machine's total hourly price and ""; or None and why it is unknown, for example one part has no price."""
    if machine is None:
        return None, "price unknown: its machine type is not known"
    if machine.shared:
        return None, "price unknown: it shares a core"
    if tier not in (ON_DEMAND, SPOT, FLEX):
        return None, f"price unknown: {'it is billed through its reservation' if tier == 'reservation' else 'tier not known'}"
    if any(name.endswith("-vws") for name, _ in accelerators):
        return None, "price unknown: the workstation licence of its GPU is not in the price list's GPU price"
    gpus: dict[str, Decimal] = {}
    if machine.gpus:
        gpus[machine.accelerator] = Decimal(str(machine.gpus))
    else:
        for name, count in accelerators:
            gpus[name] = gpus.get(name, Decimal(0)) + count
    needed = _list_slice_parts(machine, gpus, tier, region, prices) or _list_machine_parts(machine, gpus)
    total = Decimal(0)
    for part, amount in needed:
        nano = prices.get(f"{part}|{tier}|{region}", TORN)
        if nano == TORN:
            return None, f"price unknown: the price list has no single {tier} price for {part} in {region}"
        total += amount * nano
    return parse_hourly_rate(total.scaleb(-9), gpus=max(1.0, float(sum(gpus.values(), Decimal(0)))))


def _list_slice_parts(
    machine: MachineShape, gpus: Mapping[str, Decimal], tier: str, region: str, prices: Prices
) -> list[tuple[str, Decimal]]:
    """Return the parts of a GPU slice, which includes its cores and memory; empty if it is not sold as a slice."""
    slices = [(f"slice:{name}", count) for name, count in gpus.items()]
    return slices if machine.gpus and all(f"{part}|{tier}|{region}" in prices for part, _ in slices) else []


def _list_machine_parts(machine: MachineShape, gpus: Mapping[str, Decimal]) -> list[tuple[str, Decimal]]:
    parts = [
        (f"core:{machine.family}", Decimal(str(machine.vcpus))),
        (f"ram:{machine.family}", Decimal(str(machine.ram_gib))),
        *((f"gpu:{name}", count) for name, count in gpus.items()),
    ]
    return [*parts, ("ssd", Decimal(machine.ssd_gib) / HOURS_A_MONTH)] if machine.ssd_gib else parts


def find_disk_price(line: str, region: str, prices: Prices) -> int | None:
    """Return nano-USD a month of a GiB, an IOPS or a MiB/s of a line ("pd-ssd"); None if the list has no single price of it."""
    return prices.get(f"{_name_disk_part(line)}|{ON_DEMAND}|{region}", TORN) or None


def find_local_ssd_price(tier: str, region: str, prices: Prices) -> int | None:
    """Return nano-USD a GiB-month of local SSD that is attached to a machine of `tier`; None if unknown."""
    return prices.get(f"ssd|{tier}|{region}", TORN) or None


def find_address_price(region: str, prices: Prices) -> int | None:
    """Return nano-USD an hour of a static address that no machine uses; None if unknown.

    The first hour, which is free, is a tier of its own and is left out.
    """
    return prices.get(f"address|{ON_DEMAND}|{region}", TORN) or None


KEEP = timedelta(hours=24)
"""Spot prices change at most once a day, list prices a few times a year (gcp.md, section 3)."""
USABLE = timedelta(days=30)
"""How old a kept list may be where it cannot be read, as a list price counts as fresh (quoting/offer.py); not for spot."""
AGAIN = timedelta(minutes=10)
"""After a failure nothing is asked for so long: the pages are large."""
CACHED_AS = "gcp-prices-3"
MOST_PAGES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """`prices`: by `part|tier|region`. `at`: when it was asked for.

    `why`: why the list is empty, incomplete or old, "" if it is complete and of today. What an incomplete list lacks has no
    price here.
    """

    at: datetime
    prices: dict[str, int]
    why: str = ""


class _CachedPrices(msgspec.Struct):
    at: datetime
    prices: dict[str, int]


class PriceCatalogue:
    """The price list of one login; it is the same for every project."""

    def __init__(self, google: GoogleApi, clock: Clock, cache: Cache) -> None:
        self._google, self._clock, self._cache = google, clock, cache
        self._lock = threading.Lock()
        self._now: PriceList | None = None
        self.keep = KEEP

    def read_current(self, deadline: Deadline, *, anew: bool = False) -> PriceList:
        """Return today's prices.

        `anew`: fetch them now. If they cannot be fetched, the list is empty and states why; it raises nothing.
        """
        with self._lock:
            now, old_list = self._clock.now(), self._now
            if not anew and old_list is not None and now - old_list.at < (AGAIN if old_list.why else self.keep):
                return old_list
            new_list = None if anew else self._read_cache(now, self.keep)
            if new_list is None:
                new_list = self._fetch(now, deadline)
            self._now = new_list
            return new_list

    def _read_cache(self, now: datetime, keep: timedelta) -> PriceList | None:
        data = self._cache.get(CACHED_AS, now - keep)
        if data is None:
            return None
        try:
            cached_prices = msgspec.json.decode(data, type=_CachedPrices)
        except (msgspec.DecodeError, RecursionError):
            return None
        sound = cached_prices.prices and cached_prices.at.tzinfo is not None and timedelta(0) <= now - cached_prices.at < keep
        return PriceList(at=cached_prices.at, prices=cached_prices.prices) if sound else None

    def _fetch(self, now: datetime, deadline: Deadline) -> PriceList:
        prices: dict[str, int] = {}
        try:
            unread = self._fetch_pages(prices, deadline)
        except ProviderError as broken:
            return self._make_incomplete(prices, f"the price list cannot be read: {to_one_line(broken.what)}", now)
        if not prices:
            return self._make_incomplete(prices, "the price list names no machine", now)
        if not unread:
            self._cache.put(CACHED_AS, msgspec.json.encode(_CachedPrices(at=now, prices=prices)))
        return PriceList(at=now, prices=prices)

    def _make_incomplete(self, prices: dict[str, int], why: str, now: datetime) -> PriceList:
        """Return the pages that were read, completed by the list of an earlier day, except for its spot prices."""
        cached_list = self._read_cache(now, USABLE)
        if cached_list is None:
            return PriceList(at=now, prices=prices, why=f"{why}; half of it is used" if prices else why)
        old = {part: nano for part, nano in cached_list.prices.items() if f"|{SPOT}|" not in part}
        read = {part: nano for part, nano in prices.items() if old.get(part) != TORN}  # two prices of one thing stay none
        return PriceList(at=now, prices=old | read, why=f"{why}; prices of {cached_list.at:%Y-%m-%d} are used")

    def _fetch_pages(self, prices: dict[str, int], deadline: Deadline) -> int:
        """Add every price to `prices`, page by page, and return how many SKUs could not be read.

        Raises ProviderError where a page fails; `prices` then holds the pages before it.
        """
        token, page_tokens, unread = "", set[str](), 0
        for _ in range(MOST_PAGES):
            params = {"pageSize": "5000", "currencyCode": "USD", **({"pageToken": token} if token else {})}
            reply = self._google.read(BILLING, "", f"/v1/services/{SERVICE}/skus", params, deadline=deadline)
            page = self._google.decode(BILLING, "", reply, SkuPage, "the price list")
            unread += collect_prices(page.skus, prices)
            token = page.next_page_token or ""
            if not token:
                return unread
            if token in page_tokens:
                break
            page_tokens.add(token)
        raise InvalidAnswerError("its pages do not end", provider="gcp")
