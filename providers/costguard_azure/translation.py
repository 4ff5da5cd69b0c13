"""Translate Azure's machines, disks and addresses to observations.

Pure: no network, no clock. A machine that was shut down from inside, or powered off, is `stopped` at Azure and bills in full:
it is `paused` here, since it still holds its hardware. Only `deallocated` is stopped. A new word is unknown, never off.
Its life is its id with `timeCreated`; the start of a later run is not stated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from costguard.errors import InputError, shorten, to_one_line
from costguard.metering.observation import LARGEST_GB, Disk, Estimate, Handling, Observation, Price, widen_price
from costguard.values.gpu import GpuNames
from costguard.values.instant import parse_instant
from costguard.values.money import Rate
from costguard.values.resource import ADDRESS, RUNNING, SPOT, STOPPED, UNKNOWN, VOLUME, ResourceKey, make_storable
from costguard_azure.sizes import MachineSize, find_tier, parse_size
from costguard_azure.wire import (
    Machine,
    MachineProperties,
    ManagedDisk,
    PublicAddress,
    ScaleSet,
    StorageProfile,
    find_group,
    find_subscription,
    parse_resource_id,
)

NAME = "azure"
HELD = "paused"
POWER = "powerstate/"
STATES = {
    "starting": "starting",
    "running": RUNNING,
    "stopping": HELD,
    "stopped": HELD,
    "deallocating": "stopping",
    "deallocated": STOPPED,
}
"""azure-mgmt-compute 39.0.0: of `power_off` "You are still charged for this virtual machine", of `deallocate` "You are not
billed for the compute resources that this virtual machine uses". `stopping` goes on to `stopped`, which bills."""
SPOT_WORDS = ("spot", "spotplus", "low")
LISTED_AS = "Azure Retail Prices"
SOFTWARE_SHARE = 4
"""Paid software of an image costs at most this many times the machine itself: an assumption, 2026-12. RHEL, SLES and SQL Server
on the smallest sizes are the worst known."""
LONGEST = 200
LOCAL = "the data of its local disks"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPrices:
    """What the Retail Prices API states for one region.

    `machines`: (size in lower case, whether spot, whether Windows) -> nano-USD an hour. `disks`: meter such as "P10 LRS" ->
    nano-USD a month of the whole disk.
    """

    machines: Mapping[tuple[str, bool, bool], int] = field(default_factory=dict)
    disks: Mapping[str, int] = field(default_factory=dict)


NO_PRICES = ListPrices()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingContext:
    """`prices`: region -> its list prices."""

    subscription: str
    gpus: GpuNames
    prices: Callable[[str], ListPrices] = lambda _region: NO_PRICES


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingResult:
    """`faults`: what the listing lacks; `notes`: what could not be learned about its items."""

    items: list[Observation] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def add_machine(listing: ListingResult, one: Machine, context: ListingContext, group: ScaleSet | None = None) -> None:
    """Add a machine, or the member of the uniform scale set `group`; one that cannot be stored is a fault."""
    properties = one.properties or MachineProperties()
    size_name = find_size_name(one)
    whose = f"machine {_show(parse_resource_id(one.id))}"
    size = parse_size(size_name) if size_name else MachineSize()
    state, word = translate_state(properties)
    if state == UNKNOWN:
        listing.notes.append(f"{whose}: state {_show(repr(word)) if word else 'is not stated'}, so it is unknown")
    if not size_name:
        listing.notes.append(f"{whose}: its size is not stated")
    elif not size.is_known:
        listing.notes.append(f"{whose}: the GPUs of size {_show(size_name)} are not known")
    priority = properties.priority or _find_set_priority(group)
    try:
        observation = Observation(
            key=_make_key(one.id, one.location, context.subscription),
            state=state,
            name=make_storable(shorten(one.name or parse_resource_id(one.id), LONGEST)),
            instance_type=make_storable(shorten(size_name, LONGEST)),
            gpu=make_storable(size.gpu),
            gpu_count=size.gpu_count,
            tier=SPOT if priority.lower() in SPOT_WORDS else "on-demand",
            owner=find_owner(one.tags),
            labels=_sort_labels(one.tags),
            created_at=parse_instant(properties.time_created),
            prices=(_find_price(one, priority, context, size),),
            why=make_storable(shorten(word, LONGEST)),
            handling=_make_handling(one, state, size, group),
            vcpus=size.vcpus,
        )
    except InputError as odd:
        listing.faults.append(f"{whose} cannot be kept: {_show(str(odd.what))}")
    else:
        listing.items.append(observation)


