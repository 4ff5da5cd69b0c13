"""Kubernetes as a view: pods name the owners of machines that others bill, and what cannot be read is named."""

from __future__ import annotations

import base64
import json
import shutil
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from costguard.errors import CostguardError
from costguard.metering.inventory import Complete
from costguard.metering.node_workloads import NodeWorkloads, PodShare, assign_workloads, index_nodes, parse_provider_id
from costguard.metering.observation import Handling, Observation
from costguard.providers.kubeconfig import read_cluster_access
from costguard.services.poll.kubernetes_view import KEPT, KubernetesView
from costguard.services.poll.poll import poll_sources
from costguard.settings import check_settings
from costguard.values.resource import ResourceKey
from tests.conftest import Command
from tests.fakes import coreweave
from tests.fakes.kubernetes import CANARY, FakeKubernetes, make_node, make_pod
from tests.fakes.server import Hands, serving
from tests.metering.stories import SCOPE, machine
from tests.providers.coreweave.rig import CoreWeaveRig
from tests.services.test_poll import Cloud, Memory

AZURE = "subscriptions/S/resourceGroups/mc_lab/providers/Microsoft.Compute/virtualMachineScaleSets/gpu/virtualMachines/3"


def make_machine(id_: str, **more: Any) -> Observation:  # noqa: ANN401 - fields of an observation
    return replace(machine(), key=ResourceKey(*SCOPE[:2], "us-east-1", id_), owner="", labels=(), **more)


@pytest.mark.parametrize(
    ("provider_id", "key", "name"),
    [
        ("aws:///us-east-1a/i-0abc", ("aws", "1", "us-east-1", "i-0abc"), "any"),
        ("gce://lab/us-central1-a/gpu-1", ("gcp", "lab", "us-central1-a", "4711"), "gpu-1"),
        (f"azure:///{AZURE}", ("azure", "S", "eastus", f"/{AZURE.upper()}"), "gpu_3"),
        ("", ("coreweave", "lab", "US-EAST-04A", "uid-1"), "g1"),
    ],
)
def test_a_node_is_the_machine_that_its_provider_id_or_its_uid_names(
    provider_id: str, key: tuple[str, str, str, str], name: str
) -> None:
    pods = (PodShare(namespace="vision", name="train", owner="ada", gpus=8),)
    node = NodeWorkloads(cluster="prod", node="n", marks=parse_provider_id(provider_id, "uid-1"), gpus=8, pods=pods)
    listed = Observation(key=ResourceKey(*key), state="running", name=name)
    assert assign_workloads(listed, index_nodes([node]), ("owner",)).owner == "ada"
    other = replace(listed, key=listed.key._replace(id="9"), name="other")
    assert assign_workloads(other, index_nodes([node]), ("owner",)) is other


def test_a_label_of_the_machine_counts_before_its_pods_and_several_owners_give_none() -> None:
    pods = (
        PodShare(namespace="vision", name="a", owner="ada", gpus=2),
        PodShare(namespace="nlp", name="b", owner="bo", gpus=4),
    )
    node = NodeWorkloads(cluster="prod", node="n", marks=(("id", "i-1"),), gpus=8, pods=pods, controller="node pool gpu")
    started = replace(make_machine("i-1"), owner="the role that started it")
    seen = assign_workloads(started, index_nodes([node]), ("owner",))
    labels = dict(seen.labels)
    assert seen.owner == ""
    assert labels["kubernetes-owners"] == "bo 4, ada 2"
    assert labels["kubernetes-namespaces"] == "nlp 4, vision 2"
    assert labels["kubernetes-gpus"] == "6 of 8"
    assert "project" not in labels
    assert seen.handling.controller == "node pool gpu"
    owned = replace(make_machine("i-1", handling=Handling(controller="asg x")), owner="eve", labels=(("Owner", "eve"),))
    one = replace(node, pods=node.pods[:1])
    seen = assign_workloads(owned, index_nodes([one]), ("owner",))
    assert (seen.owner, dict(seen.labels)["project"], seen.handling.controller) == ("eve", "vision", "asg x")
    idle = assign_workloads(started, index_nodes([replace(node, pods=())]), ("owner",))
    assert (idle.owner, dict(idle.labels)["kubernetes-gpus"]) == ("the role that started it", "0 of 8")


