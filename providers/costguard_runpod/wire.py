"""The types of RunPod's REST v2 and GraphQL, as far as they are used.

Every field that may be missing is optional. Source: runpod/docs commit a900806e of 2026-08-20, and clients of September 2026
for `pagination`. Fields with secrets (`env`, `ssh`, `args`, `image`) are not decoded, except the three variables of `env` that
name a pod's owner, project and team.
"""

from __future__ import annotations

from decimal import Decimal

import msgspec

Stamp = str | int | float | None
"""An instant as somebody may write it: RFC 3339, or seconds or milliseconds since 1970."""

Count = int | float | None
"""A whole number as somebody may write it: 2 or 2.0. What is no whole number is judged where it is used."""


class Answer(msgspec.Struct, frozen=True, rename="camel"):
    """The base of all types: names in camel case, unknown keys ignored."""


class PodGpus(Answer, frozen=True):
    """The GPUs of a pod."""

    id: str | None = None
    count: Count = 1


class PodCpus(Answer, frozen=True):
    """The processors of a pod without GPUs."""

    id: str | None = None
    vcpu_count: float | None = None


class HostDisk(Answer, frozen=True):
    """A disk on the host, in GB."""

    size: Count = None


class MountedVolume(Answer, frozen=True):
    """A network volume in a pod."""

    volume_id: str | None = None


class Mounts(Answer, frozen=True):
    """A pod's storage."""

    persistent: HostDisk | None = None
    network: list[MountedVolume] | None = None


class PodEnvironment(msgspec.Struct, frozen=True):
    """Owner, project and team of a pod, from variables that its owner may set.

    Nothing else of `env` is read.
    """

    owner: str | None = msgspec.field(name="COSTGUARD_OWNER", default=None)
    project: str | None = msgspec.field(name="COSTGUARD_PROJECT", default=None)
    team: str | None = msgspec.field(name="COSTGUARD_TEAM", default=None)


class Cluster(Answer, frozen=True):
    """The Instant Cluster to which a pod belongs."""

    id: str | None = None


class Work(Answer, frozen=True):
    """Utilisation in percent, of a GPU, the processors or the memory."""

    util: float | None = None
    memory_util: float | None = None


class Runtime(Answer, frozen=True):
    """The measurements of a running pod; each may be missing."""

    uptime: float | None = None
    gpus: list[Work] | None = None
    cpu: Work | None = None
    memory: Work | None = None


class Pod(Answer, frozen=True):
    """One pod."""

    id: str
    name: str | None = None
    status: str | None = None
    actions: list[str] | None = None
    disk: Count = None
    mounts: Mounts | None = None
    gpu: PodGpus | None = None
    cpu: PodCpus | None = None
    cloud: str | None = None
    data_center_id: str | None = None
    env: PodEnvironment | None = None
    cluster: Cluster | None = None
    cost: Decimal | None = None
    locked: bool | None = None
    interruptible: bool | None = None
    runtime: Runtime | None = None
    created_at: Stamp = None
    started_at: Stamp = None


class Volume(Answer, frozen=True):
    """One network volume, in GB."""

    id: str
    name: str | None = None
    size: Count = None
    data_center: str | None = None
    type: str | None = None


class Pagination(Answer, frozen=True):
    """Whether more follows, and the cursor for it."""

    next_cursor: str | None = None
    has_next_page: bool | None = None


class PagedAnswer(Answer, frozen=True, kw_only=True):
    """The fields that state whether more follows; outside `pagination` they were never seen, but are read as well."""

    pagination: Pagination | None = None
    next_cursor: str | None = None
    has_next_page: bool | None = None


class Pods(PagedAnswer, frozen=True):
    """A page of pods."""

    pods: list[Pod]


class RawPods(PagedAnswer, frozen=True):
    """A page with undecoded pods, used if one of them is invalid."""

    pods: list[msgspec.Raw]


class Volumes(PagedAnswer, frozen=True):
    """A page of network volumes."""

    network_volumes: list[Volume]


