"""Translate Lambda's instances, filesystems and types to observations and offers.

Pure: no network, no clock. Lambda's instances have no time. `created_at` comes from the audit log and is when the launch was
requested; billing begins when the machine passes its health checks, a time that is not available. So `started_at` stays None,
and the ledger places the start between the launch and the first time that the machine was seen running.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal

from costguard.errors import InputError, UnknownNameError, shorten, to_one_line
from costguard.metering.observation import LARGEST_GB, MOST_GPUS, Disk, Handling, Observation, Price, parse_hourly_rate
from costguard.quoting.offer import Offer
from costguard.values.gpu import GpuNames
from costguard.values.instant import parse_instant
from costguard.values.money import Rate
from costguard.values.resource import ENDED, RUNNING, UNKNOWN, VOLUME, ResourceKey, make_storable
from costguard_lambda.wire import Filesystem, Instance, InstanceType, OfferedType, Specs, UnreadableItem

NAME = "lambda"
STATES = {
    "booting": "starting",
    "active": RUNNING,
    "unhealthy": "failed",
    "terminating": "stopping",
    "terminated": ENDED,
    "preempted": "stopping",
}
"""Every word of the spec. `unhealthy` is still held, and assumed to bill. `preempted` was never seen (2026-11): like
`terminating` it probably bills no more, which is not the same as gone for good."""
OVER = ("terminating", "terminated")
GIB = 2**30
"""Filesystems bill by the GiB used, and local disks are stated in GiB: `Disk.gb` counts those here."""
LONGEST_GPU, LONGEST_ID = 80, 60
_VRAM = re.compile(r"(?<!\d)(\d{1,4})\s*Gi?B", re.IGNORECASE)
_COUNT = re.compile(r"^\s*(\d{1,4})\s*x\s+", re.IGNORECASE)
NO_GPU = ("", "n/a", "none", "cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingResult:
    """The result of one answer.

    `faults`: what the listing lacks; `notes`: what could not be learned about its items.
    """

    items: list[Observation] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingContext:
    """`launched`: instance id -> when its launch was requested, as far as the audit log has it."""

    account: str
    gpus: GpuNames
    launched: Mapping[str, datetime] = field(default_factory=dict)


def add_instance(listing: ListingResult, one: Instance, context: ListingContext) -> None:
    """Add a machine to `listing`; one that no database can store is a fault."""
    whose = f"instance {_parse_id(one.id)}"
    kind, specs = one.instance_type or InstanceType(), (one.instance_type and one.instance_type.specs) or Specs()
    gpu_count = _parse_gpu_count(specs, whose, listing.notes)
    none = specs.gpus is not None and specs.gpus.is_zero()
    gpu = "" if none else find_gpu(kind, context.gpus, whose, listing.notes)
    state = translate_state(one.status, whose, listing.notes)
    local = _round_up_size(specs.storage_gib)
    try:
        observation = Observation(
            key=ResourceKey(NAME, context.account, one.region.name, one.id),
            state=state,
            name=one.name or "",
            instance_type=kind.name or "",
            gpu=gpu,
            gpu_count=gpu_count,
            owner=_find_owner(one),
            labels=_list_labels(one),
            created_at=context.launched.get(one.id),
            prices=(Price(_parse_rate(kind, gpu_count, whose, listing.notes)),),
            disks=(Disk(local, "local-ssd"),) if local else (),
            why=one.status or "",
            handling=_make_handling(one, local),
        )
    except InputError as odd:
        listing.faults.append(f"{whose} cannot be kept: {to_one_line(shorten(odd.what))}")
    else:
        listing.items.append(observation)


def add_filesystem(listing: ListingResult, one: Filesystem, context: ListingContext) -> None:
    """Add a filesystem: it is billed by its used bytes, mounted or not."""
    whose = f"filesystem {_parse_id(one.id)}"
    created = parse_instant(one.created)
    if created is None:
        listing.notes.append(f"{whose}: created is {'missing' if one.created is None else 'no time'}")
    used = _round_up_size(one.bytes_used, GIB)
    if used is None:
        listing.notes.append(f"{whose}: bytes_used is missing or no size, so its cost is unknown")
    try:
        observation = Observation(
            key=ResourceKey(NAME, context.account, one.region.name, one.id),
            state=RUNNING,
            kind=VOLUME,
            name=one.name or "",
            owner=(one.created_by and one.created_by.email) or "",
            created_at=created,
            disks=(Disk(used, "filesystem"),),
        )
    except InputError as odd:
        listing.faults.append(f"{whose} cannot be kept: {to_one_line(shorten(odd.what))}")
    else:
        listing.items.append(observation)


def add_unreadable(listing: ListingResult, one: UnreadableItem, context: ListingContext, *, kind: str) -> None:
    """Add an unreadable item in an unknown state if its id and region are known.

    Without its region it would be another resource in the ledger and be charged twice, so it is only reported.
    """
    whose = f"an {kind} without a readable id" if not one.id else f"{kind} {_parse_id(one.id)}"
    text = f"{whose} cannot be read: {to_one_line(one.why)}"
    if not one.id or not one.region or kind == VOLUME:
        listing.faults.append(text)
        return
    key = ResourceKey(NAME, context.account, one.region, one.id)
    try:
        observation = Observation(key=key, state=UNKNOWN, created_at=context.launched.get(one.id), why="cannot be read")
    except InputError:
        listing.faults.append(text)
    else:
        listing.items.append(observation)
        listing.notes.append(text)


def translate_state(status: str | None, whose: str, notes: list[str]) -> str:
    """Return costguard's state for `status`; a new status is unknown, never ended or stopped."""
    state = STATES.get(status or "", UNKNOWN)
    if state == UNKNOWN:
        notes.append(f"{whose}: status {to_one_line(shorten(repr(status)))} is not known")
    return state


