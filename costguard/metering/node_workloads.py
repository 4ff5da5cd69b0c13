"""Whose a machine is by the pods that run on it: a Kubernetes node joined to the machine that bills.

Kubernetes adds who and how much, and no charge: the machine's own provider states what it costs. A node is joined by its
`spec.providerID`, or by its uid where the provider bills nodes themselves.

Example: the node gpu-1 with 8 GPUs has `providerID` aws:///us-east-1a/i-0abc. Two pods of the namespace vision ask for 4 and 2
GPUs, both with the label owner=ada. The EC2 machine i-0abc, which has no owner of its own, gets the owner ada, the label
project=vision, and the label kubernetes-gpus=6 of 8. If a pod of bo were there too, it would get no owner, but the label
kubernetes-owners=ada 6, bo 1, because a machine's cost has one owner in the ledger.

Pure: no network, no clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from costguard.metering.observation import Observation
from costguard.values.resource import ENDED, INSTANCE, RUNNING, make_storable
from costguard.values.sample import GPU_POWER, GPU_UTIL, Sample

MachineMark = tuple[str, ...]
"""What a node and a machine share: ("id", id) or ("name", account, region, name)."""
PLACE_AND_NAME = 3
"""Parts of a providerID that names account, zone and machine: gce://project/zone/name."""
PROJECT = "project"
CLUSTER_LABEL, NODE_LABEL, GPUS_LABEL, OWNERS_LABEL, NAMESPACES_LABEL = (
    "kubernetes-cluster",
    "kubernetes-node",
    "kubernetes-gpus",
    "kubernetes-owners",
    "kubernetes-namespaces",
)
MOST_NAMED = 5
"""Owners or namespaces that a label names, those with most GPUs first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodShare:
    """One pod with GPUs on a node. `owner`: "" if nothing names one. `gpus`: those that the scheduler set aside for it."""

    namespace: str
    name: str
    owner: str
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWorkloads:
    """One node of `cluster` and its pods with GPUs. `gpus`: of the whole node; None: not known.

    `controller`: what replaces the node when it stops ("node pool gpu"), "": nothing that is known. `signals`: what was
    measured on it at `measured_at`, by the name of the signal.
    """

    cluster: str
    node: str
    marks: tuple[MachineMark, ...]
    gpus: int | None
    pods: tuple[PodShare, ...] = ()
    controller: str = ""
    signals: tuple[tuple[str, float], ...] = ()
    measured_at: datetime | None = None


def parse_provider_id(provider_id: str, uid: str) -> tuple[MachineMark, ...]:
    """Return by what the machine behind a node may be found: its `spec.providerID`, and its uid.

    Examples: aws:///us-east-1a/i-0abc is the machine i-0abc; gce://project/us-central1-a/gpu-1 the machine gpu-1 in that place;
    azure:///subscriptions/S/.../virtualMachines/gpu-1 the machine with the whole path as its id.
    """
    parts = [part for part in provider_id.partition("://")[2].split("/") if part]
    marks: list[MachineMark] = [("id", uid)]
    if parts:
        marks.append(("id", "/".join(parts).lower()))
    if len(parts) == PLACE_AND_NAME:
        marks.append(("name", *parts))
    elif 0 < len(parts) < PLACE_AND_NAME:
        marks.append(("id", parts[-1]))
    return tuple(dict.fromkeys(marks))


def list_machine_marks(observation: Observation) -> tuple[MachineMark, ...]:
    """Return by what a node may name this machine."""
    key = observation.key
    return (("id", key.id), ("id", key.id.strip("/").lower()), ("name", key.account, key.region, observation.name))


def index_nodes(nodes: Iterable[NodeWorkloads]) -> Mapping[MachineMark, NodeWorkloads]:
    """Return the nodes by each of their marks."""
    return {mark: node for node in nodes for mark in node.marks}


def assign_workloads(
    observation: Observation, nodes: Mapping[MachineMark, NodeWorkloads], owner_keys: Collection[str]
) -> Observation:
    """Return `observation` with owner, namespace and share of the pods on it; unchanged if it is no node of `nodes`.

    `owner_keys`: labels, in small letters, that name a machine's owner. One of them on the machine counts before its pods; a
    person or a role that merely started the machine does not, because nodes are started by their pool.
    """
    if observation.kind != INSTANCE or observation.state == ENDED:
        return observation
    node = next((nodes[mark] for mark in list_machine_marks(observation) if mark in nodes), None)
    if node is None:
        return observation
    keys = {key.lower() for key, value in observation.labels if value}
    owners, namespaces = _sum_shares(node.pods, "owner"), _sum_shares(node.pods, "namespace")
    labels = {CLUSTER_LABEL: node.cluster, NODE_LABEL: node.node}
    if node.gpus or node.pods:
        labels[GPUS_LABEL] = f"{sum(pod.gpus for pod in node.pods)} of {'?' if node.gpus is None else node.gpus}"
    if len(owners) > 1:
        labels[OWNERS_LABEL] = _format_shares(owners)
    if len(namespaces) > 1:
        labels[NAMESPACES_LABEL] = _format_shares(namespaces)
    elif namespaces and PROJECT not in keys:
        labels[PROJECT] = next(iter(namespaces))
    has_own = any(key in keys for key in owner_keys)
    owner = observation.owner if has_own or not owners else next(iter(owners)) if len(owners) == 1 else ""
    added = {key: make_storable(value) for key, value in labels.items()}
    own_labels = (pair for pair in observation.labels if pair[0] not in added)
    handling = observation.handling
    if node.controller and not handling.controller:
        handling = replace(handling, controller=node.controller)
    all_labels = tuple(sorted((*own_labels, *added.items())))
    return replace(observation, owner=make_storable(owner), labels=all_labels, handling=handling)


def list_node_samples(
    items: Iterable[Observation], nodes: Mapping[MachineMark, NodeWorkloads], measured_at: datetime
) -> tuple[Sample, ...]:
    """Return what was measured at `measured_at`, and not earlier, on the running machines among `items`."""
    samples = list[Sample]()
    for one in items:
        node = next((nodes[mark] for mark in list_machine_marks(one) if mark in nodes), None)
        if node is not None and node.measured_at == measured_at and one.kind == INSTANCE and one.state == RUNNING:
            samples += [Sample(key=one.key, signal=name, at=measured_at, value=value) for name, value in node.signals]
    return tuple(samples)


def sum_gpu_signals(
    duty: Mapping[str, Mapping[str, float]], power: Mapping[str, Mapping[str, float]], node: str, gpus: int | None
) -> tuple[tuple[str, float], ...]:
    """Return the signals of `node`: duty of its busiest GPU, watts of all; none of them where one of its GPUs has no value.

    `duty`, `power`: by node and GPU, in percent and watts. Example: 8 GPUs with duties of 0 and one of 97 are 97.
    """
    duties, watts = duty.get(node, {}), power.get(node, {})
    signals = [(GPU_UTIL, max(duties.values()))] if gpus and len(duties) >= gpus else []
    signals += [(GPU_POWER, sum(watts.values()))] if gpus and len(watts) >= gpus else []
    return tuple(signals)


def _sum_shares(pods: Iterable[PodShare], field: str) -> dict[str, int]:
    """Return the GPUs of each owner or namespace, those with most first; pods without one are left out."""
    counts = Counter[str]()
    for pod in pods:
        if name := getattr(pod, field):
            counts[name] += pod.gpus
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _format_shares(shares: Mapping[str, int]) -> str:
    texts = [f"{name} {gpus}" for name, gpus in list(shares.items())[:MOST_NAMED]]
    return ", ".join(texts) + (f" and {len(shares) - MOST_NAMED} more" if len(shares) > MOST_NAMED else "")
