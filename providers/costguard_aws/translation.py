"""Translate EC2's instances, volumes and addresses to observations.

Pure: no network and no clock. What EC2 does not state is left out. LaunchTime is the start of the current or last run (it is
set at every start, and not by a reboot); the first launch is when the first network interface or the root volume was attached.

The controller that would replace an instance is read from its tags: stopping an instance of a controller causes a new one, and
a bill for both. The outermost controller is checked first: a node of EKS or Batch is in an auto-scaling group too, and the
group is the wrong place to change. Source: aws.md section 7 of the project's provider notes, 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from math import ceil
from string import ascii_lowercase
from sys import intern
from typing import Any

from costguard.metering.billing import CEILING_VCPUS_MIN, LICENCE_PER_VCPU
from costguard.metering.meter import GB, IOPS, MIBPS
from costguard.metering.observation import (
    LARGEST_GB,
    UNKNOWN_HANDLING,
    UNPRICED,
    Disk,
    Estimate,
    Handling,
    Observation,
    Price,
    mark_place,
    widen_price,
)
from costguard.metering.price_ladder import VCPUS_UNKNOWN
from costguard.values.instant import parse_instant
from costguard.values.money import NANO, Rate
from costguard.values.resource import ADDRESS, RUNNING, VOLUME, ResourceKey
from costguard_aws.instance_types import GpuInstanceType
from costguard_aws.price_list import PLAIN, SOURCE, PriceKey
from costguard_aws.storage_prices import ADDRESS_IDLE, ADDRESS_IN_USE

AWS = "aws"

Fields = Mapping[str, Any]
"""An item of EC2 as boto3 gives it (`Ec2Item`): what EC2 left out is missing."""

STATES = {
    "pending": "pending",
    "running": "running",
    "stopping": "stopping",
    "stopped": "stopped",
    "shutting-down": "stopping",
    "terminated": "ended",
}
LEFT_RUNNING = frozenset(("stopping", "stopped", "shutting-down", "terminated"))
"""States in which StateTransitionReason may say when the run ended."""

TIERS = {"": "on-demand", "spot": "spot"}
"""By InstanceLifecycle, which is missing for on-demand; scheduled, capacity blocks and shared reservations are reserved."""

VOLUME_STATES = {
    "creating": "starting",
    "available": RUNNING,
    "in-use": RUNNING,
    "deleting": "stopping",
    "deleted": "ended",
    "error": "failed",
}

OPERATIONS = {"windows": "RunInstances:0002"}
"""UsageOperation by Platform, for answers that lack it: EC2's billing codes, aws.md section 1."""

BLOCK, HOST = "capacity block, paid up front", "dedicated host, billed in its place"
OUTPOST = "Outpost, billed by its racks"
"""Where the price of one that costs nothing more an hour comes from: what was paid for it is not in EC2's answer."""


@dataclass(frozen=True, slots=True)
class ListingScope:
    """The account and region of a listing."""

    account: str
    region: str


@dataclass(frozen=True, slots=True)
class TypeAndPriceLookup:
    """Look-ups of learned types and prices.

    Both answer for every name, and note a missing one once.
    """

    kind: Callable[[str], GpuInstanceType | None]
    price: Callable[[PriceKey], Price]


def observe_instance(item: Fields, place: ListingScope, lookup: TypeAndPriceLookup, note: Callable[[str], None]) -> Observation:
    """Return the observation of one instance.

    `note`: receives a sentence for each field that cannot be read.
    """
    key = ResourceKey(AWS, place.account, place.region, item.get("InstanceId", ""))
    word = item.get("State", {}).get("Name", "")
    state = STATES.get(word, "unknown")
    type_name = intern(item.get("InstanceType", ""))
    kind = lookup.kind(type_name)
    labels = parse_labels(item)
    launched = _read_time(item, "LaunchTime", key.id, note)
    tier = TIERS.get(item.get("InstanceLifecycle", ""), "reserved")
    observation = Observation(
        key=key,
        state=state,
        name=_find_label(labels, "name"),
        instance_type=type_name,
        gpu=kind.gpu if kind else "",
        gpu_count=kind.gpu_count if kind else 0,
        tier=tier,
        owner=_find_label(labels, "owner") or item.get("KeyName") or _parse_role(item),
        labels=labels,
        created_at=_find_created_at(item, launched),
        started_at=None if state == "pending" else launched,
        stopped_at=parse_left_at(item.get("StateTransitionReason", "")) if word in LEFT_RUNNING else None,
        prices=_list_prices(item, place.region, tier, lookup),
        why="" if state == word else word[:80],
        handling=_make_handling(item, word, tier, kind),
        vcpus=kind.vcpus if kind else 0,
        ram_gb=kind.ram_gb if kind else 0,
    )
    return add_surcharges(observation, item)


