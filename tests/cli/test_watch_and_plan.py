"""`costguard watch` and `costguard plan`: what they hand on, and how they end. What a run does is told elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from costguard.services import CommandAnswer, guarding, watch_loop
from costguard.services.guarding import policy
from costguard.values.money import Money
from costguard.views.plan import PlanView, build_plan_document
from costguard.views.watch import WatchView
from tests.books import money
from tests.conftest import Command

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """What the commands asked for, of a guard that answers nothing much."""
    calls: list[dict[str, object]] = []

    def plan(**said: object) -> CommandAnswer:
        calls.append(said)
        return CommandAnswer(document=build_plan_document(PlanView(at=NOON, rows=(), hash="3f9a")))

    def watch(*, show: Callable[[WatchView], None], **said: object) -> int:
        calls.append(said)
        show(WatchView(at=NOON, mode="dry run", burn=Money.parse("2.99"), month=money("10")))
        return 0

    modules = ((guarding, "plan", SimpleNamespace(answer_plan=plan)), (watch_loop, "watch", SimpleNamespace(run_watch=watch)))
    for folder, name, module in modules:
        monkeypatch.setitem(sys.modules, f"{folder.__name__}.{name}", module)
        monkeypatch.setattr(folder, name, module, raising=False)
    monkeypatch.setattr(policy, "answer_plan", plan)
    return calls


def test_a_plan_is_asked_for_and_printed(costguard: Command, asked: list[dict[str, object]]) -> None:
    assert costguard("plan", "--json").data["hash"] == "3f9a"
    assert costguard("plan", "--accept", "3f9a").code == 0
    assert asked == [{"config": None, "accept": None}, {"config": None, "accept": "3f9a"}]


def test_a_watch_is_asked_for_and_shown_as_lines_in_a_pipe(costguard: Command, asked: list[dict[str, object]]) -> None:
    ran = costguard("--json-log", "watch", "--once", "--interval", "30s", "--dry-run")
    assert ran.code == 0, ran.err
    assert ran.out == "2026-11-02 12:00 UTC  burns $2.9900 an hour, dry run; the month so far $10.00\n"
    (said,) = asked
    assert callable(said.pop("open_door"))
    assert said == {
        "once": True, "strict": False, "interval": "30s", "dry_run": True, "config": None, "json_log": True, "offline": False,
    }  # fmt: skip


def test_raising_a_policy_shows_the_plan_first(costguard: Command, asked: list[dict[str, object]], tmp_path: Path) -> None:
    settings = """
[[policy]]
name = "idle-gpu"
arm = "stop"
match = { gpu = true }
when = 'state == "idle"'
for = "45m"
then = [{ do = "notify" }, { after = "15m", do = "stop" }]
"""
    (tmp_path / "costguard.toml").write_text(settings)
    assert costguard("policy", "arm", "idle-gpu", "observe").code == 0
    assert asked == []
    data = costguard("policy", "arm", "idle-gpu", "stop", "--why", "watched it", "--json").data
    assert (data["before"], data["level"], data["plan"]["hash"]) == ("observe", "stop", "3f9a")
    assert len(asked) == 1
