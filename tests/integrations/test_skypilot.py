"""The policy of SkyPilot with stand-ins for SkyPilot's own values; docs/SKYPILOT.md has what a real dry run said."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from costguard_admission import HELD, REFUSED, AdmissionClient, Answer


@dataclass
class Task:
    """A task as SkyPilot has it."""

    resources: Any
    envs: dict[str, str] = field(default_factory=dict)
    num_nodes: int = 1

    def set_resources(self, resources: Any) -> None:  # noqa: ANN401 - SkyPilot's
        self.resources = resources

    def update_envs(self, envs: dict[str, str]) -> None:
        self.envs.update(envs)


def gpus(name: str, count: int = 8, **more: Any) -> SimpleNamespace:  # noqa: ANN401 - SkyPilot's
    plain = {"accelerators": {name: count}, "cloud": None, "use_spot": False, "labels": None}
    made = SimpleNamespace(**{**plain, **more})
    made.copy = lambda **change: SimpleNamespace(**{**vars(made), **change})
    return made


@dataclass
class Guard:
    """Answers by GPU, and notes what it was asked. `echoes`: a hold has the id that was asked for, as costguard has it."""

    refuses: tuple[str, ...] = ()
    echoes: bool = False
    already: tuple[str, ...] = ()
    asked: list[dict[str, Any]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def admit(self, run: dict[str, Any]) -> Answer:
        self.asked.append(run)
        if run.get("provider") == "vast":
            return Answer("unknown", may_launch=True, says="no price", status=409, reason="no_price")
        if run["gpu"] in self.refuses:
            return Answer(REFUSED, may_launch=False, says="budget lab is spent", status=409)
        reason = "already_held" if run["gpu"] in self.already else "within_cap"
        hold = run["id"] if self.echoes else f"hold-{run['gpu']}"
        return Answer(HELD, may_launch=True, says="held", hold=hold, money=float(run["count"]), status=200, reason=reason)

    def end(self, hold: str, *, started: bool) -> bool:
        assert not started
        self.ended.append(hold)
        return True


@pytest.fixture
def policy(monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 - a module
    """The policy's module, with as much of SkyPilot as it needs."""
    sky = ModuleType("sky")
    sky.AdminPolicy = object  # type: ignore[attr-defined]
    sky.MutatedUserRequest = lambda task, config: SimpleNamespace(task=task, skypilot_config=config)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sky", sky)
    monkeypatch.delitem(sys.modules, "costguard_skypilot", raising=False)
    monkeypatch.delenv("COSTGUARD_HOURS", raising=False)
    monkeypatch.delenv("COSTGUARD_HOLD", raising=False)
    return import_module("costguard_skypilot")