CREDITS_PER_VCPU, WINDOWS_CREDITS_PER_VCPU = 50_000_000, 96_000_000
"""Nano-USD an hour of a T machine's vCPU above its credits, at most. EC2's page on unlimited mode, from memory, 2026-11."""
DEDICATED_FEE = 2 * NANO
"""Nano-USD an hour of a region in which dedicated instances run. EC2's page on dedicated instances, from memory, 2026-11."""


def add_surcharges(observation: Observation, item: Fields) -> Observation:
    """Return `observation` whose prices say what the list leaves out: software, credits, the fee for dedicated instances."""
    vcpus = max(ceil(observation.vcpus) or VCPUS_UNKNOWN, CEILING_VCPUS_MIN)
    parts = dict[str, int]()
    if any(one.get("ProductCodeType") == "marketplace" for one in item.get("ProductCodes", ())):
        parts["Marketplace software"] = vcpus * LICENCE_PER_VCPU
    if re.match(r"t\d", observation.instance_type):
        windows = item.get("Platform", "").lower() == "windows"
        parts["CPU credits"] = vcpus * (WINDOWS_CREDITS_PER_VCPU if windows else CREDITS_PER_VCPU)
    if item.get("Placement", {}).get("Tenancy") == "dedicated":
        parts["the region's fee for dedicated instances"] = DEDICATED_FEE
    if not parts:
        return observation
    prices = (widen_price(price, " and ".join(parts), sum(parts.values())) for price in observation.prices)
    return replace(observation, prices=tuple(prices))


def find_price_region(item: Fields, region: str, name: str = "AvailabilityZone") -> str:
    """Return the region of the price list where `item` stands, by its zone or the place `name`.

    A Local Zone (us-west-2-lax-1a) and a Wavelength Zone are regions of the list: us-west-2-lax-1.
    """
    zone = item.get("Placement", item).get(name)
    usual = not isinstance(zone, str) or zone in ("", region) or is_usual_zone(zone, region)
    return region if usual else intern(zone.rstrip(ascii_lowercase))


def make_price_key(item: Fields, region: str) -> PriceKey:
    """Return the key of an instance's list price."""
    operation = item.get("UsageOperation") or OPERATIONS.get(item.get("Platform", "").lower(), "RunInstances")
    tenancy = item.get("Placement", {}).get("Tenancy") or "default"
    return PriceKey(intern(item.get("InstanceType", "")), find_price_region(item, region), intern(operation), intern(tenancy))


def _list_prices(item: Fields, region: str, tier: str, lookup: TypeAndPriceLookup) -> tuple[Price, ...]:
    """Return today's list price; spot prices are learned separately, and those of reserved capacity are not in EC2."""
    if tier == "reserved":
        return (Price(None, None, BLOCK, prepaid=item.get("InstanceLifecycle") == "capacity-block", special=True),)
    if tier == "spot":
        return ()
    key = make_price_key(item, region)
    if key.tenancy == "host" or item.get("OutpostArn"):
        return (Price(None, None, OUTPOST if item.get("OutpostArn") else HOST, special=True),)
    price = lookup.price(key)
    plain = (key.region, key.operation, key.tenancy) == (region, PLAIN, "default")
    return (price if plain else replace(price, surcharged=True),)


_LEFT = re.compile(r"\((\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.\d+)? ?(?:GMT|UTC|Z)?\)")


def parse_left_at(reason: str) -> datetime | None:
    """Return when the run ended, from `User initiated (2026-11-21 09:30:00 GMT)`; None for any other text."""
    match = _LEFT.search(reason)
    return parse_instant(match[1]) if match else None