@dataclass
class Stand:
    """Two clusters, `prod` and `lab`, with a kubeconfig and settings."""

    home: Path
    clock: Hands = field(default_factory=Hands)
    prod: FakeKubernetes = field(default_factory=FakeKubernetes)
    lab: FakeKubernetes = field(default_factory=FakeKubernetes)

    def write(self, more: Mapping[str, Mapping[str, str]] | None = None, **servers: str) -> None:
        """The kubeconfig, readable by its owner alone. `more`: of a cluster."""
        clusters = {name: {"server": server, **(more or {}).get(name, {})} for name, server in servers.items()}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster} for name, cluster in clusters.items()],
            "users": [{"name": "guard", "user": {"token": CANARY}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": "guard"}} for name in servers],
        }
        path = self.home / ".kube" / "config"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(config))
        path.chmod(0o600)

    def open_view(self, more: str = "") -> KubernetesView:
        settings = check_settings(f'[kubernetes]\ncontexts = ["prod", "lab"]\n{more}', "costguard.toml")
        return KubernetesView(settings, self.clock, {}, self.home)


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    made = Stand(tmp_path)
    with ExitStack() as stack:
        made.write(prod=stack.enter_context(serving(made.prod)), lab=stack.enter_context(serving(made.lab)))
        yield made


def poll_with(view: KubernetesView, *listed: Observation) -> dict[str, Observation]:
    """What the ledger is told of `listed`, and nothing else."""
    view.refresh()
    ledger = Memory()
    poll_sources([Cloud([Complete(listed)])], ledger, Hands(), attribute=view.attribute)
    inventory = ledger.polls[0].inventory
    assert isinstance(inventory, Complete)
    assert len(inventory.items) == len(listed)
    return {one.key.id: one for one in inventory.items}


def test_the_pods_of_two_clusters_own_the_machines_that_bill_and_add_none(stand: Stand) -> None:
    stand.prod.nodes += [make_node("gpu-1", "aws:///us-east-1a/i-1"), make_node("gpu-2", "aws:///us-east-1a/i-2")]
    stand.prod.nodes += [make_node("lone", "aws:///us-east-1a/i-9"), make_node("cpu", "aws:///us-east-1a/i-8", gpus=0)]
    stand.prod.pods += [
        make_pod("train-0", "vision", "gpu-1", 4, owner="ada"),
        make_pod("train-1", "vision", "gpu-1", 2, owner="ada"),
        make_pod("old", "nlp", "gpu-1", 8, phase="Succeeded", owner="bo"),
        make_pod("waits", "nlp", None, 8, owner="bo"),
        make_pod("agent", "kube-system", "gpu-1", 0),
    ]
    stand.lab.nodes.append(make_node("a", "aws:///us-east-1b/i-3"))
    stand.lab.pods.append(make_pod("notebook", "team-nlp", "a", 1))
    stand.prod.server.page = 2
    listed = [make_machine(f"i-{n}") for n in range(1, 5)]
    with closing(stand.open_view()) as view:
        seen = poll_with(view, *listed)
        assert view.notes == ()
        unmatched = view.list_unmatched([replace_poll(seen)])
    assert (seen["i-1"].owner, seen["i-2"].owner, seen["i-3"].owner, seen["i-4"]) == ("ada", "", "team-nlp", listed[3])
    assert dict(seen["i-1"].labels) == {
        "project": "vision",
        "kubernetes-cluster": "prod",
        "kubernetes-node": "gpu-1",
        "kubernetes-gpus": "6 of 8",
    }
    assert unmatched == ("kubernetes prod: 1 GPU nodes are no machine of a listed account: lone",)
    assert stand.prod.calls("^GET ") == 2 + 2  # pages of nodes and pods, however many machines
    assert all(one.method == "GET" for one in stand.prod.asked)


def replace_poll(seen: dict[str, Observation]) -> Any:  # noqa: ANN401 - a Poll
    from costguard.metering.inventory import Poll

    return Poll(scope=SCOPE, at=Hands().now(), inventory=Complete(tuple(seen.values())))


def test_a_cluster_that_fails_is_named_keeps_its_owners_for_a_while_and_the_other_goes_on(stand: Stand) -> None:
    stand.prod.nodes.append(make_node("gpu-1", "aws:///us-east-1a/i-1"))
    stand.prod.pods.append(make_pod("train", "vision", "gpu-1", 8))
    stand.lab.nodes.append(make_node("a", "aws:///us-east-1b/i-2"))
    stand.lab.pods.append(make_pod("notebook", "nlp", "a", 1))
    listed = make_machine("i-1"), make_machine("i-2")
    with closing(stand.open_view()) as view:
        poll_with(view, *listed)
        stand.prod.fault(".*", "status", status=403)
        stand.clock.at += timedelta(minutes=1)
        seen = poll_with(view, *listed)
        assert (seen["i-1"].owner, seen["i-2"].owner) == ("vision", "nlp")
        assert len(view.notes) == 1
        assert view.notes[0].startswith("kubernetes prod: cannot be read; owners are those of 12:00 UTC")
        stand.clock.at += KEPT
        seen = poll_with(view, *listed)
        assert (seen["i-1"].owner, seen["i-2"].owner) == ("", "nlp")
        assert "no owners of pods" in view.notes[0]
        assert CANARY not in "".join(view.notes)


