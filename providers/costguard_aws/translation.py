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
from sys import intern
from xml.etree.ElementTree import Element

from costguard.metering.meter import GB, IOPS, MIBPS
from costguard.metering.observation import LARGEST_GB, UNKNOWN_HANDLING, Disk, Handling, Observation, Price
from costguard.values.instant import parse_instant
from costguard.values.money import Rate
from costguard.values.resource import ADDRESS, RUNNING, VOLUME, ResourceKey
from costguard_aws.ec2_xml import list_tags, read_flag, read_text, read_whole_number
from costguard_aws.instance_types import GpuInstanceType
from costguard_aws.price_list import PLAIN, SOURCE, PriceKey
from costguard_aws.storage_prices import ADDRESS_IDLE, ADDRESS_IN_USE

AWS = "aws"

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


def observe_instance(item: Element, place: ListingScope, known: TypeAndPriceLookup, told: Callable[[str], None]) -> Observation:
    """Return the observation of one instance.

    `told`: receives a sentence for each field that cannot be read.
    """
    fields = {child.tag: child for child in item}
    key = ResourceKey(AWS, place.account, place.region, read_text(fields.get("instanceId")))
    word = read_text(fields.get("instanceState"), "name")
    state = STATES.get(word, "unknown")
    type_name = intern(read_text(fields.get("instanceType")))
    kind = known.kind(type_name)
    labels = parse_labels(fields.get("tagSet"))
    launched = _parse_time(fields.get("launchTime"), key.id, "launchTime", told)
    tier = TIERS.get(read_text(fields.get("instanceLifecycle")), "reserved")
    return Observation(
        key=key,
        state=state,
        name=_find_label(labels, "name"),
        instance_type=type_name,
        gpu=kind.gpu if kind else "",
        gpu_count=kind.gpu_count if kind else 0,
        tier=tier,
        owner=_find_label(labels, "owner") or read_text(fields.get("keyName")) or _parse_role(fields.get("iamInstanceProfile")),
        labels=labels,
        created_at=_find_created_at(fields, launched),
        started_at=None if state == "pending" else launched,
        stopped_at=parse_left_at(read_text(fields.get("reason"))) if word in LEFT_RUNNING else None,
        prices=_list_prices(fields, type_name, place.region, tier, known),
        why="" if state == word else word[:80],
        handling=_make_handling(fields, labels, word, tier, kind),
        vcpus=kind.vcpus if kind else 0,
        ram_gb=kind.ram_gb if kind else 0,
    )


def make_price_key(fields: Mapping[str, Element], type_name: str, region: str) -> PriceKey:
    """Return the key of an instance's list price."""
    stated, platform = read_text(fields.get("usageOperation")), read_text(fields.get("platform"))
    return _build_price_key(type_name, region, stated, platform, read_text(fields.get("placement"), "tenancy"))


_GUESSED = (b"<instanceType>", b"<usageOperation>", b"<platform>", b"<tenancy>")


def guess_price_key(piece: bytes, region: str) -> PriceKey:
    """Return what is probably the key of an instance's list price, from its text before it is parsed.

    Only for asking early: the prices of many types are then asked for together.
    """
    stated = []
    for tag in _GUESSED:
        at = piece.find(tag)
        text = piece[at + len(tag) : piece.find(b"<", at + 1)] if at >= 0 else b""
        stated.append(text.decode() if _WORD.fullmatch(text) else "")
    type_name, operation, platform, tenancy = stated
    return _build_price_key(type_name, region, operation, platform, tenancy)


_WORD = re.compile(rb"[A-Za-z0-9.:-]{1,64}")


def _build_price_key(type_name: str, region: str, operation: str, platform: str, tenancy: str) -> PriceKey:
    operation = operation or OPERATIONS.get(platform.lower(), "RunInstances")
    return PriceKey(intern(type_name), region, intern(operation), intern(tenancy or "default"))


