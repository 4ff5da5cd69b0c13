"""A validating admission webhook of Kubernetes that has costguard admit pods with GPUs (docs/KUBERNETES.md).

    pod is created -> API server -> POST /validate -> GPUs, hours, namespace -> POST /v1/admit -> allowed, or denied
    pod is deleted -> API server -> POST /validate -> POST /v1/admit/end

The namespace is the hold's label `project` (COSTGUARD_NAMESPACE_LABEL: `team`), so that a budget selects by it:
`match = { labels = { project = ["vision"] } }`. A pod's own label cannot replace it. Where costguard cannot be asked the pod is
allowed, with a warning that kubectl shows (COSTGUARD_FAIL=closed denies it).

`python -m costguard_kubernetes` serves it over TLS. Python 3.9 and later, no dependency.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from costguard_admission import HELD, OPEN, AdmissionClient

GPU_RESOURCE = "nvidia.com/gpu"
GPU_LABELS = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator")
"""Of a node selector: the NVIDIA GPU operator's label, and GKE's (2026-11)."""
HOURS, GPU, OWNER, HOLD_PREFIX = "costguard/hours", "costguard/gpu", "costguard/owner", "k8s-"
"""Annotations of a pod: how long it runs at most, what GPU it gets, whose it is."""
BUDGET_LABELS = ("project", "team")
"""The labels that a budget may select by."""
HOURS_DEFAULT, HOURS_MAX = "24", 8784.0
DRY_RUN_S = 60
REASON_CHARS_MAX = 1000
UID = re.compile(rb'"request"\s*:\s*\{\s*"uid"\s*:\s*"([A-Za-z0-9-]{1,64})"')
OPERATION = re.compile(rb'"operation"\s*:\s*"(CREATE|UPDATE|DELETE|CONNECT)"')


def review(body: Mapping[str, Any], client: AdmissionClient, environ: Mapping[str, str] = os.environ) -> dict[str, object]:
    """Return the AdmissionReview that answers `body`. Raises ValueError if it is none."""
    request = body.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str):
        raise ValueError("this is no AdmissionReview of admission.k8s.io/v1")  # noqa: TRY004 - as JSON that cannot be parsed
    allowed, says, warnings = _decide(request, client, environ)
    return _build_review(request["uid"], allowed, says, warnings)


def review_large(head: bytes, most: int) -> dict[str, object]:
    """Return the AdmissionReview that answers one of more than `most` bytes, of which `head` is the beginning.

    A pod that is created is denied, for where no answer comes the API server admits it (failurePolicy: Ignore), and a pod is
    padded easily. The API server writes uid and operation before the pod, and JSON escapes the quotes of a text. Raises
    ValueError if the head lacks one of them.
    """
    uid, operation = UID.search(head), OPERATION.search(head)
    if not uid or not operation:
        raise ValueError("this is no AdmissionReview of admission.k8s.io/v1")
    says = f"the pod has more than {most >> 20} MiB, and is not read: put what is large into a ConfigMap"
    return _build_review(uid[1].decode(), operation[1] != b"CREATE", says, [])


def _build_review(uid: str, allowed: bool, says: str, warnings: Iterable[str]) -> dict[str, object]:  # noqa: FBT001 - as `_decide` returns it
    """Return the answer. `says`: why it is denied. `warnings`: kubectl shows them."""
    response: dict[str, object] = {"uid": uid, "allowed": allowed}
    if not allowed:
        response["status"] = {"code": 403, "reason": "Forbidden", "message": f"costguard: {says}"[:REASON_CHARS_MAX]}
    shown = [f"costguard: {one}"[:256] for one in warnings]  # longer ones are cut by the API server
    if shown:
        response["warnings"] = shown
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def build_request(request: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, object] | None:
    """Return the body of POST /v1/admit for the pod of a request; None if it asks for no GPU.

    Raises ValueError for odd hours, LookupError if nothing says which GPU it gets.
    """
    pod = request.get("object") or {}
    spec, meta = pod.get("spec") or {}, pod.get("metadata") or {}
    gpus = count_gpus(spec)
    if gpus == 0:
        return None
    notes = meta.get("annotations") or {}
    namespace = str(request.get("namespace") or meta.get("namespace") or "default")
    pod_labels = meta.get("labels") or {}
    labels = {key: str(pod_labels[key]) for key in BUDGET_LABELS if pod_labels.get(key)}
    selector = spec.get("nodeSelector") or {}
    gpu = (
        notes.get(GPU) or next((selector[key] for key in GPU_LABELS if key in selector), "") or environ.get("COSTGUARD_GPU", "")
    )
    if not gpu:
        raise LookupError(f"its GPU is not known: annotate it with {GPU}, or set COSTGUARD_GPU of the webhook")
    body: dict[str, object] = {
        "gpu": str(gpu),
        "count": gpus,
        "hours": find_hours(notes, spec, environ),
        "labels": {**labels, environ.get("COSTGUARD_NAMESPACE_LABEL", "project"): namespace},
        "id": find_hold_id(request, pod),
    }
    if notes.get(OWNER):
        body["owner"] = str(notes[OWNER])
    if environ.get("COSTGUARD_PROVIDER"):
        body["provider"] = environ["COSTGUARD_PROVIDER"]
    if request.get("dryRun"):
        body["for_s"] = DRY_RUN_S
    return body


def count_gpus(spec: Mapping[str, Any]) -> int:
    """Return the GPUs that the scheduler sets aside: of all containers together, or of the one that begins with most."""
    together = sum(map(_read_gpus, _list_containers(spec, "containers")))
    return max([together, *map(_read_gpus, _list_containers(spec, "initContainers"))])


def find_hours(notes: Mapping[str, Any], spec: Mapping[str, Any], environ: Mapping[str, str]) -> float:
    """Return how long the pod runs at most: as annotated, by its deadline, or the webhook's default."""
    deadline = spec.get("activeDeadlineSeconds")
    value = notes.get(HOURS) or (
        deadline / 3600 if isinstance(deadline, int) else environ.get("COSTGUARD_HOURS", HOURS_DEFAULT)
    )
    try:
        hours = float(value)
    except (TypeError, ValueError):
        hours = 0.0
    if not 0 < hours < HOURS_MAX:
        raise ValueError(f"annotation {HOURS} must be hours such as 12, not {str(value)[:40]!r}")
    return hours


