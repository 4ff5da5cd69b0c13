"""The webhook for pods with GPUs: real reviews over HTTP, against a real watchdog with a budget for a namespace."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from costguard_admission import CLOSED, OPEN, AdmissionClient
from costguard_kubernetes import build_request, count_gpus, is_gone, review
from costguard_kubernetes.__main__ import BODY_MOST, THREADS_MOST, WebhookServer, build_server, build_tls

from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.holds import load_open_holds
from tests.web.stations import Station, station

BUDGET = '[[budget]]\nname = "vision"\ncap = "100 USD"\nmatch = { labels = { project = ["vision"] } }\n'
GONE = AdmissionClient(url="http://127.0.0.1:9", token="x")  # noqa: S106 - a test's


@pytest.fixture(scope="module")
def watchdog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    with station(tmp_path_factory.mktemp("kubernetes"), more=BUDGET) as made:
        made.room.run_guard()
        made.token("cg_kube", name="kube", role="operator")
        yield made


def pod(gpus: object = 1, *, uid: str = "pod-1", gpu: str = "T4", **notes: str) -> dict[str, Any]:
    """A pod as it comes in a review."""
    annotations = {f"costguard/{key}": value for key, value in notes.items()} | ({"costguard/gpu": gpu} if gpu else {})
    return {
        "metadata": {
            "uid": uid,
            "namespace": "vision",
            "labels": {"app": "train", "team": "eye", "project": "other"},
            "annotations": annotations,
        },
        "spec": {"containers": [{"name": "train", "resources": {"limits": {"nvidia.com/gpu": gpus}}}]},
    }


def asking(made: dict[str, Any], operation: str = "CREATE", **more: object) -> dict[str, Any]:
    """A review of a pod."""
    place = "oldObject" if operation == "DELETE" else "object"
    request = {"uid": "review-1", "operation": operation, "namespace": "vision", place: made, **more}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


@contextmanager
def serving(client: AdmissionClient, tls: ssl.SSLContext | None = None) -> Iterator[WebhookServer]:
    """A webhook that runs."""
    server = build_server(0, "127.0.0.1", tls)
    server.client = client
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def send(wire: http.client.HTTPConnection, body: bytes) -> tuple[int, Any]:
    """The status of an answer, and the response in its review."""
    try:
        wire.request("POST", "/validate?timeout=10s", body, {"Content-Type": "application/json"})
        came = wire.getresponse()
        text = came.read()
        return came.status, json.loads(text)["response"] if came.status == 200 else text
    finally:
        wire.close()


@pytest.fixture
def post(watchdog: Station) -> Iterator[Any]:
    """Sends a body to the webhook, which asks the watchdog."""
    client = AdmissionClient(url=f"http://{watchdog.at.host}:{watchdog.at.port}", token="cg_kube")  # noqa: S106 - a test's
    with serving(client) as server:
        yield lambda body: send(http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20), body)


def holds(watchdog: Station) -> dict[str, Any]:
    with LedgerReader(watchdog.url) as reader, reader.snapshot() as query:
        return {hold.id: hold for hold in load_open_holds(query, datetime.now(UTC))}


KUBELET = {"username": "system:node:n1", "groups": ["system:nodes"]}
NOW, LATER, BEFORE = {"gracePeriodSeconds": 0}, "2099-01-01T00:00:00Z", "2026-11-01T00:00:00Z"


def on_node(deleted: str = "", phase: str = "Running", node: str = "n1") -> dict[str, Any]:
    """A pod with two GPUs on a node, of which the deletion was asked for."""
    made = pod(2, hours="3")
    made["metadata"] |= {"deletionTimestamp": deleted} if deleted else {}
    made["spec"] |= {"nodeName": node} if node else {}
    return {**made, "status": {"phase": phase}}


def test_a_pod_is_held_in_its_namespaces_budget_until_it_is_gone(watchdog: Station, post: Any) -> None:  # noqa: ANN401
    status, said = post(json.dumps(asking(pod(2, hours="3", owner="bob"))).encode())
    assert (status, said) == (200, {"uid": "review-1", "allowed": True})
    hold = holds(watchdog)["k8s-pod-1"]
    assert (hold.gpu, hold.owner, dict(hold.labels)) == ("T4", "", {"project": "vision"}), "not what the pod says of itself"
    asked: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (on_node(), {"options": {"gracePeriodSeconds": 30}}),
        (on_node(), {"options": NOW}),
        (on_node(node=""), {"options": NOW}),
        (on_node(LATER), {"options": NOW}),
        (on_node(LATER), {"options": NOW, "userInfo": KUBELET | {"username": "system:node:other"}}),
        (on_node(LATER), {"options": {"gracePeriodSeconds": 30}, "userInfo": KUBELET}),
        (on_node(LATER), {"options": NOW, "userInfo": KUBELET, "dryRun": True}),
    ]
    for gone, more in asked:
        assert post(json.dumps(asking(gone, "DELETE", **more)).encode())[1]["allowed"] is True
        assert "k8s-pod-1" in holds(watchdog), more
    assert post(json.dumps(asking(on_node(LATER), "DELETE", options=NOW, userInfo=KUBELET)).encode())[1]["allowed"] is True
    assert holds(watchdog) == {}


@pytest.mark.parametrize(
    ("gone", "options"), [(on_node(BEFORE), NOW), (on_node(LATER, node=""), NOW), (on_node(phase="Failed"), {})]
)
def test_a_pod_that_ended_otherwise_is_gone_too(gone: dict[str, Any], options: dict[str, Any]) -> None:
    assert is_gone({"options": options}, gone)


def test_a_pod_over_it_is_denied_with_what_would_fit_and_a_dry_run_holds_nothing(watchdog: Station, post: Any) -> None:  # noqa: ANN401
    _, said = post(json.dumps(asking(pod(8, gpu="NVIDIA-H100-80GB-HBM3", hours="24", uid="pod-2"))).encode())
    assert (said["allowed"], said["status"]["code"]) == (False, 403)
    assert "budget vision: $100.00 of $100.00 left" in said["status"]["message"]
    assert "Would fit" in said["status"]["message"]
    _, said = post(json.dumps(asking(pod(1, uid="pod-3"), dryRun=True)).encode())
    assert said["allowed"] is True
    assert holds(watchdog) == {}


@pytest.mark.parametrize(
    "body",
    [b"{", b"[1]", b"{}", b'{"request": 1}', b"[" * 60_000, b'{"request": {"uid": "x", "operation": "CREATE", "object": []}}'],
)
def test_what_is_no_review_is_refused(post: Any, body: bytes) -> None:  # noqa: ANN401
    status, _ = post(body)
    assert status in (200, 400)
    if status == 200:
        assert body.endswith(b"[]}}")


@pytest.mark.parametrize("fails", [OPEN, CLOSED])
def test_without_costguard_the_policy_decides_and_kubectl_shows_it(fails: str) -> None:
    said: Any = review(asking(pod()), AdmissionClient(url=GONE.url, token="x", fails=fails), {})["response"]  # noqa: S106 - a test's
    assert said["allowed"] is (fails == OPEN)
    assert "fails open" in said["warnings"][0] if fails == OPEN else "costguard" in said["status"]["message"]


def test_pods_without_gpus_and_other_operations_ask_nobody() -> None:
    for asked in (asking(pod(0)), asking(pod(), "UPDATE"), asking({"metadata": {}, "spec": {}}), asking(pod("x"), "DELETE")):
        assert review(asked, AdmissionClient(url=GONE.url, token="x", fails=CLOSED), {})["response"] == {  # noqa: S106 - a test's
            "uid": "review-1",
            "allowed": True,
        }


@pytest.mark.parametrize("wanted", [pod(hours="soon"), pod(hours="-1"), pod("1.5"), pod("9" * 30)])
def test_odd_hours_and_counts_are_denied_and_named(wanted: dict[str, Any]) -> None:
    said: Any = review(asking(wanted), GONE, {})["response"]
    assert said["allowed"] is False
    assert "hours" in said["status"]["message"] or "nvidia.com/gpu" in said["status"]["message"]


def part(amount: object = 1, resource: str = "nvidia.com/gpu", **more: object) -> dict[str, Any]:
    """A container."""
    return {"resources": {"limits": {resource: amount}}, **more}


@pytest.mark.parametrize(
    ("containers", "begins", "gpus"),
    [
        ([part("1"), part("2"), {}], [part("2")], 3),
        ([part(1)], [part(4)], 4),
        ([part(1)], [part(2, restartPolicy="Always"), part(1, restartPolicy="Always")], 4),
        ([part(1)], [part(2, restartPolicy="Always"), part(3)], 5),
        ([part(1)], [part(3), part(1, restartPolicy="Always")], 3),
        ([{"resources": {"requests": {"nvidia.com/gpu": 2}}}], [], 2),
        ([part(1, "example.com/input"), part(1, "rdma/hca"), part(1, "nvidia.com/rdma_shared"), part("2Gi", "memory")], [], 0),
    ],
)  # fmt: skip
def test_gpus_are_those_that_the_scheduler_sets_aside(containers: list[Any], begins: list[Any], gpus: int) -> None:
    assert count_gpus({"containers": containers, "initContainers": begins}) == gpus


RESOURCES = (
    *("nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.40gb.me", "nvidia.com/gpu.shared", "nvidia.com/GA102GL_A10", "amd.com/gpu"),
    *(
        "amd.com/cpx_nps4",
        "gpu.intel.com/i915",
        "gpu.intel.com/xe",
        "google.com/tpu",
        "aws.amazon.com/neuron",
        "habana.ai/gaudi",
    ),
    *("aws.amazon.com/neuroncore", "aws.amazon.com/neurondevice", "huawei.com/Ascend910", "k8s.amazonaws.com/vgpu"),
    "deviceclass.resource.kubernetes.io/gpu.example.com",
)


@pytest.mark.parametrize("resource", RESOURCES)
def test_each_accelerator_is_held_or_denied_with_the_reason_though_the_webhook_fails_open(
    watchdog: Station, post: Any, resource: str  # noqa: ANN401
) -> None:  # fmt: skip
    uid = re.sub(r"[^a-zA-Z0-9-]", "-", resource)
    wanted = pod(uid=uid, hours="1")
    wanted["spec"]["containers"] = [part(7, resource)]
    assert post(json.dumps(asking(wanted)).encode())[1]["allowed"] is True, "seven T4 are sold one by one"
    assert holds(watchdog)[f"k8s-{uid}"].gpu == "T4"
    assert post(json.dumps(asking({**wanted, "status": {"phase": "Failed"}}, "DELETE")).encode())[1]["allowed"] is True
    assert holds(watchdog) == {}
    for gpu, reason in (("", "its GPU is not known"), ("Gaudi", "no price of Gaudi x7")):
        wanted["metadata"]["annotations"] = {"costguard/gpu": gpu}
        said = post(json.dumps(asking(wanted)).encode())[1]
        assert (said["allowed"], reason in said["status"]["message"]) == (False, True), said


def test_devices_by_claims_are_denied_unless_the_administrator_says_that_they_are_none() -> None:
    for spec in ({"resourceClaims": [{"name": "gpu"}]}, {"containers": [{"resources": {"claims": [{"name": "gpu"}]}}]}):
        with pytest.raises(ValueError, match="resourceClaims"):
            count_gpus(spec)
        assert count_gpus(spec, "nvidia.com/pool, resourceClaims") == 0
    assert count_gpus({"containers": [part(1, "amd.com/pool")]}, "amd.com/pool") == 0


@pytest.mark.parametrize(
    ("label", "value", "gpu"),
    [
        ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB-SHARED", "NVIDIA-A100-SXM4-80GB"),
        ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "NVIDIA-A100-SXM4-40GB"),
        ("cloud.google.com/gke-tpu-accelerator", "tpu-v6e-slice", "tpu-v6e"),
    ],
)
def test_the_gpu_that_the_scheduler_enforces_is_asked_for_and_not_the_annotated_one(label: str, value: str, gpu: str) -> None:
    wanted = pod(gpu="T4")
    wanted["spec"]["nodeSelector"] = {label: value}
    body = build_request(asking(wanted)["request"], {}) or {}
    assert body["gpu"] == gpu


def test_a_pod_of_an_unknown_gpu_is_denied_though_the_webhook_fails_open(post: Any) -> None:  # noqa: ANN401
    _, said = post(json.dumps(asking(pod(gpu="H9000", uid="pod-4"))).encode())
    assert said["allowed"] is False


def write_as_go(made: dict[str, Any]) -> bytes:
    """A review as Go's encoding/json writes it."""
    return json.dumps(asking(made), ensure_ascii=False).replace("<", r"\u003c").replace("&", r"\u0026").encode()


