"""Translate Compute Engine's machines, disks and static addresses to observations.

Pure: no network, no clock. TERMINATED means stopped: the machine can be started again, and its disks are still billed. Disks
and static addresses are billed beside and after a machine.

Also the effects of acting on a machine: what would start it again, what it would lose, when it ends by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from costguard.errors import InputError, UnknownNameError, shorten, to_one_line
from costguard.metering.meter import GB, IOPS, MIBPS
from costguard.metering.observation import Disk, Handling, Observation, Price, mark_place
from costguard.values.gpu import GpuNames
from costguard.values.instant import parse_instant
from costguard.values.money import Rate
from costguard.values.resource import ADDRESS, SPOT, VOLUME, ResourceKey, make_storable
from costguard_gcp.machine_types import MachineShape
from costguard_gcp.price_list import AI_ZONE, FLEX, IOPS_END, MIBPS_END, ON_DEMAND, REGIONAL, SOLE_TENANT, SOURCE, add_software
from costguard_gcp.sustained_use import apply_use_discount
from costguard_gcp.wire import Named, parse_whole_number, read_number, take_last_part

if TYPE_CHECKING:  # a listing of offers does not pay for the SDK
    from google.cloud.compute_v1 import AcceleratorConfig, Address, Instance
    from google.cloud.compute_v1 import Disk as PersistentDisk

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

LICENCE = "-vws"
"""How the name of a GPU ends that is billed with a workstation licence."""

PLAIN_TIERS = (ON_DEMAND, SPOT)
"""The price list's tiers that public prices are of; Flex-start and reservations cost something else."""

AT_REST = ("stopped", "suspended")
"""In every other state the last stop may be that of an earlier run: a later start does not clear it."""

PROVIDER = "gcp"
LONGEST_WORD = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceQuestion:
    """What determines a machine's price.

    `accelerators`: (API's name, count); `sku_tier`: of the price list.
    """

    machine: MachineShape | None
    accelerators: tuple[tuple[str, int], ...]
    sku_tier: str
    region: str


Pricing = Callable[[PriceQuestion], tuple[Price, str]]
"""The price of a machine, and "" or why it is unknown."""


