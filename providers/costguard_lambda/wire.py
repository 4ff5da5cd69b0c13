"""The types of Lambda's answers (OpenAPI 1.10.0): only the fields in use, and no secrets.

`jupyter_token` and `jupyter_url` are in every instance that Lambda lists; they are never decoded. Fields that may be missing by
the spec, or in a broken answer, are optional. Numbers are decimals: an unexpected one is read first and checked later.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Region(msgspec.Struct, frozen=True):
    """A region by its code: "us-west-1"."""

    name: str


class Specs(msgspec.Struct, frozen=True):
    """The specifications of a whole machine."""

    gpus: Decimal | None = None
    vcpus: Decimal | None = None
    memory_gib: Decimal | None = None
    storage_gib: Decimal | None = None


class InstanceType(msgspec.Struct, frozen=True):
    """`price_cents_per_hour`: US cents for the whole machine, without tax."""

    name: str | None = None
    description: str | None = None
    gpu_description: str | None = None
    price_cents_per_hour: Decimal | None = None
    specs: Specs | None = None


class Action(msgspec.Struct, frozen=True):
    """Whether an act is available now, and if not why: `vm-has-not-launched`, `vm-is-terminating` ..."""

    available: bool | None = None
    reason_code: str | None = None


class Actions(msgspec.Struct, frozen=True):
    """The acts of a machine; only terminate is read."""

    terminate: Action | None = None


class Tag(msgspec.Struct, frozen=True):
    """One label, set at launch and never changed."""

    key: str
    value: str | None = None


class Instance(msgspec.Struct, frozen=True):
    """A machine, without any time.

    `is_reserved` is in examples of the spec, and in no schema.
    """

    id: str
    region: Region
    status: str | None = None
    name: str | None = None
    ssh_key_names: list[str] | None = None
    instance_type: InstanceType | None = None
    actions: Actions | None = None
    tags: list[Tag] | None = None
    is_reserved: object = None


class User(msgspec.Struct, frozen=True):
    """The user who created it."""

    email: str | None = None


class Filesystem(msgspec.Struct, frozen=True):
    """`bytes_used` is some hours old.

    `created`: text, or any other value used for a time.
    """

    id: str
    region: Region
    name: str | None = None
    created: object = None
    created_by: User | None = None
    bytes_used: Decimal | None = None


class OfferedType(msgspec.Struct, frozen=True):
    """A type, and the regions that have capacity for one now."""

    instance_type: InstanceType
    regions_with_capacity_available: list[Region]


class AuditEvent(msgspec.Struct, frozen=True):
    """A line of the audit log.

    `resource_lrns`: the resources it is about; each name ends in an id.
    """

    event_time: object = None
    resource_name: str | None = None
    action: str | None = None
    resource_lrns: list[str] | None = None
    resource_owner_lrn: str | None = None


class ItemIdentity(msgspec.Struct, frozen=True):
    """The id and region of an item that cannot be read completely."""

    id: str
    region: Region


class ItemId(msgspec.Struct, frozen=True):
    """The id of an item whose region cannot be read either."""

    id: str


class ErrorDetail(msgspec.Struct, frozen=True):
    """Lambda's error.

    Match only on `code`; the messages change.
    """

    code: str = ""
    message: str = ""


class ErrorAnswer(msgspec.Struct, frozen=True):
    """The body of every error."""

    error: ErrorDetail


class Envelope(msgspec.Struct, Generic[T], frozen=True):
    """The body of every success.

    `page_token`: of the next page, null on the last; other listings have none.
    """

    data: T
    page_token: str | None = None


class TerminateAnswer(msgspec.Struct, frozen=True):
    """The answer to a terminate: the ids of the terminated instances."""

    terminated_instances: list[ItemId]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableItem:
    """An item that cannot be read completely.

    `id`, `region`: "" if they cannot be read either.
    """

    id: str = ""
    region: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemPage(Generic[T]):
    """The items of one answer.

    `token`: of the next page, "" at the end. `cut`: it held more items than the limit. `half_read`: a sentence for each item
    with an unreadable field.
    """

    items: tuple[T, ...]
    odd: tuple[UnreadableItem, ...] = ()
    token: str = ""
    cut: bool = False
    half_read: tuple[str, ...] = ()
