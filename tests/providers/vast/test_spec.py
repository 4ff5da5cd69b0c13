"""Every kind of answer of the fake fits the published spec, but for what the project's notes say is wrong in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.fakes.server import Answer, Asked
from tests.fakes.vast import KEY, FakeVast, machine, volume

SPEC = Path(__file__).parents[4] / "shared" / "providers" / "specs" / "vast-openapi.yaml"
DAY = {"day": {"gte": 1795132800, "lte": 1795219199}}
EXCEPTIONS = {
    ("ports",): "the single look-up has an array in the spec, and null or an object in fact (vast.md, section 7)",
    ("extra_env",): "pairs, where the single look-up's schema says texts (vast.md, section 3)",
    ("instances",): "null where there is no such instance (vast.md, section 3)",
    ("uptime_mins",): "nullable",
}
"""Last part of the place of a difference -> why it is none."""
ASKED: dict[str, tuple[str, str, dict[str, list[str]], Any, str, int]] = {
    "list": ("GET", "/api/v1/instances/", {"limit": ["25"]}, None, "/api/v1/instances", 200),
    "list, second page": ("GET", "/api/v1/instances/", {"limit": ["1"]}, None, "/api/v1/instances", 200),
    "bad token": ("GET", "/api/v1/instances/", {"after_token": ["x"]}, None, "/api/v1/instances", 400),
    "one": ("GET", "/api/v0/instances/24815377/", {}, None, "/api/v0/instances/{id}", 200),
    "none": ("GET", "/api/v0/instances/1/", {}, None, "/api/v0/instances/{id}", 200),
    "no id": ("GET", "/api/v0/instances/x/", {}, None, "/api/v0/instances/{id}", 400),
    "stop": ("PUT", "/api/v0/instances/24815377/", {}, {"state": "stopped"}, "/api/v0/instances/{id}", 200),
    "stop what is gone": ("PUT", "/api/v0/instances/1/", {}, {"state": "stopped"}, "/api/v0/instances/{id}", 404),
    "stop in other words": ("PUT", "/api/v0/instances/24815377/", {}, {"state": "x"}, "/api/v0/instances/{id}", 400),
    "destroy what is gone": ("DELETE", "/api/v0/instances/1/", {}, None, "/api/v0/instances/{id}", 404),
    "destroy no id": ("DELETE", "/api/v0/instances/x/", {}, None, "/api/v0/instances/{id}", 400),
    "destroy": ("DELETE", "/api/v0/instances/24815378/", {}, None, "/api/v0/instances/{id}", 200),
    "volumes": ("GET", "/api/v0/volumes/", {}, None, "/api/v0/volumes", 200),
    "offers": ("POST", "/api/v0/bundles/", {}, {"gpu_name": {"in": ["RTX 4090"]}, "limit": 5}, "/api/v0/bundles", 200),
    "user": ("GET", "/api/v0/users/current/", {}, None, "/api/v0/users/current", 200),
    "charges": ("GET", "/api/v0/charges/", {"select_filters": [json.dumps(DAY)]}, None, "/api/v0/charges", 200),
    "charges of no day": ("GET", "/api/v0/charges/", {}, None, "/api/v0/charges", 400),
    "charges without a key": ("GET", "/api/v0/charges/", {"no key": []}, None, "/api/v0/charges", 403),
    "charges with a wrong key": ("GET", "/api/v0/charges/", {"wrong key": []}, None, "/api/v0/charges", 404),
}
"""Name -> method, path, query, body; the path in the spec; the status."""


@pytest.fixture(scope="module")
def spec() -> dict[str, Any]:
    if not SPEC.exists():
        pytest.skip(f"{SPEC} is not here")
    loaded: dict[str, Any] = yaml.safe_load(SPEC.read_text())
    return loaded


def _fake() -> FakeVast:
    fake = FakeVast(resources=(machine(24815377), machine(24815378), machine(24815379), volume(2001)))
    fake.asks = [{"id": 1, "gpu_name": "RTX 4090", "num_gpus": 1, "dph_base": 0.4, "dph_total": 0.41}]
    fake.extra["24815379"] = {"actual_status": None, "gpu_util": None, "ports": None}
    return fake


def _answer(name: str) -> Answer:
    method, path, query, body, _, _ = ASKED[name]
    key = {"no key": {}, "wrong key": {"authorization": "Bearer x"}}
    headers = next((key[word] for word in key if word in query), {"authorization": f"Bearer {KEY}"})
    fake = _fake()
    fake.page_size = 1 if "second" in name else 25
    asked = Asked(method=method, path=path, query=query, headers=headers, body=json.dumps(body).encode(), line="")
    return fake.answer(asked)


def _differences(spec: dict[str, Any], name: str) -> list[str]:
    """What does not fit, but for the exceptions; a field that the spec describes and the fake lacks is no difference."""
    method, _, _, _, path, status = ASKED[name]
    answer = _answer(name)
    assert answer.status == status
    schema = spec["paths"][path][method.lower()]["responses"][str(status)]["content"]["application/json"]["schema"]
    whole = {**schema, "components": spec["components"]}
    found = Draft202012Validator(whole).iter_errors(json.loads(answer.body))
    return [f"{error.json_path}: {error.message}" for error in found if not _is_exception(error.absolute_path)]


def _is_exception(place: Any) -> bool:  # noqa: ANN401 - jsonschema's deque
    words = [part for part in place if isinstance(part, str)]
    return any(tuple(words[-1:]) == known or known[0] in words[1:] for known in EXCEPTIONS)


@pytest.mark.parametrize("name", ASKED)
def test_an_answer_of_the_fake_fits_the_spec(spec: dict[str, Any], name: str) -> None:
    assert _differences(spec, name) == []


def test_the_check_has_eyes(spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Answer.of({"success": "yes", "instances": [{"id": "x", "dph_base": "0.4"}], "next_token": 3})
    monkeypatch.setitem(globals(), "_answer", lambda _: wrong)
    assert len(_differences(spec, "list")) == 4