def add_disk(listing: ListingResult, one: ManagedDisk, context: ListingContext) -> None:
    """Add a managed disk, attached or not: it bills by its size tier in every state of its machine."""
    properties = one.properties
    size = _round_up(properties.disk_size_gb if properties else None)
    sku, whose = (one.sku and one.sku.name) or "", f"disk {_show(parse_resource_id(one.id))}"
    if size is None:
        listing.notes.append(f"{whose}: its size is missing or unreadable, so its cost is unknown")
    if not sku:
        listing.notes.append(f"{whose}: its kind is not stated, so its cost is unknown")
    try:
        observation = Observation(
            key=_make_key(one.id, one.location, context.subscription),
            kind=VOLUME,
            state=RUNNING,
            name=make_storable(shorten(one.name or parse_resource_id(one.id), LONGEST)),
            instance_type=make_storable(shorten(sku, LONGEST)),
            owner=find_owner(one.tags),
            labels=_sort_labels(one.tags),
            created_at=parse_instant(properties.time_created if properties else None),
            disks=(_price_disk(sku, size, context.prices(normalize_region(one.location))),),
            why=make_storable(shorten((properties and properties.disk_state) or "", LONGEST)),
        )
    except InputError as odd:
        listing.faults.append(f"{whose} cannot be kept: {_show(str(odd.what))}")
    else:
        listing.items.append(observation)


def add_address(listing: ListingResult, one: PublicAddress, context: ListingContext) -> None:
    """Add a public IPv4 address that is allocated; IPv6 and dynamic ones without an address are free."""
    properties = one.properties
    if properties is None or (properties.public_ip_address_version or "IPv4") != "IPv4":
        return
    if (properties.public_ip_allocation_method or "").lower() == "dynamic" and not properties.ip_address:
        return
    try:
        observation = Observation(
            key=_make_key(one.id, one.location, context.subscription),
            kind=ADDRESS,
            state=RUNNING,
            name=make_storable(shorten(one.name or "", LONGEST)),
            owner=find_owner(one.tags),
            labels=_sort_labels(one.tags),
            prices=(Price(None, None, "billing rule"),),
            why="in use" if properties.ip_configuration and properties.ip_configuration.id else "unused",
        )
    except InputError as odd:
        listing.faults.append(f"address {_show(parse_resource_id(one.id))} cannot be kept: {_show(str(odd.what))}")
    else:
        listing.items.append(observation)


def add_unreadable(listing: ListingResult, odd: tuple[str, str, str], context: ListingContext, what: str) -> None:
    """Report an item that cannot be read; a machine with a readable id and region is kept in an unknown state."""
    id_, location, why = odd
    text = f"{what} {_show(parse_resource_id(id_)) if id_ else 'without a readable id'} cannot be read: {to_one_line(why)}"
    if what == "machine" and id_ and location:
        try:
            key = _make_key(id_, location, context.subscription)
            listing.items.append(Observation(key=key, state=UNKNOWN, why="cannot be read"))
        except InputError:
            listing.faults.append(text)
        else:
            listing.notes.append(text)
        return
    listing.faults.append(text)


def translate_state(properties: MachineProperties) -> tuple[str, str]:
    """Return costguard's state and Azure's word for it; a machine without a power state is unknown, unless it is being made."""
    statuses = (properties.instance_view.statuses if properties.instance_view else None) or []
    words = [one.code[len(POWER) :] for one in statuses if one.code and one.code.lower().startswith(POWER)]
    provisioning = (properties.provisioning_state or "").lower()
    if provisioning == "deleting":
        return "stopping", "Deleting"
    if words:
        return STATES.get(words[0].lower(), UNKNOWN), words[0]
    return ("pending", "Creating") if provisioning == "creating" else (UNKNOWN, "")


def find_size_name(one: Machine) -> str:
    """Return the name of a machine's size; "" if it is not stated."""
    hardware = one.properties.hardware_profile if one.properties else None
    return (hardware and hardware.vm_size) or (one.sku and one.sku.name) or ""


def is_windows(one: Machine) -> bool:
    """Return whether its price includes a Windows licence; with the hybrid benefit it does not."""
    properties = one.properties or MachineProperties()
    os_disk = properties.storage_profile.os_disk if properties.storage_profile else None
    licensed = (properties.license_type or "").lower() in ("windows_server", "windows_client")
    return bool(os_disk and (os_disk.os_type or "").lower() == "windows") and not licensed


def normalize_region(location: str) -> str:
    """Return a region as prices name it: westeurope of "West Europe"."""
    return re.sub(r"\s", "", location).lower()


def find_owner(tags: Mapping[str, str] | None) -> str:
    """Return the tag `owner`, whose name Azure compares without case; "" if there is none."""
    values = (value for key, value in (tags or {}).items() if key.lower() == "owner" and value)
    return make_storable(shorten(next(values, ""), LONGEST))


