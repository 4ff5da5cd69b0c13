"""Translate Scaleway's Instances, volumes, addresses and types to observations and offers.

Pure: no network, no clock. An Instance that was shut down from inside is "stopped in place": it keeps its GPU and is billed in
full, so it is `paused` here, never `stopped`. Example: L4-1-24G at EUR 0.75 an hour, "stopped in place", with the rate
1 USD = 0.80 EUR: paused, one L4, $0.9375 an hour.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal

from costguard.errors import InputError, UnknownNameError, shorten, to_one_line
from costguard.metering.observation import (
    LARGEST_GB,
    MOST_GPUS,
    SURCHARGED,
    Disk,
    Estimate,
    Handling,
    Observation,
    Price,
    parse_hourly_rate,
)
from costguard.quoting.offer import Offer
from costguard.values.gpu import GpuNames
from costguard.values.instant import parse_instant
from costguard.values.money import ExchangeRate, Money, Rate
from costguard.values.resource import ADDRESS, RUNNING, STOPPED, UNKNOWN, VOLUME, ResourceKey, make_storable
from costguard_scaleway import NAME
from costguard_scaleway.wire import Address, Server, ServerType, Volume

PAUSED = "paused"
STATES = {
    "running": RUNNING,
    "starting": "starting",
    "stopping": "stopping",
    "stopped": STOPPED,
    "stopped in place": PAUSED,
    "stopped_in_place": PAUSED,
    "locked": "failed",
}
"""Every state of the SDK (2.12.0). The Python SDK writes `stopped_in_place`, Go's and JavaScript's, generated from the same
specification, `stopped in place`: both are read. `locked` is an administrative hold of a machine that may still bill."""

USD_PER_EUR = (Decimal("0.95"), Decimal("1.15"), Decimal("1.30"))
"""Dollars the euro where no rate is set: low, expected, high. ECB's reference rates of 2021 to 2025, 0.9565 to 1.2338
(from memory, 2026-12), widened: an assumption."""

GB = 10**9
"""Bytes: sizes of volumes are decimal."""
GIB = 2**30
SCRATCH = "scratch"
LOCAL_TYPES = ("l_ssd", SCRATCH)
"""Volumes of the machine's own disks, which a terminate deletes (SDK 2.12.0)."""
BLOCK_TYPES = {"sbs_volume": "sbs_5k", "b_ssd": "sbs_5k"}
LONGEST_GPU, LONGEST_ID = 80, 60

GPU_TYPES = (
    ("B300-SXM-", "B300"),
    ("H100-SXM-", "H100-SXM"),
    ("H100-", "H100-PCIe"),
    ("L40S-", "L40S"),
    ("L4-", "L4"),
    ("RENDER-", "P100"),
)
"""How the names of types begin, and their GPU (from memory, 2026-12). Other types are named by their `gpu_info`."""
GPU_COUNT = re.compile(r"^(?:[A-Z0-9]+-)?(?:SXM-|PCIe-)?(\d{1,2})-\d{1,4}G$")
"""In a name of a type: L4-1-24G, H100-SXM-8-80G."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingContext:
    """`catalogue`: the zone's types by name. `exchange`: how euros become dollars; None: a range of rates."""

    account: str
    zone: str
    gpus: GpuNames
    catalogue: Mapping[str, ServerType] = field(default_factory=dict)
    exchange: ExchangeRate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingResult:
    """The result of one poll. `faults`: what the listing lacks; `notes`: what could not be learned about its items."""

    items: list[Observation] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def add_server(listing: ListingResult, server: Server, context: ListingContext) -> None:
    """Add an Instance; one that no database can store is a fault."""
    whose = f"Instance {_shorten_id(server.id)}"
    type_ = server.commercial_type or ""
    sold = context.catalogue.get(type_)
    gpu, gpu_count = find_gpus(type_, sold, context.gpus, whose, listing.notes)
    labels = parse_tags(server.tags)
    created = parse_instant(server.creation_date)
    if created is None and server.creation_date is not None:
        listing.notes.append(f"{whose}: creation_date is no time")
    state = translate_state(server.state, whose, listing.notes)
    try:
        observation = Observation(
            key=ResourceKey(NAME, context.account, context.zone, server.id),
            state=state,
            name=server.name or "",
            instance_type=type_,
            gpu=gpu,
            gpu_count=gpu_count,
            owner=_find_owner(labels),
            labels=labels,
            created_at=created,
            prices=(make_price(sold, gpu_count, context.exchange, whose, listing.notes),),
            why=server.state or "",
            handling=make_handling(server),
            vcpus=_parse_number(sold.ncpus) or 0 if sold else 0,
            ram_gb=_parse_number(sold.ram, GIB) or 0 if sold else 0,
        )
    except InputError as odd:
        listing.faults.append(f"{whose} cannot be kept: {to_one_line(shorten(odd.what))}")
    else:
        listing.items.append(observation)