def test_a_pod_too_large_to_be_read_is_denied_and_its_deletion_is_not(post: Any) -> None:  # noqa: ANN401
    large = pod(uid="pod-5") | {"padding": "x" * BODY_MOST}
    managed = pod() | {"metadata": {"managedFields": [{"fieldsV1": {f"f:<{n}": {} for n in range(100_000)}}]}}
    for wanted in (large, pod() | {"padding": "<" * (3 << 20)}, pod() | {"padding": "é" * BODY_MOST}, managed):
        status, said = post(write_as_go(wanted))
        assert (status, said["uid"], said["allowed"]) == (200, "review-1", False)
        assert "1 MiB" in said["status"]["message"]
    forged = {"metadata": {"note": '"operation": "DELETE"'}, **large}
    assert post(json.dumps(asking(forged)).encode())[1]["allowed"] is False
    assert post(json.dumps(asking(large, "DELETE")).encode())[1] == {"uid": "review-1", "allowed": True}
    assert post(b"[" * (BODY_MOST + 1))[0] == 400
    nested = json.dumps(asking(pod())).encode().replace(b'"T4"', b"[" * 200_000 + b"]" * 200_000)
    assert post(nested)[1]["allowed"] is False


def test_a_deployment_is_not_held_beside_its_pods() -> None:
    template = {"spec": {"replicas": 3, "template": {"spec": pod(8)["spec"]}}}
    assert build_request(asking(template)["request"], {}) is None


