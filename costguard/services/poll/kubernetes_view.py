"""Read the clusters of `[kubernetes]` before each poll, and give machines the owners of the pods that run on them.

A cluster that cannot be read is named, and the others go on. Its last answer is used for `KEPT` more, so that machines keep
their owners while an API server restarts; then its machines are as their provider lists them.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from costguard.errors import CostguardError, ProviderError, shorten, to_one_line
from costguard.metering.inventory import Failed, Poll
from costguard.metering.node_workloads import (
    MachineMark,
    NodeWorkloads,
    PodShare,
    assign_workloads,
    index_nodes,
    list_node_samples,
    parse_provider_id,
    sum_gpu_signals,
)
from costguard.services.poll.concurrency import run_all
from costguard.services.poll.configured_providers import find_home
from costguard.services.poll.poll import PollCycleResult
from costguard.settings import Settings, expand_path
from costguard.system.clock import Clock
from costguard.values.provider import CHECK_BAD, CHECK_GOOD, CHECK_UNSURE, PERMISSION_CHECK, HealthCheck
from costguard.values.resource import INSTANCE

if TYPE_CHECKING:  # the network is imported when a cluster is read
    from costguard.providers.kubeconfig import ClusterAccess
    from costguard.providers.kubernetes import KubernetesApi, MetricValue, Node, Pod
    from costguard.providers.transport import Deadline, Transport

NAME = "kubernetes"
READ_LIMIT_S = 15.0
"""How long all clusters together may take; the poll of the accounts begins after them."""
READ_EVERY = timedelta(seconds=20)
"""How long one reading serves: accounts are polled once a minute (`[watch] interval`), within seconds of each other."""
KEPT = timedelta(minutes=15)
"""How long the last answer of a cluster counts while it cannot be read: as long as an outage of the control plane of a zonal
cluster during its upgrade (an assumption, 2026-12)."""
POOL_LABELS = (
    "karpenter.sh/nodepool",
    "compute.coreweave.com/node-pool",
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
)
"""Labels of nodes that name the pool which replaces them (vendors' documentation, from memory, 2026-12)."""
MOST_NAMED = 3
RIGHTS_FIX = (
    "costguard iam kubernetes-reader | kubectl apply -f -, and write its token into the kubeconfig (docs/KUBERNETES.md)"
)
DUTY_QUERY, POWER_QUERY = "max_over_time(DCGM_FI_DEV_GPU_UTIL[2m])", "max_over_time(DCGM_FI_DEV_POWER_USAGE[2m])"
"""Of the last two minutes: a GPU whose exporter is gone has no value, instead of its last one. Names of NVIDIA's DCGM exporter
(coreweave.md, section 4)."""
NODE_NAMES = ("Hostname", "node", "kubernetes_node")
"""Labels of a series that name the node: the exporter's own, and those that usual configurations of Prometheus add (from
memory, 2026-12)."""


@dataclass(slots=True, eq=False)
class _Cluster:
    """One context. `answer`: the nodes as last read, at `read_at`. `notes`: what could not be read now."""

    context: str
    access: ClusterAccess | None = None
    transport: Transport | None = None
    api: KubernetesApi | None = None
    answer: tuple[NodeWorkloads, ...] = ()
    read_at: datetime | None = None
    notes: tuple[str, ...] = field(default=())


class KubernetesView:
    """The clusters of the settings."""

    def __init__(self, settings: Settings, clock: Clock, environ: Mapping[str, str], home: Path) -> None:
        self._clock, self._environ, self._home = clock, environ, home
        self._lock = threading.Lock()
        self._clusters: list[_Cluster] = []
        self._begin(settings)

    def _begin(self, settings: Settings) -> None:
        self._settings = settings
        self._path = find_kubeconfig(settings.kubernetes.kubeconfig, self._environ, self._home)
        self._clusters = [_Cluster(context) for context in settings.kubernetes.contexts or ()]
        self._nodes: Mapping[MachineMark, NodeWorkloads] = {}
        self._begun_at: datetime | None = None
        self._owner_keys = frozenset(text.partition(":")[2].lower() for text in settings.defaults.owner_from)

    def adopt(self, settings: Settings) -> None:
        """Continue with other settings."""
        with self._lock:
            self.close()
            self._begin(settings)

    def poll(self, run_cycle: Callable[..., PollCycleResult], *, every_account: bool) -> PollCycleResult:
        """Read the clusters, and return the result of `run_cycle` with what they say of its machines, and their notes.

        `run_cycle`: takes `attribute`, a function of a poll. `every_account`: it polls all accounts, so that a node that none
        of them has is no machine of a listed account.
        """
        self.refresh()
        if not self._clusters:
            return run_cycle()
        polled = run_cycle(attribute=self.attribute)
        unmatched = self.list_unmatched(one.poll for one in polled.seen) if every_account else ()
        return replace(polled, notes=(*polled.notes, *self.notes, *unmatched))

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what could not be read, a sentence each."""
        return tuple(f"kubernetes {one.context}: {note}" for one in self._clusters for note in one.notes)

    def close(self) -> None:
        """Close all connections."""
        for cluster in self._clusters:
            if cluster.transport is not None:
                cluster.transport.close()

    def refresh(self) -> None:
        """Read every cluster anew, within `READ_LIMIT_S` seconds in all; not if that was done within `READ_EVERY`.

        Each account is polled by itself, in a thread of its own: the first one reads, and the others wait for it.
        """
        if not self._clusters:
            return
        with self._lock:
            now = self._clock.now()
            if self._begun_at is None or not timedelta() <= now - self._begun_at < READ_EVERY:
                self._begun_at = now
                self._read_all(now)

    def _read_all(self, now: datetime) -> None:
        questions = {n: partial(self._read_cluster, cluster) for n, cluster in enumerate(self._clusters)}
        for n, answer in run_all(questions, limit_s=READ_LIMIT_S, doing="reading clusters").items():
            cluster = self._clusters[n]
            if isinstance(answer, BaseException):
                cluster.notes = (self._describe_failure(cluster, answer, now),)
            else:
                cluster.answer, cluster.notes = answer
                cluster.read_at = now
        fresh = (one for one in self._clusters if one.read_at is not None and now - one.read_at <= KEPT)
        self._nodes = index_nodes(node for one in fresh for node in one.answer)

    def attribute(self, poll: Poll) -> Poll:
        """Return `poll` with the owners, namespaces and shares of pods at the machines that are nodes."""
        if isinstance(poll.inventory, Failed) or not self._nodes:
            return poll
        items = tuple(assign_workloads(one, self._nodes, self._owner_keys) for one in poll.inventory.items)
        fresh = {one.measured_at for one in self._nodes.values() if one.measured_at and self._is_fresh(one.measured_at)}
        samples = [sample for at in fresh for sample in list_node_samples(items, self._nodes, at)]
        return replace(poll, inventory=replace(poll.inventory, items=items), samples=(*poll.samples, *samples))

    def _is_fresh(self, at: datetime) -> bool:
        """Return whether a measure is of the present reading, and not of one that is kept."""
        return self._begun_at is not None and at >= self._begun_at

    def examine(self) -> tuple[tuple[str, tuple[HealthCheck, ...]], ...]:
        """Return the checks of each context, for `costguard doctor`: it is read once."""
        self.refresh()
        return tuple((one.context, _list_checks(one)) for one in self._clusters)

    def list_unmatched(self, polls: Iterable[Poll]) -> tuple[str, ...]:
        """Return a sentence for each cluster with GPU nodes that are no machine of `polls`: nobody bills them here."""
        lists = [poll.inventory.items for poll in polls if not isinstance(poll.inventory, Failed)]
        labels = [dict(one.labels) for items in lists for one in items if one.kind == INSTANCE]
        matched = {(one.get("kubernetes-cluster"), one.get("kubernetes-node")) for one in labels}
        lone: dict[str, list[str]] = defaultdict(list)
        for node in dict.fromkeys(self._nodes.values()):
            if node.gpus and (node.cluster, node.node) not in matched:
                lone[node.cluster].append(node.node)
        return tuple(
            f"kubernetes {cluster}: {len(names)} GPU nodes are no machine of a listed account: {_shorten_list(names)}"
            for cluster, names in sorted(lone.items())
        )

    def _describe_failure(self, cluster: _Cluster, broken: BaseException, now: datetime) -> str:
        is_worded = isinstance(broken, CostguardError | TimeoutError)
        why = to_one_line(str(broken)) if is_worded else f"unexpected {type(broken).__name__}"
        if cluster.read_at is not None and now - cluster.read_at <= KEPT:
            return f"cannot be read; owners are those of {cluster.read_at:%H:%M} UTC: {why}"
        return f"cannot be read, so its machines have no owners of pods: {why}"

    def _read_cluster(self, cluster: _Cluster) -> tuple[tuple[NodeWorkloads, ...], tuple[str, ...]]:
        """Return the nodes of one cluster with their pods, and what could not be read of it; raises CostguardError."""
        from costguard.providers.kubernetes import get_text
        from costguard.providers.transport import Deadline

        api, deadline = self._open_api(cluster), Deadline(READ_LIMIT_S)
        nodes, notes = api.list_nodes(deadline), list[str]()
        pods: dict[str, list[Pod]] = defaultdict(list)
        spaces = self._settings.kubernetes.namespaces or ("",)
        for space in spaces:
            try:
                listed = api.list_pods(deadline, space)
            except ProviderError as broken:
                if spaces == ("",):
                    raise
                notes.append(f"namespace {space} cannot be read: {to_one_line(broken.what)}")
                continue
            notes += [listed.why] * bool(listed.why)
            for pod in listed.items:
                pods[get_text(pod.spec.nodeName) if pod.spec else ""].append(pod)
        unjoined = [get_text(one.metadata.name) for one in nodes.items if not (one.spec and one.spec.providerID)]
        gpu_nodes = [self._build_node(cluster.context, node, pods) for node in nodes.items]
        try:
            gpu_nodes = self._measure_nodes(api, gpu_nodes, deadline)
        except ProviderError as broken:
            notes.append(f"activity cannot be measured: {to_one_line(broken.what)}")
        bare_nodes = [name for name in unjoined if any(one.node == name and one.gpus for one in gpu_nodes)]
        notes += [nodes.why] * bool(nodes.why)
        notes += [f"{len(nodes.odd)} nodes cannot be read"] * bool(nodes.odd)
        notes += [f"GPU nodes without providerID, joined by uid alone: {_shorten_list(bare_nodes)}"] * bool(bare_nodes)
        return tuple(gpu_nodes), tuple(notes)

    def _open_api(self, cluster: _Cluster) -> KubernetesApi:
        """Return the API of a cluster; the kubeconfig is read each time, because tokens are renewed in it."""
        from costguard.providers.kubeconfig import read_cluster_access
        from costguard.providers.kubernetes import KubernetesApi, parse_status
        from costguard.providers.transport import ProviderChannel, Secret, Transport, make_status_fault_reader

        access = read_cluster_access(self._path, cluster.context)
        if cluster.api is not None and access == cluster.access:
            return cluster.api
        network = self._settings.network
        if cluster.transport is None or cluster.access is None or cluster.access.authorities != access.authorities:
            if cluster.transport is not None:
                cluster.transport.close()
            ca_file = None if network.ca_file is None else expand_path(network.ca_file)
            cluster.transport = Transport(ca_file=ca_file, proxy=network.proxy, authorities=access.authorities)
        token = {} if access.token is None else {"Authorization": Secret(f"Bearer {access.token.reveal()}")}
        channel = ProviderChannel(
            cluster.transport,
            provider=NAME,
            base_url=access.server,
            account=cluster.context,
            headers={"Accept": "application/json", **token},
            fault=make_status_fault_reader(NAME, parse_status),
        )
        cluster.access, cluster.api = access, KubernetesApi(channel)
        return cluster.api

    def _measure_nodes(self, api: KubernetesApi, nodes: list[NodeWorkloads], deadline: Deadline) -> list[NodeWorkloads]:
        """Return `nodes` with the signals of their GPUs by the cluster's DCGM exporter: two queries for all nodes."""
        service = self._settings.kubernetes.metrics
        if service is None:
            return nodes
        asked_at = self._clock.now()
        duty, power = (
            _group_by_gpu(api.query_metrics(service, expression, deadline)) for expression in (DUTY_QUERY, POWER_QUERY)
        )
        return [replace(one, signals=sum_gpu_signals(duty, power, one.node, one.gpus), measured_at=asked_at) for one in nodes]

    def _build_node(self, context: str, node: Node, pods: Mapping[str, Sequence[Pod]]) -> NodeWorkloads:
        from costguard.providers.kubernetes import (
            NodeStatus,
            count_gpus,
            count_pod_gpus,
            get_text,
            list_text_labels,
        )

        name, labels = get_text(node.metadata.name), list_text_labels(node.metadata)
        shares = [
            PodShare(
                namespace=get_text(pod.metadata.namespace),
                name=get_text(pod.metadata.name),
                owner=self._find_pod_owner(pod),
                gpus=gpus,
            )
            for pod in pods.get(name, ())
            if (gpus := count_pod_gpus(pod))
        ]
        pool = next((labels[key] for key in POOL_LABELS if labels.get(key)), "")
        return NodeWorkloads(
            cluster=context,
            node=name,
            marks=parse_provider_id(get_text(node.spec.providerID) if node.spec else "", node.metadata.uid),
            gpus=count_gpus((node.status or NodeStatus()).capacity),
            pods=tuple(shares),
            controller=f"node pool {to_one_line(shorten(pool, 60))}" if pool else "",
        )

    def _find_pod_owner(self, pod: Pod) -> str:
        from costguard.providers.kubernetes import get_text, list_text_labels

        labels = list_text_labels(pod.metadata)
        for source in self._settings.kubernetes.owner_from:
            owner = labels.get(source.partition(":")[2], "") if ":" in source else get_text(pod.metadata.namespace)
            if owner:
                return owner
        return ""


def _list_checks(cluster: _Cluster) -> tuple[HealthCheck, ...]:
    subject = f"{PERMISSION_CHECK}: list nodes and pods"
    if cluster.read_at is None:
        why = cluster.notes[0] if cluster.notes else "was not read"
        return (HealthCheck(subject=subject, outcome=CHECK_BAD, told=why, fix=RIGHTS_FIX),)
    gpu_nodes = [one for one in cluster.answer if one.gpus]
    pods = sum(len(one.pods) for one in gpu_nodes)
    text = f"{len(cluster.answer)} nodes, {len(gpu_nodes)} of them with GPUs; {pods} pods with GPUs"
    unsure = (HealthCheck(subject=NAME, outcome=CHECK_UNSURE, told=note) for note in cluster.notes)
    return (HealthCheck(subject=subject, outcome=CHECK_GOOD, told=text), *unsure)


def _group_by_gpu(values: Iterable[MetricValue]) -> dict[str, dict[str, float]]:
    """Return the values by node and GPU; of several series of one GPU (its pod changed) the largest."""
    grouped: dict[str, dict[str, float]] = defaultdict(dict)
    for one in values:
        node = next((one.labels[key] for key in NODE_NAMES if one.labels.get(key)), "")
        gpu = one.labels.get("UUID") or one.labels.get("gpu") or ""
        if node and gpu:
            grouped[node][gpu] = max(one.value, grouped[node].get(gpu, one.value))
    return grouped


def open_kubernetes_view(settings: Settings, clock: Clock) -> KubernetesView:
    """Return the clusters of the settings, often none; nothing is read yet. The caller closes it."""
    return KubernetesView(settings, clock, os.environ, find_home())


def find_kubeconfig(path: str | None, environ: Mapping[str, str], home: Path) -> Path:
    """Return the kubeconfig: that of the settings, the first one of KUBECONFIG, or ~/.kube/config."""
    if path:
        return expand_path(path)
    first = next(filter(None, environ.get("KUBECONFIG", "").split(":")), "")
    return Path(first) if first else home / ".kube" / "config"


def _shorten_list(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(to_one_line(shorten(name, 60)) for name in names[:MOST_NAMED]) + more
