"""Translate RunPod's pods and network volumes to observations.

Pure: no network, no clock. Example: a pod EXITED at `"cost": 0.0` with 20 GB at /workspace is a stopped instance without a
price, with a disk of type "volume", whose price doubles while the pod is stopped (`billing.toml`).

The region of every resource is "global": a pod has no data centre until it is placed, and if its key changed then, it would be
charged twice. The data centre is in the label `data_center`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from costguard.errors import InputError, UnknownNameError, shorten, to_one_line
from costguard.metering.observation import MOST_GPUS, Disk, Handling, Observation, Price, parse_hourly_rate
from costguard.values.gpu import GpuNames
from costguard.values.instant import parse_instant
from costguard.values.resource import VOLUME, ResourceKey
from costguard.values.sample import CPU_UTIL, GPU_MEMORY_UTIL, GPU_UTIL, MEMORY_USED, Sample
from costguard_runpod.wire import CatalogueGpu, Count, Pod, Stamp, Volume, Work

PROVIDER, REGION = "runpod", "global"
STATES = {
    "PROVISIONING": "pending",
    "STARTING": "starting",
    "RUNNING": "running",
    "EXITED": "stopped",
    "ERROR": "failed",
    "TERMINATED": "ended",
}
"""Every status of the specification of 2026-08-20. A word that is not here is "unknown"."""
TIERS = {"SECURE": "secure", "COMMUNITY": "community"}
DISKS = {"STANDARD": "network", "HIGH_PERFORMANCE": "network high-performance"}
"""Types of network volumes. Of the second no price is published: it has no rule, and so a careful one."""
LONGEST_NAME = 200


@dataclass(slots=True)
class ListingResult:
    """The result of a listing.

    `lost`: the number of items for which no observation is possible.
    """

    items: list[Observation] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lost: int = 0

    def leave_out(self, id_: str, odd: InputError) -> None:
        """Note an item with impossible values."""
        self.lost += 1
        self.notes.append(f"{shorten(to_one_line(id_))}: {odd.what}")


@dataclass(slots=True, kw_only=True)
class TranslationContext:
    """The data for a translation.

    `catalogue`: list prices by the GPU's id, for a pod that states none.
    """

    account: str
    names: GpuNames
    catalogue: Mapping[str, CatalogueGpu] = field(default_factory=dict)
    known: dict[tuple[str, float | None], tuple[str, bool]] = field(default_factory=dict)
    """RunPod's word for a GPU -> ours, and whether anything here fits it; kept, for a refusal takes long to word."""

    def find_gpu(self, word: str, vram_gb: float | None = None) -> tuple[str, bool]:
        """Return the canonical name of `word` and True; or `word` itself and False if none matches."""
        entry = self.known.get((word, vram_gb))
        if entry is None:
            try:
                entry = self.names.resolve(word, vram_gb=vram_gb).canonical, True
            except UnknownNameError:
                entry = shorten(to_one_line(word)), False
            self.known[word, vram_gb] = entry
        return entry


def observe_all(pods: Iterable[Pod], volumes: Iterable[Volume], words: TranslationContext, at: datetime) -> ListingResult:
    """Return the observations and samples of a listing that was requested at `at`."""
    listing = ListingResult()
    attached: dict[str, list[str]] = {}
    unmeasured = 0
    for pod in pods:
        try:
            observed = observe_pod(pod, words, listing.notes)
        except InputError as odd:
            listing.leave_out(pod.id, odd)
            continue
        listing.items.append(observed)
        for volume in list_network_volumes(pod):
            attached.setdefault(volume, []).append(pod.id)
        if observed.state == "running":
            samples = build_samples(pod, observed, at)
            listing.samples += samples
            unmeasured += pod.gpu is not None and not any(sample.signal == GPU_UTIL for sample in samples)
    for one in volumes:
        try:
            listing.items.append(observe_volume(one, words, attached, listing.notes))
        except InputError as odd:
            listing.leave_out(one.id, odd)
    if unmeasured:
        listing.notes.append(f"{unmeasured} running pods state no GPU utilization that can be used: unknown, not idle")
    return listing


def observe_pod(pod: Pod, words: TranslationContext, notes: list[str]) -> Observation:
    """Return the observation of one pod, and add what could not be learned to `notes`."""
    state = STATES.get(pod.status or "", "unknown")
    gpu, count = _find_gpus(pod, words, notes)
    env = pod.env
    return Observation(
        key=ResourceKey(PROVIDER, words.account, REGION, pod.id),
        state=state,
        name=shorten(pod.name or "", LONGEST_NAME),
        instance_type=_name_type(pod, count),
        gpu=gpu,
        gpu_count=count,
        tier="spot" if pod.interruptible else TIERS.get(pod.cloud or "", "on-demand"),
        owner=shorten((env and env.owner) or "", LONGEST_NAME),
        labels=_list_labels(pod),
        created_at=_parse_instant(pod.created_at, f"{pod.id} createdAt", notes),
        started_at=_parse_instant(pod.started_at, f"{pod.id} startedAt", notes),
        prices=_list_prices(pod, state, count, words, notes),
        disks=_list_disks(pod, notes),
        why=shorten(pod.status or "no status", LONGEST_NAME),
        handling=make_handling(pod),
    )


