"""The shapes of Azure's answers: only the fields in use, each of which may be missing.

Names as in azure-mgmt-compute 39.0.0, whose own types read the answers of the tests' fake.
"""

# ruff: noqa: D101 - each class is named as Azure names the object
from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")
Text = str | None


class WireObject(msgspec.Struct, rename="camel", frozen=True):
    """A JSON object with Azure's field names."""


class Reference(WireObject, frozen=True):
    id: Text = None


class Sku(WireObject, frozen=True):
    name: Text = None
    tier: Text = None
    capacity: int | None = None


class Status(WireObject, frozen=True):
    """`time`: text, or anything else where a time is expected."""

    code: Text = None
    display_status: Text = None
    time: object = None


class InstanceView(WireObject, frozen=True):
    statuses: list[Status] | None = None


class HardwareProfile(WireObject, frozen=True):
    vm_size: Text = None


class DiffDiskSettings(WireObject, frozen=True):
    option: Text = None


class AttachedDisk(WireObject, frozen=True):
    os_type: Text = None
    delete_option: Text = None
    diff_disk_settings: DiffDiskSettings | None = None


class StorageProfile(WireObject, frozen=True):
    os_disk: AttachedDisk | None = None
    data_disks: list[AttachedDisk] | None = None


class MachineProperties(WireObject, frozen=True):
    hardware_profile: HardwareProfile | None = None
    storage_profile: StorageProfile | None = None
    instance_view: InstanceView | None = None
    provisioning_state: Text = None
    priority: Text = None
    license_type: Text = None
    time_created: object = None
    vm_id: Text = None
    virtual_machine_scale_set: Reference | None = None
    capacity_reservation: dict[str, object] | None = None
    host: Reference | None = None


class Machine(WireObject, frozen=True):
    """A virtual machine, or the member of a uniform scale set (which has its size as `sku`)."""

    id: str
    location: str
    name: Text = None
    tags: dict[str, str] | None = None
    managed_by: Text = None
    plan: dict[str, object] | None = None
    sku: Sku | None = None
    properties: MachineProperties | None = None


class ScaleSetMachineProfile(WireObject, frozen=True):
    priority: Text = None
    license_type: Text = None
    storage_profile: StorageProfile | None = None


class ScaleSetProperties(WireObject, frozen=True):
    orchestration_mode: Text = None
    virtual_machine_profile: ScaleSetMachineProfile | None = None


class ScaleSet(WireObject, frozen=True):
    id: str
    location: str
    name: Text = None
    tags: dict[str, str] | None = None
    sku: Sku | None = None
    properties: ScaleSetProperties | None = None


class DiskProperties(WireObject, frozen=True):
    disk_size_gb: Decimal | None = msgspec.field(default=None, name="diskSizeGB")
    disk_state: Text = None
    tier: Text = None
    time_created: object = None


class ManagedDisk(WireObject, frozen=True):
    id: str
    location: str
    name: Text = None
    tags: dict[str, str] | None = None
    sku: Sku | None = None
    managed_by: Text = None
    properties: DiskProperties | None = None


class AddressProperties(WireObject, frozen=True):
    ip_address: Text = None
    public_ip_address_version: Text = msgspec.field(default=None, name="publicIPAddressVersion")
    public_ip_allocation_method: Text = msgspec.field(default=None, name="publicIPAllocationMethod")
    ip_configuration: Reference | None = None


class PublicAddress(WireObject, frozen=True):
    id: str
    location: str
    name: Text = None
    tags: dict[str, str] | None = None
    sku: Sku | None = None
    properties: AddressProperties | None = None


class ItemIdentity(WireObject, frozen=True):
    """What identifies an item that cannot be read otherwise."""

    id: str
    location: str


class ItemPage(WireObject, frozen=True):
    value: list[msgspec.Raw]
    next_link: Text = None


class Subscription(WireObject, frozen=True):
    subscription_id: str
    display_name: Text = None
    state: Text = None


class Permission(WireObject, frozen=True):
    actions: list[str] | None = None
    not_actions: list[str] | None = None


class ErrorDetail(WireObject, frozen=True):
    code: Text = None
    message: Text = None


class ErrorAnswer(WireObject, frozen=True):
    error: ErrorDetail


class RetailPrice(WireObject, frozen=True):
    """A row of the Retail Prices API. `type`: Consumption, Reservation, DevTestConsumption."""

    arm_sku_name: Text = None
    sku_name: Text = None
    meter_name: Text = None
    product_name: Text = None
    retail_price: Decimal | None = None
    currency_code: Text = None
    unit_of_measure: Text = None
    effective_start_date: Text = None
    tier_minimum_units: Decimal | None = None
    is_primary_meter_region: bool | None = None
    type: Text = None


class PricePage(msgspec.Struct, frozen=True):
    """A page of them."""

    items: list[RetailPrice] = msgspec.field(name="Items")
    next_link: Text = msgspec.field(default=None, name="NextPageLink")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[T]):
    """The items of all pages. `odd`: those that cannot be read: id and location ("" if unreadable too) and why.

    `why`: what the list lacks, "" for nothing.
    """

    items: tuple[T, ...] = ()
    odd: tuple[tuple[str, str, str], ...] = ()
    why: str = ""


KINDS = {
    "microsoft.compute/virtualmachines": "",
    "microsoft.compute/disks": "disks/",
    "microsoft.network/publicipaddresses": "addresses/",
}
SET = "microsoft.compute/virtualmachinescalesets"
SCALE_SET_PARTS = 10
PLAIN_PARTS = 8


def parse_resource_id(text: str) -> str:
    """Return the ledger's id of an Azure resource: "group/name" of a machine; in lower case, as Azure compares without case.

    Example: /subscriptions/S/resourceGroups/Lab/providers/Microsoft.Compute/virtualMachines/Train is "lab/train". A disk is
    "lab/disks/name", an address "lab/addresses/name", a member of a uniform scale set "lab/sets/name/0". Another id: as it is,
    in lower case, without the subscription.
    """
    parts = text.strip().strip("/").lower().split("/")
    if len(parts) < PLAIN_PARTS or parts[0] != "subscriptions" or parts[2] != "resourcegroups" or parts[4] != "providers":
        return text.strip().lower()
    group, kind, name = parts[3], "/".join(parts[5:7]), parts[7]
    if kind in KINDS and len(parts) == PLAIN_PARTS:
        return f"{group}/{KINDS[kind]}{name}"
    if kind == SET and len(parts) == SCALE_SET_PARTS and parts[8] == "virtualmachines":
        return f"{group}/sets/{name}/{parts[9]}"
    return "/".join(parts[3:])


def find_group(text: str) -> str:
    """Return the resource group of an id, in lower case; "" if it names none."""
    parts = text.strip("/").lower().split("/")
    return parts[3] if len(parts) > 3 and parts[2] == "resourcegroups" else ""  # noqa: PLR2004 - as in the id


def parse_subscription_id(text: str) -> str:
    """Return a subscription's id: FOCUS files write "/subscriptions/ID". Other accounts are returned as they are."""
    return find_subscription(text) or text


def find_subscription(text: str) -> str:
    """Return the subscription of an id, in lower case; "" if it names none."""
    parts = text.strip("/").lower().split("/")
    return parts[1] if len(parts) > 1 and parts[0] == "subscriptions" else ""