def test_a_namespace_that_may_not_be_read_and_a_node_without_provider_id_are_named(stand: Stand) -> None:
    stand.prod.nodes += [make_node("gpu-1", "aws:///us-east-1a/i-1"), make_node("bare")]
    stand.prod.pods += [make_pod("a", "vision", "gpu-1", 4), make_pod("b", "secret", "gpu-1", 4)]
    stand.prod.server.forbidden |= {"secret", "*"}
    with closing(stand.open_view('namespaces = ["vision", "secret"]')) as view:
        seen = poll_with(view, make_machine("i-1"))
    assert seen["i-1"].owner == "vision"
    notes = "\n".join(view.notes)
    assert "namespace secret cannot be read" in notes
    assert "GPU nodes without providerID, joined by uid alone: bare" in notes


def test_the_owner_comes_from_the_first_source_that_a_pod_has(stand: Stand) -> None:
    stand.prod.nodes += [make_node("gpu-1", "aws:///us-east-1a/i-1", 8, **{"karpenter.sh/nodepool": "h100"})]
    stand.prod.pods += [make_pod("a", "vision", "gpu-1", 4, team="red")]
    with closing(stand.open_view('owner_from = ["label:owner", "label:team", "namespace"]')) as view:
        seen = poll_with(view, make_machine("i-1"))
    assert seen["i-1"].owner == "red"
    assert seen["i-1"].handling.controller == "node pool h100"