def find_gpu(kind: InstanceType, gpus: GpuNames, whose: str, notes: list[str]) -> str:
    """Return the canonical GPU of a type; Lambda's own name if none matches, "" if it names none."""
    text = (kind.gpu_description or _COUNT.sub("", kind.description or "")).strip()
    if text.lower() in NO_GPU:
        if kind.gpu_description is None:
            notes.append(f"{whose}: its GPU is not named")
        return ""
    size = _VRAM.search(text)
    try:
        return gpus.resolve(text, vram_gb=float(size[1]) if size else None).canonical
    except UnknownNameError:
        word = make_storable(shorten(text, LONGEST_GPU))
        notes.append(f"{whose}: GPU '{to_one_line(word)}' is not known")
        return word


def _parse_gpu_count(specs: Specs, whose: str, notes: list[str]) -> int:
    """Return the number of GPUs; an unreadable one is noted and counted as 0."""
    count = specs.gpus
    if count is not None and count.is_finite() and 0 <= count <= MOST_GPUS and count == int(count):
        return int(count)
    notes.append(f"{whose}: the number of its GPUs is {'missing' if count is None else 'no such number'}")
    return 0


def _parse_rate(kind: InstanceType, gpu_count: int, whose: str, notes: list[str]) -> Rate | None:
    """Return the hourly price; Lambda states cents for the whole machine."""
    cents = kind.price_cents_per_hour
    dollars = cents / 100 if cents is not None and cents.is_finite() and -HUGE_CENTS < cents < HUGE_CENTS else cents
    rate, why = parse_hourly_rate(dollars, gpus=max(1, gpu_count), field=f"{whose}: price")
    if why:
        notes.append(why)
    return rate


HUGE_CENTS = Decimal(10**12)
"""Past any price, and short of where dividing overflows."""


def _round_up_size(size: Decimal | None, unit: int = 1) -> int | None:
    """Return `size` in `unit`s, rounded up; None if it is missing, invalid, or larger than any disk."""
    if size is None or not size.is_finite() or not 0 <= size <= LARGEST_GB * unit:
        return None
    return -(-int(size.to_integral_value(rounding="ROUND_CEILING")) // unit)


def _list_labels(one: Instance) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((tag.key, tag.value or "") for tag in one.tags or ()))


def _find_owner(one: Instance) -> str:
    """Return the label `owner`; else the name of the only SSH key, which is a good hint at who launched it."""
    owner = next((tag.value for tag in one.tags or () if tag.key.lower() == "owner" and tag.value), None)
    keys = one.ssh_key_names or []
    return owner or (keys[0] if len(keys) == 1 else "")


def _make_handling(one: Instance, local: int | None) -> Handling:
    """Return the effects of acting: there is no stop, and a booting machine may not be terminable yet."""
    terminate = one.actions.terminate if one.actions else None
    return Handling(
        stops=False,
        starts=False,
        terminates=None if terminate is None else terminate.available,
        terminate_loses=(f"{local} GiB of local disk" if local else "its local disk",),
        committed="Lambda marks it as reserved" if one.is_reserved is True else "",
    )


def list_offers(sold: OfferedType, gpus: GpuNames, today: date, unnamed: set[str]) -> list[Offer]:
    """Return one offer per region with capacity; none for a type without a GPU or with an unknown one."""
    kind = sold.instance_type
    specs, notes = kind.specs or Specs(), list[str]()
    count = _parse_gpu_count(specs, "type", notes)
    gpu = find_gpu(kind, gpus, "type", notes)
    regions = sorted({region.name for region in sold.regions_with_capacity_available if region.name})
    if not count or not kind.name or not gpu or not regions:
        return []
    if any(note.endswith("is not known") for note in notes):
        unnamed.add(gpu)
        return []
    rate = _parse_rate(kind, count, "type", notes)
    return [
        Offer(
            provider=NAME,
            region=region,
            instance_type=kind.name,
            gpu=gpu,
            gpu_count=count,
            tier="on-demand",
            rate=rate,
            observed_on=today,
            source="GET /instance-types",
            vcpus=_parse_number(specs.vcpus),
            ram_gb=_parse_number(specs.memory_gib),
            disk_gb=_parse_number(specs.storage_gib),
            note="" if rate else "Lambda states no valid price",
        )
        for region in regions
    ]


def _parse_number(number: Decimal | None) -> float | None:
    return float(number) if number is not None and number.is_finite() and 0 < number <= LARGEST_GB else None


def _parse_id(text: str) -> str:
    return to_one_line(shorten(text, LONGEST_ID))
