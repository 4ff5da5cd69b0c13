"""What acting on a Compute Engine machine would do: who would bring it back, what it would lose, when it ends by itself."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from costguard.errors import shorten, to_one_line
from costguard.metering.observation import Handling
from costguard.values.stated_time import parse_instant
from costguard_gcp.machine_types import MachineShape
from costguard_gcp.wire import Instance, parse_whole_number, take_last_part

LOCAL_SSD = "local SSD"
WORKBENCH, SCHEDULE = "Vertex AI Workbench", "an instance schedule"
LONGEST_MAX_RUN_S = 366 * 86_400


def make_handling(instance: Instance, shape: MachineShape | None, started: datetime | None) -> Handling:
    """Facts about acts on `instance`. `shape`: its machine type, None where unknown. `started`: its present run."""
    scratch = sum_scratch_gb(instance, shape)
    ssd = (f"{scratch} GB of {LOCAL_SSD}",) if scratch else ()
    status = instance.status or ""
    return Handling(
        controller=find_controller(instance),
        stops=None if status not in _STOPPABLE and status not in _STOPPED else status in _STOPPABLE,
        terminates=True if status in _STOPPABLE or status in _STOPPED else None,
        protected=("terminate",) if instance.deletion_protection else (),
        stop_loses=ssd if status not in _STOPPED else (),
        terminate_loses=(*ssd, *_list_deleted_disks(instance)),
        restart_doubtful=bool(instance.guest_accelerators) or bool(shape and shape.gpus),
        committed=_describe_commitment(instance),
        ends_at=_find_end(instance, started),
    )


def sum_scratch_gb(instance: Instance, shape: MachineShape | None) -> int:
    """GB of local SSD that a stop throws away: of attached scratch disks, or, unseen among them, of the type's own."""
    attached = sum(parse_whole_number(disk.disk_size_gb) or 0 for disk in instance.disks or () if disk.type == "SCRATCH")
    return max(attached, shape.ssd_gib if shape else 0)


def find_controller(instance: Instance) -> str:
    """Who would bring it back or must be asked instead; "" for nobody that is known."""
    maker = read_creator(instance)
    labels = instance.labels or {}
    if "/instanceGroupManagers/" in maker and not _find_label_owner(labels, "goog-gke"):
        return f"managed instance group {_shorten_name(take_last_part(maker))}"
    for starts, told, named_by in _OWNERS:
        if _find_label_owner(labels, *starts):
            name = next((labels[key] for key in named_by if labels.get(key)), "")
            return f"{told} {_shorten_name(name)}".rstrip()
    if "/instanceGroupManagers/" in maker:
        return f"managed instance group {_shorten_name(take_last_part(maker))}"
    if (instance.name or "").startswith("gke-"):
        return "GKE node pool"
    return f"{SCHEDULE}, which may start it again" if instance.resource_policies else ""


def find_replacer(instance: Instance) -> str:
    """Who would make it anew, or lose its work, were it stopped by itself; "" for nobody, as of a notebook."""
    owner = find_controller(instance)
    return "" if owner.startswith((WORKBENCH, SCHEDULE)) else owner


def read_creator(instance: Instance) -> str:
    """The value of the metadata key `created-by`; no other value is ever read."""
    for item in (instance.metadata.items if instance.metadata else None) or ():
        if item.key == "created-by":
            try:
                return msgspec.json.decode(item.value, type=str)
            except msgspec.DecodeError:
                return ""
    return ""


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

_STOPPED = frozenset(("TERMINATED", "STOPPED"))
_STOPPABLE = frozenset(
    ("PROVISIONING", "STAGING", "RUNNING", "PENDING_STOP", "STOPPING", "SUSPENDING", "SUSPENDED", "REPAIRING")
)


def _list_deleted_disks(instance: Instance) -> tuple[str, ...]:
    """Persistent disks that go with the machine."""
    told: list[str] = []
    for disk in instance.disks or ():
        if disk.auto_delete and disk.type != "SCRATCH":
            size = parse_whole_number(disk.disk_size_gb)
            name = _shorten_name(take_last_part(disk.source) or disk.device_name or "?")
            told.append(f"{'boot disk' if disk.boot else 'disk'} {name}{'' if size is None else f' ({size} GB)'}")
    return tuple(told)


def _describe_commitment(instance: Instance) -> str:
    """A machine that is bound to a reservation is paid for either way; others may be, which the API does not say."""
    affinity, scheduling = instance.reservation_affinity, instance.scheduling
    if scheduling and scheduling.provisioning_model == "RESERVATION_BOUND":
        return "bound to a reservation, which bills whether it runs or not"
    if affinity and affinity.consume_reservation_type == "SPECIFIC_RESERVATION":
        name = _shorten_name(take_last_part(next(iter(affinity.values or ()), "")))
        return f"uses reservation {name}".rstrip() + ", which bills whether it runs or not"
    return ""


def _find_end(instance: Instance, started: datetime | None) -> datetime | None:
    scheduling = instance.scheduling
    if scheduling is None or instance.status in _STOPPED:
        return None
    stated = parse_instant(scheduling.termination_time)
    if stated is not None:
        return stated
    seconds = parse_whole_number(scheduling.max_run_duration.seconds) if scheduling.max_run_duration else None
    if started is None or not seconds or seconds > LONGEST_MAX_RUN_S:
        return None
    return started + timedelta(seconds=seconds)
