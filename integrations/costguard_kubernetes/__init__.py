"""A validating admission webhook of Kubernetes that has costguard admit pods with GPUs (docs/KUBERNETES.md).

    pod is created -> API server -> POST /validate -> GPUs, hours, namespace -> POST /v1/admit -> allowed, or denied
    pod is gone    -> API server -> POST /validate -> POST /v1/admit/end

The namespace is the hold's label `project` (COSTGUARD_NAMESPACE_LABEL: `team`), so that a budget selects by it:
`match = { labels = { project = ["vision"] } }`. What the pod says of itself selects none: neither its labels nor, unless
COSTGUARD_OWNER is `annotation`, its owner. Where costguard cannot be asked the pod is allowed, with a warning in kubectl
(COSTGUARD_FAIL=closed denies it). Accelerators of which the kind, number or price is not known are denied in any case.

`python -m costguard_kubernetes` serves it over TLS. Python 3.9 and later, no dependency.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from costguard_admission import HELD, AdmissionClient, parse_hours

ACCELERATOR = re.compile(
    r"^(?:(?:nvidia|amd)\.com/(?!.*(?:nic|rdma|roce|hostdev|sriov))|gpu\.intel\.com|habana\.ai|aws\.amazon\.com/neuron"
    r"|.*(?:gpu|accelerator|(?<![a-z])(?:[tnxih]pu|dcu|gcu|mlu|qaic|gaudi|neuron|ascend|v?cuda)))"
)
"""Resources that are accelerators: of their vendors' domains all but network devices, and names such as huawei.com/ascend910.

nvidia.com/gpu, gpu.shared (time slices), mig-1g.5gb; amd.com/gpu, cpx_nps4; gpu.intel.com/i915, xe; google.com/tpu;
aws.amazon.com/neuron, neuroncore, neurondevice; habana.ai/gaudi; from the device plug-ins' documentation, 2026-11.
"""
CLAIMS = "resourceClaims"
GPU_LABELS = (
    *("nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator"),
    *("cloud.google.com/gke-tpu-accelerator", "karpenter.k8s.aws/instance-gpu-name"),
)
"""Of a node selector: the labels of NVIDIA's and AMD's GPU operators, of GKE and of Karpenter (2026-11)."""
GPU_SUFFIX = re.compile(r"-(?:SHARED|MIG-.*|podslice|slice|device)$")
"""Of a label's value: how the GPU is shared, or the TPU is connected."""
FINISHED = ("Succeeded", "Failed")
HOURS, GPU, OWNER, HOLD_PREFIX = "costguard/hours", "costguard/gpu", "costguard/owner", "k8s-"
"""Annotations of a pod: how long it runs at most, what GPU it gets, whose it is."""
HOURS_DEFAULT = "24"
DRY_RUN_S, DIGITS_MAX, REASON_CHARS_MAX = 60, 6, 1000
HEAD_END = re.compile(rb'"(?:userInfo|object|oldObject|options)"\s*:')
UID = re.compile(rb'"request"\s*:\s*\{.*?"uid"\s*:\s*"([A-Za-z0-9-]{1,64})"', re.DOTALL)
OPERATION = re.compile(rb'"operation"\s*:\s*"(CREATE|UPDATE|DELETE|CONNECT)"')


def review(body: Mapping[str, Any], client: AdmissionClient, environ: Mapping[str, str] = os.environ) -> dict[str, object]:
    """Return the AdmissionReview that answers `body`. Raises ValueError if it is none."""
    request = body.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str):
        raise ValueError("this is no AdmissionReview of admission.k8s.io/v1")  # noqa: TRY004 - as JSON that cannot be parsed
    allowed, says, warnings = _decide(request, client, environ)
    return _build_review(request["uid"], allowed, says, warnings)


