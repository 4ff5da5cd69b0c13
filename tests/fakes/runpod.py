"""A RunPod that speaks REST v2 and GraphQL over a simulated world, with its manners: pages, clusters hidden, zero cost at rest.

The truth is a list of `costguard_sim.world.Resource`: instances are pods, volumes are network volumes, and what they cost is
the world's own bill. Everything the world has no word for (locks, clusters, odd statuses) stands in `Manners`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any
from urllib.parse import unquote

from costguard_sim.bill import charge_resource
from costguard_sim.view import find_last_run, find_state
from costguard_sim.world import SECOND_US, SIM_INSTANCE, SIM_VOLUME, Resource, Run, from_us, to_us

from tests.fakes.server import Answer, Asked, FakeCloud, Hands

KEY = "rpa_canary7Qm2Zx9LpK4vT8wB3nYc"
STATUS = {"starting": "STARTING", "running": "RUNNING", "stopped": "EXITED"}
ACTIONS = {
    "PROVISIONING": ["stop", "terminate"],
    "STARTING": ["stop", "terminate"],
    "RUNNING": ["stop", "restart", "terminate"],
    "EXITED": ["start", "terminate"],
    "ERROR": ["start", "terminate"],
    "TERMINATED": [],
}
HOUR_US = 3600 * SECOND_US


def gpu_type(id_: str, memory: int, secure: float, community: float, stock: str = "HIGH", **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """One GPU of the catalogue."""
    centre = {"id": "EU-RO-1", "name": "EU Romania 1", "availability": stock}
    return {
        "id": id_,
        "name": id_.removeprefix("NVIDIA "),
        "pool": None,
        "manufacturer": "NVIDIA",
        "memory": memory,
        "secure": bool(secure),
        "community": bool(community),
        "price": {"secure": secure, "community": community},
        "maxCount": {"secure": 8 if secure else 0, "community": 4 if community else 0},
        "availability": stock,
        **({} if stock == "NONE" else {"dataCenters": [centre]}),
        **more,
    }


CATALOGUE = (
    gpu_type("NVIDIA GeForce RTX 4090", 24, 0.69, 0.34),
    gpu_type("NVIDIA H100 80GB HBM3", 80, 2.99, 2.69, "LOW"),
    gpu_type("NVIDIA H200 MIG 1g.34gb", 34, 1.1, 0),
    gpu_type("NVIDIA L4", 24, 0.43, 0.3, "NONE"),
    gpu_type("unknown", 0, 0, 0),
)


@dataclass(slots=True)
class Manners:
    """What the world has no word for, by the pod's id on the wire. `spoilt`: fields of the wire, by their path."""

    status: dict[str, str] = field(default_factory=dict)
    cluster: dict[str, str] = field(default_factory=dict)
    locked: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    idle: set[str] = field(default_factory=set)
    """Pods that run and measure no GPU."""
    volume: dict[str, str] = field(default_factory=dict)
    """The network volume that a pod has instead of a disk on its host."""
    spoilt: dict[str, dict[tuple[str, ...], Any]] = field(default_factory=dict)


