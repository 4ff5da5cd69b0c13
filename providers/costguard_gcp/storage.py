"""Disks and static addresses, which bill beside and after a machine, in costguard's words. Pure."""

from __future__ import annotations

from costguard.errors import InputError, shorten
from costguard.metering.observation import Disk, Observation
from costguard.values.resource import ADDRESS, VOLUME, ResourceKey, make_storable
from costguard.values.stated_time import parse_instant
from costguard_gcp.translation import PROVIDER, find_owner, sort_labels
from costguard_gcp.wire import Address, PersistentDisk, parse_whole_number, take_last_part

DISK_STATES = {
    "READY": "running",
    "CREATING": "running",
    "RESTORING": "running",
    "DELETING": "running",
    "UNAVAILABLE": "running",
    "FAILED": "failed",
}
"""Every disk bills from its creation until it is gone, whether a machine runs on it or not (gcp.md, section 2)."""

ADDRESS_STATES = {"RESERVING": "running", "RESERVED": "running", "IN_USE": "running"}


def observe_disk(disk: PersistentDisk, where: str, project: str) -> tuple[Observation, tuple[str, ...]]:
    """A persistent disk or Hyperdisk, a boot disk too: machines are listed without the price of theirs."""
    size = parse_whole_number(disk.size_gb)
    notes = [] if size is not None else ["size is missing or cannot be read"]
    try:
        disks = (Disk(size, take_last_part(disk.type)),)
    except InputError:
        disks, notes = (Disk(None, take_last_part(disk.type)),), [f"size {size} GB is more than any disk has"]
    seen = Observation(
        key=_make_key(project, take_last_part(disk.zone) or take_last_part(disk.region) or where, disk.id),
        kind=VOLUME,
        state=DISK_STATES.get(disk.status or "", "unknown"),
        name=make_storable(shorten(disk.name or "")),
        instance_type=make_storable(shorten(take_last_part(disk.type))),
        owner=make_storable(shorten(find_owner(disk.labels))),
        labels=sort_labels(disk.labels),
        created_at=parse_instant(disk.creation_timestamp),
        disks=disks,
        why=make_storable(shorten(disk.status or "")),
    )
    return seen, tuple(f"disk {disk.name or disk.id}: {note}" for note in notes)


def observe_address(address: Address, where: str, project: str) -> Observation | None:
    """A static external IPv4 address; None for those that cost nothing: internal ones, and IPv6."""
    if (address.address_type or "EXTERNAL") != "EXTERNAL" or address.ip_version == "IPV6":
        return None
    return Observation(
        key=_make_key(project, take_last_part(address.region) or where, address.id),
        kind=ADDRESS,
        state=ADDRESS_STATES.get(address.status or "", "unknown"),
        name=make_storable(shorten(address.name or "")),
        owner=make_storable(shorten(find_owner(address.labels))),
        labels=sort_labels(address.labels),
        created_at=parse_instant(address.creation_timestamp),
        why=make_storable(shorten(address.status or "")),
    )


def _make_key(project: str, where: str, number: str | int) -> ResourceKey:
    return ResourceKey(PROVIDER, project, where, str(number))
