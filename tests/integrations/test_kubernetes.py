"""The webhook for pods with GPUs: real reviews over HTTP, against a real watchdog with a budget for a namespace."""

from __future__ import annotations

import http.client
import json
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
from costguard_kubernetes import count_gpus, review
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


def test_a_pod_within_its_namespaces_budget_is_admitted_and_its_deletion_ends_the_hold(watchdog: Station, post: Any) -> None:  # noqa: ANN401
    status, said = post(json.dumps(asking(pod(2, hours="3"))).encode())
    assert (status, said) == (200, {"uid": "review-1", "allowed": True})
    hold = holds(watchdog)["k8s-pod-1"]
    assert (hold.gpu, dict(hold.labels)) == ("T4", {"project": "vision", "team": "eye"})
    assert post(json.dumps(asking(pod(2), "DELETE")).encode())[1]["allowed"] is True
    assert "k8s-pod-1" not in holds(watchdog)


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
def test_without_costguard_or_a_known_gpu_the_policy_decides_and_kubectl_shows_it(fails: str) -> None:
    client = AdmissionClient(url=GONE.url, token="x", fails=fails)  # noqa: S106 - a test's
    for wanted in (pod(), pod(gpu="")):
        said: Any = review(asking(wanted), client, {})["response"]
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


def test_gpus_are_those_of_all_containers_or_of_the_one_that_begins() -> None:
    def part(gpus: int) -> dict[str, Any]:
        return {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}

    assert count_gpus({"containers": [part(1), part(2), {}], "initContainers": [part(2)]}) == 3
    assert count_gpus({"containers": [part(1)], "initContainers": [part(4)]}) == 4


def test_a_pod_of_an_unknown_gpu_is_denied_though_the_webhook_fails_open(post: Any) -> None:  # noqa: ANN401
    _, said = post(json.dumps(asking(pod(gpu="H9000", uid="pod-4"))).encode())
    assert said["allowed"] is False


def test_a_pod_too_large_to_be_read_is_denied_and_its_deletion_is_not(post: Any) -> None:  # noqa: ANN401
    large = pod(uid="pod-5") | {"padding": "x" * BODY_MOST}
    status, said = post(json.dumps(asking(large)).encode())
    assert (status, said["uid"], said["allowed"]) == (200, "review-1", False)
    assert "1 MiB" in said["status"]["message"]
    forged = {"metadata": {"note": '"operation": "DELETE"'}, **large}
    assert post(json.dumps(asking(forged)).encode())[1]["allowed"] is False
    assert post(json.dumps(asking(large, "DELETE")).encode())[1] == {"uid": "review-1", "allowed": True}
    assert post(b"[" * (BODY_MOST + 1))[0] == 400


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