def find_hold_id(request: Mapping[str, Any], pod: Mapping[str, Any]) -> str:
    """Return the id of the pod's hold: by the pod's uid, which its deletion has too; else by that of the request."""
    return f"{HOLD_PREFIX}{(pod.get('metadata') or {}).get('uid') or request['uid']}"


def _decide(request: Mapping[str, Any], client: AdmissionClient, environ: Mapping[str, str]) -> tuple[bool, str, list[str]]:
    """Return whether the request is allowed, why not, and what kubectl is to show."""
    if request.get("operation") == "DELETE":
        _end_hold(request, client)
        return True, "", []
    if request.get("operation") != "CREATE":
        return True, "", []
    try:
        body = build_request(request, environ)
    except LookupError as error:
        return client.fails == OPEN, str(error.args[0]), [f"{error.args[0]}: it runs without a hold (fails open)"]
    except ValueError as error:
        return False, str(error), []
    if body is None:
        return True, "", []
    answer = client.admit(body)
    if request.get("dryRun") and answer.hold:
        client.end(answer.hold, started=False)
    warned = [answer.says] if answer.may_launch and answer.outcome != HELD else []
    return answer.may_launch, answer.says, warned


def _end_hold(request: Mapping[str, Any], client: AdmissionClient) -> None:
    """End the hold of a pod that is deleted; whatever the pod says, its deletion is allowed."""
    pod = request.get("oldObject") or {}
    try:
        has_gpus = count_gpus(pod.get("spec") or {}) > 0
    except ValueError:
        return
    if has_gpus and not request.get("dryRun"):
        client.end(find_hold_id(request, pod), started=True)


def _list_containers(spec: Mapping[str, Any], key: str) -> Iterable[Mapping[str, Any]]:
    return [one for one in spec.get(key) or () if isinstance(one, dict)]


def _read_gpus(container: Mapping[str, Any]) -> int:
    """Return a container's GPUs. Kubernetes takes whole ones, and limits and requests that are equal."""
    resources = container.get("resources") or {}
    count = (resources.get("limits") or {}).get(GPU_RESOURCE) or (resources.get("requests") or {}).get(GPU_RESOURCE) or 0
    text = str(count)
    if text.isdecimal() and len(text) <= 6:  # noqa: PLR2004 - a million GPUs of one container
        return int(text)
    raise ValueError(f"{GPU_RESOURCE} must be a whole number, not {text[:40]!r}")
