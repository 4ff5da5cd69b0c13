"""The types of Vast's answers: only the fields in use, all of which may be missing.

Secrets (jupyter_token, extra_env, onstart, ssh_key) have no field here, so they are never decoded. Lists are kept undecoded, so
that one unreadable item does not fail the others.

Numbers are validated: an impossible one counts as missing, never as zero.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, TypeVar, get_type_hints

import msgspec
from msgspec import UNSET, Raw, UnsetType

from costguard.metering.observation import MOST_GPUS

T = TypeVar("T")

Time = int | float | str | None


class InstancePage(msgspec.Struct):
    """A page of instances.

    `next_token`: null at the end; if it is missing, only `total_instances` can show the end.
    """

    instances: list[Raw]
    next_token: str | UnsetType | None = UNSET
    total_instances: int | None = None


def parse_leniently(raw: Raw, kind: type[T]) -> tuple[T | None, list[str]]:
    """Return the item without its unreadable fields, and their names; None if its id is unreadable."""
    values: dict[str, Any] = {}
    left_out: list[str] = []
    try:
        fields, hints = msgspec.json.decode(raw, type=dict[str, Raw]), get_type_hints(kind)
    except UNREADABLE:
        return None, []
    for name in hints:
        if name in fields:
            try:
                values[name] = msgspec.json.decode(fields[name], type=hints[name])
            except UNREADABLE:
                left_out.append(name)
    return (kind(**values), left_out) if "id" in values else (None, [])


UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


class InstanceAnswer(msgspec.Struct):
    """One instance, under a plural key; null if there is none."""

    instances: Raw


class VolumeList(msgspec.Struct):
    """Every volume."""

    volumes: list[Raw]


class OfferList(msgspec.Struct):
    """Offers."""

    offers: list[Raw]


class AccruedRates(msgspec.Struct, rename="camel"):
    """USD an hour that the contract accrues now; `gpu_cost_per_hour` is 0 while it is stopped."""

    gpu_cost_per_hour: Decimal | None = None
    disk_hour: Decimal | None = None
    discounted_total_per_hour: Decimal | None = None


class ItemIdentity(msgspec.Struct):
    """The id of an item, its only required field."""

    id: int | str


class Instance(msgspec.Struct):
    """One contract.

    Prices are USD an hour for all of it, `storage_cost` USD per GB-month, RAM in MB, utilisation in percent.
    """

    id: int | str
    actual_status: str | None = None
    intended_status: str | None = None
    cur_state: str | None = None
    next_state: str | None = None
    label: str | None = None
    num_gpus: int | float | None = None
    gpu_name: str | None = None
    gpu_ram: Decimal | None = None
    gpu_util: Decimal | None = None
    gpu_temp: Decimal | None = None
    cpu_util: Decimal | None = None
    mem_usage: Decimal | None = None
    mem_limit: Decimal | None = None
    disk_space: Decimal | None = None
    is_bid: bool | int | None = None
    dph_base: Decimal | None = None
    dph_total: Decimal | None = None
    storage_cost: Decimal | None = None
    storage_total_cost: Decimal | None = None
    inet_up_cost: Decimal | None = None
    inet_down_cost: Decimal | None = None
    inet_up_billed: Decimal | None = None
    inet_down_billed: Decimal | None = None
    instance: AccruedRates | None = None
    credit_balance: Decimal | None = None
    credit_discount: Decimal | None = None
    start_date: Time = None
    end_date: Time = None


class Volume(msgspec.Struct):
    """One volume. `storage_total_cost`: USD an hour for all of it."""

    id: int | str
    status: str | None = None
    disk_space: Decimal | None = None
    storage_total_cost: Decimal | None = None
    start_date: Time = None
    label: str | None = None
    instances: list[int | str] | None = None


class HostOffer(msgspec.Struct):
    """One offer of a host.

    `min_bid`: USD an hour of its interruptible variant, for all its GPUs. `reliability2`: the part of the time that the host
    could be reached, 0 to 1.
    """

    gpu_name: str | None = None
    num_gpus: int | float | None = None
    gpu_ram: Decimal | None = None
    dph_base: Decimal | None = None
    dph_total: Decimal | None = None
    storage_total_cost: Decimal | None = None
    min_bid: Decimal | None = None
    cpu_cores: Decimal | None = None
    cpu_cores_effective: Decimal | None = None
    cpu_ram: Decimal | None = None
    disk_space: Decimal | None = None
    geolocation: str | None = None
    verification: str | None = None
    reliability2: Decimal | None = None
    hosting_type: int | None = None
    machine_id: int | str | None = None
    rentable: bool | None = None


class User(msgspec.Struct):
    """The account.

    `credit`: prepaid USD, as the console shows it; `balance` can differ.
    """

    id: int | str
    credit: Decimal | None = None
    balance: Decimal | None = None


class ActAnswer(msgspec.Struct):
    """The answer to an act."""

    success: bool | None = None


class PriceIncrease(msgspec.Struct):
    """A price increase that a host proposes; rates are USD a second."""

    contract_id: int | str
    old_gpu_costpersec: Decimal | None = None
    new_gpu_costpersec: Decimal | None = None
    contract_end_date: Time = None


class PriceIncreaseList(msgspec.Struct):
    """All price increases that await an answer."""

    pending_price_increases: list[PriceIncrease]
    truncated: bool | None = None


class ChargePart(msgspec.Struct):
    """A part of a charge: gpu, disk, bwd (traffic down) or bwu (up)."""

    amount: Decimal | None = None
    type: str | None = None
    start: Time = None
    end: Time = None
    description: str | None = None


class Charge(msgspec.Struct):
    """The charge of one contract.

    `source`: instance-24815377.
    """

    source: str
    type: str | None = None
    amount: Decimal | None = None
    start: Time = None
    end: Time = None
    description: str | None = None
    items: list[ChargePart] | None = None


class ChargePage(msgspec.Struct):
    """A page of charges."""

    results: list[Raw]
    next_token: str | UnsetType | None = UNSET


NANO = 10**9
MONTH_H = 720
"""Hours of a month of storage: gpuhunt reckons GB x rate / 30 / 24 (vast.md, section 3)."""
SMALLEST, LARGEST = -30, 15
"""Powers of ten beyond which nothing of Vast lies, and some arithmetic overflows."""


def parse_finite(value: Decimal | None) -> Decimal | None:
    """Return `value` if it is a finite number of usable size; None otherwise."""
    if value is None or not value.is_finite() or (value and not SMALLEST <= value.adjusted() < LARGEST):
        return None
    return value


def parse_positive(value: Decimal | None) -> Decimal | None:
    """Return `value` if it is a finite number above zero; None otherwise."""
    number = parse_finite(value)
    return number if number is not None and number > 0 else None


def parse_gpu_count(value: float | None) -> int | None:
    """Return `value` as a number of GPUs, for 2 as well as 2.0; None if it is missing, a fraction or impossible."""
    return int(value) if value is not None and 0 <= value <= MOST_GPUS and value == int(value) else None


def parse_percent(value: Decimal | None) -> float | None:
    """Return utilisation in percent; None if it is missing, negative (Vast's "no heartbeat") or above 100."""
    number = parse_finite(value)
    return float(number) if number is not None and 0 <= number <= 100 else None  # noqa: PLR2004 - percent


def to_nano(value: Decimal) -> int:
    """Return a finite `value` in billionths, rounded half to even."""
    return int(value.scaleb(9).to_integral_value())
