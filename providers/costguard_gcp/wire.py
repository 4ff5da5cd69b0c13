"""Google's answers beside Compute Engine's, which are the SDK's: only the fields in use, each of which may be missing."""

# ruff: noqa: D101 - each class is named as Google names the object
from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec

Text = str | None
Time = str | int | float | None
"""Text in every answer of Google; numbers are read as epochs."""
Number = str | int | None
"""64-bit integers come as strings in JSON; older and stranger clients write them as numbers."""


class WireObject(msgspec.Struct, rename="camel"):
    """A JSON object with Google's field names."""


class Named(WireObject):
    """The identifying fields of an item that cannot be read otherwise."""

    id: str | int
    name: Text = None
    zone: Text = None
    region: Text = None


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


def read_number(message: Any, name: str) -> int | None:  # noqa: ANN401 - a message of the SDK
    """Return a whole number that a message of the SDK states; None if it states none, where the message itself says 0."""
    return parse_whole_number(getattr(message, name)) if name in message else None


def parse_whole_number(value: object) -> int | None:
    """Return a non-negative whole number given as string or int; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 0 <= value <= LARGEST_WHOLE else None
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= LONGEST else None


LARGEST_WHOLE = 2**64 - 1
LONGEST = 20
"""Digits of an unsigned 64-bit integer."""
