"""Compute Engine's words about machines in costguard's. Pure: no network, no clock.

The trap of the house: TERMINATED means stopped. The machine can be started again, and its disks go on billing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from costguard.errors import UnknownNameError, shorten
from costguard.metering.observation import Disk, Observation, Price
from costguard.values.gpu_names import GpuNames
from costguard.values.resource import SPOT, ResourceKey, make_storable
from costguard.values.stated_time import parse_instant
from costguard_gcp.handling import make_handling
from costguard_gcp.machine_types import MachineShape
from costguard_gcp.price_list import FLEX, ON_DEMAND
from costguard_gcp.wire import Accelerator, Instance, Named, parse_whole_number, take_last_part

STATES = {
    "PENDING": "pending",
    "PROVISIONING": "starting",
    "STAGING": "starting",
    "RUNNING": "running",
    "PENDING_STOP": "running",
    "STOPPING": "stopping",
    "STOPPED": "stopped",
    "TERMINATED": "stopped",
    "SUSPENDING": "stopping",
    "SUSPENDED": "suspended",
    "REPAIRING": "repairing",
    "DEPROVISIONING": "stopped",
}
"""gcp.md, section 2, 2026-11. PENDING_STOP is still billed in full; that STOPPING and SUSPENDING are is not documented, and
`stopping` says so. DEPROVISIONING is the teardown of a machine, which costs nothing."""

AT_REST = ("stopped", "suspended")
"""In every other state the last stop may be that of an earlier run: a later start does not clear it."""

PROVIDER = "gcp"
LONGEST_WORD = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceQuestion:
    """What the price of one machine depends on. `accelerators`: (API's name, count); `sku_tier`: of the price list."""

    machine: MachineShape | None
    accelerators: tuple[tuple[str, int], ...]
    sku_tier: str
    region: str


Pricing = Callable[[PriceQuestion], tuple[Price, str]]
"""The price of a machine, and "" or why it is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingContext:
    """What reading a listing needs: GPU names, machine types (by zone and name), prices."""

    project: str
    gpus: GpuNames
    machines: Callable[[str, str], MachineShape | None]
    price: Pricing


def observe_instance(instance: Instance, zone: str, reading: ListingContext) -> tuple[Observation, tuple[str, ...]]:
    """`instance`, found in `zone`, and what could not be learned of it. InputError where no ledger could hold it."""
    name, type_name = instance.name or "", take_last_part(instance.machine_type)
    where = take_last_part(instance.zone) or zone
    shape = reading.machines(where, type_name) if type_name else None
    notes: list[str] = []
    attached = list_accelerators(instance)
    gpu, count = _find_gpu(attached, shape, reading.gpus, notes)
    started = parse_instant(instance.last_start_timestamp)
    times = {
        "creationTimestamp": instance.creation_timestamp,
        "lastStartTimestamp": instance.last_start_timestamp,
        "lastStopTimestamp": instance.last_stop_timestamp,
    }
    notes += [f"{field} cannot be read" for field, stated in times.items() if stated and parse_instant(stated) is None]
    state = STATES.get(instance.status or "", "unknown")
    if state == "unknown":
        notes.append(f"status {shorten(instance.status or 'missing')} is not known")
    asked = PriceQuestion(machine=shape, accelerators=attached, sku_tier=find_sku_tier(instance), region=parse_region(where))
    price, why = reading.price(asked) if type_name else (Price(None), "machine type is missing")
    if not (shape and shape.gpus) and _has_uncounted_gpus(instance):
        price, why = Price(None), "price unknown: how many GPUs it has cannot be read"
    if why and state == "running":
        notes.append(why)
    stopped = parse_instant(instance.last_suspended_timestamp if state == "suspended" else instance.last_stop_timestamp)
    seen = Observation(
        key=ResourceKey(PROVIDER, reading.project, where, str(instance.id)),
        state=state,
        name=make_storable(shorten(name)),
        instance_type=make_storable(shorten(type_name)),
        gpu=gpu,
        gpu_count=count,
        tier=find_tier(instance),
        owner=make_storable(shorten(find_owner(instance.labels))),
        labels=sort_labels(instance.labels),
        created_at=parse_instant(instance.creation_timestamp),
        started_at=started,
        stopped_at=stopped if state in AT_REST or (stopped and started and stopped >= started) else None,
        prices=(price,),
        disks=_list_local_ssds(instance, shape),
        why=make_storable(shorten(instance.status or "")),
        handling=make_handling(instance, shape, started),
    )
    return seen, tuple(f"{name or instance.id}: {note}" for note in notes)


def observe_unreadable(item: Named, zone: str, project: str, kind: str) -> Observation:
    """An item of which only its id could be read: there, and unknown in everything else."""
    where = take_last_part(item.zone) or take_last_part(item.region) or zone
    key = ResourceKey(PROVIDER, project, where, str(item.id))
    return Observation(key=key, state="unknown", kind=kind, name=make_storable(shorten(item.name or "")), why="unreadable")


def parse_region(zone: str) -> str:
    """us-central1-a lies in us-central1."""
    head, _, tail = zone.rpartition("-")
    return head if head.count("-") >= 1 and len(tail) <= LONGEST_ZONE_LETTER else zone


LONGEST_ZONE_LETTER = 2
"""Letters of a zone within its region: `a`; AI zones have two (us-central1-ai1a is written with a region of its own)."""


def list_accelerators(instance: Instance) -> tuple[tuple[str, int], ...]:
    """(API's name, count) of the GPUs that the machine says it has; TPUs (ct...) are not GPUs."""
    stated = [(take_last_part(one.accelerator_type), _parse_count(one)) for one in instance.guest_accelerators or ()]
    return tuple((name, count) for name, count in stated if name and count and not name.startswith("ct"))


def _has_uncounted_gpus(instance: Instance) -> bool:
    """Whether it says that it has GPUs, and not how many: none is no answer to that."""
    return any(one.accelerator_type and not _parse_count(one) for one in instance.guest_accelerators or ())


def _parse_count(one: Accelerator) -> int:
    count = one.accelerator_count
    return count if count is not None and 0 < count <= MOST_ACCELERATORS else 0


MOST_ACCELERATORS = 1000


def _find_gpu(
    attached: tuple[tuple[str, int], ...], shape: MachineShape | None, names: GpuNames, notes: list[str]
) -> tuple[str, float]:
    """The canonical GPU and how many: what the machine says, else what its type brings; never both together.

    A slice (G4) is said to be one whole accelerator: its fraction is that of the type.
    """
    if shape and 0 < shape.gpus < 1:
        name, count = shape.accelerator, shape.gpus
    elif attached:
        name, count = (
            attached[0][0],
            float(sum(n for kind, n in attached if strip_licence_suffix(kind) == strip_licence_suffix(attached[0][0]))),
        )
    elif shape and shape.gpus:
        name, count = shape.accelerator, shape.gpus
    else:
        return "", 0
    if len({strip_licence_suffix(kind) for kind, _ in attached}) > 1:
        notes.append("has GPUs of more than one kind, and the first is shown")
    try:
        return names.resolve(strip_licence_suffix(name)).canonical, count
    except UnknownNameError:
        notes.append(f"GPU {shorten(name)} is not known here")
        return make_storable(shorten(name, LONGEST_WORD)), count


def strip_licence_suffix(accelerator: str) -> str:
    """The accelerator without the suffix of a workstation licence: the same GPU."""
    return accelerator.removesuffix("-vws")


def find_tier(instance: Instance) -> str:
    """Older preemptible machines say `preemptible` alone: either makes it spot."""
    scheduling = instance.scheduling
    if scheduling is None:
        return "on-demand"
    if scheduling.provisioning_model == "SPOT" or scheduling.preemptible:
        return SPOT
    return "reserved" if scheduling.provisioning_model == "RESERVATION_BOUND" else "on-demand"


def find_sku_tier(instance: Instance) -> str:
    """Which of the price list's tiers it pays: Flex-start has its own; a bound reservation is paid for by itself."""
    if find_tier(instance) == SPOT:
        return SPOT
    model = instance.scheduling.provisioning_model if instance.scheduling else None
    known = {None: ON_DEMAND, "": ON_DEMAND, "STANDARD": ON_DEMAND, "FLEX_START": FLEX}
    return known.get(model, "reservation" if model == "RESERVATION_BOUND" else "unknown")


def _list_local_ssds(instance: Instance, shape: MachineShape | None) -> tuple[Disk, ...]:
    """Attached local SSD, which bills while the machine runs. What comes with the type is in the machine's price."""
    if shape and shape.ssd_gib:
        return ()
    sizes = (parse_whole_number(disk.disk_size_gb) for disk in instance.disks or () if disk.type == "SCRATCH")
    return tuple(Disk(gb, "local-ssd") for gb in sizes if gb)


def sort_labels(labels: dict[str, str] | None) -> tuple[tuple[str, str], ...]:
    """Sorted pairs."""
    return tuple(sorted((make_storable(k), make_storable(v)) for k, v in (labels or {}).items()))


def find_owner(labels: dict[str, str] | None) -> str:
    """The label `owner`, whatever its case."""
    return next((v for k, v in sorted((labels or {}).items()) if k.lower() == "owner"), "")