def _list_prices(
    fields: dict[str, Element], type_name: str, region: str, tier: str, known: TypeAndPriceLookup
) -> tuple[Price, ...]:
    """Return today's list price; spot prices are learned separately, and those of reserved capacity are not in EC2."""
    if tier == "reserved":
        return (Price(None, None, BLOCK, prepaid=read_text(fields.get("instanceLifecycle")) == "capacity-block", special=True),)
    if tier == "spot":
        return ()
    key = make_price_key(fields, type_name, region)
    if key.tenancy == "host":
        return (Price(None, None, HOST, special=True),)
    price = known.price(key)
    plain = key.operation == PLAIN and key.tenancy == "default"
    return (price if plain else replace(price, surcharged=True),)


_LEFT = re.compile(r"\((\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.\d+)? ?(?:GMT|UTC|Z)?\)")


def parse_left_at(reason: str) -> datetime | None:
    """Return when the run ended, from `User initiated (2026-11-21 09:30:00 GMT)`; None for any other text."""
    found = _LEFT.search(reason)
    return parse_instant(found[1]) if found else None


def _find_created_at(fields: dict[str, Element], launched: datetime | None) -> datetime | None:
    """Return the first launch: when interface 0 or the root volume was attached; None if EC2 shows neither (terminated)."""
    found: list[datetime | None] = []
    for interface in fields.get("networkInterfaceSet", ()):
        attachment = interface.find("attachment")
        if read_text(attachment, "deviceIndex") == "0" and read_text(attachment, "networkCardIndex") in ("", "0"):
            found.append(parse_instant(read_text(attachment, "attachTime")))
    root = read_text(fields.get("rootDeviceName"))
    devices = fields.get("blockDeviceMapping", ())
    found += [
        parse_instant(read_text(device, "ebs/attachTime")) for device in devices if read_text(device, "deviceName") == root
    ]
    known = [at for at in found if at is not None]
    if not known:
        return None
    return min(*known, launched) if launched is not None else min(known)


def parse_labels(tag_set: Element | None) -> tuple[tuple[str, str], ...]:
    """Return the sorted pairs.

    Equal strings are stored once: thousands of machines have the same.
    """
    return tuple(sorted((intern(key), intern(value)) for key, value in list_tags(tag_set)))


def _find_label(labels: tuple[tuple[str, str], ...], name: str) -> str:
    return next((value for key, value in labels if key.lower() == name), "")


def _parse_role(profile: Element | None) -> str:
    """Return the name of the instance's role, which hints at its owner."""
    return read_text(profile, "arn").rsplit("/", 1)[-1]


def _parse_time(element: Element | None, id: str, name: str, told: Callable[[str], None]) -> datetime | None:  # noqa: A002 - the ledger's word
    text = read_text(element)
    at = parse_instant(text) if text else None
    if text and at is None:
        told(f"{id}: its {name} cannot be read")
    return at


def _make_handling(
    fields: dict[str, Element], labels: tuple[tuple[str, str], ...], word: str, tier: str, kind: GpuInstanceType | None
) -> Handling:
    """Return the effects of acting on the instance."""
    if word == "terminated":
        return UNKNOWN_HANDLING
    operator = fields.get("operator")
    managed = read_flag(operator, "managed")
    controller = find_controller(dict(labels), managed=managed, principal=read_text(operator, "principal"))
    deleted = sum(read_flag(device, "ebs/deleteOnTermination") for device in fields.get("blockDeviceMapping", ()))
    local = list_local_losses(kind)
    made = Handling(
        controller=controller.name if controller else "",
        stops=_can_stop(fields, word, tier, managed=managed),
        terminates=not managed and word in STATES,
        stop_loses=local,
        terminate_loses=(*local, *([f"{deleted} EBS volume{'s' * (deleted > 1)} that end with it"] if deleted else [])),
        restart_doubtful=bool(kind and kind.gpu),
        committed=_describe_commitment(fields, tier),
        starts=word == "stopped" and not managed,
    )
    if len(_SHARED) > MOST_SHARED:
        _SHARED.clear()
    return _SHARED.setdefault(made, made)


_SHARED: dict[Handling, Handling] = {}
"""Machines of one fleet are handled alike, and share the words."""
MOST_SHARED = 10_000


def _can_stop(fields: dict[str, Element], word: str, tier: str, *, managed: bool) -> bool | None:
    """Return whether EC2 can stop it; None if only its spot request shows that.

    It cannot with an instance-store root, or if another service runs it.
    """
    if managed or read_text(fields.get("rootDeviceType")) == "instance-store" or word in ("pending", "shutting-down"):
        return False
    return None if tier == "spot" or word not in STATES else True