def observe_volume(
    volume: Volume, words: TranslationContext, attached: Mapping[str, list[str]], notes: list[str]
) -> Observation:
    """Return one network volume, which is billed from its creation, attached or not."""
    kind = DISKS.get(volume.type or "", f"network {shorten((volume.type or 'of unknown type').lower())}")
    size = _make_disk(volume.size, kind, f"volume {volume.id}", notes)
    labels = {"data_center": volume.data_center or "", "attached_to": ",".join(sorted(attached.get(volume.id, ())))}
    return Observation(
        key=ResourceKey(PROVIDER, words.account, REGION, volume.id),
        state="running",
        kind=VOLUME,
        name=shorten(volume.name or "", LONGEST_NAME),
        labels=_sort_pairs(labels),
        disks=size,
    )


def list_network_volumes(pod: Pod) -> list[str]:
    """Return the network volumes of a pod."""
    mounted = (pod.mounts.network if pod.mounts else None) or []
    return [one.volume_id for one in mounted if one.volume_id]


def is_billed_unpriced(pod: Pod) -> bool:
    """Return whether a pod may be billed now without stating its price, so that the catalogue is needed."""
    if pod.gpu is None or STATES.get(pod.status or "") in ("stopped", "ended"):
        return False
    return parse_hourly_rate(pod.cost, gpus=pod.gpu.count or 1)[0] is None


def make_handling(pod: Pod) -> Handling:
    """Return the effects of acting.

    A locked pod is neither stopped nor terminated, although RunPod might terminate it.
    """
    cluster = pod.cluster
    member = cluster is not None
    actions = pod.actions if not member else []
    container = (f"{_simplify_number(pod.disk)} GB of container disk",) if pod.disk else ("the container disk",)
    mount = pod.mounts.persistent if pod.mounts else None
    volume = (f"{_simplify_number(mount.size)} GB of volume disk" if mount.size else "the volume disk",) if mount else ()
    return Handling(
        controller=f"cluster {cluster.id or '?'}" if cluster is not None else "",
        stops=None if actions is None else "stop" in actions,
        terminates=None if actions is None else "terminate" in actions,
        protected=("stop", "terminate") if pod.locked else (),
        stop_loses=() if pod.status in ("EXITED", "TERMINATED") else container,
        terminate_loses=volume if pod.status == "EXITED" else (*container, *volume),
        restart_doubtful=pod.gpu is not None,
        starts=pod.status == "EXITED" and (actions is None or "start" in actions),
    )


def build_samples(pod: Pod, observed: Observation, at: datetime) -> list[Sample]:
    """Return a running pod's measurements; the busiest GPU is known only if all of them were measured."""
    run = pod.runtime
    if run is None:
        return []
    gpus = run.gpus or []
    is_complete = len(gpus) >= max(1, observed.gpu_count)
    values = (
        (GPU_UTIL, _find_highest([gpu.util for gpu in gpus]) if is_complete else None),
        (GPU_MEMORY_UTIL, _find_highest([gpu.memory_util for gpu in gpus]) if is_complete else None),
        (CPU_UTIL, _parse_percent(run.cpu)),
        (MEMORY_USED, _parse_percent(run.memory)),
    )
    return [Sample(key=observed.key, signal=signal, at=at, value=value) for signal, value in values if value is not None]


def has_gpu_use(pod: Pod) -> bool:
    """Return whether a pod states the utilisation of every one of its GPUs."""
    gpus = (pod.runtime.gpus if pod.runtime else None) or []
    count = (pod.gpu.count if pod.gpu else None) or 1
    return len(gpus) >= count and _find_highest([gpu.util for gpu in gpus]) is not None


def _find_highest(values: list[float | None]) -> float | None:
    sound = [value for value in values if value is not None and 0 <= value <= 100]  # noqa: PLR2004 - percent
    return max(sound) if sound and len(sound) == len(values) else None


def _parse_percent(work: Work | None) -> float | None:
    return None if work is None else _find_highest([work.util])