def review_unread(head: bytes, why: str) -> dict[str, object]:
    """Return the AdmissionReview that answers one that is too large or odd to be read, of which `head` is the beginning.

    A pod that is created is denied, for without an answer the API server admits it (failurePolicy: Ignore), and a pod is padded
    easily: Go writes `<` in 6 bytes. The API server writes uid and operation before what users state, and JSON escapes the
    quotes of a text. Raises ValueError if the head has no uid.
    """
    before = HEAD_END.split(head, maxsplit=1)[0]
    uid, operation = UID.search(before), OPERATION.search(before)
    if not uid:
        raise ValueError("this is no AdmissionReview of admission.k8s.io/v1")
    is_allowed = operation is not None and operation[1] != b"CREATE"
    return _build_review(uid[1].decode(), is_allowed, f"the pod is not read: {why}", [])


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

    The node selector says first which GPU it is: the scheduler enforces it. Raises ValueError for odd hours, for accelerators
    that cannot be counted, and if nothing says which GPU it is.
    """
    pod = request.get("object") or {}
    spec, meta = pod.get("spec") or {}, pod.get("metadata") or {}
    gpus = count_gpus(spec, environ.get("COSTGUARD_UNCOUNTED", ""))
    if gpus == 0:
        return None
    notes = meta.get("annotations") or {}
    namespace = str(request.get("namespace") or meta.get("namespace") or "default")
    selector = spec.get("nodeSelector") or {}
    selected = next((selector[key] for key in GPU_LABELS if key in selector), "")
    gpu = GPU_SUFFIX.sub("", str(selected)) or notes.get(GPU) or environ.get("COSTGUARD_GPU", "")
    if not gpu:
        raise ValueError(f"its GPU is not known: annotate it with {GPU}, or set COSTGUARD_GPU of the webhook")
    body: dict[str, object] = {
        "gpu": str(gpu),
        "count": gpus,
        "hours": find_hours(notes, spec, environ),
        "labels": {environ.get("COSTGUARD_NAMESPACE_LABEL", "project"): namespace},
        "id": find_hold_id(request, pod),
    }
    if notes.get(OWNER) and environ.get("COSTGUARD_OWNER") == "annotation":
        body["owner"] = str(notes[OWNER])
    if environ.get("COSTGUARD_PROVIDER"):
        body["provider"] = environ["COSTGUARD_PROVIDER"]
    if request.get("dryRun"):
        body["for_s"] = DRY_RUN_S
    return body


def count_gpus(spec: Mapping[str, Any], uncounted: str = "") -> int:
    """Return the accelerators that the scheduler sets aside for a pod; a MIG device, a time slice, a core is a whole one.

    All containers and sidecars (init containers with restartPolicy Always) run together; another init container runs beside
    the sidecars before it. `uncounted`: resources, or CLAIMS, that are none by the administrator's word, with commas between.

    Raises ValueError for what cannot be counted, such as claims (dynamic resource allocation).
    """
    ignored = frozenset(one.strip() for one in uncounted.split(","))
    parts = [one for key in ("containers", "initContainers") for one in _list_containers(spec, key)]
    claims = spec.get(CLAIMS) or any((one.get("resources") or {}).get("claims") for one in parts)
    if claims and CLAIMS not in ignored:
        raise ValueError(f"it takes devices by {CLAIMS}, which are not counted: ask for GPUs by resources.limits")
    sidecars = most = 0
    for one in _list_containers(spec, "initContainers"):
        gpus = _read_gpus(one, ignored)
        most = max(most, sidecars + gpus)
        sidecars += gpus if one.get("restartPolicy") == "Always" else 0
    return max(most, sidecars + sum(_read_gpus(one, ignored) for one in _list_containers(spec, "containers")))


def find_hours(notes: Mapping[str, Any], spec: Mapping[str, Any], environ: Mapping[str, str]) -> float:
    """Return how long the pod runs at most: as annotated, by its deadline, or the webhook's default."""
    deadline = spec.get("activeDeadlineSeconds")
    default = deadline / 3600 if isinstance(deadline, int) else environ.get("COSTGUARD_HOURS", HOURS_DEFAULT)
    try:
        return parse_hours(notes.get(HOURS) or default)
    except ValueError as error:
        raise ValueError(f"annotation {HOURS} {error}") from None


def find_hold_id(request: Mapping[str, Any], pod: Mapping[str, Any]) -> str:
    """Return the id of the pod's hold: by the pod's uid, which its deletion has too; else by that of the request."""
    return f"{HOLD_PREFIX}{(pod.get('metadata') or {}).get('uid') or request['uid']}"


def _decide(request: Mapping[str, Any], client: AdmissionClient, environ: Mapping[str, str]) -> tuple[bool, str, list[str]]:
    """Return whether the request is allowed, why not, and what kubectl is to show."""
    if request.get("operation") == "DELETE":
        _end_hold(request, client)
    if request.get("operation") != "CREATE":
        return True, "", []
    try:
        body = build_request(request, environ)
    except ValueError as error:
        return False, str(error), []
    if body is None:
        return True, "", []
    answer = client.admit_rental(body)
    if request.get("dryRun") and answer.hold:
        client.end(answer.hold, started=False)
    warned = [answer.says] if answer.may_launch and answer.outcome != HELD else []
    return answer.may_launch, answer.says, warned


def _end_hold(request: Mapping[str, Any], client: AdmissionClient) -> None:
    """End the hold of a pod that is gone; whatever the pod says, its deletion is allowed."""
    pod = request.get("oldObject") or {}
    try:
        has_gpus = count_gpus(pod.get("spec") or {}) > 0
    except ValueError:
        has_gpus = True
    if has_gpus and is_gone(request, pod):
        client.end(find_hold_id(request, pod), started=True)


def is_gone(request: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Return whether a deletion shows that the pod's containers have ended.

    The first DELETE asks for it: the pod runs on for its grace period, and for good if another webhook refuses. When the
    containers have ended, the node's kubelet sends a DELETE without grace. They have also ended if the phase says so, when the
    grace of an earlier DELETE is over, and where that one came before the pod had a node, for it gets none any more. A DELETE
    without grace alone proves nothing: `kubectl delete --force` sends one too, and the containers run on.
    """
    meta, node = pod.get("metadata") or {}, (pod.get("spec") or {}).get("nodeName")
    if request.get("dryRun"):
        return False
    if (pod.get("status") or {}).get("phase") in FINISHED:
        return True
    if (request.get("options") or {}).get("gracePeriodSeconds") != 0 or not meta.get("deletionTimestamp"):
        return False
    user = request.get("userInfo") or {}
    is_kubelet = user.get("username") == f"system:node:{node}" and "system:nodes" in (user.get("groups") or ())
    return is_kubelet or not node or str(meta["deletionTimestamp"]) < time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _list_containers(spec: Mapping[str, Any], key: str) -> Iterable[Mapping[str, Any]]:
    return [one for one in spec.get(key) or () if isinstance(one, dict)]


def _read_gpus(container: Mapping[str, Any], ignored: Iterable[str]) -> int:
    """Return a container's accelerators. Kubernetes takes whole ones, and limits and requests that are equal."""
    resources = container.get("resources") or {}
    total = 0
    for name, amount in {**(resources.get("requests") or {}), **(resources.get("limits") or {})}.items():
        if name in ignored or not ACCELERATOR.match(name.lower()):
            continue
        if not str(amount).isdecimal() or len(str(amount)) > DIGITS_MAX:
            raise ValueError(f"{name} must be a whole number, not {str(amount)[:40]!r}")
        total += int(amount)
    return total
