"""The shapes of Google's answers: only the fields that are used, each of which may be missing or null.

Metadata of a machine may hold secrets: only its keys are read, and the value of the one key `created-by`.
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


class Wire(msgspec.Struct, rename="camel"):
    """A JSON object with Google's spelling."""


class Warning_(Wire):  # noqa: N801 - the plain word is Python's
    """Of a scope or of a whole listing: NO_RESULTS_ON_PAGE, UNREACHABLE."""

    code: Text = None
    message: Text = None


class Accelerator(Wire):
    accelerator_type: Text = None
    accelerator_count: int | None = None


class Seconds(Wire):
    seconds: Number = None


class Scheduling(Wire):
    provisioning_model: Text = None
    preemptible: bool | None = None
    instance_termination_action: Text = None
    max_run_duration: Seconds | None = None
    termination_time: Time = None


class MetadataItem(Wire):
    key: Text = None
    value: msgspec.Raw = msgspec.Raw(b"null")


class Metadata(Wire):
    items: list[MetadataItem] | None = None


class AttachedDisk(Wire):
    type: Text = None
    disk_size_gb: Number = None
    auto_delete: bool | None = None
    boot: bool | None = None
    source: Text = None
    device_name: Text = None


class ReservationAffinity(Wire):
    consume_reservation_type: Text = None
    values: list[str] | None = None


class Instance(Wire):
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


class PersistentDisk(Wire):
    id: str | int
    name: Text = None
    zone: Text = None
    region: Text = None
    type: Text = None
    size_gb: Number = None
    status: Text = None
    creation_timestamp: Time = None
    labels: dict[str, str] | None = None
    users: list[str] | None = None


class Address(Wire):
    id: str | int
    name: Text = None
    region: Text = None
    address_type: Text = None
    ip_version: Text = None
    status: Text = None
    creation_timestamp: Time = None
    labels: dict[str, str] | None = None
    users: list[str] | None = None


class Numbered(Wire):
    """Which item it is, whatever else it holds."""

    id: str | int


class Named(Wire):
    """What is left of an item that cannot be read: who it is."""

    id: str | int
    name: Text = None
    zone: Text = None
    region: Text = None


class MachineAccelerator(Wire):
    guest_accelerator_type: Text = None
    guest_accelerator_count: int | None = None


class BundledSsds(Wire):
    partition_count: int | None = None


class MachineType(Wire):
    name: str
    guest_cpus: int
    memory_mb: int
    accelerators: list[MachineAccelerator] | None = None
    bundled_local_ssds: BundledSsds | None = None
    is_shared_cpu: bool | None = None


class OperationError(Wire):
    code: Text = None
    message: Text = None


class OperationErrors(Wire):
    errors: list[OperationError] | None = None


class Operation(Wire):
    """A zonal operation. That it came with 200, and even that it is DONE, does not say that it succeeded."""

    status: str
    target_id: Number = None
    error: OperationErrors | None = None
    http_error_status_code: int | None = None


class ErrorReason(Wire):
    reason: Text = None


class ErrorInfo(Wire):
    reason: Text = None
    metadata: dict[str, str] | None = None


class ErrorBody(Wire):
    message: Text = None
    status: Text = None
    errors: list[ErrorReason] | None = None
    details: list[ErrorInfo] | None = None


class Refusal(Wire):
    error: ErrorBody


class UnitPrice(Wire):
    currency_code: Text = None
    units: Number = None
    nanos: int | None = None


class TieredRate(Wire):
    start_usage_amount: Decimal | None = None
    unit_price: UnitPrice | None = None


class PricingExpression(Wire):
    usage_unit: Text = None
    tiered_rates: list[TieredRate] | None = None


class PricingInfo(Wire):
    pricing_expression: PricingExpression | None = None


class Category(Wire):
    resource_family: Text = None
    resource_group: Text = None
    usage_type: Text = None


class Sku(Wire):
    description: Text = None
    category: Category | None = None
    service_regions: list[str] | None = None
    pricing_info: list[PricingInfo] | None = None


class SkuPage(Wire):
    skus: list[msgspec.Raw]
    next_page_token: Text = None


class Interval(Wire):
    end_time: Time = None


class PointValue(Wire):
    double_value: float | None = None
    int64_value: Number = None


class Point(Wire):
    interval: Interval | None = None
    value: PointValue | None = None


class Labelled(Wire):
    labels: dict[str, str] | None = None


class Series(Wire):
    metric: Labelled | None = None
    resource: Labelled | None = None
    points: list[Point] | None = None


class SeriesPage(Wire):
    time_series: list[Series] | None = None
    next_page_token: Text = None


class ProjectNumber(Wire):
    """`projects/415104041262`."""

    name: str


class Project(Wire):
    project_id: str
    state: Text = None


class ProjectPage(Wire):
    projects: list[Project] | None = None
    next_page_token: Text = None


class Permissions(Wire):
    permissions: list[str] | None = None


def last(path: str | None) -> str:
    """The last part of one of Google's addresses: `.../zones/us-central1-a` is us-central1-a."""
    return (path or "").rstrip("/").rsplit("/", 1)[-1]


def whole_stated(value: object) -> int | None:
    """A non-negative whole number that came as a string or an int; None where it is neither."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 0 <= value <= LARGEST_WHOLE else None
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= LONGEST else None


LARGEST_WHOLE = 2**64 - 1
LONGEST = 20
"""Digits of an unsigned 64-bit integer."""