def _find_gpus(pod: Pod, words: TranslationContext, notes: list[str]) -> tuple[str, int]:
    if pod.gpu is None:
        return "", 0
    count = _simplify_number(pod.gpu.count if pod.gpu.count is not None else 1)  # the specification's own default
    if not (isinstance(count, int) and 1 <= count <= MOST_GPUS):
        notes.append(f"{pod.id}: states {shorten(str(count))} GPUs, which is not plausible")
        count = 0
    if not pod.gpu.id:
        notes.append(f"{pod.id}: does not say which GPU it has")
        return "", count
    gpu, is_known = words.find_gpu(pod.gpu.id)
    if not is_known:
        notes.append(f"{pod.id}: GPU '{gpu}' is not known here")
    return gpu, count


def _name_type(pod: Pod, count: int) -> str:
    if pod.gpu is not None:
        return shorten(f"{to_one_line(pod.gpu.id or 'GPU')} x{count}" if count else to_one_line(pod.gpu.id or ""), LONGEST_NAME)
    if pod.cpu is None or not pod.cpu.id:
        return ""
    vcpus = f" {pod.cpu.vcpu_count:g} vCPU" if pod.cpu.vcpu_count else ""
    return shorten(f"{to_one_line(pod.cpu.id)}{vcpus}", LONGEST_NAME)


def _list_labels(pod: Pod) -> tuple[tuple[str, str], ...]:
    env = pod.env
    labels = {"data_center": pod.data_center_id or "", "network_volume": ",".join(sorted(list_network_volumes(pod)))}
    if env is not None:
        labels |= {"project": env.project or "", "team": env.team or ""}
    return _sort_pairs(labels)


def _sort_pairs(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, shorten(value, LONGEST_NAME)) for key, value in labels.items() if value))


def _list_prices(pod: Pod, state: str, count: int, words: TranslationContext, notes: list[str]) -> tuple[Price, ...]:
    """Return the stated price; the catalogue's if a pod that may be billed states none; none for a stopped pod."""
    rate, why = parse_hourly_rate(pod.cost, gpus=count, field="cost")
    if rate is not None:
        return (Price(rate),)
    if state in ("stopped", "ended"):
        return ()
    listed = words.catalogue.get((pod.gpu.id or "") if pod.gpu else "")
    each = _find_list_price(listed, pod.cloud) if listed else None
    if each is not None and count:
        rate, _ = parse_hourly_rate(each * count, gpus=count)
        if rate is not None:
            notes.append(f"{pod.id}: {why}; the catalogue's price is taken")
            return (Price(rate, source="catalogue"),)
    notes.append(f"{pod.id}: {why}")
    return (Price(None),)


def find_start_price(pod: Pod, words: TranslationContext) -> Price:
    """Return the catalogue's price of a stopped pod, which states none; an interruptible pod has no list price."""
    count, gpu = _find_gpus(pod, words, [])[1], pod.gpu
    listed = words.catalogue.get((gpu.id or "") if gpu else "")
    each = _find_list_price(listed, pod.cloud) if listed and not pod.interruptible else None
    rate = parse_hourly_rate(each * count, gpus=count)[0] if each is not None and count else None
    return Price(rate, source="catalogue")


def _find_list_price(gpu: CatalogueGpu, cloud: str | None) -> Decimal | None:
    """Return USD an hour for one GPU in the pod's cloud."""
    price = gpu.price
    rate = {"SECURE": price.secure, "COMMUNITY": price.community}.get(cloud or "") if price else None
    return rate if rate is not None and rate.is_finite() and 0 < rate < MOST_GPUS else None


def _list_disks(pod: Pod, notes: list[str]) -> tuple[Disk, ...]:
    mount = pod.mounts.persistent if pod.mounts else None
    volume = _make_disk(mount.size, "volume", f"{pod.id} mounts.persistent", notes) if mount else ()
    return (*_make_disk(pod.disk, "container", f"{pod.id} disk", notes), *volume)


def _make_disk(gb: Count, kind: str, where: str, notes: list[str]) -> tuple[Disk, ...]:
    """Return a disk; if its size, and so its price, is unknown, add a note."""
    size = None if gb is None else _simplify_number(gb)
    try:
        if isinstance(size, int):
            return (Disk(size, kind),)
        odd = "missing" if size is None else "no whole number of GB"
        notes.append(f"{where}: its size is {odd}, so its price is unknown")
    except InputError as broken:
        notes.append(f"{where}: {broken.what}")
    return (Disk(None, kind),)


def _simplify_number(count: float) -> float:
    """Return 2 for 2.0, and any other value unchanged."""
    return int(count) if isinstance(count, float) and count.is_integer() else count


def _parse_instant(stamp: Stamp, where: str, notes: list[str]) -> datetime | None:
    if stamp is None or stamp == "":
        return None
    at = parse_instant(stamp)
    if at is None:
        notes.append(f"{where} is no time that can be read: {shorten(to_one_line(str(stamp)))}")
    return at
