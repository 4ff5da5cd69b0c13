"""Translate nodes and node pools to observations.

Pure: no network, no clock. A node's life is its `metadata.uid`: a pool that lost a Spot node gets another one, perhaps under
the same name, with another uid. `creationTimestamp` is when it joined the cluster. When its billing began is not documented, so
`started_at` stays None and the ledger places the start between the creation and when it was ready.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from costguard.errors import InputError, UnknownNameError, shorten, to_one_line
from costguard.metering.observation import Handling, Observation, Price
from costguard.providers.kubernetes import (
    Node,
    NodeCondition,
    NodeStatus,
    UnreadableObject,
    count_gpus,
    get_text,
    list_text_labels,
)
from costguard.values.gpu import GpuNames
from costguard.values.instant import parse_instant
from costguard.values.resource import RUNNING, SPOT, UNKNOWN, ResourceKey, make_storable
from costguard_coreweave.api import NAME, Cluster, NodePool

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
POOL = "compute.coreweave.com/node-pool"
"""The label with the node's pool (CoreWeave's provider in Kubernetes' cluster-autoscaler, seen 2026-12-01)."""
LIFECYCLE = "node.coreweave.cloud/state"
PRODUCTION = "production"
"""Of LIFECYCLE, on nodes that take work; others (triage, zap) are checked or repaired (CoreWeave's page, seen 2026-12-01)."""
REPAIRING = "repairing"
READY_STATES = {"True": RUNNING, "False": REPAIRING, "Unknown": REPAIRING}
"""By the status of the condition `Ready`. A node that is not ready may bill."""
GPU_IN_TYPE = re.compile(r"(gb300|gb200|gh200|b300|b200|h200|h100|a100|l40s|l40|a40|rtxp6000)")
"""The GPU in the name of an instance type: gd-8xh100ib-i128, gb200-4x (CoreWeave's instance pages, 2026-11)."""
GPU_NAMES = {"rtxp6000": "RTX PRO 6000"}
SPOT_CLASS = "spot"
LONGEST_GPU, LONGEST_ID = 80, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingResult:
    """The result of one cluster's lists.

    `faults`: what the listing lacks; `notes`: what could not be learned about its items.
    """

    items: list[Observation] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterContext:
    """`pools`: the node pools of `cluster` by name, as far as they are known."""

    account: str
    cluster: Cluster
    gpus: GpuNames
    pools: Mapping[str, NodePool]


def add_node(listing: ListingResult, node: Node, context: ClusterContext) -> None:
    """Add a node to `listing`; one that no database can store is a fault."""
    meta, labels = node.metadata, list_text_labels(node.metadata)
    whose = f"node {_shorten_id(get_text(meta.name) or meta.uid)}"
    instance_type, pool_name = labels.get(INSTANCE_TYPE, ""), labels.get(POOL, "")
    gpu_count = count_gpus((node.status or NodeStatus()).capacity)
    if gpu_count is None:
        listing.notes.append(f"{whose}: the number of its GPUs is no such number")
    created = parse_instant(meta.creationTimestamp)
    if created is None:
        listing.notes.append(f"{whose}: creationTimestamp is {'missing' if meta.creationTimestamp is None else 'no time'}")
    state, word = translate_state(node, labels.get(LIFECYCLE, ""), whose, listing.notes)
    pool = context.pools.get(pool_name)
    try:
        observation = Observation(
            key=ResourceKey(NAME, context.account, context.cluster.zone, meta.uid),
            state=state,
            name=get_text(meta.name),
            instance_type=instance_type,
            gpu=find_gpu(instance_type, context.gpus, whose, listing.notes) if gpu_count else "",
            gpu_count=gpu_count or 0,
            tier=SPOT if pool is not None and is_spot(pool) else "on-demand",
            owner=labels.get("owner", ""),
            labels=_list_own_labels(labels, context.cluster, pool_name),
            created_at=created,
            prices=(Price(None),),
            why=word,
            handling=make_handling(pool_name, pool),
        )
    except InputError as odd:
        listing.faults.append(f"{whose} cannot be kept: {to_one_line(shorten(odd.what))}")
    else:
        listing.items.append(observation)


def add_unreadable(listing: ListingResult, odd: UnreadableObject, context: ClusterContext) -> None:
    """Add an unreadable node in an unknown state if its uid is known; else it is a fault."""
    text = f"node {_shorten_id(odd.uid)} cannot be read: {odd.why}" if odd.uid else f"a node cannot be read: {odd.why}"
    try:
        key = ResourceKey(NAME, context.account, context.cluster.zone, odd.uid)
        listing.items.append(Observation(key=key, state=UNKNOWN, why="cannot be read"))
    except InputError:
        listing.faults.append(text)
    else:
        listing.notes.append(text)


def translate_state(node: Node, lifecycle: str, whose: str, notes: list[str]) -> tuple[str, str]:
    """Return costguard's state, and the words of the node for it; a new status is unknown, never ended or stopped."""
    conditions = (node.status or NodeStatus()).conditions or []
    ready = next((one for one in conditions if one.type == "Ready"), NodeCondition())
    state = READY_STATES.get(ready.status, UNKNOWN) if isinstance(ready.status, str) else UNKNOWN
    if state == UNKNOWN:
        notes.append(f"{whose}: whether it is ready is not known: {to_one_line(shorten(repr(ready.status)))}")
        return state, get_text(ready.status)
    if lifecycle not in ("", PRODUCTION):
        return REPAIRING, lifecycle
    return state, "Ready" if state == RUNNING else get_text(ready.reason) or "NotReady"


def find_gpu(instance_type: str, gpus: GpuNames, whose: str, notes: list[str]) -> str:
    """Return the canonical GPU of an instance type; the type's own name if it names none that is known."""
    match = GPU_IN_TYPE.search(instance_type.lower())
    if match:
        with suppress(UnknownNameError):
            return gpus.resolve(GPU_NAMES.get(match[1], match[1].upper())).canonical
    word = make_storable(shorten(instance_type, LONGEST_GPU))
    notes.append(f"{whose}: the GPU of instance type '{to_one_line(word)}' is not known")
    return word


def is_spot(pool: NodePool) -> bool:
    """Return whether the nodes of `pool` may be reclaimed at any time, at the price of Spot."""
    compute_class = pool.spec.computeClass if pool.spec else None
    return isinstance(compute_class, str) and compute_class.lower() == SPOT_CLASS


def make_handling(pool_name: str, pool: NodePool | None) -> Handling:
    """Return the effects of acting: there is no stop, and a pool replaces a node that is deleted."""
    scaled = pool is not None and pool.spec is not None and pool.spec.autoscaling is True
    who = f"node pool {to_one_line(shorten(pool_name, LONGEST_ID))}" if pool_name else "its node pool"
    return Handling(controller=f"the autoscaler of {who}" if scaled else who, stops=False, starts=False, terminates=False)


def _list_own_labels(labels: Mapping[str, str], cluster: Cluster, pool_name: str) -> tuple[tuple[str, str], ...]:
    """Return the labels that users set on a pool's nodes, which have no domain, with the names of cluster and pool."""
    own = {key: value for key, value in labels.items() if "/" not in key}
    own |= {"cluster": cluster.name or cluster.id} | ({"node-pool": pool_name} if pool_name else {})
    return tuple(sorted(own.items()))


def _shorten_id(text: str) -> str:
    return to_one_line(shorten(text, LONGEST_ID))