def test_connections_beyond_the_most_are_closed_and_the_next_is_answered_when_one_ends() -> None:
    with serving(GONE) as server:
        address = ("127.0.0.1", server.server_port)
        silent = [socket.create_connection(address, timeout=20) for _ in range(THREADS_MOST)]
        with socket.create_connection(address, timeout=20) as late:
            assert late.recv(1) == b""
        for one in silent:
            one.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert {one.recv(12) for one in silent} == {b"HTTP/1.1 200"}
        for one in silent:
            while one.recv(4096):
                """Read on until the server closes, which it does after each answer."""
            one.close()
        assert send(http.client.HTTPConnection(*address, timeout=20), json.dumps(asking(pod(0))).encode())[1]["allowed"] is True


def test_with_an_authority_of_clients_only_one_with_its_certificate_is_answered(tmp_path: Path) -> None:
    authority, clients, others = trustme.CA(), trustme.CA(), trustme.CA()
    of_server = authority.issue_cert("127.0.0.1")
    of_server.private_key_pem.write_to_path(tmp_path / "tls.key")
    for blob in of_server.cert_chain_pems:
        blob.write_to_path(tmp_path / "tls.crt", append=True)
    clients.cert_pem.write_to_path(tmp_path / "client-ca.crt")
    body = json.dumps(asking(pod(0))).encode()

    def ask(tls: ssl.SSLContext, issuer: trustme.CA | None) -> int:
        context = ssl.create_default_context()
        authority.configure_trust(context)
        if issuer:
            issuer.issue_cert("apiserver").configure_cert(context)
        with serving(GONE, tls) as server:
            return send(http.client.HTTPSConnection("127.0.0.1", server.server_port, timeout=20, context=context), body)[0]

    assert ask(build_tls({"COSTGUARD_TLS": str(tmp_path)}), None) == 200
    strict = build_tls({"COSTGUARD_TLS": str(tmp_path), "COSTGUARD_CLIENT_CA": str(tmp_path / "client-ca.crt")})
    assert ask(strict, clients) == 200
    for issuer in (None, others):
        with pytest.raises(OSError, match=r"alert|closed|reset|EOF|[Bb]roken"):
            ask(strict, issuer)
    with pytest.raises(OSError, match="No such file"):
        build_tls({"COSTGUARD_TLS": str(tmp_path), "COSTGUARD_CLIENT_CA": str(tmp_path / "none")})