def list_local_losses(kind: GpuInstanceType | None) -> tuple[str, ...]:
    """Return what a stop erases: the host's local disks."""
    if kind is not None and kind.local_gb is None:
        return ("local disk of unknown size",)
    return (f"{kind.local_gb} GB of local disk",) if kind and kind.local_gb else ()


def _describe_commitment(fields: dict[str, Element], tier: str) -> str:
    """Return what is still billed when it is stopped."""
    reservation = read_text(fields.get("capacityReservationId"))
    if tier == "reserved":
        return f"{BLOCK} {read_text(fields.get('capacityBlockId')) or reservation}".rstrip()
    if read_text(fields.get("placement"), "tenancy") == "host":
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
    item: Element, place: ListingScope, told: Callable[[str], None], price: StoragePricing = lambda _line: None
) -> Observation:
    """Return one EBS volume: billed from creation to deletion, attached or not, with the performance that it pays for."""
    key = ResourceKey(AWS, place.account, place.region, read_text(item, "volumeId"))
    word, size = read_text(item, "status"), read_whole_number(item, "size")
    state, kind = VOLUME_STATES.get(word, "unknown"), intern(read_text(item, "volumeType"))
    labels, attached = parse_labels(item.find("tagSet")), read_text(item, "attachmentSet/item/instanceId")
    if size is None:
        told(f"{key.id}: its size cannot be read, so what it costs is unknown")
    return Observation(
        key=key,
        state=state,
        kind=VOLUME,
        name=_find_label(labels, "name") or (f"disk of {attached}" if attached else ""),
        instance_type=kind,
        owner=_find_label(labels, "owner"),
        labels=labels,
        created_at=_parse_time(item.find("createTime"), key.id, "createTime", told),
        disks=(_price_disk(size, kind, GB, price), *_list_provisioned(item, kind, price)),
        why="" if state == RUNNING else word[:80],
    )


def _price_disk(amount: int | None, line: str, measure: str, price: StoragePricing) -> Disk:
    nano = price(line)
    return Disk(amount, line, nano, measure, "" if nano is None else SOURCE)


def _list_provisioned(item: Element, kind: str, price: StoragePricing) -> Iterator[Disk]:
    """Yield the IOPS and MiB/s of a volume that cost extra; those of gp2, st1 and sc1 are in the price of their size."""
    iops, mibps = read_whole_number(item, "iops") or 0, read_whole_number(item, "throughput") or 0
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


def observe_address(item: Element, place: ListingScope, price: StoragePricing = lambda _line: None) -> Observation | None:
    """Return one Elastic IP, which is billed in use or idle until it is released.

    None for a customer's own address, which is free.
    """
    if read_text(item, "publicIpv4Pool") not in ("", "amazon"):
        return None
    labels, name = parse_labels(item.find("tagSet")), read_text(item, "allocationId") or read_text(item, "publicIp")
    used = bool(read_text(item, "associationId") or read_text(item, "instanceId"))
    nano = price(ADDRESS_IN_USE if used else ADDRESS_IDLE)
    return Observation(
        key=ResourceKey(AWS, place.account, place.region, name),
        state=RUNNING,
        kind=ADDRESS,
        name=_find_label(labels, "name") or read_text(item, "publicIp"),
        owner=_find_label(labels, "owner"),
        labels=labels,
        prices=() if nano is None else (Price(Rate(nano_per_hour=nano), None, SOURCE),),
        why="" if used else "idle",
    )


def add_protections(seen: Observation, acts: tuple[str, ...]) -> Observation:
    """Return `seen` with these protections."""
    return replace(seen, handling=replace(seen.handling, protected=acts)) if acts else seen


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
        found = next((key for key in tags if key.startswith(prefix)), None)
        if found is not None:
            of = found.removeprefix(prefix) if prefix.endswith("/") else tags[found]
            return Controller(name=f"{name} {of}".rstrip(), ask=ask)
    for key, name, ask in _BY_TAG_LAST:
        if key in tags:
            group = tags[key] if key == GROUP_TAG else ""
            return Controller(name=f"{name} {tags[key]}".rstrip(), ask=ask, group=group)
    return None
