"""One disk or address, looked up by its number: an absence from a listing is not believed without it."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeVar

import msgspec

from costguard.errors import InvalidAnswerError, MissingError
from costguard.metering.observation import Observation
from costguard.providers.transport import Deadline
from costguard.values.resource import ResourceKey
from costguard_gcp.actions import among_all, found_by_id
from costguard_gcp.sdk import Compute
from costguard_gcp.storage import address_observed, disk_observed
from costguard_gcp.wire import Address, PersistentDisk

T = TypeVar("T")

GLOBAL = "global"


def single(compute: Compute, key: ResourceKey, deadline: Deadline) -> Observation | None:
    """The disk of a zone, the disk or address of a region, or the global address with the number of `key`; None for none."""
    if key.region.count("-") > 1:
        return _zonal(compute, key, deadline)
    if key.region == GLOBAL:
        return _address(compute, ("GlobalAddressesClient", "ListGlobalAddressesRequest"), {}, key, deadline)
    where = {"region": key.region}
    found = _disk(compute, ("RegionDisksClient", "ListRegionDisksRequest"), where, key, deadline)
    return found or _address(compute, ("AddressesClient", "ListAddressesRequest"), where, key, deadline)


def _zonal(compute: Compute, key: ResourceKey, deadline: Deadline) -> Observation | None:
    """None too where the project answers to no question about disks: its machines were asked about before, in the same zone."""
    try:
        return _disk(compute, ("DisksClient", "ListDisksRequest"), {"zone": key.region}, key, deadline)
    except MissingError:
        with suppress(MissingError):
            disk = among_all(compute, "disks", PersistentDisk, key, deadline)
            return None if disk is None else disk_observed(disk, key.region, key.account)[0]
    return None


def _disk(
    compute: Compute, listed: tuple[str, str], where: dict[str, str], key: ResourceKey, deadline: Deadline
) -> Observation | None:
    for raw in found_by_id(compute, listed, where, key, deadline):
        disk = _read(raw, PersistentDisk)
        if str(disk.id) == key.id:
            return disk_observed(disk, key.region, key.account)[0]
    return None


def _address(
    compute: Compute, listed: tuple[str, str], where: dict[str, str], key: ResourceKey, deadline: Deadline
) -> Observation | None:
    for raw in found_by_id(compute, listed, where, key, deadline):
        address = _read(raw, Address)
        if str(address.id) == key.id:
            return address_observed(address, key.region, key.account)
    return None


def _read(raw: msgspec.Raw, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, RecursionError):
        raise InvalidAnswerError("the item cannot be read", provider="gcp") from None