def ask(policy: Any, guard: Guard, task: Task, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Task:  # noqa: ANN401 - SkyPilot's
    monkeypatch.setattr(AdmissionClient, "from_environment", lambda: guard)
    options = SimpleNamespace(cluster_name=more.pop("cluster", "ada"), dryrun=more.pop("dryrun", False))
    plain = {"request_name": SimpleNamespace(name="CLUSTER_LAUNCH"), "at_client_side": False, "skypilot_config": {}}
    user = SimpleNamespace(name="ada")
    request = SimpleNamespace(**{**plain, "task": task, "request_options": options, "user": user, **more})
    changed: Task = policy.CostguardPolicy.validate_and_mutate(request).task
    return changed


def test_a_launch_is_held_for_its_hours_and_its_task_knows_the_hold(policy: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401
    guard = Guard()
    wanted = Task([gpus("H100", cloud="RunPod", use_spot=True, labels={"team": "vision"})], {"COSTGUARD_HOURS": "12"}, 2)
    done = ask(policy, guard, wanted, monkeypatch)
    assert done.envs["COSTGUARD_HOLD"] == "hold-H100"
    assert [one.labels for one in done.resources] == [{"team": "vision", "costguard-hold": "hold-H100"}]
    body = guard.asked[0]
    assert body.pop("id").startswith("sky-ada-")
    assert body == {
        "gpu": "H100", "count": 8, "hours": 12.0, "machines": 2, "owner": "ada", "provider": "runpod", "tier": "spot",
        "labels": {"team": "vision"},
    }  # fmt: skip


def test_only_a_hold_that_the_launchers_own_environment_names_is_trusted(policy: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401
    guard = Guard()
    done = ask(policy, guard, Task([gpus("H100")], {"COSTGUARD_HOLD": "typed"}), monkeypatch)
    assert (len(guard.asked), done.envs["COSTGUARD_HOLD"]) == (1, "hold-H100")
    monkeypatch.setenv("COSTGUARD_HOLD", "of-submit")
    ask(policy, guard, Task([gpus("H100")], {"COSTGUARD_HOLD": "typed"}), monkeypatch)
    ask(policy, guard, Task([gpus("H100")]), monkeypatch)
    assert len(guard.asked) == 3
    passed_on = ask(policy, guard, Task([gpus("H100")], {"COSTGUARD_HOLD": "of-submit"}), monkeypatch)
    assert (len(guard.asked), passed_on.envs) == (3, {"COSTGUARD_HOLD": "of-submit"})


def test_a_refusal_rejects_and_of_several_kinds_only_what_was_admitted_is_left(
    policy: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(RuntimeError, match="budget lab is spent"):
        ask(policy, Guard(refuses=("H100",)), Task([gpus("H100")]), monkeypatch)
    guard = Guard(refuses=("H100",))
    done = ask(policy, guard, Task([gpus("H100"), gpus("A100", 4), gpus("L4", 1)]), monkeypatch)
    assert [next(iter(one.accelerators)) for one in done.resources] == ["A100", "L4"]
    assert (done.envs["COSTGUARD_HOLD"], guard.ended) == ("hold-A100", ["hold-L4"])


def test_a_dry_run_leaves_no_hold_and_only_launches_of_gpus_ask(policy: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401
    guard = Guard()
    assert "COSTGUARD_HOLD" not in ask(policy, guard, Task([gpus("H100")]), monkeypatch, dryrun=True).envs
    assert guard.ended == ["hold-H100"]
    guard = Guard()
    ask(policy, guard, Task([gpus("H100", accelerators=None)]), monkeypatch)
    ask(policy, guard, Task([gpus("H100")]), monkeypatch, at_client_side=True)
    ask(policy, guard, Task([gpus("H100")]), monkeypatch, request_name=SimpleNamespace(name="OPTIMIZE"))
    assert guard.asked == []


def test_a_dry_run_of_a_cluster_that_runs_has_a_hold_of_its_own_and_leaves_the_live_one(
    policy: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guard = Guard(echoes=True)
    live = ask(policy, guard, Task([gpus("H100")]), monkeypatch).envs["COSTGUARD_HOLD"]
    assert ask(policy, guard, Task([gpus("H100")]), monkeypatch).envs["COSTGUARD_HOLD"] == live
    for _ in range(2):
        ask(policy, guard, Task([gpus("H100")]), monkeypatch, dryrun=True)
    dry = [run for run in guard.asked if run["id"] != live]
    assert guard.ended == [run["id"] for run in dry]
    assert len(set(guard.ended)) == 2
    assert [run["for_s"] for run in dry] == [60, 60]


@pytest.mark.parametrize("stated", ["soon", "-1", "0", "1e9", "nan"])
def test_hours_that_are_none_reject_the_launch(policy: Any, monkeypatch: pytest.MonkeyPatch, stated: str) -> None:  # noqa: ANN401
    with pytest.raises(RuntimeError, match="COSTGUARD_HOURS"):
        ask(policy, Guard(), Task([gpus("H100")], {"COSTGUARD_HOURS": stated}), monkeypatch)
