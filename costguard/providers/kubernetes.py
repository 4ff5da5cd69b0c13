"""Kubernetes' lists over the house's bounded HTTP client: pages, and the few fields of nodes and pods that are used.

Four GET requests need no client library of 30 MB (decision 0171). Every list is read with `limit` and `continue`. A list that
expires while it is read (410) is read again from its beginning once, and is then an error: its pages were of two moments.

Fields whose type a cluster's own controllers may get wrong are read as any value and checked when they are used, so that one
odd node does not hide the others. From Kubernetes' API reference, v1.34 (2026-11).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import quote

import msgspec

from costguard.errors import InvalidAnswerError, ProviderError, shorten, to_one_line
from costguard.providers.transport import Deadline, HttpResponse, ProviderChannel

T = TypeVar("T")

PAGE_SIZE = 500
"""Objects a page: kubectl's own size (`--chunk-size`)."""
MOST_OBJECTS = 10_000
"""Of one list: Kubernetes supports 5,000 nodes and 150,000 pods a cluster, of which only those with GPUs are used."""
EXPIRED = 410
OK = 200
GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
"""Extended resources that count whole GPUs. Slices (`nvidia.com/mig-1g.5gb`) are not counted."""
MOST_COUNT = 1000
PAIR = 2
UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


class ObjectMeta(msgspec.Struct, frozen=True):
    """`uid`: of one life of the object; an object that is made again under the same name has another."""

    uid: str
    name: object = None
    namespace: object = None
    labels: dict[str, object] | None = None
    creationTimestamp: object = None  # noqa: N815 - the wire's name


class NodeSpec(msgspec.Struct, frozen=True):
    """`providerID`: the machine behind the node, in the form of its cloud: `aws:///us-east-1a/i-0abc`."""

    providerID: object = None  # noqa: N815 - the wire's name
    unschedulable: object = None


class NodeCondition(msgspec.Struct, frozen=True):
    """`status` of `Ready`: "True", "False" or "Unknown"."""

    type: object = None
    status: object = None
    reason: object = None


class NodeStatus(msgspec.Struct, frozen=True):
    """`capacity`: resource -> its quantity, as text."""

    capacity: dict[str, object] | None = None
    conditions: list[NodeCondition] | None = None


class Node(msgspec.Struct, frozen=True):
    """One node of a cluster."""

    metadata: ObjectMeta
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class Resources(msgspec.Struct, frozen=True):
    """What a container asks for. Of extended resources, such as GPUs, requests and limits are equal where both stand."""

    requests: dict[str, object] | None = None
    limits: dict[str, object] | None = None


class Container(msgspec.Struct, frozen=True):
    """`restartPolicy` Always, of an init container: a sidecar, which runs beside the containers."""

    resources: Resources | None = None
    restartPolicy: object = None  # noqa: N815 - the wire's name


class PodSpec(msgspec.Struct, frozen=True):
    """`nodeName`: absent until the pod is scheduled."""

    nodeName: object = None  # noqa: N815 - the wire's name
    containers: list[Container] | None = None
    initContainers: list[Container] | None = None  # noqa: N815 - the wire's name


class PodStatus(msgspec.Struct, frozen=True):
    """`phase`: Pending, Running, Succeeded, Failed or Unknown."""

    phase: object = None


class Pod(msgspec.Struct, frozen=True):
    """One pod."""

    metadata: ObjectMeta
    spec: PodSpec | None = None
    status: PodStatus | None = None


class _ListMeta(msgspec.Struct, frozen=True):
    token: str | None = msgspec.field(name="continue", default=None)


class _ListPage(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw]
    metadata: _ListMeta | None = None


class _BareId(msgspec.Struct, frozen=True):
    uid: str


class _BareObject(msgspec.Struct, frozen=True):
    metadata: _BareId


class _Series(msgspec.Struct, frozen=True):
    metric: dict[str, object]
    value: list[object]


class _MetricData(msgspec.Struct, frozen=True):
    resultType: str  # noqa: N815 - the wire's name
    result: list[_Series]


class _MetricAnswer(msgspec.Struct, frozen=True):
    status: str
    data: _MetricData


