"""Every kind of answer of the fake is what RunPod's own specification of 2026-08-20 says it must be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from costguard_sim.world import SIM_VOLUME, Disk, Run, Shape, to_us

from tests.fakes.runpod import KEY, FakeRunpod
from tests.fakes.server import Answer, Asked
from tests.providers.runpod.rig import plain

jsonschema: Any = import_module("jsonschema")  # it has no types
SPEC = Path(__file__).parents[4] / "shared/providers/specs/runpod-rest-v2-openapi.json"
FIELDS = SPEC.with_name("runpod-graphql-known-fields.json")
BEYOND = {
    "pagination": "lists have pages since September 2026, and the specification of August has none (runpod.md, section 3)"
}
"""Where the fake says more than the specification, and why."""


@pytest.fixture(scope="module")
def spec() -> dict[str, Any]:
    if not SPEC.exists():
        pytest.skip(f"{SPEC.name} is not on this machine")
    found: dict[str, Any] = json.loads(SPEC.read_text())
    return found


@pytest.fixture
def fake() -> FakeRunpod:
    """A fake with a pod in every state and of every kind, and volumes."""
    fake = FakeRunpod()
    now = to_us(fake.clock.now())
    begun = now - 3600 * 10**6
    stopped = (Run(start_us=now - 10**11, stop_us=begun),)
    fake.resources = [
        plain("running00001", now),
        plain("silent000001", now, disks=(Disk(gb=40, type="container"),)),
        plain("stopped00001", now, runs=stopped),
        plain("fresh0000001", now, runs=()),
        plain("member000001", now),
        plain("cpu000000001", now, shapes=(Shape(at_us=0, type="cpu5c"),)),
        plain("placing00001", now),
        plain("broken000001", now, runs=stopped),
        plain("locked000001", now),
        replace(plain("volume000001", now), kind=SIM_VOLUME, runs=(), rates=(), disks=(Disk(gb=100, type="network"),)),
        replace(
            plain("volume000002", now),
            kind=SIM_VOLUME,
            runs=(),
            disks=(Disk(gb=10, type="network high-performance", nano=140_000_000),),
        ),
    ]
    fake.manners.silent.add("silent000001")
    fake.manners.cluster["member000001"] = "cluster_1"
    fake.manners.volume["silent000001"] = "volume000001"
    fake.manners.status |= {"placing00001": "PROVISIONING", "broken000001": "ERROR"}
    fake.manners.locked.add("locked000001")
    return fake


def ask(fake: FakeRunpod, method: str, path: str, body: object = None, key: str = KEY, **query: str) -> Answer:
    asked = Asked(
        method=method,
        path=path,
        query={name: [value] for name, value in query.items()},
        headers={"authorization": f"Bearer {key}"},
        body=b"" if body is None else json.dumps(body).encode(),
        line=f"{method} {path}",
    )
    return fake.answer(asked)


def questions(fake: FakeRunpod) -> Iterator[tuple[str, str, str, Answer]]:
    """(method, template of the path, what, answer) of every kind of answer."""
    pod, action = "/v2/pods/{id}", "/v2/pods/{id}/action"
    day = fake.clock.now() - timedelta(days=1)
    window = {"startTime": day.isoformat(), "bucketSize": "hour"}
    yield "get", "/v2/pods", "whole", ask(fake, "GET", "/v2/pods", includeClusterPods="true")
    yield "get", "/v2/pods", "a page", ask(fake, "GET", "/v2/pods", limit="2")
    for id_ in ("running00001", "stopped00001", "cpu000000001", "member000001", "placing00001", "broken000001", "locked000001"):
        yield "get", pod, id_, ask(fake, "GET", f"/v2/pods/{id_}")
    yield "get", pod, "missing", ask(fake, "GET", "/v2/pods/nosuchpod000")
    yield "post", action, "stop", ask(fake, "POST", "/v2/pods/running00001/action", {"action": "stop"})
    yield "post", action, "stop again", ask(fake, "POST", "/v2/pods/running00001/action", {"action": "stop"})
    yield "post", action, "start", ask(fake, "POST", "/v2/pods/running00001/action", {"action": "start"})
    yield "post", action, "odd", ask(fake, "POST", "/v2/pods/running00001/action", {"action": "stop", "bogus": 1})
    yield "post", action, "member", ask(fake, "POST", "/v2/pods/member000001/action", {"action": "stop"})
    yield "delete", pod, "terminate", ask(fake, "DELETE", "/v2/pods/running00001")
    yield "delete", pod, "again", ask(fake, "DELETE", "/v2/pods/running00001")
    yield "get", "/v2/network-volumes", "volumes", ask(fake, "GET", "/v2/network-volumes")
    yield "get", "/v2/catalog/gpus", "catalogue", ask(fake, "GET", "/v2/catalog/gpus")
    yield "get", "/v2/catalog/gpus", "stock", ask(fake, "GET", "/v2/catalog/gpus", include="AVAILABILITY", product="POD")
    yield "get", "/v2/catalog/gpus", "half a question", ask(fake, "GET", "/v2/catalog/gpus", product="POD")
    yield "get", "/v2/billing/pods", "pods' bill", ask(fake, "GET", "/v2/billing/pods", **window)
    yield "get", "/v2/billing/network-volumes", "volumes' bill", ask(fake, "GET", "/v2/billing/network-volumes", **window)
    yield "get", "/v2/billing", "bill", ask(fake, "GET", "/v2/billing", bucketSize="hour", lastN="24")
    yield "get", "/v2/billing/pods", "nothing billed", ask(FakeRunpod(), "GET", "/v2/billing/pods", **window)
    yield "get", "/v2/pods", "wrong key", ask(fake, "GET", "/v2/pods", key="wrong")
    fake.quota = 0
    yield "get", "/v2/pods", "too often", ask(fake, "GET", "/v2/pods")


def test_every_kind_of_answer_is_what_the_specification_says(spec: dict[str, Any], fake: FakeRunpod) -> None:
    checked = 0
    statuses = set()
    for method, path, what, answer in questions(fake):
        responses = spec["paths"][path][method]["responses"]
        told = responses.get(str(answer.status)) or responses["default"]
        if "$ref" in told:
            told = spec["components"]["responses"][told["$ref"].rsplit("/", 1)[1]]
        content = told.get("content", {}).get(answer.headers.get("Content-Type", ""), {})
        if answer.status == 204:
            assert not content
            assert answer.body == b""
        else:
            assert content, f"{what}: {answer.status} {answer.headers}"
            schema = {**content["schema"], "components": spec["components"]}
            jsonschema.Draft202012Validator(schema).validate(without_what_is_beyond(answer))
        statuses.add(answer.status)
        checked += 1
    assert checked == 27
    assert statuses == {200, 204, 400, 401, 404, 409, 422, 429}


def without_what_is_beyond(answer: Answer) -> object:
    """The body without what BEYOND names."""
    body = json.loads(answer.body)
    return {name: value for name, value in body.items() if name not in BEYOND} if isinstance(body, dict) else body


def test_the_rate_headers_stand_on_every_authenticated_answer(fake: FakeRunpod) -> None:
    for _, _, what, answer in questions(fake):
        assert what == "wrong key" or {"RateLimit", "RateLimit-Policy"} <= answer.headers.keys()


def test_every_field_of_graphql_is_one_that_clients_know(fake: FakeRunpod) -> None:
    if not FIELDS.exists():
        pytest.skip(f"{FIELDS.name} is not on this machine")
    known = json.loads(FIELDS.read_text())["types"]["User"]
    answer = json.loads(ask(fake, "POST", "/graphql", {"query": "query { myself { id } }"}).body)
    assert answer["data"]["myself"].keys() <= known.keys()
