"""The types of Scaleway's answers (scaleway SDK 2.12.0): only the fields in use, each optional but the id.

An item with an unreadable field is read without that field: `read_item` says which one.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any, TypeVar, get_type_hints

import msgspec

from costguard.errors import shorten, to_one_line

T = TypeVar("T")


class ServerVolume(msgspec.Struct, frozen=True):
    """A volume as its Instance lists it. `size`: bytes, not stated for block volumes. `volume_type`: l_ssd, scratch, ..."""

    volume_type: str | None = None
    size: Decimal | None = None


class Server(msgspec.Struct, frozen=True):
    """One Instance.

    `tags`: plain texts. `allowed_actions`: what the API takes in the present state. `creation_date`: text, or any other value.
    """

    id: str
    name: str | None = None
    state: str | None = None
    commercial_type: str | None = None
    tags: list[str] | None = None
    allowed_actions: list[str] | None = None
    protected: bool | None = None
    creation_date: object = None
    volumes: dict[str, ServerVolume] | None = None


class Volume(msgspec.Struct, frozen=True):
    """A local volume (`volume_type`, `creation_date`) or a block volume (`type`, `created_at`). `size`: bytes."""

    id: str
    name: str | None = None
    size: Decimal | None = None
    volume_type: str | None = None
    type: str | None = None
    tags: list[str] | None = None
    creation_date: object = None
    created_at: object = None


class Address(msgspec.Struct, frozen=True):
    """A flexible IP. `server`: the Instance that it is attached to."""

    id: str
    address: str | None = None
    type: str | None = None
    tags: list[str] | None = None
    server: dict[str, object] | None = None


class GpuInfo(msgspec.Struct, frozen=True):
    """The GPU of a type. `gpu_memory`: bytes of one."""

    gpu_name: str | None = None
    gpu_memory: Decimal | None = None


class ServerType(msgspec.Struct, frozen=True):
    """A type of the catalogue. `hourly_price`: euros for the whole machine. `ram`: bytes. `gpu`: their number."""

    hourly_price: Decimal | None = None
    ncpus: Decimal | None = None
    ram: Decimal | None = None
    gpu: Decimal | None = None
    gpu_info: GpuInfo | None = None


def read_item(value: object, kind: type[T]) -> tuple[T | None, str]:
    """Return `value` as `kind`, and "" or which field is unreadable; None if it has no readable id."""
    try:
        return msgspec.convert(value, kind), ""
    except (msgspec.ValidationError, RecursionError) as broken:
        why = to_one_line(shorten(str(broken)))
    if not isinstance(value, Mapping):
        return None, why
    readable: dict[str, Any] = {}
    hints = get_type_hints(kind)
    for name in value.keys() & hints.keys():
        with suppress(msgspec.ValidationError, RecursionError):
            readable[name] = msgspec.convert(value[name], hints[name])
    try:
        return kind(**readable), why
    except TypeError:  # it has no id
        return None, why
