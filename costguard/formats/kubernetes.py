"""Kubernetes: Jobs, Pods and the training operators' resources that ask for `nvidia.com/gpu` (kubernetes.io, read 2026-11).

kind: Job
spec:
  parallelism: 2                         # pods
  activeDeadlineSeconds: 43200
  template: {spec: {nodeSelector: {cloud.google.com/gke-accelerator: nvidia-h100-80gb}, containers: [...]}}
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from costguard.formats.commands import read_commands
from costguard.formats.loading import ConfigFile
from costguard.formats.reading import ConfigDraft, LaunchHardware
from costguard.values import checks

LABEL = "Kubernetes"
KINDS = ("yaml", "json")

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
SELECTORS = (
    *("cloud.google.com/gke-accelerator", "nvidia.com/gpu.product", "k8s.amazonaws.com/accelerator", "gpu.nvidia.com/class"),
    *("skypilot.co/accelerator", "nvidia.com/gpu.machine", "accelerator"),
)
"""Labels of nodes that name their GPU; a cloud's or the GPU operator's."""
TIERS = {
    "cloud.google.com/gke-spot": {"true": "spot"},
    "cloud.google.com/gke-preemptible": {"true": "spot"},
    "karpenter.sh/capacity-type": {"spot": "spot", "on-demand": "on-demand"},
    "eks.amazonaws.com/capacityType": {"spot": "spot", "on_demand": "on-demand"},
}
"""Labels of nodes that say how they are paid."""
GROUPS = ("pytorchReplicaSpecs", "tfReplicaSpecs", "mpiReplicaSpecs", "replicatedJobs")
DEADLINE = "activeDeadlineSeconds"
NO_EFFECT = (
    *(
        "apiVersion",
        "kind",
        "metadata",
        "status",
        "backoffLimit",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
        "podFailurePolicy",
    ),
    *(
        "restartPolicy",
        "ttlSecondsAfterFinished",
        "completionMode",
        "suspend",
        "selector",
        "manualSelector",
        "concurrencyPolicy",
    ),
    *("successfulJobsHistoryLimit", "failedJobsHistoryLimit", "startingDeadlineSeconds", "cleanPodPolicy", "successPolicy"),
    *("failurePolicy", "network", "volumes", "tolerations", "imagePullSecrets", "serviceAccount", "serviceAccountName"),
    *("securityContext", "hostNetwork", "hostIPC", "hostPID", "dnsPolicy", "dnsConfig", "hostname", "subdomain"),
    *("schedulerName", "priorityClassName", "terminationGracePeriodSeconds", "automountServiceAccountToken", "nprocPerNode"),
    *("enableServiceLinks", "shareProcessNamespace", "hostAliases", "initContainers", "preemptionPolicy", "slotsPerWorker"),
)
"""Keys of manifests, at whatever depth, that change neither the machines nor how long they are held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """A group of equal pods. `counts`: (key, number) whose product is how many run at once. `job`: the table that runs them."""

    spec: Mapping[str, object]
    path: str
    counts: tuple[tuple[str, object], ...] = ()
    job: Mapping[str, object] = field(default_factory=dict)
    job_path: str = ""


def recognise(file: ConfigFile) -> bool:
    """Return whether it is a Kubernetes manifest."""
    return any({"apiVersion", "kind"} <= one.keys() for one in file.documents)


def read(draft: ConfigDraft) -> None:
    """Take the GPUs of each pod, the number of pods, the deadline and the training command."""
    tables: dict[str, Mapping[str, object]] = {}
    for number, document in enumerate(draft.file.documents, 1):
        spec = document.get("spec")
        if not isinstance(spec, Mapping):
            continue
        above = "" if len(draft.file.documents) == 1 else f"document {number}."
        groups = [one for one in _list_pods(spec, str(document.get("kind", "")), f"{above}spec") if _read_pod(draft, one)]
        if groups:
            tables[above] = document
            _read_deadline(draft, f"{above}spec", spec, groups)
    if draft.hardware is None:
        raise draft.refuse("resources.limits", "asks for no nvidia.com/gpu")
    draft.values = tables[""] if "" in tables else {above.rstrip("."): one for above, one in tables.items()}
    draft.ignore(*NO_EFFECT, *(f"*.{name}" for name in NO_EFFECT), *(f"*.{name}.*" for name in NO_EFFECT))


def _list_pods(spec: Mapping[str, object], kind: str, path: str) -> Iterator[Pods]:
    """Yield the pods of each template in a manifest; `path`: the keys down to `spec`."""
    if kind == "Pod":
        yield Pods(spec=spec, path=path)
    yield from _list_template_pods(spec, path)
    scheduled = spec.get("jobTemplate")
    if isinstance(scheduled, Mapping) and isinstance(scheduled.get("spec"), Mapping):
        yield from _list_pods(scheduled["spec"], "", f"{path}.jobTemplate.spec")
    for name in GROUPS:
        groups = spec.get(name)
        named_groups = groups.items() if isinstance(groups, Mapping) else [("", one) for one in _list_maps(groups)]
        for inner_name, group in named_groups:
            if isinstance(group, Mapping):
                yield from _list_pods(group, "", f"{path}.{name}.{inner_name}".rstrip("."))