def _find_created_at(item: Fields, launched: datetime | None) -> datetime | None:
    """Return the first launch: when interface 0 or the root volume was attached; None if EC2 shows neither (terminated)."""
    attachments = [interface.get("Attachment", {}) for interface in item.get("NetworkInterfaces", ())]
    values = [one.get("AttachTime") for one in attachments if one.get("DeviceIndex") == 0 and not one.get("NetworkCardIndex")]
    root, devices = item.get("RootDeviceName", ""), item.get("BlockDeviceMappings", ())
    values += [device.get("Ebs", {}).get("AttachTime") for device in devices if device.get("DeviceName", "") == root]
    times = [at for at in values if isinstance(at, datetime)]
    if not times:
        return None
    return min(*times, launched) if launched is not None else min(times)


def parse_labels(item: Fields) -> tuple[tuple[str, str], ...]:
    """Return the sorted pairs.

    Equal strings are stored once: thousands of machines have the same.
    """
    return tuple(sorted((intern(key), intern(value)) for key, value in list_tags(item)))


def list_tags(item: Fields) -> Iterator[tuple[str, str]]:
    """Yield the pairs of an item's tags."""
    for tag in item.get("Tags", ()):
        if tag.get("Key"):
            yield tag["Key"], tag.get("Value", "")


def _find_label(labels: tuple[tuple[str, str], ...], name: str) -> str:
    return next((value for key, value in labels if key.lower() == name), "")


def _parse_role(item: Fields) -> str:
    """Return the name of the instance's role, which hints at its owner."""
    return str(item.get("IamInstanceProfile", {}).get("Arn", "")).rsplit("/", 1)[-1]


def _read_time(item: Fields, name: str, id: str, note: Callable[[str], None]) -> datetime | None:  # noqa: A002 - the ledger's word
    at = item.get(name)
    if at and not isinstance(at, datetime):
        note(f"{id}: its {name} cannot be read")
    return at if isinstance(at, datetime) else None


def _make_handling(item: Fields, word: str, tier: str, kind: GpuInstanceType | None) -> Handling:
    """Return the effects of acting on the instance."""
    if word == "terminated":
        return UNKNOWN_HANDLING
    managed, controller = is_managed(item), find_item_controller(item)
    deleted = sum(bool(device.get("Ebs", {}).get("DeleteOnTermination")) for device in item.get("BlockDeviceMappings", ()))
    local = list_local_losses(kind)
    handling = Handling(
        controller=controller.name if controller else "",
        stops=_can_stop(item, word, tier, managed=managed),
        terminates=not managed and word in STATES,
        stop_loses=local,
        terminate_loses=(*local, *([f"{deleted} EBS volume{'s' * (deleted > 1)} that end with it"] if deleted else [])),
        restart_doubtful=bool(kind and kind.gpu),
        committed=_describe_commitment(item, tier),
        starts=word == "stopped" and not managed,
    )
    if len(_SHARED) > MOST_SHARED:
        _SHARED.clear()
    return _SHARED.setdefault(handling, handling)


_SHARED: dict[Handling, Handling] = {}
"""Machines of one fleet are handled alike, and share the words."""
MOST_SHARED = 10_000


def _can_stop(item: Fields, word: str, tier: str, *, managed: bool) -> bool | None:
    """Return whether EC2 can stop it; None if only its spot request shows that.

    It cannot with an instance-store root, or if another service runs it.
    """
    if managed or item.get("RootDeviceType") == "instance-store" or word in ("pending", "shutting-down"):
        return False
    return None if tier == "spot" or word not in STATES else True


def list_local_losses(kind: GpuInstanceType | None) -> tuple[str, ...]:
    """Return what a stop erases: the host's local disks."""
    if kind is not None and kind.local_gb is None:
        return ("local disk of unknown size",)
    return (f"{kind.local_gb} GB of local disk",) if kind and kind.local_gb else ()


def _describe_commitment(item: Fields, tier: str) -> str:
    """Return what is still billed when it is stopped."""
    reservation = item.get("CapacityReservationId", "")
    if tier == "reserved":
        return f"{BLOCK} {item.get('CapacityBlockId') or reservation}".rstrip()
    if item.get("Placement", {}).get("Tenancy") == "host":
        return HOST
    return f"capacity reservation {reservation}, which bills while it is unused" if reservation else ""


StoragePricing = Callable[[str], int | None]
"""Nano-USD a month, or an hour of an address, of a line ("gp3-iops"); None: unknown, so that the billing rule prices it."""

