"""The plug-in of dstack over loopback, with stand-ins for dstack's own values, whose fields are checked where dstack is."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import import_module, util
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from costguard.services.serving.web_admissions import parse_admit_request

REFUSAL = {"what": "H100-SXM x2 for 12 h", "usd": "64.56"}
PROFILE = (
    "backends", "instance_types", "spot_policy", "max_duration", "max_price", "idle_duration", "retry", "schedule", "tags",
)  # fmt: skip
GPU = ("name", "count", "memory", "total_memory", "compute_capability")


class Values(SimpleNamespace):
    """Fields, as dstack's models have them."""

    def model_copy(self, update: dict[str, Any]) -> Values:
        return Values(**{**vars(self), **update})


def span(least: float | None, most: float | None) -> Values:
    return Values(min=least, max=most)


def gpus(*names: str, count: Values | None = None, **more: Any) -> Values:  # noqa: ANN401
    """Resources with GPUs; of open number, as dstack has it, where none is said."""
    plain = dict.fromkeys(GPU, None)
    return Values(gpu=Values(**{**plain, "name": list(names) or None, "count": count or span(1, None), **more}))


def run(resources: Values, name: str | None = "train", kind: str = "task", profile: Any = None, **more: Any) -> Values:  # noqa: ANN401
    """A run's spec."""
    plain = {**dict.fromkeys(PROFILE), "type": kind, "name": name, "commands": ["python train.py"], "groups": None}
    return Values(run_name=name, profile=profile, configuration=Values(**{**plain, "resources": resources, **more}))


