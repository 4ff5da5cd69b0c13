"""Kubernetes: Jobs, Pods and the training operators' resources that ask for `nvidia.com/gpu` (kubernetes.io, read 2026-11).

kind: Job
spec:
  parallelism: 2                         # pods
  activeDeadlineSeconds: 43200
  template: {spec: {nodeSelector: {cloud.google.com/gke-accelerator: nvidia-h100-80gb}, containers: [...]}}
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace

from costguard.formats.commands import read_commands
from costguard.formats.loading import ConfigFile
from costguard.formats.reading import ConfigDraft, LaunchHardware

LABEL = "Kubernetes"
KINDS = ("yaml", "json")

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
SELECTORS = (
    *("cloud.google.com/gke-accelerator", "nvidia.com/gpu.product", "k8s.amazonaws.com/accelerator", "gpu.nvidia.com/class"),
    *("skypilot.co/accelerator", "nvidia.com/gpu.machine", "accelerator"),
)
"""Labels of nodes that name their GPU; a cloud's or the GPU operator's."""


def recognise(file: ConfigFile) -> bool:
    """Return whether it is a Kubernetes manifest."""
    return any({"apiVersion", "kind"} <= one.keys() for one in file.documents)


def read(draft: ConfigDraft) -> None:
    """Take the GPUs of each pod, the number of pods, the deadline and the training command."""
    for document in draft.file.documents:
        spec = document.get("spec")
        if not isinstance(spec, Mapping):
            continue
        for pods, pod in _list_pods(spec, str(document.get("kind", ""))):
            _read_pod(draft, pods, pod, spec)
    if draft.hardware is None:
        raise draft.refuse("resources.limits", "asks for no nvidia.com/gpu")
    for top in draft.values:
        draft.ignore(top)


def _list_pods(spec: Mapping[str, object], kind: str) -> Iterator[tuple[object, Mapping[str, object]]]:
    """Yield (number of pods, pod's spec) of each template in a manifest."""
    if kind == "Pod":
        yield 1, spec
    template = spec.get("template")
    if isinstance(template, Mapping) and isinstance(template.get("spec"), Mapping):
        inner = template["spec"]
        if isinstance(inner, Mapping) and "containers" in inner:
            yield spec.get("parallelism", spec.get("replicas", 1)), inner
        elif isinstance(inner, Mapping):
            yield from ((_multiply(spec.get("replicas", 1), pods), pod) for pods, pod in _list_pods(inner, ""))
    for name in ("pytorchReplicaSpecs", "tfReplicaSpecs", "mpiReplicaSpecs", "replicatedJobs", "jobTemplate"):
        groups = spec.get(name)
        if name == "jobTemplate" and isinstance(groups, Mapping) and isinstance(groups.get("spec"), Mapping):
            yield from _list_pods(groups["spec"], "")
        for group in groups.values() if isinstance(groups, Mapping) else groups if isinstance(groups, list) else ():
            if isinstance(group, Mapping) and name != "jobTemplate":
                yield from _list_pods(group, "")


def _multiply(one: object, other: object) -> object:
    return one * other if isinstance(one, int) and isinstance(other, int) else None


def _read_pod(draft: ConfigDraft, pods: object, pod: Mapping[str, object], spec: Mapping[str, object]) -> None:
    containers = list(_list_maps(pod.get("containers")))
    gpus = sum(_count_gpus(draft, one) for one in containers)
    if gpus == 0:
        return
    if not isinstance(pods, int):
        draft.leave("spec.parallelism", "no whole number of pods; one is quoted")
        pods = 1
    selector = pod.get("nodeSelector")
    labels = selector if isinstance(selector, Mapping) else {}
    gpu = next((str(labels[key]) for key in SELECTORS if isinstance(labels.get(key), str)), None)
    deadline = spec.get("activeDeadlineSeconds") or pod.get("activeDeadlineSeconds")
    hours = deadline / 3600 if isinstance(deadline, int) else None
    before = draft.hardware
    if before is None:
        draft.hardware = LaunchHardware(gpu=gpu, gpu_count=gpus, nodes=pods, hours=hours)
    elif before.gpu_count == gpus:
        draft.hardware = replace(before, nodes=before.nodes + pods)
    else:
        draft.leave("spec", f"pods of {before.gpu_count} and of {gpus} GPUs: the first are quoted")
    for one in containers:
        words = [*_list_words(one.get("command")), *_list_words(one.get("args"))]
        script = words[-1] if len(words) > 1 and words[-2].startswith("-") and words[-2].endswith("c") else shlex.join(words)
        read_commands(draft, script, "command")


def _count_gpus(draft: ConfigDraft, container: Mapping[str, object]) -> int:
    resources = container.get("resources")
    stated = resources if isinstance(resources, Mapping) else {}
    for part in ("limits", "requests"):
        amounts = stated.get(part)
        for name in GPU_RESOURCES:
            value = amounts.get(name) if isinstance(amounts, Mapping) else None
            if value is None:
                continue
            if str(value).isdigit():
                return int(str(value))
            raise draft.refuse(f"resources.{part}.{name}", f"is no whole number of GPUs: {value}")
    return 0


def _list_maps(value: object) -> Iterator[Mapping[str, object]]:
    yield from (one for one in value if isinstance(one, Mapping)) if isinstance(value, list) else ()


def _list_words(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [value] if isinstance(value, str) else []