class RawVolumes(PagedAnswer, frozen=True):
    """A page with undecoded network volumes."""

    network_volumes: list[msgspec.Raw]


class GpuPrice(Answer, frozen=True):
    """USD an hour for one GPU."""

    secure: Decimal | None = None
    community: Decimal | None = None


class GpuCountLimit(Answer, frozen=True):
    """The maximum number of GPUs of one pod."""

    secure: int | None = None
    community: int | None = None


class CatalogueGpu(Answer, frozen=True):
    """One GPU of the catalogue. `memory` in GB."""

    id: str
    name: str | None = None
    memory: float | None = None
    secure: bool | None = None
    community: bool | None = None
    price: GpuPrice | None = None
    max_count: GpuCountLimit | None = None
    availability: str | None = None


class GpuCatalogue(Answer, frozen=True):
    """The catalogue."""

    gpus: list[CatalogueGpu]


class BillRecord(Answer, frozen=True):
    """One bucket of a bill, of pods, volumes or everything, with the amounts of the requested kind in USD."""

    start_time: Stamp = None
    end_time: Stamp = None
    pod_id: str | None = None
    network_volume_id: str | None = None
    serverless_id: str | None = None
    cluster_id: str | None = None
    total_amount: Decimal | None = None
    gpu_amount: Decimal | None = None
    cpu_amount: Decimal | None = None
    disk_amount: Decimal | None = None
    standard_amount: Decimal | None = None
    high_performance_amount: Decimal | None = None
    serverless_gpu_amount: Decimal | None = None
    serverless_cpu_amount: Decimal | None = None
    serverless_disk_amount: Decimal | None = None
    serverless_fee_amount: Decimal | None = None
    endpoint_amount: Decimal | None = None
    cluster_gpu_amount: Decimal | None = None
    cluster_disk_amount: Decimal | None = None
    cluster_networking_amount: Decimal | None = None
    fee_amount: Decimal | None = None
    networking_amount: Decimal | None = None
    pod_gpu_amount: Decimal | None = None
    pod_cpu_amount: Decimal | None = None
    pod_disk_amount: Decimal | None = None
    storage_standard_amount: Decimal | None = None
    storage_high_performance_amount: Decimal | None = None


class OldBillRecord(Answer, frozen=True):
    """One bucket of REST v1 and of `runpodctl billing`, grouped by pod, endpoint or GPU type; its amounts in USD."""

    time: Stamp
    amount: Decimal
    pod_id: str | None = None
    endpoint_id: str | None = None
    gpu_type_id: str | None = None
    time_billed_ms: Decimal | None = None
    high_performance_storage_amount: Decimal | None = None


class BillMetadata(Answer, frozen=True):
    """What a window says of itself: how many records it has."""

    record_count: int | None = None


class BillPage(Answer, frozen=True):
    """The records of a window."""

    records: list[BillRecord]
    metadata: BillMetadata | None = None


class KeyOwner(Answer, frozen=True):
    """The key's owner by GraphQL, and the account's money in USD."""

    id: str | None = None
    client_balance: Decimal | None = None
    current_spend_per_hr: Decimal | None = None
    spend_limit: Decimal | None = None


class GraphData(Answer, frozen=True):
    """The data of a GraphQL answer."""

    myself: KeyOwner | None = None


class GraphExtensions(Answer, frozen=True):
    """The code of a GraphQL error."""

    code: str | None = None


class GraphError(Answer, frozen=True):
    """One error of a GraphQL answer, which comes with HTTP 200."""

    message: str | None = None
    extensions: GraphExtensions | None = None


class GraphAnswer(Answer, frozen=True):
    """A GraphQL answer."""

    data: GraphData | None = None
    errors: list[GraphError] | None = None


class ProblemDetail(Answer, frozen=True):
    """application/problem+json."""

    title: str | None = None
    status: int | None = None
    detail: str | None = None
    errors: list[str] | None = None
