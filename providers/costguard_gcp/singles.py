"""One disk or address, looked up by its number: an absence from a listing is not believed without it."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeVar

import msgspec

from costguard.errors import InvalidAnswerError, MissingError
from costguard.metering.observation import Observation
from costguard.providers.transport import Deadline
from costguard.values.resource import ResourceKey
from costguard_gcp.actions import find_in_project, list_by_id
from costguard_gcp.sdk import ComputeSdk
from costguard_gcp.storage import observe_address, observe_disk
from costguard_gcp.wire import Address, PersistentDisk

ItemT = TypeVar("ItemT")

GLOBAL = "global"


def find_resource(compute: ComputeSdk, key: ResourceKey, deadline: Deadline) -> Observation | None:
    """The disk of a zone, the disk or address of a region, or the global address with the number of `key`; None for none."""
    if key.region.count("-") > 1:
        return _find_zonal(compute, key, deadline)
    if key.region == GLOBAL:
        return _find_address(compute, ("GlobalAddressesClient", "ListGlobalAddressesRequest"), {}, key, deadline)
    where = {"region": key.region}
    found = _find_disk(compute, ("RegionDisksClient", "ListRegionDisksRequest"), where, key, deadline)
    return found or _find_address(compute, ("AddressesClient", "ListAddressesRequest"), where, key, deadline)


def _find_zonal(compute: ComputeSdk, key: ResourceKey, deadline: Deadline) -> Observation | None:
    """None too where the project answers to no question about disks: its machines were asked about before, in the same zone."""
    try:
        return _find_disk(compute, ("DisksClient", "ListDisksRequest"), {"zone": key.region}, key, deadline)
    except MissingError:
        with suppress(MissingError):
            disk = find_in_project(compute, "disks", PersistentDisk, key, deadline)
            return None if disk is None else observe_disk(disk, key.region, key.account)[0]
    return None


def _find_disk(
    compute: ComputeSdk, listed: tuple[str, str], where: dict[str, str], key: ResourceKey, deadline: Deadline
) -> Observation | None:
    for raw in list_by_id(compute, listed, where, key, deadline):
        disk = _parse_item(raw, PersistentDisk)
        if str(disk.id) == key.id:
            return observe_disk(disk, key.region, key.account)[0]
    return None


def _find_address(
    compute: ComputeSdk, listed: tuple[str, str], where: dict[str, str], key: ResourceKey, deadline: Deadline
) -> Observation | None:
    for raw in list_by_id(compute, listed, where, key, deadline):
        address = _parse_item(raw, Address)
        if str(address.id) == key.id:
            return observe_address(address, key.region, key.account)
    return None


def _parse_item(raw: msgspec.Raw, kind: type[ItemT]) -> ItemT:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, RecursionError):
        raise InvalidAnswerError("the item cannot be read", provider="gcp") from None