GP3_IOPS, GP3_MIBPS = 3000, 125
"""What every gp3 volume includes: aws.md section 2, 2026-11."""
IO2_TIERS = (("io2-iops", 32_000), ("io2-iops-tier2", 64_000), ("io2-iops-tier3", LARGEST_GB))
"""Line -> up to how many IOPS of a volume it prices: io2's price falls by 30 % above each (usage types of the price list)."""


def is_usual_zone(zone: str, region: str) -> bool:
    """Return whether `zone` is the region and one letter (us-west-2a), and no Local Zone (us-west-2-lax-1a)."""
    return zone.startswith(region) and len(zone) == len(region) + 1


def observe_volume(
    item: Fields, place: ListingScope, note: Callable[[str], None], price: StoragePricing = lambda _line: None
) -> Observation:
    """Return one EBS volume: billed from creation to deletion, attached or not, with the performance that it pays for."""
    key = ResourceKey(AWS, place.account, place.region, item.get("VolumeId", ""))
    word, size = item.get("State", ""), _read_count(item, "Size")
    state, kind = VOLUME_STATES.get(word, "unknown"), intern(item.get("VolumeType", ""))
    labels, attached = parse_labels(item), next((one.get("InstanceId") for one in item.get("Attachments", ())), "")
    if size is None:
        note(f"{key.id}: its size cannot be read, so its cost is unknown")
    where = "outpost" if item.get("OutpostArn") else find_price_region(item, place.region)
    disks = (_price_disk(size, kind, GB, price), *_list_provisioned(item, kind, price))
    return Observation(
        key=key,
        state=state,
        kind=VOLUME,
        name=_find_label(labels, "name") or (f"disk of {attached}" if attached else ""),
        instance_type=kind,
        owner=_find_label(labels, "owner"),
        labels=labels,
        created_at=_read_time(item, "CreateTime", key.id, note),
        disks=disks if where == place.region else mark_place(disks, where),
        why="" if state == RUNNING else word[:80],
    )


def _read_count(item: Fields, name: str) -> int | None:
    count = item.get(name)
    return count if isinstance(count, int) and 0 <= count < 10**18 else None


def _price_disk(amount: int | None, line: str, measure: str, price: StoragePricing) -> Disk:
    nano = price(line)
    return Disk(amount, line, nano, measure, "" if nano is None else SOURCE)


def _list_provisioned(item: Fields, kind: str, price: StoragePricing) -> Iterator[Disk]:
    """Yield the IOPS and MiB/s of a volume that cost extra; those of gp2, st1 and sc1 are in the price of their size."""
    iops, mibps = _read_count(item, "Iops") or 0, _read_count(item, "Throughput") or 0
    extra: list[tuple[str, int, str]] = []
    if kind == "gp3":
        extra = [("gp3-iops", iops - GP3_IOPS, IOPS), ("gp3-mibps", mibps - GP3_MIBPS, MIBPS)]
    elif kind == "io1":
        extra = [("io1-iops", iops, IOPS)]
    elif kind == "io2":
        starts = (0, *(most for _, most in IO2_TIERS))
        extra = [(line, min(iops, most) - start, IOPS) for (line, most), start in zip(IO2_TIERS, starts, strict=False)]
    for line, amount, measure in extra:
        if amount > 0:
            yield _price_disk(amount, line, measure, price)


BORDER_GROUP = "NetworkBorderGroup"  # the field of an address that names its place
ADDRESS_MOST = 50_000_000
"""Nano-USD an hour of an address outside of the list's regions: ten times the price in all regions; an assumption, 2026-11."""


def observe_address(item: Fields, place: ListingScope, price: StoragePricing = lambda _line: None) -> Observation | None:
    """Return one Elastic IP, which is billed in use or idle until it is released.

    None for a customer's own address, which is free.
    """
    if item.get("PublicIpv4Pool") not in (None, "", "amazon"):
        return None
    labels, name = parse_labels(item), item.get("AllocationId") or item.get("PublicIp", "")
    used = bool(item.get("AssociationId") or item.get("InstanceId"))
    nano = price(ADDRESS_IN_USE if used else ADDRESS_IDLE)
    prices = () if nano is None else (Price(Rate(nano_per_hour=nano), None, SOURCE),)
    if nano is None and find_price_region(item, place.region, BORDER_GROUP) != place.region:
        prices = (Price(None, None, SOURCE, estimate=Estimate(0, ADDRESS_MOST, UNPRICED)),)
    return Observation(
        key=ResourceKey(AWS, place.account, place.region, name),
        state=RUNNING,
        kind=ADDRESS,
        name=_find_label(labels, "name") or item.get("PublicIp", ""),
        owner=_find_label(labels, "owner"),
        labels=labels,
        prices=prices,
        why="" if used else "idle",
    )


