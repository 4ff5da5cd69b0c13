"""The types of Google's answers: only the fields in use, each of which may be missing or null.

A machine's metadata may contain secrets: only its keys are read, and the value of the key `created-by`.
"""

# ruff: noqa: D101 - each class is named as Google names the object
from __future__ import annotations

from decimal import Decimal

import msgspec

Text = str | None
Time = str | int | float | None
"""Text in every answer of Google; numbers are read as epochs."""
Number = str | int | None
"""64-bit integers come as strings in JSON; older and stranger clients write them as numbers."""


class WireObject(msgspec.Struct, rename="camel"):
    """A JSON object with Google's field names."""


class ListWarning(WireObject):
    """A warning of a scope or of a whole listing: NO_RESULTS_ON_PAGE, UNREACHABLE."""

    code: Text = None
    message: Text = None


class Accelerator(WireObject):
    accelerator_type: Text = None
    accelerator_count: int | None = None


class Seconds(WireObject):
    seconds: Number = None


class Scheduling(WireObject):
    provisioning_model: Text = None
    preemptible: bool | None = None
    instance_termination_action: Text = None
    max_run_duration: Seconds | None = None
    termination_time: Time = None


class MetadataItem(WireObject):
    key: Text = None
    value: msgspec.Raw = msgspec.Raw(b"null")


class Metadata(WireObject):
    items: list[MetadataItem] | None = None


class AttachedDisk(WireObject):
    type: Text = None
    disk_size_gb: Number = None
    auto_delete: bool | None = None
    boot: bool | None = None
    source: Text = None
    device_name: Text = None


class ReservationAffinity(WireObject):
    consume_reservation_type: Text = None
    values: list[str] | None = None


class Instance(WireObject):
    id: str | int
    name: Text = None
    zone: Text = None
    machine_type: Text = None
    status: Text = None
    creation_timestamp: Time = None
    last_start_timestamp: Time = None
    last_stop_timestamp: Time = None
    last_suspended_timestamp: Time = None
    guest_accelerators: list[Accelerator] | None = None
    scheduling: Scheduling | None = None
    labels: dict[str, str] | None = None
    deletion_protection: bool | None = None
    metadata: Metadata | None = None
    disks: list[AttachedDisk] | None = None
    reservation_affinity: ReservationAffinity | None = None
    resource_policies: list[str] | None = None


class PersistentDisk(WireObject):
    id: str | int
    name: Text = None
    zone: Text = None
    region: Text = None
    type: Text = None
    size_gb: Number = None
    provisioned_iops: Number = None
    provisioned_throughput: Number = None
    status: Text = None
    creation_timestamp: Time = None
    labels: dict[str, str] | None = None
    users: list[str] | None = None


class Address(WireObject):
    id: str | int
    name: Text = None
    region: Text = None
    address_type: Text = None
    ip_version: Text = None
    status: Text = None
    creation_timestamp: Time = None
    labels: dict[str, str] | None = None
    users: list[str] | None = None


class Numbered(WireObject):
    """An item reduced to its number."""

    id: str | int


class Named(WireObject):
    """The identifying fields of an item that cannot be read otherwise."""

    id: str | int
    name: Text = None
    zone: Text = None
    region: Text = None


class MachineAccelerator(WireObject):
    guest_accelerator_type: Text = None
    guest_accelerator_count: int | None = None


class BundledSsds(WireObject):
    partition_count: int | None = None


class MachineType(WireObject):
    name: str
    guest_cpus: int
    memory_mb: int
    accelerators: list[MachineAccelerator] | None = None
    bundled_local_ssds: BundledSsds | None = None
    is_shared_cpu: bool | None = None


class OperationError(WireObject):
    code: Text = None
    message: Text = None


class OperationErrors(WireObject):
    errors: list[OperationError] | None = None


class Operation(WireObject):
    """A zonal operation.

    Neither status 200 nor DONE means that it succeeded.
    """

    status: str
    target_id: Number = None
    error: OperationErrors | None = None
    http_error_status_code: int | None = None


class ErrorReason(WireObject):
    reason: Text = None


class ErrorInfo(WireObject):
    reason: Text = None
    metadata: dict[str, str] | None = None


class ErrorBody(WireObject):
    message: Text = None
    status: Text = None
    errors: list[ErrorReason] | None = None
    details: list[ErrorInfo] | None = None


class Refusal(WireObject):
    error: ErrorBody


class UnitPrice(WireObject):
    currency_code: Text = None
    units: Number = None
    nanos: int | None = None


class TieredRate(WireObject):
    start_usage_amount: Decimal | None = None
    unit_price: UnitPrice | None = None


class PricingExpression(WireObject):
    usage_unit: Text = None
    tiered_rates: list[TieredRate] | None = None


class PricingInfo(WireObject):
    pricing_expression: PricingExpression | None = None


class Category(WireObject):
    resource_family: Text = None
    resource_group: Text = None
    usage_type: Text = None


class Sku(WireObject):
    description: Text = None
    category: Category | None = None
    service_regions: list[str] | None = None
    pricing_info: list[PricingInfo] | None = None


class SkuPage(WireObject):
    skus: list[msgspec.Raw]
    next_page_token: Text = None


class Interval(WireObject):
    end_time: Time = None


class PointValue(WireObject):
    double_value: float | None = None
    int64_value: Number = None


class Point(WireObject):
    interval: Interval | None = None
    value: PointValue | None = None


class Labelled(WireObject):
    labels: dict[str, str] | None = None


class Series(WireObject):
    metric: Labelled | None = None
    resource: Labelled | None = None
    points: list[Point] | None = None


class SeriesPage(WireObject):
    time_series: list[Series] | None = None
    next_page_token: Text = None


class ProjectNumber(WireObject):
    """A project's resource name: `projects/415104041262`."""

    name: str


class Project(WireObject):
    project_id: str
    state: Text = None


class ProjectPage(WireObject):
    projects: list[Project] | None = None
    next_page_token: Text = None


class Permissions(WireObject):
    permissions: list[str] | None = None


def take_last_part(path: str | None) -> str:
    """Return the last part of one of Google's addresses: us-central1-a of `.../zones/us-central1-a`."""
    return (path or "").rstrip("/").rsplit("/", 1)[-1]


def parse_whole_number(value: object) -> int | None:
    """Return a non-negative whole number given as string or int; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 0 <= value <= LARGEST_WHOLE else None
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= LONGEST else None


LARGEST_WHOLE = 2**64 - 1
LONGEST = 20
"""Digits of an unsigned 64-bit integer."""
