"""A Kubernetes API server as its API reference (v1.34) tells of it: discovery, lists with pages and selectors, one object.

It answers kubectl. Objects are plain dictionaries; of a list only the page that is asked for is made.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.server import Answer, Asked, FakeCloud, Hands

CANARY = "eyJhbGciOiJSUzI1NiJ9.canary-kubernetes-7f3b1c9e55a84d02.Qk9tR2hYwLr4NdHs6J"
"""A service account's token."""
Object = dict[str, Any]


@dataclass
class Resource:
    """One resource of a group. `make`: turns what stands in `objects` into an object of the wire; None: it is one."""

    kind: str
    objects: Sequence[Any] = ()
    namespaced: bool = True
    make: Callable[[Any], Object] | None = None


@dataclass
class ApiServer:
    """`groups`: "v1" or "apps/v1" -> resource -> what it holds. `page`: most objects a page. `expired`: tokens are refused.

    `forbidden`: what one may not read: resources ("nodes"), namespaces, "*" for what is read of all namespaces.
    """

    groups: Mapping[str, Mapping[str, Resource]]
    page: int = 1000
    expired: bool = False
    forbidden: set[str] = field(default_factory=set)

    def answer(self, asked: Asked, path: str) -> Answer:
        """The answer to a GET at `path` of this server."""
        match = re.fullmatch(
            r"/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+/[^/]+))(?:/namespaces/(?P<ns>[^/]+))?/(?P<what>[a-z]+)(?:/(?P<name>[^/]+))?",
            path,
        )
        if not match:
            return self._discover(path)
        resource = self.groups.get(match["core"] or match["group"], {}).get(match["what"])
        if resource is None:
            return refusal(404, "NotFound", "the server could not find the requested resource")
        space = match["ns"] or ("*" if resource.namespaced else "")
        if self.forbidden & {match["what"], space}:
            who = 'User "system:serviceaccount:costguard:costguard"'
            return refusal(403, "Forbidden", f'{match["what"]} is forbidden: {who} cannot list resource "{match["what"]}"')
        api = match["core"] or match["group"]
        if match["name"]:
            for one in self._select(resource, asked, match["ns"]):
                made = self._make(resource, one)
                if made["metadata"]["name"] == match["name"]:
                    return Answer.of({"kind": resource.kind, "apiVersion": api, **made})
            return refusal(404, "NotFound", f'{match["what"]} "{match["name"]}" not found')
        return self._list(resource, api, asked, match["ns"])

    def _list(self, resource: Resource, api: str, asked: Asked, namespace: str | None) -> Answer:
        if self.expired and asked.one("continue"):
            return refusal(410, "Expired", "The provided continue parameter is too old to display a consistent list result.")
        chosen = self._select(resource, asked, namespace)
        first = int(base64.urlsafe_b64decode(asked.one("continue") or base64.urlsafe_b64encode(b"0")))
        after = first + min(self.page, int(asked.one("limit") or len(chosen) or 1))
        left = len(chosen) - after
        meta: Object = {"resourceVersion": "4711"}
        if left > 0:
            meta |= {"continue": base64.urlsafe_b64encode(str(after).encode()).decode(), "remainingItemCount": left}
        items = [self._make(resource, one) for one in chosen[first:after]]
        return Answer.of({"kind": f"{resource.kind}List", "apiVersion": api, "metadata": meta, "items": items})

    def _select(self, resource: Resource, asked: Asked, namespace: str | None) -> Sequence[Any]:
        labels, fields = asked.one("labelSelector"), asked.one("fieldSelector")
        if not (namespace or labels or fields):
            return resource.objects
        return [one for one in resource.objects if _fits(self._make(resource, one), namespace, labels, fields)]

    @staticmethod
    def _make(resource: Resource, one: Any) -> Object:  # noqa: ANN401 - whatever it holds
        return resource.make(one) if resource.make else one

    def _discover(self, path: str) -> Answer:
        """What a client reads first: groups, and the resources of each."""
        if path == "/version":
            return Answer.of({"major": "1", "minor": "34", "gitVersion": "v1.34.0"})
        if path == "/api":
            return Answer.of({"kind": "APIVersions", "versions": ["v1"]})
        named = [group for group in self.groups if "/" in group]
        if path == "/apis":
            groups = [
                {
                    "name": group.split("/")[0],
                    "versions": [{"groupVersion": group, "version": group.split("/")[1]}],
                    "preferredVersion": {"groupVersion": group, "version": group.split("/")[1]},
                }
                for group in named
            ]
            return Answer.of({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        group = path.removeprefix("/apis/") if path.startswith("/apis/") else path.removeprefix("/api/")
        if group not in self.groups:
            return refusal(404, "NotFound", "the server could not find the requested resource")
        resources = [
            {"name": name, "singularName": name[:-1], "kind": one.kind, "namespaced": one.namespaced, "verbs": ["get", "list"]}
            for name, one in self.groups[group].items()
        ]
        return Answer.of({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": resources})


def _fits(made: Object, namespace: str | None, labels: str, fields: str) -> bool:
    meta = made["metadata"]
    if namespace and meta.get("namespace") != namespace:
        return False
    for part in filter(None, labels.split(",")):
        key, _, value = part.partition("=")
        if (meta.get("labels") or {}).get(key) != value.removeprefix("="):
            return False
    for part in filter(None, fields.split(",")):
        path, unlike, value = re.fullmatch(r"([\w.]+)(!?)==?(.*)", part).groups()  # type: ignore[union-attr]
        inner: Any = made
        for key in path.split("."):
            inner = (inner or {}).get(key)
        if ((inner or "") == value) == bool(unlike):
            return False
    return True


def refusal(status: int, reason: str, message: str) -> Answer:
    """An error in Kubernetes' form."""
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason, "code": status}
    return Answer.of({**body, "message": message}, status)


class FakeKubernetes(FakeCloud):
    """One cluster: `nodes` and `pods` are objects of the wire."""

    def __init__(self, clock: Hands | None = None) -> None:
        super().__init__(clock)
        self.nodes, self.pods = list[Object](), list[Object]()
        self.metrics: dict[str, dict[str, list[float]]] = {}
        """GPU_UTIL or POWER_USAGE -> node -> the value of each GPU: DCGM's, behind a Prometheus in the cluster."""
        core = {"nodes": Resource("Node", self.nodes, namespaced=False), "pods": Resource("Pod", self.pods)}
        self.server = ApiServer({"v1": core})

    def answer(self, asked: Asked) -> Answer:
        """As an API server answers."""
        if asked.headers.get("authorization") != f"Bearer {CANARY}":
            return refusal(401, "Unauthorized", "Unauthorized")
        if asked.method != "GET":
            return refusal(405, "MethodNotAllowed", "the server does not allow this method")
        if asked.path.endswith("/proxy/api/v1/query"):
            name = next(name for name in ("GPU_UTIL", "POWER_USAGE") if name in asked.one("query"))
            series = [
                {"metric": {"Hostname": node, "UUID": f"GPU-{node}-{gpu}"}, "value": [1_795_262_400.0, str(value)]}
                for node, values in self.metrics.get(name, {}).items()
                for gpu, value in enumerate(values)
            ]
            return Answer.of({"status": "success", "data": {"resultType": "vector", "result": series}})
        return self.server.answer(asked, asked.path)


def make_node(name: str, provider_id: str | None = None, gpus: int = 8, **labels: str) -> Object:
    """A node that is ready, with `provider_id` where it states one."""
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels, "creationTimestamp": "2026-11-21T09:00:00Z"},
        "spec": {"providerID": provider_id} if provider_id else {},
        "status": {
            "capacity": {"cpu": "128", "nvidia.com/gpu": str(gpus)},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def make_pod(name: str, namespace: str, node: str | None, gpus: int, *, phase: str = "Running", **labels: str) -> Object:
    """A pod with one container that asks for `gpus`; without a node it is pending."""
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}", "labels": labels},
        "spec": {**({"nodeName": node} if node else {}), "containers": [{"name": "main", "resources": limits}]},
        "status": {"phase": phase if node else "Pending"},
    }