def add_volume(listing: ListingResult, volume: Volume, context: ListingContext) -> None:
    """Add a volume, which bills attached or not; scratch storage is in the price of its Instance."""
    type_ = volume.type or volume.volume_type or ""
    if type_ == SCRATCH:
        return
    whose, labels = f"volume {_shorten_id(volume.id)}", parse_tags(volume.tags)
    size = _round_up_size(volume.size)
    if size is None:
        listing.notes.append(f"{whose}: size is missing or no size, so its cost is unknown")
    try:
        observation = Observation(
            key=ResourceKey(NAME, context.account, context.zone, volume.id),
            state=RUNNING,
            kind=VOLUME,
            name=volume.name or "",
            owner=_find_owner(labels),
            labels=labels,
            created_at=parse_instant(volume.created_at if volume.created_at is not None else volume.creation_date),
            disks=(Disk(size, BLOCK_TYPES.get(type_, type_)),),
        )
    except InputError as odd:
        listing.faults.append(f"{whose} cannot be kept: {to_one_line(shorten(odd.what))}")
    else:
        listing.items.append(observation)


def add_address(listing: ListingResult, address: Address, context: ListingContext) -> None:
    """Add a flexible IPv4, which bills attached or not; IPv6 prefixes are free."""
    if (address.type or "").endswith("ipv6"):
        return
    labels = parse_tags(address.tags)
    try:
        observation = Observation(
            key=ResourceKey(NAME, context.account, context.zone, address.id),
            state=RUNNING,
            kind=ADDRESS,
            name=address.address or "",
            owner=_find_owner(labels),
            labels=labels,
            why="" if address.server else "idle",
        )
    except InputError as odd:
        listing.faults.append(f"address {_shorten_id(address.id)} cannot be kept: {to_one_line(shorten(odd.what))}")
    else:
        listing.items.append(observation)


def translate_state(state: str | None, whose: str, notes: list[str]) -> str:
    """Return costguard's state for `state`; a new word is unknown, never ended or stopped."""
    translated = STATES.get(state or "", UNKNOWN)
    if translated == UNKNOWN:
        notes.append(f"{whose}: state {to_one_line(shorten(repr(state)))} is not known")
    return translated


def find_gpus(type_: str, sold: ServerType | None, gpus: GpuNames, whose: str, notes: list[str]) -> tuple[str, int]:
    """Return the canonical GPU of a type, or Scaleway's own name of an unknown one, and how many; ("", 0) without any."""
    counted = _parse_number(sold.gpu) if sold else None
    match = GPU_COUNT.match(type_)
    by_name = next((gpu for start, gpu in GPU_TYPES if type_.startswith(start)), "")
    count = int(counted) if counted and counted <= MOST_GPUS else int(match[1]) if by_name and match else 1 if by_name else 0
    if not count:
        return "", 0
    info = sold.gpu_info if sold else None
    memory = _parse_number(info.gpu_memory, GB) if info else None
    gpu_name = (info.gpu_name or "") if info else ""
    for text, vram in ((by_name, None), (gpu_name, memory), (gpu_name, None)):
        if not text:
            continue
        try:
            return gpus.resolve(text, vram_gb=vram).canonical, count
        except UnknownNameError:
            continue
    word = make_storable(shorten(gpu_name or type_, LONGEST_GPU))
    notes.append(f"{whose}: GPU '{to_one_line(word)}' is not known")
    return word, count