def find_controller(one: Machine, group: ScaleSet | None = None) -> str:
    """Return who would start or replace the machine, in words; "" for nobody."""
    properties, tags = one.properties or MachineProperties(), {key.lower(): value for key, value in (one.tags or {}).items()}
    tags |= {key.lower(): value for key, value in ((group and group.tags) or {}).items()}
    set_id = (properties.virtual_machine_scale_set and properties.virtual_machine_scale_set.id) or (group and group.id) or ""
    name = _show(set_id.rstrip("/").rpartition("/")[2])
    if find_group(one.id).startswith("mc_") or any(key.startswith("aks-managed-") for key in tags):
        return f"AKS node pool {_show(tags.get('aks-managed-poolname') or name or 'of its cluster')}"
    if tags.get("vendor", "").lower() == "databricks":
        return "Databricks"
    if set_id:
        return f"scale set {name}"
    return f"{_show(one.managed_by.rstrip('/').rpartition('/')[2])}, which manages it" if one.managed_by else ""


def is_ephemeral(storage: StorageProfile | None) -> bool:
    """Return whether the system's disk is local: such a machine cannot be deallocated (from memory, 2026-12)."""
    settings = storage.os_disk.diff_disk_settings if storage and storage.os_disk else None
    return bool(settings and (settings.option or "").lower() == "local")


def _make_handling(one: Machine, state: str, size: MachineSize, group: ScaleSet | None) -> Handling:
    properties = one.properties or MachineProperties()
    storage = properties.storage_profile
    ephemeral = is_ephemeral(storage) or bool(
        group
        and group.properties
        and group.properties.virtual_machine_profile
        and is_ephemeral(group.properties.virtual_machine_profile.storage_profile)
    )
    attached = [disk for disk in ((storage and storage.os_disk), *((storage and storage.data_disks) or ())) if disk]
    going = sum((disk.delete_option or "").lower() == "delete" for disk in attached) - ephemeral
    lost = (LOCAL,) if size.scratch else ()
    deleted = (f"{going} disk{'s' if going > 1 else ''} set to be deleted with it",) if going > 0 else ()
    return Handling(
        controller=find_controller(one, group),
        stops=False if ephemeral else state in (RUNNING, HELD),
        starts=state == STOPPED,
        stop_loses=lost,
        terminate_loses=(*lost, *deleted, *(("its system's disk",) if ephemeral else ())),
        restart_doubtful=bool(size.gpu),
        committed="it uses reserved capacity, which bills without it too" if _is_reserved(properties) else "",
    )


def _is_reserved(properties: MachineProperties) -> bool:
    return bool((properties.capacity_reservation or {}).get("capacityReservationGroup"))


def _find_set_priority(group: ScaleSet | None) -> str:
    profile = group.properties.virtual_machine_profile if group and group.properties else None
    return (profile and profile.priority) or ""


def _find_price(one: Machine, priority: str, context: ListingContext, size: MachineSize) -> Price:
    """Return the list price of its size, tier and system. `SpotPlus` has no public price: between spot and on demand."""
    properties = one.properties or MachineProperties()
    special = _is_reserved(properties) or bool(properties.host and properties.host.id)
    machines = context.prices(normalize_region(one.location)).machines
    spot = priority.lower() in SPOT_WORDS
    size_name, windows = find_size_name(one).lower(), is_windows(one)
    nano, full = machines.get((size_name, spot, windows)), machines.get((size_name, False, windows))
    if nano is None or size.is_known is False:
        return Price(None, source=LISTED_AS, special=special)
    price = Price(Rate(nano_per_hour=nano), source=LISTED_AS, special=special)
    if priority.lower() == "spotplus":
        high = max(nano, full or nano * SOFTWARE_SHARE)
        estimate = Estimate(nano, high, "surcharged")
        price = Price(price.rate, source=f"{LISTED_AS}, of spot", estimate=estimate, special=special, surcharged=True)
    if one.plan:
        return widen_price(price, "the software of its image", nano * SOFTWARE_SHARE)
    return price


def _price_disk(sku: str, size: int | None, prices: ListPrices) -> Disk:
    """Return a disk at the size of its tier, and the tier's price by the GiB if the list states it."""
    line = make_storable(shorten(sku.lower(), LONGEST))
    tier = find_tier(sku, size) if size is not None else None
    if tier is None:
        return Disk(size, line)
    nano = prices.disks.get(f"{tier[0]} {sku.rpartition('_')[2]}".lower())
    return Disk(tier[1], line, None if nano is None else round(nano / tier[1]), source="" if nano is None else LISTED_AS)


def _make_key(id_: str, location: str, subscription: str) -> ResourceKey:
    owner = find_subscription(id_)
    if owner and owner != subscription:
        raise InputError(f"is of subscription {shorten(owner, 40)}", field="id")
    return ResourceKey(NAME, subscription, normalize_region(location), parse_resource_id(id_))


def _round_up(size: Decimal | None) -> int | None:
    if size is None or not size.is_finite() or not 0 < size <= LARGEST_GB:
        return None
    return int(size.to_integral_value(rounding="ROUND_CEILING"))


def _sort_labels(tags: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((make_storable(key), make_storable(value)) for key, value in (tags or {}).items()))


def _show(text: str) -> str:
    return to_one_line(shorten(text, LONGEST))