def test_the_busiest_gpu_of_a_node_is_its_machines_duty_and_a_gpu_without_a_value_leaves_it_unmeasured(stand: Stand) -> None:
    stand.prod.nodes += [make_node(f"n{n}", f"aws:///us-east-1a/i-{n}", 2) for n in (1, 2, 3)]
    stand.prod.metrics = {
        "GPU_UTIL": {"n1": [0, 97], "n2": [5], "n3": [0, float("nan")]},
        "POWER_USAGE": {"n1": [70.5, 300], "n3": [60, 61]},
    }
    ledger, listed = Memory(), tuple(make_machine(f"i-{n}") for n in (1, 2, 3))
    with closing(stand.open_view('metrics = "monitoring/prometheus:9090"')) as view:
        for n in (1, 2):
            view.refresh()
            poll_sources([Cloud([Complete(listed)])], ledger, Hands(), attribute=view.attribute)
            measured = sorted((one.key.id, one.signal, one.value) for one in ledger.samples)
            assert measured == [("i-1", "gpu_power_w", 370.5), ("i-1", "gpu_util", 97.0), ("i-3", "gpu_power_w", 121.0)]
            ledger.samples.clear()
            stand.clock.at += timedelta(minutes=n)
        assert stand.prod.calls("/namespaces/monitoring/services/prometheus:9090/proxy/api/v1/query") == 4
        stand.prod.fault("/proxy/", "status", status=503)
        stand.clock.at += timedelta(minutes=1)
        view.refresh()
        poll_sources([Cloud([Complete(listed)])], ledger, Hands(), attribute=view.attribute)
        assert ledger.samples == []
        assert "activity cannot be measured" in view.notes[0]


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ({"users": [{"name": "guard", "user": {"exec": {"command": "aws"}}}]}, "starts a program"),
        ({"users": [{"name": "guard", "user": {"client-certificate-data": "eA=="}}]}, "client certificate"),
        ({"users": []}, "has no token"),
        ({"clusters": [{"name": "prod", "cluster": {"server": "http://10.0.0.1"}}]}, "plain http"),
        ({"clusters": [{"name": "prod", "cluster": {"server": "https://k", "insecure-skip-tls-verify": True}}]}, "insecure"),
        ({"clusters": [{"name": "prod", "cluster": {"server": "https://k", "certificate-authority-data": "%"}}]}, "authority"),
        ({"contexts": []}, "is not in this kubeconfig"),
        ({"clusters": []}, "names a cluster"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_refused_with_the_reason(tmp_path: Path, part: dict[str, Any], why: str) -> None:
    config: dict[str, Any] = {
        "clusters": [{"name": "prod", "cluster": {"server": "https://k8s.example:6443"}}],
        "users": [{"name": "guard", "user": {"token": CANARY}}],
        "contexts": [{"name": "prod", "context": {"cluster": "prod", "user": "guard"}}],
    }
    path = tmp_path / "config"
    path.touch(mode=0o600)
    path.write_text(json.dumps(config))
    assert read_cluster_access(path, "prod").server == "https://k8s.example:6443"
    path.write_text(json.dumps({**config, **part}))
    with pytest.raises(CostguardError, match=why) as refused:
        read_cluster_access(path, "prod")
    assert refused.value.hint
    here = {"clusters": [{"name": "prod", "cluster": {"server": "http://127.0.0.1:8001"}}], "users": []}
    path.write_text(json.dumps({**config, **here}))
    assert read_cluster_access(path, "prod").token is None  # kubectl proxy
    path.write_text("[")
    with pytest.raises(CostguardError, match="is not YAML"):
        read_cluster_access(path, "prod")


@pytest.fixture
def encrypted(stand: Stand) -> Iterator[Stand]:
    """The same with `prod` over TLS, of an authority that only the kubeconfig names: kubectl sends no token without."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    pem = base64.b64encode(authority.cert_pem.bytes()).decode()
    with serving(stand.prod, context) as base:
        stand.write({"prod": {"certificate-authority-data": pem}}, prod=base, lab=base)
        yield stand


def test_a_cluster_with_an_authority_of_its_own_is_read_and_one_whose_authority_is_not_stated_is_not(
    encrypted: Stand,
) -> None:
    encrypted.prod.nodes.append(make_node("gpu-1", "aws:///us-east-1a/i-1"))
    encrypted.prod.pods.append(make_pod("train", "vision", "gpu-1", 8))
    with closing(encrypted.open_view()) as view:
        assert poll_with(view, make_machine("i-1"))["i-1"].owner == "vision"
        assert len(view.notes) == 1
        assert "kubernetes lab: cannot be read" in view.notes[0]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed (Debian: kubernetes-client)")
def test_kubectl_lists_nodes_and_pods_of_the_fake_by_pages_and_labels(encrypted: Stand) -> None:
    """A client that nobody here wrote understands the fake's discovery, pages, selectors and errors."""
    fake = encrypted.prod
    fake.nodes += [make_node(f"gpu-{n}", f"aws:///us-east-1a/i-{n}", pool="a" if n % 2 else "b") for n in range(5)]
    fake.pods += [make_pod("train", "vision", "gpu-1", 4), make_pod("old", "vision", "gpu-1", 4, phase="Succeeded")]
    fake.server.page = 2

    def kubectl(*words: str) -> subprocess.CompletedProcess[str]:
        config = str(encrypted.home / ".kube/config")
        command = ["kubectl", "--kubeconfig", config, "--cache-dir", str(encrypted.home), "--context", "prod", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    names = kubectl("get", "nodes", "-o", "name", "--chunk-size=2")
    assert names.stdout.split() == [f"node/gpu-{n}" for n in range(5)], names.stderr
    assert kubectl("get", "nodes", "-l", "pool=a", "-o", "name").stdout.split() == ["node/gpu-1", "node/gpu-3"]
    pods = kubectl("get", "pods", "-A", "--field-selector=status.phase!=Succeeded", "-o", "json").stdout
    assert [one["metadata"]["name"] for one in json.loads(pods)["items"]] == ["train"]
    fake.server.forbidden.add("nodes")
    assert "forbidden" in kubectl("get", "nodes").stderr.lower()


def test_status_shows_the_owner_of_the_pods_and_what_cannot_be_read(
    costguard: Command, stand: Stand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """CoreWeave bills two nodes, of which one is joined by its uid; the cluster `prod` does not answer."""
    cloud = CoreWeaveRig()
    cloud.clock.at = datetime.now(UTC).replace(microsecond=0)
    one, two = cloud.put(2)
    cloud.spoil(one, owner=...)
    stand.lab.nodes.append({**make_node("g1"), "metadata": {"name": "g1", "uid": one}})
    stand.lab.pods.append(make_pod("train", "vision", "g1", 8))
    stand.prod.fault(".*", "status", status=403)
    monkeypatch.setenv("COREWEAVE_API_TOKEN", coreweave.KEY)
    with serving(cloud.fake) as base:
        kubeconfig = stand.home / ".kube/config"
        text = f'[kubernetes]\ncontexts = ["prod", "lab"]\nkubeconfig = "{kubeconfig}"\n'
        (tmp_path / "costguard.toml").write_text(f'{text}[providers.coreweave]\nbase_url = "{base}"\n')
        ran = costguard("status", "--json")
    rows = {row["id"]: row for row in ran.data["resources"]}
    assert set(rows) == {one, two}
    assert rows[one]["owner"] == "vision", rows[one]
    assert "kubernetes prod: cannot be read" in ran.out + ran.err
    with serving(cloud.fake) as base:
        (tmp_path / "costguard.toml").write_text(f'{text}[providers.coreweave]\nbase_url = "{base}"\n')
        ran = costguard("doctor", "--json")
    rows = {row["account"]: row["checks"] for row in ran.data["providers"] if row["provider"] == "kubernetes"}
    assert [one["outcome"] for one in rows["lab"]] == ["good", "unsure"], rows
    assert "1 nodes, 1 of them with GPUs; 1 pods with GPUs" in str(rows["lab"])
    assert [one["outcome"] for one in rows["prod"]] == ["bad"]
    assert "kubernetes-reader" in str(rows["prod"])