class FakeRunpod(FakeCloud):
    """RunPod, healthy. `size`: most items of a page; `paging` False: lists as they were until August 2026.

    `quota`: requests a minute, of which the headers tell; `graph`: how GraphQL is: well, errors, gone (410), page (503).
    """

    def __init__(self, clock: Hands | None = None, *, resources: Iterable[Resource] = ()) -> None:
        super().__init__(clock)
        self.resources = list(resources)
        self.manners = Manners()
        self.size, self.paging = 1000, True
        self.catalogue: list[dict[str, Any]] = [*CATALOGUE]
        self.quota, self.graph = 10**6, "well"
        self.minute: list[datetime] = []
        self.myself: dict[str, Any] = {"id": "user_x1", "clientBalance": 43.58, "currentSpendPerHr": 0.541, "spendLimit": 80}
        self.serverless_hourly = 0.0

    def answer(self, asked: Asked) -> Answer:
        """Whatever is asked for; the key comes first."""
        if asked.path.startswith("/v1/"):
            return problem(410, "Gone", "REST v1 was retired on 2026-11-15")
        if asked.path == "/graphql":
            return self._graphql(asked)
        if asked.headers.get("authorization") != f"Bearer {KEY}":
            return problem(401, "Unauthorized", "invalid API key")
        found = self._limited() or self._routed(asked)
        return replace(found, headers={**self._rates(), **found.headers})

    def _limited(self) -> Answer | None:
        now = self.clock.now()
        self.minute = [at for at in self.minute if now - at < timedelta(minutes=1)]
        if len(self.minute) < self.quota:
            self.minute.append(now)
            return None
        return problem(429, "Too Many Requests", "rate limit exceeded for the minute window", Retry_After="12")

    def _rates(self) -> Mapping[str, str]:
        left = self.quota - len(self.minute)
        day = '"hour";r=2800;t=1812, "day";r=49500;t=45012'
        policy = f'"minute";q={self.quota};w=60, "hour";q=3000;w=3600, "day";q=50000;w=86400'
        return {"RateLimit": f'"minute";r={left};t=12, {day}', "RateLimit-Policy": policy}

    def _routed(self, asked: Asked) -> Answer:
        for method, pattern, what in self._routes():
            found = re.fullmatch(pattern, asked.path)
            if found and method == asked.method:
                return what(asked, *map(unquote, found.groups()))
        if any(re.fullmatch(pattern, asked.path) for _, pattern, _ in self._routes()):
            return problem(405, "Method Not Allowed", "method not allowed", Allow="GET")
        return problem(404, "Not Found", "no such route")

    def _routes(self) -> tuple[tuple[str, str, Callable[..., Answer]], ...]:
        return (
            ("GET", "/v2/pods", self._pods),
            ("GET", "/v2/pods/([^/]+)", self._pod),
            ("DELETE", "/v2/pods/([^/]+)", self._delete),
            ("POST", "/v2/pods/([^/]+)/action", self._action),
            ("GET", "/v2/network-volumes", self._volumes),
            ("GET", "/v2/catalog/gpus", self._gpus),
            ("GET", "/v2/billing/(pods|network-volumes)", self._bill),
            ("GET", "/v2/billing", self._total),
        )

    # Lists

    def _pods(self, asked: Asked) -> Answer:
        hidden = asked.one("includeClusterPods", "false") != "true"
        there = [r for r in self.there(SIM_INSTANCE) if not (hidden and wire_id(r) in self.manners.cluster)]
        return self._page(asked, "pods", there, self.pod)

    def _volumes(self, asked: Asked) -> Answer:
        return self._page(asked, "networkVolumes", self.there(SIM_VOLUME), self.network_volume)

    def _page(self, asked: Asked, name: str, there: list[Resource], shown: Callable[[Resource], object]) -> Answer:
        """From after the cursor on, `limit` or `size` at most, whichever is less."""
        if not self.paging:
            return Answer.of({name: [shown(one) for one in there]})
        size = min(self.size, int(asked.one("limit", "1000")))
        first = int(base64.b64decode(asked.one("cursor")).split(b"?")[1]) if asked.one("cursor") else 0
        end = first + size
        more = end < len(there)
        cursor = base64.b64encode(b"\xfb\xef?%d" % end).decode() if more else None
        pagination = {"nextCursor": cursor, "hasNextPage": more}
        return Answer.of({name: [shown(one) for one in there[first:end]], "pagination": pagination})

    def there(self, kind: str) -> list[Resource]:
        """What is listed now."""
        now = to_us(self.clock.now())
        return [one for one in self.resources if one.kind == kind and find_state(one, now) is not None]

    # Pods

    def pod(self, resource: Resource) -> dict[str, Any]:
        """One pod as it goes over the wire."""
        now, id_ = to_us(self.clock.now()), wire_id(resource)
        status = self.manners.status.get(id_) or STATUS[find_state(resource, now) or "stopped"]
        run, on = find_last_run(resource, now), status == "RUNNING"
        actions = ["terminate"] if id_ in self.manners.locked else ACTIONS.get(status, [])
        made = {
            "id": id_,
            "name": resource.name,
            "status": status,
            "actions": actions,
            "image": "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404",
            "args": "",
            "disk": next((d.gb for d in resource.disks if d.type == "container"), 50),
            "mounts": self._mounts(resource, id_),
            "cloud": "COMMUNITY" if resource.tier == "community" else "SECURE",
            "dataCenterId": None if status == "PROVISIONING" else resource.region or None,
            "cudaVersion": "12.8",
            "ports": ["8888/http", "22/tcp"],
            "env": {"JUPYTER_PASSWORD": "canary-jupyter-1234567890", **self._owner(resource, now)},
            "registry": None,
            "template": None,
            "cost": self._cost(resource, now) if status in ("RUNNING", "STARTING", "PROVISIONING") else 0.0,
            "locked": id_ in self.manners.locked,
            "globalNetworking": {"enabled": False},
            "ssh": {"proxy": None, "direct": None},
            "runtime": self._runtime(resource, id_, now) if on else None,
            "createdAt": stamp(from_us(resource.created_us)),
            "startedAt": stamp(from_us(run.start_us)) if run else None,
            **self._hardware(resource, now),
        }
        if id_ in self.manners.cluster:
            made["cluster"] = {"id": self.manners.cluster[id_], "rank": 0}
        return spoilt(made, self.manners.spoilt.get(id_, {}))

    def _mounts(self, resource: Resource, id_: str) -> dict[str, Any]:
        if id_ in self.manners.volume:
            return {"network": [{"volumeId": self.manners.volume[id_], "path": "/workspace"}]}
        held = next((disk.gb for disk in resource.disks if disk.type == "volume"), None)
        return {"persistent": {"size": held, "path": "/workspace"}} if held else {}

    def _owner(self, resource: Resource, now: int) -> dict[str, str]:
        tag = [one for one in resource.tags if one.at_us <= now][-1:] or resource.tags[:1]
        labels = dict(tag[0].labels) if tag else {}
        named = {"COSTGUARD_OWNER": tag[0].owner if tag else "", "COSTGUARD_PROJECT": labels.get("project", "")}
        return {name: value for name, value in named.items() if value}

    def _cost(self, resource: Resource, now: int) -> float:
        return next((rate.nano for rate in reversed(resource.rates) if rate.at_us <= now), 0) / 10**9

    def _hardware(self, resource: Resource, now: int) -> dict[str, Any]:
        shape = next((one for one in reversed(resource.shapes) if one.at_us <= now), resource.shapes[0])
        if shape.gpus:
            return {"gpu": {"id": shape.type, "count": shape.gpus}}
        return {"cpu": {"id": shape.type, "vcpuCount": 4, "memory": 16}}

    def _runtime(self, resource: Resource, id_: str, now: int) -> dict[str, Any]:
        run = find_last_run(resource, now)
        started = run.start_us if run else now
        ports = [{"private": 22, "public": 34446, "type": "tcp", "ip": "203.0.113.9"}]
        runtime: dict[str, Any] = {"uptime": (now - started) // SECOND_US, "ports": ports}
        if id_ in self.manners.silent:
            return runtime
        count = self._hardware(resource, now).get("gpu", {}).get("count", 0)
        busy = id_ not in self.manners.idle
        work = [{"util": 94 if i == 0 and busy else 0, "memoryUtil": 78} for i in range(count)]
        return {**runtime, "gpus": work, "cpu": {"util": 45 if busy else 0}, "memory": {"util": 61}}

    def network_volume(self, resource: Resource) -> dict[str, Any]:
        """One network volume as it goes over the wire."""
        kind = "HIGH_PERFORMANCE" if resource.disks[0].type.endswith("high-performance") else "STANDARD"
        made = {
            "id": wire_id(resource),
            "name": resource.name,
            "size": resource.disks[0].gb,
            "dataCenter": resource.region,
            "type": kind,
        }
        return spoilt(made, self.manners.spoilt.get(wire_id(resource), {}))

    def _found(self, id_: str) -> Resource | None:
        return next((one for one in self.there(SIM_INSTANCE) if wire_id(one) == id_), None)

    def _pod(self, _: Asked, id_: str) -> Answer:
        found = self._found(id_)
        return Answer.of(self.pod(found)) if found else problem(404, "Not Found", "pod not found")

    # Acts

    def _action(self, asked: Asked, id_: str) -> Answer:
        body = asked.json()
        if (
            not isinstance(body, dict)
            or set(body) != {"action"}
            or body["action"] not in ("start", "stop", "restart", "terminate")
        ):
            return problem(422, "Unprocessable Entity", "validation failed", errors=["$: not an action"])
        return self._delete(asked, id_) if body["action"] == "terminate" else self._acted(id_, body["action"])

    def _delete(self, _: Asked, id_: str) -> Answer:
        return self._acted(id_, "terminate")

    def _acted(self, id_: str, verb: str) -> Answer:
        found = self._found(id_)
        if found is None:
            return problem(404, "Not Found", "pod not found")
        if id_ in self.manners.cluster:
            return problem(409, "Conflict", "pod is a cluster member; manage it through its cluster")
        if verb not in self.pod(found)["actions"]:
            return problem(409, "Conflict", f"cannot {verb} the pod in its present status")
        if not self.deaf:
            self.let(id_, {"stop": "stopped", "terminate": "ended"}.get(verb, "running"))
        if verb == "terminate":
            return Answer(status=204)
        return Answer.of(self.pod(self._found(id_) or found))

    def let(self, id_: str, state: str) -> None:
        """Make a pod running, stopped or ended now."""
        now = to_us(self.clock.now())
        for i, one in enumerate(self.resources):
            if wire_id(one) == id_ and find_state(one, now) is not None and find_state(one, now) != state:
                self.resources[i] = moved(one, state, now)

    # Money

    def _gpus(self, asked: Asked) -> Answer:
        wants = asked.one("include") == "AVAILABILITY"
        if wants != bool(asked.one("product")):
            return problem(400, "Bad Request", "include=AVAILABILITY and product go together")
        extra = () if wants else ("availability", "dataCenters")
        return Answer.of({"gpus": [{k: v for k, v in gpu.items() if k not in extra} for gpu in self.catalogue]})

    def buckets(self, asked: Asked) -> Iterator[tuple[int, int]]:
        """The buckets of a window: its start snapped down, its end up. Only hours and days are played."""
        step = HOUR_US * (24 if asked.one("bucketSize", "day") == "day" else 1)
        now = to_us(self.clock.now())
        end = -(-(to_us(read(asked.one("endTime"))) if asked.one("endTime") else now) // step) * step
        start = to_us(read(asked.one("startTime"))) if asked.one("startTime") else end - 30 * 24 * HOUR_US
        start = end - int(asked.one("lastN")) * step if asked.one("lastN") else start // step * step
        for first in range(start, end, step):
            if first < now:
                yield first, first + step

    def amounts(self, resource: Resource, a: int, b: int) -> tuple[float, float]:
        """What computing and storage cost from `a` until `b`, or until now."""
        lines = charge_resource(resource, a, min(b, to_us(self.clock.now())))
        compute = sum((line.amount for line in lines if line.charge == "compute"), Fraction(0))
        storage = sum((line.amount for line in lines if line.charge == "storage"), Fraction(0))
        return float(compute), float(storage)

    def _bill(self, asked: Asked, what: str) -> Answer:
        kind, name = (SIM_INSTANCE, "podId") if what == "pods" else (SIM_VOLUME, "networkVolumeId")
        records = []
        for a, b in self.buckets(asked):
            for one in (one for one in self.resources if one.kind == kind):
                compute, storage = self.amounts(one, a, b)
                if compute or storage:
                    of_pod = {"gpuAmount": compute, "cpuAmount": 0, "diskAmount": storage}
                    dear = any(disk.type.endswith("high-performance") for disk in one.disks)
                    of_volume = {"standardAmount": 0 if dear else storage, "highPerformanceAmount": storage if dear else 0}
                    parts = of_pod if kind == SIM_INSTANCE else of_volume
                    records.append({**window(a, b), name: wire_id(one), "totalAmount": compute + storage, **parts})
        count = f"unique{'Pod' if kind == SIM_INSTANCE else 'NetworkVolume'}Count"
        return Answer.of(self._statement(asked, records, {count: len({one[name] for one in records})}, {name: None}))

    def _total(self, asked: Asked) -> Answer:
        records = []
        for a, b in self.buckets(asked):
            pods = [self.amounts(one, a, b) for one in self.resources if one.kind == SIM_INSTANCE]
            stored = sum(self.amounts(one, a, b)[1] for one in self.resources if one.kind == SIM_VOLUME)
            amounts = dict.fromkeys(TOTALS, 0.0) | {
                "podGpuAmount": sum(compute for compute, _ in pods),
                "podDiskAmount": sum(storage for _, storage in pods),
                "storageStandardAmount": stored,
                "serverlessGpuAmount": self.serverless_hourly * (b - a) / HOUR_US,
            }
            records.append({**window(a, b), "totalAmount": sum(amounts.values()), **amounts})
        return Answer.of(self._statement(asked, records, {}, {}))

    def _statement(
        self, asked: Asked, records: list[dict[str, Any]], counts: dict[str, int], asked_for: dict[str, Any]
    ) -> dict[str, Any]:
        spans = [*self.buckets(asked)] or [(0, HOUR_US)]
        query = {**window(spans[0][0], spans[-1][1]), "bucketSize": asked.one("bucketSize", "day"), **asked_for}
        names = [*records[0]] if records else []
        totals = {name: sum(one[name] for one in records) for name in names if name.endswith("Amount")}
        if not records:
            totals = dict.fromkeys(
                ("totalAmount", "gpuAmount", "cpuAmount", "diskAmount", "standardAmount", "highPerformanceAmount", *TOTALS), 0
            )
        return {"records": records, "metadata": {"query": query, "recordCount": len(records), "totals": totals, **counts}}

    def _graphql(self, asked: Asked) -> Answer:
        if self.graph == "gone":
            return problem(410, "Gone", "GraphQL was retired")
        if self.graph == "page":
            return Answer(status=503, headers={"Content-Type": "text/html"}, body=b"<html>Attention Required!</html>")
        if asked.headers.get("authorization") != f"Bearer {KEY}":
            return Answer.of({"errors": [{"message": "Unauthorized", "extensions": {"code": "UNAUTHENTICATED"}}]}, 401)
        if self.graph == "errors":
            wrong = {"message": "Something went wrong", "path": ["myself"], "extensions": {"code": "INTERNAL_SERVER_ERROR"}}
            return Answer.of({"errors": [wrong], "data": None})
        if "myself" not in asked.json()["query"]:
            return Answer.of(
                {"errors": [{"message": "Cannot query that", "extensions": {"code": "GRAPHQL_VALIDATION_FAILED"}}]}
            )
        return Answer.of({"data": {"myself": self.myself}})


TOTALS = (
    *("podGpuAmount", "podCpuAmount", "podDiskAmount", "serverlessGpuAmount", "serverlessCpuAmount"),
    *("serverlessDiskAmount", "serverlessFeeAmount", "storageStandardAmount", "storageHighPerformanceAmount"),
    *("endpointAmount", "clusterGpuAmount", "clusterDiskAmount", "clusterNetworkingAmount"),
)


def wire_id(resource: Resource) -> str:
    """RunPod's form of an id: 14 small letters and digits. One that has it already is kept."""
    if re.fullmatch("[a-z0-9]{10,14}", resource.id):
        return resource.id
    return base64.b32encode(hashlib.sha256(resource.id.encode()).digest()).decode().lower()[:14]


def moved(one: Resource, state: str, now: int) -> Resource:
    """`one` in another state from `now` on."""
    run = find_last_run(one, now)
    if state == "running":
        return replace(one, runs=(*one.runs, Run(start_us=now)))
    if run is not None and (run.stop_us is None or run.stop_us > now):
        one = replace(one, runs=(*(r for r in one.runs if r.start_us < run.start_us), replace(run, stop_us=now)))
    return replace(one, ended_us=now) if state == "ended" else one


def spoilt(made: dict[str, Any], changes: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """`made` with other values at some paths; `...` leaves a field out."""
    for path, value in changes.items():
        inner = made
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        if value is ...:
            inner.pop(path[-1], None)
        else:
            inner[path[-1]] = value
    return made


def stamp(at: datetime) -> str:
    """RFC 3339 in UTC."""
    return at.isoformat().replace("+00:00", "Z")


def read(text: str) -> datetime:
    """The instant of `stamp`."""
    return datetime.fromisoformat(text)


def window(a: int, b: int) -> dict[str, str]:
    """A bucket's edges."""
    return {"startTime": stamp(from_us(a)), "endTime": stamp(from_us(b))}


def problem(status: int, title: str, detail: str, *, errors: list[str] | None = None, **headers: str) -> Answer:
    """An error in RunPod's form."""
    body = {"title": title, "status": status, "detail": detail, **({"errors": errors} if errors else {})}
    answer = Answer.of(body, status, **headers)
    return replace(answer, headers={**answer.headers, "Content-Type": "application/problem+json"})