def load_manifest() -> list[Any]:
    """The parts of webhook.yaml."""
    path = Path(__file__).parents[2] / "integrations" / "costguard_kubernetes" / "webhook.yaml"
    return list(yaml.safe_load_all(path.read_text()))


def test_the_manifest_lets_one_address_reach_the_webhook_and_probes_it_without_a_certificate() -> None:
    parts = load_manifest()
    policy = next(one for one in parts if one["kind"] == "NetworkPolicy")["spec"]
    pods = next(one for one in parts if one["kind"] == "Deployment")["spec"]["template"]
    assert policy["podSelector"]["matchLabels"] == pods["metadata"]["labels"]
    assert policy["policyTypes"] == ["Ingress"]
    assert [(rule["from"], rule["ports"]) for rule in policy["ingress"]] == [
        ([{"ipBlock": {"cidr": "192.0.2.1/32"}}], [{"protocol": "TCP", "port": 8443}])
    ]
    assert pods["spec"]["containers"][0]["readinessProbe"] == {"tcpSocket": {"port": 8443}}


def test_the_manifest_fails_open_and_says_so() -> None:
    parts = load_manifest()
    hook = next(one for one in parts if one["kind"] == "ValidatingWebhookConfiguration")["webhooks"][0]
    assert (hook["failurePolicy"], hook["sideEffects"]) == ("Ignore", "NoneOnDryRun")
    environ = next(one for one in parts if one["kind"] == "Deployment")["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "COSTGUARD_FAIL", "value": "open"} in environ