@dataclass
class Guard:
    """Answers as costguard does: by GPU, and an id that is asked for again is held already. It takes no other body."""

    refuses: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    asked: list[dict[str, Any]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if path == "/v1/admit/end":
            self.ended.append(body["hold"])
            return 200, {}
        self.asked.append(body)
        parse_admit_request(body, None)
        if body["id"] in self.gone:
            return 400, {"error": "malformed", "says": f"id {body['id']} was taken before"}
        if body.get("gpu") in self.refuses:
            return 409, {"held": False, "reason": "budget_cap", "says": "budget lab: $70 left", "would_fit": [REFUSAL]}
        if body.get("provider") == "vast" or body.get("gpu") in self.unknown:
            return 409, {"held": False, "reason": "no_price", "says": "no price"}
        reason = "already_held" if body["id"] in self.held else "within_cap"
        self.held.add(body["id"])
        return 200, {"held": True, "hold": body["id"], "usd": str(body.get("count", 1)), "says": "held", "reason": reason}


@pytest.fixture
def guard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Guard]:
    """A server on loopback, and the environment that names it."""
    made = Guard()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.headers["Authorization"] == "Bearer cg_dstack"
            status, said = made.answer(self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(said).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    for name in ("COSTGUARD_HOURS", "COSTGUARD_GPU", "COSTGUARD_FAIL", "COSTGUARD_PROJECT_LABEL", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COSTGUARD_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("COSTGUARD_TOKEN", "cg_dstack")
    yield made
    server.shutdown()
    server.server_close()


@pytest.fixture
def policy(monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 - a module's
    """The policy that the plug-in has, with as much of dstack as it needs."""
    dstack, plugins = ModuleType("dstack"), ModuleType("dstack.plugins")
    plugins.ApplyPolicy = plugins.Plugin = object  # type: ignore[attr-defined]
    plugins.get_plugin_logger = logging.getLogger  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dstack", dstack)
    monkeypatch.setitem(sys.modules, "dstack.plugins", plugins)
    monkeypatch.delitem(sys.modules, "costguard_dstack", raising=False)
    plugin = import_module("costguard_dstack").CostguardPlugin()
    [first], [again] = plugin.get_apply_policies(), plugin.get_apply_policies()
    assert first is again
    return first


def apply(policy: Any, spec: Values, user: str = "ada") -> Any:  # noqa: ANN401
    return policy.on_run_apply(user=user, project="vision", spec=spec)


def test_a_run_is_held_once_for_plan_and_apply_and_its_machines_name_the_hold(policy: Any, guard: Guard) -> None:  # noqa: ANN401
    more: dict[str, Any] = {
        "max_duration": 12 * 3600,
        "nodes": 2,
        "spot_policy": SimpleNamespace(value="spot"),
        "backends": ["aws"],
    }
    made = [run(gpus("H100", count=span(8, 8)), tags={"team": "nlp", "costguard-hold": "typed"}, **more) for _ in range(2)]
    done = [apply(policy, spec) for spec in made]
    body, again = guard.asked
    assert body == again
    assert done[1].configuration.tags == {"team": "nlp", "costguard-hold": body["id"]}
    assert body.pop("id").startswith("dstack-vision-train-")
    assert body == {
        "gpu": "H100", "count": 8, "machines": 2, "hours": 12.0, "owner": "ada",
        "labels": {"team": "nlp", "project": "vision"}, "name": "train", "provider": "aws", "tier": "spot",
    }  # fmt: skip


def test_a_refusal_says_what_would_fit_and_leaves_no_hold_of_another_group(policy: Any, guard: Guard) -> None:  # noqa: ANN401
    guard.refuses = ("H100",)
    groups = [Values(nodes=2, resources=gpus("L4")), Values(nodes=1, resources=gpus("H100"))]
    with pytest.raises(ValueError, match=r"budget lab: \$70 left. Would fit: H100-SXM x2 for 12 h"):
        apply(policy, run(gpus("A100"), groups=groups))
    assert guard.ended == [guard.asked[0]["id"]]
    assert [one["gpu"] for one in guard.asked] == ["L4", "H100"]


def test_of_several_kinds_what_was_admitted_is_left_and_the_largest_hold_stays(policy: Any, guard: Guard) -> None:  # noqa: ANN401
    guard.refuses = ("H100",)
    done = apply(policy, run(gpus("H100", "A100", "V100", count=span(1, 4), memory=span(None, 40))))
    assert done.configuration.resources.gpu.name == ["A100", "V100"]
    assert [(one["gpu"], one["count"]) for one in guard.asked] == [("H100", 4), ("A100-40GB", 4), ("V100-32GB", 4)]
    assert (done.configuration.tags["costguard-hold"], guard.ended) == (guard.asked[1]["id"], [guard.asked[2]["id"]])


def test_an_open_number_is_narrowed_and_a_service_is_held_for_its_most_replicas(policy: Any, guard: Guard) -> None:  # noqa: ANN401
    done = apply(policy, run(gpus("L4"), kind="service", replicas=span(0, 3), max_duration="off"))
    assert (done.configuration.resources.gpu.count.max, done.configuration.tags) == (1, None)
    assert [(one["count"], one["machines"], one["hours"]) for one in guard.asked] == [(1, 3, 24.0)]


def test_where_kind_or_price_is_open_max_price_is_held_else_the_policy_decides(
    policy: Any,  # noqa: ANN401
    guard: Guard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guard.unknown = ("B300",)
    for resources in (gpus(memory=span(24, None)), gpus("B300"), Values(gpu=None)):
        profile = Values(max_price=2.5, max_duration=7200, instance_types=["p5.48xlarge"])
        apply(policy, run(resources, nodes=2, profile=profile))
    assert [one["usd"] for one in guard.asked if "usd" in one] == ["10.00"] * 3
    asked = len(guard.asked)
    apply(policy, run(gpus()))
    monkeypatch.setenv("COSTGUARD_FAIL", "closed")
    with pytest.raises(ValueError, match="what GPUs it gets is open"):
        apply(policy, run(gpus()))
    assert len(guard.asked) == asked
    monkeypatch.setenv("COSTGUARD_GPU", "A100")
    apply(policy, run(gpus()))
    assert guard.asked[-1]["gpu"] == "A100"
    monkeypatch.setenv("COSTGUARD_URL", "http://127.0.0.1:9")
    with pytest.raises(ValueError, match=r"cannot be asked .* refused"):
        apply(policy, run(gpus("L4")))
    monkeypatch.setenv("COSTGUARD_FAIL", "open")
    assert apply(policy, run(gpus("L4"))).configuration.tags is None


def test_a_cloud_without_a_price_is_held_at_any_others(policy: Any, guard: Guard) -> None:  # noqa: ANN401
    apply(policy, run(gpus("L4"), backends=[SimpleNamespace(value="vastai")]))
    assert [one.get("provider") for one in guard.asked] == ["vast", None]


def test_a_run_whose_hold_has_ended_gets_one_new_hold_and_not_two(policy: Any, guard: Guard) -> None:  # noqa: ANN401
    first = apply(policy, run(gpus("L4"))).configuration.tags["costguard-hold"]
    guard.gone.add(first)
    again = [apply(policy, run(gpus("L4"))).configuration.tags["costguard-hold"] for _ in range(2)]
    assert again[0] == again[1] != first
    assert len(guard.held) == 2


def test_only_named_runs_of_gpus_are_held_and_an_offer_ends_if_it_is_applied(policy: Any, guard: Guard) -> None:  # noqa: ANN401
    nothing_said = gpus(count=span(0, None))
    for resources in (nothing_said, gpus(count=span(0, 0)), Values(gpu=None)):
        assert apply(policy, run(resources, name=None)).configuration.tags is None
    with pytest.raises(ValueError, match="state a name"):
        apply(policy, run(gpus("L4"), name=None))
    offer = apply(policy, run(gpus("L4"), name=None, commands=[":"], schedule="* * * * *")).configuration
    assert (offer.max_duration, offer.idle_duration, offer.retry, offer.schedule) == (60, 0, False, None)
    assert guard.asked == []


def test_hostile_names_are_data(policy: Any, guard: Guard) -> None:  # noqa: ANN401
    evil = '../"\n\x1b[31m,{}' * 40
    guard.refuses = (evil,)
    with pytest.raises(ValueError, match="budget lab") as refused:
        apply(policy, run(gpus(evil), name=evil, tags={"team": evil}), user=evil)
    assert str(refused.value).isprintable()
    body = guard.asked[0]
    assert len(body["id"]) <= 100
    assert set(body["id"]) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert (body["owner"], body["labels"]) == (evil, {"team": evil, "project": "vision"})
    with pytest.raises(ValueError, match="at most 8 kinds"):
        apply(policy, run(gpus(*"ABCDEFGHI")))


@pytest.mark.parametrize("stated", ["soon", "-1", "nan", "1e9"])
def test_hours_of_the_server_that_are_none_reject_the_run(
    policy: Any,  # noqa: ANN401
    guard: Guard,
    monkeypatch: pytest.MonkeyPatch,
    stated: str,
) -> None:
    monkeypatch.setenv("COSTGUARD_HOURS", stated)
    with pytest.raises(ValueError, match="COSTGUARD_HOURS of dstack's server"):
        apply(policy, run(gpus("L4")))
    apply(policy, run(gpus("L4"), max_duration=3600))
    assert [one["hours"] for one in guard.asked] == [1.0]


def test_the_folder_beside_it_names_the_plug_in_to_dstack() -> None:
    found = [point for one in distributions(path=["integrations"]) for point in one.entry_points]
    assert [(one.group, one.name, one.value) for one in found] == [
        ("dstack.plugins", "costguard", "costguard_dstack:CostguardPlugin")
    ]
    assert Path("integrations/costguard_dstack/__init__.py").is_file()


@pytest.mark.skipif(util.find_spec("dstack") is None, reason="dstack is not installed")
def test_the_real_package_has_the_fields_that_are_read() -> None:
    configurations = import_module("dstack._internal.core.models.configurations")
    resources = import_module("dstack._internal.core.models.resources")
    fleets, runs = import_module("dstack._internal.core.models.fleets"), import_module("dstack._internal.core.models.runs")
    assert {*PROFILE, "name", "commands", "nodes", "groups", "resources"} <= set(configurations.TaskConfiguration.model_fields)
    assert {"replicas", "groups"} <= set(configurations.ServiceConfiguration.model_fields)
    assert {"nodes", "resources"} <= set(configurations.NodeGroup.model_fields)
    assert {"replicas", "resources", "spot_policy"} <= set(configurations.ReplicaGroup.model_fields)
    assert set(GPU) <= set(resources.GPUSpec.model_fields)
    assert {"min", "max"} == set(resources.Range.model_fields)
    assert {"run_name", "configuration", "profile"} <= set(runs.RunSpec.model_fields)
    assert {"min", "target"} <= set(fleets.FleetNodesSpec.model_fields)
    assert {"configuration", "profile"} <= set(fleets.FleetSpec.model_fields)
