"""CoreWeave as its pages tell of it (CKS API v1beta1, nodes and node pools), over a list of simulated resources.

The API servers of the clusters stand below one address, `/k8s/ID`, as hosts of their own would in the world.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from costguard_sim.view import find_last_run
from costguard_sim.world import SIM_INSTANCE, Resource, from_us, to_us

from tests.fakes import kubernetes
from tests.fakes.kubernetes import ApiServer
from tests.fakes.server import Answer, Asked, FakeCloud, Hands

KEY = "CW-SECRET-canary-9d41c7a2.Zp3vK8xQm2TgW7yLr4NdHs6J"
ZONE = "US-EAST-04A"
COMPUTE = "compute.coreweave.com/v1alpha1"


@dataclass
class Cluster:
    """One cluster. `pools`: name -> (compute class, autoscaling, target nodes)."""

    id: str
    name: str
    zone: str = ZONE
    status: str = "STATUS_RUNNING"
    pools: dict[str, tuple[str, bool, int]] = field(
        default_factory=lambda: {"train": ("default", False, 8), "spare": ("Spot", True, 2)}
    )


class FakeCoreWeave(FakeCloud):
    """`spoilt`: uid -> edits of what is listed, each a path and a value. A resource's `scope` is the id of its cluster."""

    def __init__(self, clock: Hands | None = None, resources: list[Resource] | None = None) -> None:
        super().__init__(clock)
        self.resources = list(resources or [])
        self.clusters = [Cluster("c-0001", "research")]
        self.spoilt: dict[str, list[tuple[tuple[str | int, ...], Any]]] = {}
        self.unready: dict[str, tuple[int, int]] = {}
        """uid -> from when to when it is not ready, in microseconds."""
        self.lifecycle: dict[str, str] = {}
        self.pods = list[dict[str, Any]]()
        self.endpoint: str | None = None
        """Where every cluster says that its API server is; None: here."""
        self.page, self.expired, self.pool_status = 1000, False, 200

    def answer(self, asked: Asked) -> Answer:
        """As CoreWeave answers."""
        if asked.headers.get("authorization") != f"Bearer {KEY}":
            return kubernetes.refusal(401, "Unauthorized", "Unauthorized")
        if asked.path == "/v1beta1/cks/clusters":
            return Answer.of({"items": [self._describe(one, asked) for one in self.clusters]})
        _, _, id_, *rest = asked.path.split("/")
        cluster = next((one for one in self.clusters if one.id == id_), None)
        if cluster is None or not asked.path.startswith("/k8s/"):
            return kubernetes.refusal(404, "NotFound", "the server could not find the requested resource")
        if rest[-1] == "nodepools" and self.pool_status != 200:
            return kubernetes.refusal(self.pool_status, "Forbidden", "nodepools is forbidden")
        return self._serve(cluster).answer(asked, "/" + "/".join(rest))

    def _serve(self, cluster: Cluster) -> ApiServer:
        now = to_us(self.clock.now())
        nodes = [one for one in self.resources if one.scope == cluster.id and is_there(one, now)]
        core = {
            "nodes": kubernetes.Resource("Node", nodes, namespaced=False, make=self.node),
            "pods": kubernetes.Resource("Pod", self.pods),
        }
        pools = [_make_pool(name, *pool) for name, pool in cluster.pools.items()]
        groups = {"v1": core, COMPUTE: {"nodepools": kubernetes.Resource("NodePool", pools, namespaced=False)}}
        return ApiServer(groups, page=self.page, expired=self.expired)

    def _describe(self, one: Cluster, asked: Asked) -> dict[str, Any]:
        here = f"http://{asked.headers['host']}/k8s/{one.id}"
        created = from_us(0).isoformat()
        running = {"apiServerEndpoint": self.endpoint or here} if one.status == "STATUS_RUNNING" else {}
        facts = {"id": one.id, "name": one.name, "zone": one.zone, "vpcId": "v-1", "public": True, "version": "v1.34"}
        return {**facts, "status": one.status, **running, "createdAt": created, "updatedAt": created}

    def node(self, one: Resource) -> dict[str, Any]:
        """A node as its API server lists it."""
        now, tag = to_us(self.clock.now()), one.tags[0] if one.tags else None
        begin, end = self.unready.get(one.id, (0, 0))
        ready = find_last_run(one, now) is not None and not begin <= now < end
        pool = dict(tag.labels).get("pool", "train") if tag else "train"
        labels = {
            "node.kubernetes.io/instance-type": one.shapes[0].type,
            "compute.coreweave.com/node-pool": pool,
            "node.coreweave.cloud/state": self.lifecycle.get(one.id, "production"),
            **({"owner": tag.owner} if tag and tag.owner else {}),
        }
        wire = {
            "metadata": {
                "name": one.name,
                "uid": one.id,
                "labels": labels,
                "creationTimestamp": from_us(one.created_us).isoformat().replace("+00:00", "Z"),
            },
            "spec": {},
            "status": {
                "capacity": {"cpu": "128", "nvidia.com/gpu": str(one.shapes[0].gpus)},
                "conditions": [
                    {"type": "MemoryPressure", "status": "False"},
                    {"type": "Ready", "status": str(ready), "reason": "KubeletReady" if ready else "KubeletNotReady"},
                ],
            },
        }
        for path, value in self.spoilt.get(one.id, []):
            _put(wire, path, value)
        return wire

    def end(self, id_: str) -> None:
        """Let a node leave its pool now."""
        now = to_us(self.clock.now())
        self.resources[:] = [replace(one, ended_us=now) if one.id == id_ else one for one in self.resources]


def is_there(one: Resource, now: int) -> bool:
    """Whether a resource is a node of its cluster at `now`."""
    return one.kind == SIM_INSTANCE and one.created_us <= now and (one.ended_us is None or now < one.ended_us)


def _make_pool(name: str, compute_class: str, autoscaling: bool, target: int) -> dict[str, Any]:  # noqa: FBT001 - a row of a table
    spec = {"computeClass": compute_class, "autoscaling": autoscaling, "targetNodes": target, "minNodes": 0, "maxNodes": 9}
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {**spec, "instanceType": "gd-8xh100ib-i128"}}


def _put(wire: dict[str, Any], path: tuple[str | int, ...], value: Any) -> None:  # noqa: ANN401 - as the wire has it
    inner: Any = wire
    for key in path[:-1]:
        inner = inner[key]
    if value is ...:
        inner.pop(path[-1], None)
    else:
        inner[path[-1]] = value