def _list_template_pods(spec: Mapping[str, object], path: str) -> Iterator[Pods]:
    """Yield the pods of the template in a table that runs pods, or that runs tables which do."""
    template = spec.get("template")
    inner = template.get("spec") if isinstance(template, Mapping) else None
    if not isinstance(inner, Mapping):
        return
    replicas = (f"{path}.replicas", spec.get("replicas", 1))
    if "containers" in inner:
        at_once = spec.get("parallelism")
        counts = (replicas,) if at_once is None else ((f"{path}.parallelism", at_once),)
        yield Pods(spec=inner, path=f"{path}.template.spec", counts=counts, job=spec, job_path=path)
        return
    for pods in _list_pods(inner, "", f"{path}.template.spec"):
        yield replace(pods, counts=(replicas, *pods.counts))


def _read_pod(draft: ConfigDraft, pods: Pods) -> bool:
    """Take the GPUs of one group of pods; return whether it has any."""
    containers = list(_list_maps(pods.spec.get("containers")))
    first = max((_count_gpus(draft, one) for one in _list_maps(pods.spec.get("initContainers"))), default=0)
    gpus = max(first, sum(_count_gpus(draft, one) for one in containers))
    if gpus == 0:
        return False
    count = 1
    for key, value in pods.counts:
        count *= draft.read_count(value, key)
        draft.mark_read(key)
    draft.mark_read(f"{pods.path}.containers", f"{pods.path}.initContainers")
    completions = pods.job.get("completions")
    if completions not in (None, count):
        draft.leave(f"{pods.job_path}.completions", f"{completions} pods in turn: the {count} at once are quoted")
    draft.mark_read(f"{pods.job_path}.completions")
    gpu = _read_selector(draft, pods)
    hardware = draft.hardware
    if hardware is None:
        draft.hardware = LaunchHardware(gpu=gpu, gpu_count=gpus, nodes=count)
    elif hardware.gpu_count == gpus:
        draft.hardware = replace(hardware, nodes=hardware.nodes + count)
    else:
        draft.leave("spec", f"pods of {hardware.gpu_count} and of {gpus} GPUs: the first are quoted")
    for one in containers:
        words = [*_list_words(one.get("command")), *_list_words(one.get("args"))]
        script = words[-1] if len(words) > 1 and words[-2].startswith("-") and words[-2].endswith("c") else shlex.join(words)
        read_commands(draft, script, "command")
    return True


def _read_selector(draft: ConfigDraft, pods: Pods) -> str | None:
    """Return the GPU that the labels of the nodes name, and restrict the market to spot machines if they say so."""
    selector = pods.spec.get("nodeSelector")
    labels = selector if isinstance(selector, Mapping) else {}
    path = f"{pods.path}.nodeSelector"
    texts = {key: value for key in SELECTORS if isinstance(value := labels.get(key), str)}
    gpu_key = next((key for key, value in texts.items() if re.search(r"\d", value)), None)  # `nvidia-gpu` names no kind
    for key, words in TIERS.items():
        tier = words.get(str(labels.get(key, "")).lower())
        if tier is not None:
            draft.state("limits.tiers", [tier], f"{path}.{key}")
            draft.mark_read(f"{path}.{key}")
    if gpu_key is None:
        return None
    draft.mark_read(f"{path}.{gpu_key}")
    return str(labels[gpu_key])


def _read_deadline(draft: ConfigDraft, path: str, spec: Mapping[str, object], groups: list[Pods]) -> None:
    """Take the time limit of the job, or of its first pods."""
    places = ((path, spec), (groups[0].path, groups[0].spec))
    key, deadline = next(((f"{where}.{DEADLINE}", one[DEADLINE]) for where, one in places if one.get(DEADLINE)), ("", None))
    if deadline is None or draft.hardware is None:
        return
    hours = draft.read_hours(deadline, key)
    draft.hardware = replace(draft.hardware, hours=draft.hardware.hours or hours)
    draft.mark_read(key)


def _count_gpus(draft: ConfigDraft, container: Mapping[str, object]) -> int:
    resources = container.get("resources")
    resource_table = resources if isinstance(resources, Mapping) else {}
    for part in ("limits", "requests"):
        amounts = resource_table.get(part)
        for name in GPU_RESOURCES:
            value = amounts.get(name) if isinstance(amounts, Mapping) else None
            if value is None:
                continue
            text = str(value)
            if text.isascii() and text.isdigit():
                return draft.read_count(text, f"resources.{part}.{name}") if text.strip("0") else 0
            raise draft.refuse(f"resources.{part}.{name}", f"is not a whole number of GPUs: {checks.describe_value(value)}")
    return 0


def _list_maps(value: object) -> Iterator[Mapping[str, object]]:
    yield from (one for one in value if isinstance(one, Mapping)) if isinstance(value, list) else ()


def _list_words(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [value] if isinstance(value, str) else []