def make_price(sold: ServerType | None, gpu_count: int, exchange: ExchangeRate | None, whose: str, notes: list[str]) -> Price:
    """Return the price of a type in dollars: exact at `exchange`, else over USD_PER_EUR; unknown outside the catalogue."""
    value = sold.hourly_price if sold else None
    euros, why = parse_hourly_rate(value, gpus=max(1, gpu_count), currency="EUR", field=f"{whose}: hourly_price")
    if euros is None:
        notes.append(why)
        return Price(None, source="product catalogue")
    nano = euros.nano_per_hour
    if exchange is not None:
        dollars = exchange.convert_to_dollars(Money(nano=nano, currency="EUR"))
        return Price(Rate(nano_per_hour=max(1, dollars.nano)), source=f"product catalogue, {exchange.label}")
    low, expected, high = (max(1, round(nano * rate)) for rate in USD_PER_EUR)
    source = f"product catalogue, EUR {euros.format(6)} at {USD_PER_EUR[0]} to {USD_PER_EUR[2]} dollars the euro"
    return Price(Rate(nano_per_hour=expected), source=source, estimate=Estimate(low, high, SURCHARGED))


def make_handling(server: Server) -> Handling:
    """Return the effects of acting, as the Instance states them."""
    allowed, stopped = server.allowed_actions, server.state == "stopped"
    return Handling(
        stops=None if allowed is None else "poweroff" in allowed,
        starts=None if allowed is None else stopped and "poweron" in allowed,
        terminates=None if allowed is None else stopped or "terminate" in allowed,
        protected=("stop", "terminate") if server.protected else (),
        stop_loses=_list_sizes(server, (SCRATCH,)),
        terminate_loses=_list_sizes(server, LOCAL_TYPES),
        restart_doubtful=True,
    )


def _list_sizes(server: Server, types: Iterable[str]) -> tuple[str, ...]:
    """Return the volumes of these types in words: "3000 GB of scratch storage"."""
    words = {"l_ssd": "local storage", SCRATCH: "scratch storage"}
    lost = list[str]()
    for type_ in types:
        sizes = [_round_up_size(one.size) for one in (server.volumes or {}).values() if one.volume_type == type_]
        total = sum(size for size in sizes if size)
        lost += [f"{total} GB of {words[type_]}" if total else words[type_]] if sizes else []
    return tuple(lost)


def parse_tags(tags: Iterable[str] | None) -> tuple[tuple[str, str], ...]:
    """Return sorted labels. Tags are plain texts: `team=vision` and `team:vision` are a key and a value, others a key alone."""
    pairs = dict[str, str]()
    for tag in tags or ():
        key, _, value = tag.partition("=" if "=" in tag else ":")
        pairs.setdefault(key.strip(), value.strip())
    return tuple(sorted((key, value) for key, value in pairs.items() if key))


def _find_owner(labels: tuple[tuple[str, str], ...]) -> str:
    return next((value for key, value in labels if key.lower() == "owner"), "")


def list_offers(context: ListingContext, shortages: frozenset[str], today: date, unnamed: set[str]) -> list[Offer]:
    """Return an offer for each GPU type of the zone of which there is one now; types with unknown GPUs are `unnamed`."""
    offers = list[Offer]()
    for type_, sold in sorted(context.catalogue.items()):
        notes = list[str]()
        gpu, count = find_gpus(type_, sold, context.gpus, type_, notes)
        if not gpu or type_ in shortages:
            continue
        if notes:
            unnamed.add(gpu)
            continue
        price = make_price(sold, count, context.exchange, type_, notes)
        offers.append(
            Offer(
                provider=NAME,
                region=context.zone,
                instance_type=type_,
                gpu=gpu,
                gpu_count=count,
                tier="on-demand",
                rate=price.rate,
                observed_on=today,
                source="GET /instance/v1/zones/ZONE/products/servers",
                vcpus=_parse_number(sold.ncpus),
                ram_gb=_parse_number(sold.ram, GIB),
                note=price.source if price.rate else "Scaleway states no valid price",
            )
        )
    return offers


def _round_up_size(size: Decimal | None) -> int | None:
    """Return bytes in GB, rounded up; None if missing, invalid, or larger than any disk."""
    if size is None or not size.is_finite() or not 0 <= size <= LARGEST_GB * GB:
        return None
    return -(-int(size) // GB)


def _parse_number(number: Decimal | None, unit: int = 1) -> float | None:
    return float(number / unit) if number is not None and number.is_finite() and 0 < number <= LARGEST_GB * GB else None


def _shorten_id(text: str) -> str:
    return to_one_line(shorten(text, LONGEST_ID))