class _Status(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableObject:
    """An object that cannot be read. `uid`: "" if that cannot be read either. `why`: what is wrong with it."""

    uid: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricValue:
    """One value of a PromQL query, with the labels of its series."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectList(Generic[T]):
    """`items`: the objects read. `odd`: those that cannot be read. `why`: why later pages are missing; "": none is."""

    items: tuple[T, ...]
    odd: tuple[UnreadableObject, ...] = ()
    why: str = ""


class KubernetesApi:
    """Lists of one cluster's API server.

    `scope`: whose circuit breaker its requests belong to; a cluster that does not answer delays no other of the account.
    """

    def __init__(self, channel: ProviderChannel, scope: str = "") -> None:
        self.channel, self._scope = channel, scope

    def list_nodes(self, deadline: Deadline) -> ObjectList[Node]:
        """Return every node."""
        return self.list_objects("/api/v1/nodes", Node, "the list of nodes", deadline)

    def list_pods(self, deadline: Deadline, namespace: str = "") -> ObjectList[Pod]:
        """Return every pod that has not ended, of `namespace`; "": of all. The API server selects them."""
        path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
        params = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
        return self.list_objects(path, Pod, "the list of pods", deadline, params)

    def query_metrics(self, service: str, expression: str, deadline: Deadline) -> tuple[MetricValue, ...]:
        """Return the present values of `expression` (PromQL) at the Prometheus behind `service`; raises ProviderError.

        `service`: namespace/name:port. The API server passes the request on, so that no further address or key is needed.
        """
        namespace, _, name = service.partition("/")
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/services/{quote(name, safe=':')}/proxy/api/v1/query"
        reply = self.channel.read(path, {"query": expression}, scope=f"{self._scope}metrics", deadline=deadline)
        answer = self.channel.decode(reply, _MetricAnswer, "the answer of Prometheus")
        if answer.status != "success" or answer.data.resultType != "vector":
            raise make_odd_answer(self.channel, "Prometheus did not answer with a vector")
        return tuple(
            MetricValue(labels={k: v for k, v in one.metric.items() if isinstance(v, str)}, value=value)
            for one in answer.data.result
            if (value := _parse_metric(one.value)) is not None
        )

    def list_objects(
        self, path: str, kind: type[T], what: str, deadline: Deadline, params: Mapping[str, str] | None = None
    ) -> ObjectList[T]:
        """Return the objects at `path`; raises ProviderError if the first page fails, or the list expires twice.

        A later page that fails ends the list with the reason in `why`.
        """
        try:
            return self._read_pages(path, kind, what, deadline, params or {})
        except ProviderError as expired:
            if expired.status != EXPIRED:
                raise
        return self._read_pages(path, kind, what, deadline, params or {})

    def _read_pages(self, path: str, kind: type[T], what: str, deadline: Deadline, params: Mapping[str, str]) -> ObjectList[T]:
        items, odd, tokens, token = list[T](), list[UnreadableObject](), set[str](), ""
        while True:
            query = {"limit": str(PAGE_SIZE), **params, **({"continue": token} if token else {})}
            try:
                reply = self.channel.read(path, query, scope=f"{self._scope}{path}", deadline=deadline)
                page = self.channel.decode(reply, _ListPage, what)
            except ProviderError as broken:
                if not tokens or broken.status == EXPIRED:
                    raise
                return ObjectList(items=tuple(items), odd=tuple(odd), why=f"{what} breaks off: {to_one_line(broken.what)}")
            for raw in page.items:
                _add_object(raw, kind, items, odd)
            if odd and not items and not any(one.uid for one in odd):
                raise make_odd_answer(self.channel, f"{what} cannot be read: {odd[0].why}")
            token = (page.metadata and page.metadata.token) or ""
            why = ""
            if token in tokens:
                why = f"{what} repeats a page"
            elif token and len(items) + len(odd) >= MOST_OBJECTS:
                why = f"{what} has more than {MOST_OBJECTS} objects"
            if why or not token:
                return ObjectList(items=tuple(items[:MOST_OBJECTS]), odd=tuple(odd), why=why)
            tokens.add(token)


def _add_object(raw: msgspec.Raw, kind: type[T], items: list[T], odd: list[UnreadableObject]) -> None:
    try:
        items.append(msgspec.json.decode(raw, type=kind))
    except UNREADABLE as broken:
        odd.append(UnreadableObject(uid=_find_uid(raw), why=to_one_line(shorten(str(broken)))))


def _find_uid(raw: msgspec.Raw) -> str:
    try:
        return msgspec.json.decode(raw, type=_BareObject).metadata.uid
    except UNREADABLE:
        return ""


def _parse_metric(value: list[object]) -> float | None:
    """Return the number in [time, "number"], as Prometheus writes a value; None for NaN, infinity and anything else."""
    try:
        number = float(value[1]) if len(value) == PAIR and isinstance(value[1], str) else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def parse_status(reply: HttpResponse) -> tuple[str, str]:
    """Return reason and message of a Kubernetes `Status`, the body of every error; "" and "" for another body."""
    try:
        status = msgspec.json.decode(reply.body, type=_Status)
    except UNREADABLE:
        return "", ""
    return shorten(status.reason), status.message


def count_gpus(resources: Mapping[str, object] | None) -> int | None:
    """Return the GPUs among `resources` (resource -> quantity): 0 if none is named, None if a quantity is no count."""
    counts = [_parse_count(resources[name]) for name in GPU_RESOURCES if resources and name in resources]
    return None if any(count is None for count in counts) else sum(count or 0 for count in counts)


def _parse_count(quantity: object) -> int | None:
    """Return a quantity of whole things, which Kubernetes writes as text: "8"."""
    text = str(quantity) if isinstance(quantity, str | int) and not isinstance(quantity, bool) else ""
    count = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(MOST_COUNT)) else None
    return count if count is None or count <= MOST_COUNT else None


def count_pod_gpus(pod: Pod) -> int:
    """Return the GPUs that the scheduler sets aside for `pod`: those of its containers and sidecars together.

    Another init container counts where it asks for more, because it runs before the containers.
    """
    spec = pod.spec or PodSpec()
    sidecars = [one for one in spec.initContainers or () if one.restartPolicy == "Always"]
    first = [one for one in spec.initContainers or () if one.restartPolicy != "Always"]
    together = sum(_count_container_gpus(one) for one in (*(spec.containers or ()), *sidecars))
    return max([together, *(_count_container_gpus(one) for one in first)])


def _count_container_gpus(container: Container) -> int:
    resources = container.resources or Resources()
    return max(count_gpus(resources.requests) or 0, count_gpus(resources.limits) or 0)


def list_text_labels(meta: ObjectMeta) -> dict[str, str]:
    """Return the labels of an object whose values are text."""
    return {key: value for key, value in (meta.labels or {}).items() if isinstance(value, str)}


def get_text(value: object) -> str:
    """Return `value` if it is text, else ""."""
    return value if isinstance(value, str) else ""


def make_odd_answer(channel: ProviderChannel, what: str) -> InvalidAnswerError:
    """Return the error for an answer that cannot be used."""
    return InvalidAnswerError(what, provider=channel.provider, account=channel.account, status=OK)