def add_protections(observation: Observation, acts: tuple[str, ...]) -> Observation:
    """Return `observation` with these protections."""
    return replace(observation, handling=replace(observation.handling, protected=acts)) if acts else observation


GROUP_TAG = "aws:autoscaling:groupName"


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """`name`: for people ("auto-scaling group train").

    `ask`: what to do instead of stopping its instance. `group`: the auto-scaling group, if it alone is the controller: it can
    be asked to terminate one member.
    """

    name: str
    ask: str
    group: str = ""


_BY_TAG = (
    ("aws:eks:cluster-name", "EKS cluster", "scale the workload or change the node pool of EKS Auto Mode"),
    ("karpenter.sh/nodeclaim", "Karpenter node claim", "kubectl delete nodeclaim, or change the NodePool"),
    ("karpenter.sh/nodepool", "Karpenter node pool", "kubectl delete its nodeclaim, or change the NodePool"),
    ("eks:nodegroup-name", "EKS node group", "aws eks update-nodegroup-config --scaling-config"),
    ("eks:cluster-name", "EKS cluster", "scale its node group (aws eks update-nodegroup-config)"),
    ("AWSBatchServiceTag", "Batch compute environment", "lower maxvCpus, or disable the compute environment"),
    ("parallelcluster:cluster-name", "ParallelCluster", "let Slurm power the node down, or stop the compute fleet"),
    ("aws:elasticmapreduce:job-flow-id", "EMR cluster", "resize or terminate the cluster"),
    ("AmazonECSManaged", "ECS capacity provider", "scale the capacity provider's auto-scaling group"),
)
_BY_PREFIX = (
    ("aws:batch:", "Batch compute environment", "lower maxvCpus, or disable the compute environment"),
    ("kubernetes.io/cluster/", "Kubernetes cluster", "scale its node group: the cluster replaces a node that is gone"),
)
_BY_TAG_LAST = (
    (GROUP_TAG, "auto-scaling group", "lower the group's desired capacity"),
    ("aws:ec2:fleet-id", "EC2 Fleet", "lower its target capacity, or delete the fleet"),
    ("aws:ec2spot:fleet-request-id", "Spot Fleet", "lower its target capacity, or cancel the request"),
)


def is_managed(item: Fields) -> bool:
    """Return whether EC2 states that another AWS service runs the instance."""
    return item.get("Operator", {}).get("Managed") is True


def find_item_controller(item: Fields) -> Controller | None:
    """Return the controller of an instance; None if there is none."""
    return find_controller(
        dict(list_tags(item)), managed=is_managed(item), principal=item.get("Operator", {}).get("Principal", "")
    )


def find_controller(tags: Mapping[str, str], *, managed: bool = False, principal: str = "") -> Controller | None:
    """Return the controller of an instance with these tags; None if there is none.

    `managed`: EC2 states that a service runs it.
    """
    if managed:
        who = f"AWS service {principal}" if principal else "an AWS service"
        return Controller(name=who, ask="change it in that service: EC2 refuses to stop it directly")
    for key, name, ask in _BY_TAG:
        if key in tags:
            return Controller(name=f"{name} {tags[key]}".rstrip(), ask=ask)
    for prefix, name, ask in _BY_PREFIX:
        tag = next((key for key in tags if key.startswith(prefix)), None)
        if tag is not None:
            of = tag.removeprefix(prefix) if prefix.endswith("/") else tags[tag]
            return Controller(name=f"{name} {of}".rstrip(), ask=ask)
    for key, name, ask in _BY_TAG_LAST:
        if key in tags:
            group = tags[key] if key == GROUP_TAG else ""
            return Controller(name=f"{name} {tags[key]}".rstrip(), ask=ask, group=group)
    return None