DiskPricing = Callable[[str, str], int | None]
"""Nano-USD a month of a GB, an IOPS or a MiB/s of a line in a region; None: unknown, so that the billing rule prices it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoragePricing:
    """Prices of disks, by line and region, and of idle addresses, in nano-USD an hour by region."""

    disk: DiskPricing = lambda _line, _region: None
    address: Callable[[str], int | None] = lambda _region: None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingContext:
    """The data to translate a listing: GPU names, machine types (by zone and name), prices.

    `local_ssd`: nano-USD a GiB-month of attached local SSD, by tier of the price list and region; None: unknown. `at`: now.
    """

    project: str
    gpus: GpuNames
    machines: Callable[[str, str], MachineShape | None]
    price: Pricing
    at: datetime
    local_ssd: DiskPricing = lambda _tier, _region: None


def observe_instance(instance: Instance, zone: str, reading: ListingContext) -> tuple[Observation, tuple[str, ...]]:
    """Return the observation of `instance` in `zone`, and notes of what could not be learned.

    Raises InputError if no ledger can store it.
    """
    name, type_name = instance.name, take_last_part(instance.machine_type)
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
    notes += [f"{field} cannot be read" for field, timestamp in times.items() if timestamp and parse_instant(timestamp) is None]
    state = STATES.get(instance.status, "unknown")
    if state == "unknown":
        notes.append(f"status {shorten(instance.status or 'missing')} is not known")
    question = PriceQuestion(machine=shape, accelerators=attached, sku_tier=find_sku_tier(instance), region=parse_region(where))
    price, why = reading.price(question) if type_name else (Price(None), "machine type is missing")
    if not (shape and shape.gpus) and _has_uncounted_gpus(instance):
        price, why = Price(None, special=True), "price unknown: how many GPUs it has cannot be read"
    if instance.scheduling.node_affinities:
        price, why = Price(None, None, SOLE_TENANT, special=True), ""
    elif question.sku_tier not in PLAIN_TIERS:
        price = replace(price, special=True)
    elif any(kind.endswith(LICENCE) for kind, _ in attached) or AI_ZONE.search(where):
        price = replace(price, surcharged=True)
    vcpus = shape.vcpus if shape else _parse_vcpus(type_name)
    price = add_software(price, (one for disk in instance.disks for one in disk.licenses), vcpus)
    if why and state == "running":
        notes.append(why)
    stopped = parse_instant(instance.last_suspended_timestamp if state == "suspended" else instance.last_stop_timestamp)
    observation = Observation(
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
        prices=apply_use_discount(price, shape, question.sku_tier, started, reading.at),
        disks=_list_local_ssds(instance, shape, reading.local_ssd(question.sku_tier, question.region)),
        why=make_storable(shorten(instance.status)),
        handling=make_handling(instance, shape, started),
        vcpus=vcpus,
        ram_gb=shape.ram_gib if shape else 0,
    )
    return observation, tuple(f"{name or instance.id}: {note}" for note in notes)


def observe_unreadable(item: Named, zone: str, project: str, kind: str) -> Observation:
    """Return the observation of an item of which only the id could be read; everything else is unknown."""
    where = take_last_part(item.zone) or take_last_part(item.region) or zone
    key = ResourceKey(PROVIDER, project, where, str(item.id))
    return Observation(key=key, state="unknown", kind=kind, name=make_storable(shorten(item.name or "")), why="unreadable")


def parse_region(zone: str) -> str:
    """Return the region of a zone: us-central1 for us-central1-a."""
    head, _, tail = zone.rpartition("-")
    return head if head.count("-") >= 1 and len(tail) <= LONGEST_ZONE_LETTER else zone


LONGEST_ZONE_LETTER = 2
"""Letters of a zone within its region: `a`; AI zones have two (us-central1-ai1a is written with a region of its own)."""


def list_accelerators(instance: Instance) -> tuple[tuple[str, int], ...]:
    """Return (API's name, count) of the GPUs that the machine states; TPUs (ct...) are not GPUs."""
    accelerators = [(take_last_part(one.accelerator_type), _parse_count(one)) for one in instance.guest_accelerators]
    return tuple((name, count) for name, count in accelerators if name and count and not name.startswith("ct"))


def _has_uncounted_gpus(instance: Instance) -> bool:
    """Return whether the machine states GPUs without their number, which must not count as none."""
    return any(one.accelerator_type and not _parse_count(one) for one in instance.guest_accelerators)


def _parse_count(one: AcceleratorConfig) -> int:
    return one.accelerator_count if 0 < one.accelerator_count <= MOST_ACCELERATORS else 0


MOST_ACCELERATORS = 1000


def _find_gpu(
    attached: tuple[tuple[str, int], ...], shape: MachineShape | None, names: GpuNames, notes: list[str]
) -> tuple[str, float]:
    """Return the canonical GPU and the count: the machine's own statement, else that of its type; never the sum.

    A slice (G4) is stated as one whole accelerator, so the fraction of the type is used.
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
    """Return the accelerator's name without the suffix of a workstation licence: it is the same GPU."""
    return accelerator.removesuffix(LICENCE)


def find_tier(instance: Instance) -> str:
    """Return the tier.

    Older preemptible machines state only `preemptible`: either field means spot.
    """
    scheduling = instance.scheduling
    if scheduling.provisioning_model == "SPOT" or scheduling.preemptible:
        return SPOT
    return "reserved" if scheduling.provisioning_model == "RESERVATION_BOUND" else "on-demand"


def find_sku_tier(instance: Instance) -> str:
    """Return the price list's tier: Flex-start has its own; a bound reservation is billed by itself."""
    if find_tier(instance) == SPOT:
        return SPOT
    model = instance.scheduling.provisioning_model
    tier_by_model = {"": ON_DEMAND, "STANDARD": ON_DEMAND, "FLEX_START": FLEX}
    return tier_by_model.get(model, "reservation" if model == "RESERVATION_BOUND" else "unknown")


def _parse_vcpus(type_name: str) -> int:
    """Return the vCPUs that the name of a machine type states (c9-standard-8: 8); 0 if it states none."""
    match = _VCPUS.fullmatch(type_name)
    return int(match[1]) if match else 0


_VCPUS = re.compile(r"[a-z]\w{0,6}-[a-z]+-([1-9]\d{0,3})", re.ASCII)


def _list_local_ssds(instance: Instance, shape: MachineShape | None, nano: int | None) -> tuple[Disk, ...]:
    """Return attached local SSD, which is billed while the machine runs; bundled SSD is in the machine's price."""
    if shape and shape.ssd_gib:
        return ()
    sizes = (parse_whole_number(disk.disk_size_gb) for disk in instance.disks if disk.type_ == "SCRATCH")
    return tuple(_make_disk(gb, "local-ssd", GB, nano) for gb in sizes if gb)


def _make_disk(amount: int | None, line: str, measure: str, nano: int | None) -> Disk:
    return Disk(amount, line, nano, measure, "" if nano is None else SOURCE)


def sort_labels(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the sorted pairs."""
    return tuple(sorted((make_storable(k), make_storable(v)) for k, v in labels.items()))


def find_owner(labels: Mapping[str, str]) -> str:
    """Return the value of the label `owner`, in any case."""
    return next((v for k, v in sorted(labels.items()) if k.lower() == "owner"), "")


DISK_STATES = {
    "READY": "running",
    "CREATING": "running",
    "RESTORING": "running",
    "DELETING": "running",
    "UNAVAILABLE": "running",
    "FAILED": "failed",
}
"""Every disk bills from its creation until it is gone, whether a machine runs on it or not (gcp.md, section 2)."""

ADDRESS_STATES = {"RESERVING": "running", "RESERVED": "running", "IN_USE": "running"}


def observe_disk(
    disk: PersistentDisk, where: str, project: str, price: DiskPricing = lambda _type, _region: None
) -> tuple[Observation, tuple[str, ...]]:
    """Return a persistent disk or Hyperdisk, boot disks included: a listed machine has no price for its disks.

    `price`: of the price list. A regional disk is two disks, and is priced as a type of its own ("pd-ssd-regional").
    """
    size = read_number(disk, "size_gb")
    notes = [] if size is not None else ["size is missing or cannot be read"]
    kind, zone = take_last_part(disk.type_), take_last_part(disk.zone)
    region = parse_region(zone) if zone else take_last_part(disk.region) or where
    line = kind if zone or not disk.region or not kind.startswith("pd-") else f"{kind}{REGIONAL}"
    try:
        disks = (_make_disk(size, line, GB, price(line, region)), *_list_provisioned(disk, kind, region, price))
        disks = mark_place(disks, region) if AI_ZONE.search(region) else disks
    except InputError:
        disks, notes = (Disk(None, line),), [f"size {size} GB is more than any disk has"]
    observation = Observation(
        key=_make_key(project, take_last_part(disk.zone) or take_last_part(disk.region) or where, disk.id),
        kind=VOLUME,
        state=DISK_STATES.get(disk.status, "unknown"),
        name=make_storable(shorten(disk.name)),
        instance_type=make_storable(shorten(take_last_part(disk.type_))),
        owner=make_storable(shorten(find_owner(disk.labels))),
        labels=sort_labels(disk.labels),
        created_at=parse_instant(disk.creation_timestamp),
        disks=disks,
        why=make_storable(shorten(disk.status)),
    )
    return observation, tuple(f"disk {disk.name or disk.id}: {note}" for note in notes)


INCLUDED = {"hyperdisk-balanced": (3000, 140), "hyperdisk-balanced-high-availability": (3000, 140)}
"""IOPS and MiB/s that a disk includes; other types include none. Compute Engine's page on Hyperdisk Balanced, 2026-11."""
SELLS_IOPS = ("pd-extreme", "hyperdisk-balanced", "hyperdisk-balanced-high-availability", "hyperdisk-extreme")
SELLS_MIBPS = ("hyperdisk-balanced", "hyperdisk-balanced-high-availability", "hyperdisk-throughput", "hyperdisk-ml")
NEWER = "hyperdisk-"
"""How types begin that may be announced later: those that are not named above are taken to sell both."""


def _list_provisioned(disk: PersistentDisk, kind: str, region: str, price: DiskPricing) -> Iterator[Disk]:
    """Yield the IOPS and MiB/s of a disk that are paid for beside its size."""
    iops, mibps = (parse_whole_number(one) or 0 for one in (disk.provisioned_iops, disk.provisioned_throughput))
    iops_included, mibps_included = INCLUDED.get(kind, (0, 0))
    newer = kind.startswith(NEWER) and kind not in {*SELLS_IOPS, *SELLS_MIBPS}
    for types, amount, line, measure in (
        (SELLS_IOPS, iops - iops_included, f"{kind}{IOPS_END}", IOPS),
        (SELLS_MIBPS, mibps - mibps_included, f"{kind}{MIBPS_END}", MIBPS),
    ):
        if (newer or kind in types) and amount > 0:
            yield _make_disk(amount, line, measure, price(line, region))


def observe_address(
    address: Address, where: str, project: str, price: Callable[[str], int | None] = lambda _region: None
) -> Observation | None:
    """Return a static external IPv4 address; None for those that are free: internal ones, and IPv6.

    `price`: nano-USD an hour of an address of a region that nothing uses; the price of one in use depends on what uses it.
    """
    if (address.address_type or "EXTERNAL") != "EXTERNAL" or address.ip_version == "IPV6":
        return None
    region = take_last_part(address.region) or where
    nano = price(region) if address.status == "RESERVED" else None
    return Observation(
        key=_make_key(project, region, address.id),
        kind=ADDRESS,
        state=ADDRESS_STATES.get(address.status, "unknown"),
        name=make_storable(shorten(address.name)),
        owner=make_storable(shorten(find_owner(address.labels))),
        labels=sort_labels(address.labels),
        created_at=parse_instant(address.creation_timestamp),
        prices=(Price(None if nano is None else Rate(nano_per_hour=nano), None, SOURCE),),  # none ends the price of an idle one
        why=make_storable(shorten(address.status)),
    )


def _make_key(project: str, where: str, number: str | int) -> ResourceKey:
    return ResourceKey(PROVIDER, project, where, str(number))


LOCAL_SSD = "local SSD"
WORKBENCH, SCHEDULE = "Vertex AI Workbench", "an instance schedule"
LONGEST_MAX_RUN_S = 366 * 86_400


def make_handling(instance: Instance, shape: MachineShape | None, started: datetime | None) -> Handling:
    """Return the effects of acting on `instance`.

    `shape`: its machine type, None if unknown. `started`: the start of its current run.
    """
    scratch = sum_scratch_gb(instance, shape)
    ssd = (f"{scratch} GB of {LOCAL_SSD}",) if scratch else ()
    status = instance.status
    return Handling(
        controller=find_controller(instance),
        stops=None if status not in _STOPPABLE and status not in STOPPED_WORDS else status in _STOPPABLE,
        terminates=True if status in _STOPPABLE or status in STOPPED_WORDS else None,
        protected=("terminate",) if instance.deletion_protection else (),
        stop_loses=ssd if status not in STOPPED_WORDS else (),
        terminate_loses=(*ssd, *_list_deleted_disks(instance)),
        restart_doubtful=bool(instance.guest_accelerators) or bool(shape and shape.gpus),
        committed=_describe_commitment(instance),
        ends_at=_find_end(instance, started),
        starts=status in STOPPED_WORDS,
    )


def sum_scratch_gb(instance: Instance, shape: MachineShape | None) -> int:
    """Return the GB of local SSD that a stop loses: attached scratch disks, or the type's own if they are not listed."""
    attached = sum(parse_whole_number(disk.disk_size_gb) or 0 for disk in instance.disks if disk.type_ == "SCRATCH")
    return max(attached, shape.ssd_gib if shape else 0)


def find_controller(instance: Instance) -> str:
    """Return what would start it again or must be changed instead; "" if nothing is known."""
    maker = read_creator(instance)
    labels = instance.labels
    if "/instanceGroupManagers/" in maker and not _find_label_owner(labels, "goog-gke"):
        return f"managed instance group {_shorten_name(take_last_part(maker))}"
    for starts, controller, named_by in _OWNERS:
        if _find_label_owner(labels, *starts):
            name = next((labels[key] for key in named_by if labels.get(key)), "")
            return f"{controller} {_shorten_name(name)}".rstrip()
    if "/instanceGroupManagers/" in maker:
        return f"managed instance group {_shorten_name(take_last_part(maker))}"
    if instance.name.startswith("gke-"):
        return "GKE node pool"
    return f"{SCHEDULE}, which may start it again" if instance.resource_policies else ""


def find_replacer(instance: Instance) -> str:
    """Return what would replace it, or lose its work, if it were stopped directly; "" for nothing, as for a notebook."""
    owner = find_controller(instance)
    return "" if owner.startswith((WORKBENCH, SCHEDULE)) else owner


def read_creator(instance: Instance) -> str:
    """Return the value of the metadata key `created-by`; no other value is read: they may be secrets."""
    return next((item.value for item in instance.metadata.items if item.key == "created-by"), "")


def _find_label_owner(labels: Mapping[str, str], *starts: str) -> bool:
    return any(key.startswith(starts) for key in labels)


def _shorten_name(name: str) -> str:
    return shorten(to_one_line(name))


_OWNERS = (
    (("goog-gke", "goog-k8s"), "GKE node pool", ("goog-k8s-node-pool-name", "goog-k8s-cluster-name")),
    (("goog-dataproc",), "Dataproc cluster", ("goog-dataproc-cluster-name",)),
    (("goog-dataflow",), "Dataflow job", ("goog-dataflow-job-id",)),
    (("goog-vertex-ai", "goog-caip-notebook", "consumer-project-id"), WORKBENCH, ()),
    (("goog-batch", "batch-job-id"), "Batch job", ("batch-job-id", "goog-batch-job-id", "goog-batch-job-uid")),
    (("ghpc_deployment", "slurm_instance_role"), "Slurm cluster", ("ghpc_deployment", "slurm_cluster_name")),
)
"""Starts of label keys, who that is, labels with its name: gcp.md, section 7, 2026-11."""

STOPPED_WORDS = frozenset(("TERMINATED", "STOPPED"))
_STOPPABLE = frozenset(
    ("PROVISIONING", "STAGING", "RUNNING", "PENDING_STOP", "STOPPING", "SUSPENDING", "SUSPENDED", "REPAIRING")
)


def _list_deleted_disks(instance: Instance) -> tuple[str, ...]:
    """Return the persistent disks that are deleted with the machine."""
    descriptions: list[str] = []
    for disk in instance.disks:
        if disk.auto_delete and disk.type_ != "SCRATCH":
            size = read_number(disk, "disk_size_gb")
            name = _shorten_name(take_last_part(disk.source) or disk.device_name or "?")
            descriptions.append(f"{'boot disk' if disk.boot else 'disk'} {name}{'' if size is None else f' ({size} GB)'}")
    return tuple(descriptions)


def _describe_commitment(instance: Instance) -> str:
    """Describe the reservation to which a machine is bound and which is billed in any case.

    Other machines may use one too; the API does not state that.
    """
    affinity, scheduling = instance.reservation_affinity, instance.scheduling
    if scheduling.provisioning_model == "RESERVATION_BOUND":
        return "bound to a reservation, which bills whether it runs or not"
    if affinity.consume_reservation_type == "SPECIFIC_RESERVATION":
        name = _shorten_name(take_last_part(next(iter(affinity.values), "")))
        return f"uses reservation {name}".rstrip() + ", which bills whether it runs or not"
    return ""


def _find_end(instance: Instance, started: datetime | None) -> datetime | None:
    scheduling = instance.scheduling
    if instance.status in STOPPED_WORDS:
        return None
    end_at = parse_instant(scheduling.termination_time)
    if end_at is not None:
        return end_at
    seconds = scheduling.max_run_duration.seconds
    if started is None or not 0 < seconds <= LONGEST_MAX_RUN_S:
        return None
    return started + timedelta(seconds=seconds)
