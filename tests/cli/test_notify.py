"""`costguard notify test`, and what `doctor`, `policy lint`, `explain` and `init` say of a route that does not work."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from costguard.guard.alerts.alert import DeliveryResult
from costguard.guard.policy import Rails
from costguard.ledger.guard import outbox
from costguard.ledger.guard.store import GuardStore
from costguard.services.guarding import overrides
from tests.conftest import Command
from tests.fakes.server import Answer, Asked, serving
from tests.notifiers.services import in_place_of_hosts
from tests.notifiers.test_pagers import UUID, page
from tests.providers.transport.wires import Told

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
ROUTES = '[[notify.route]]\nname = "team"\nto = ["env:CHAT"]\n[[notify.route]]\nname = "oncall"\nto = ["env:PAGER"]\n'
TOKEN = "canary-token-0123456789"  # noqa: S105 - looked for in what is shown


@pytest.fixture
def routes(costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    (tmp_path / "costguard.toml").write_text(ROUTES)
    monkeypatch.setenv("CHAT", f"jsons://chat.lab.org/{TOKEN}")
    monkeypatch.setenv("PAGER", f"opsgenie://{UUID}")
    return costguard


def answer_half(asked: Asked) -> Answer:
    text = asked.json()["message"]
    return Answer.of({"shown": text[: len(text) // 2]})


@pytest.mark.parametrize(
    ("answer", "outcome", "says"),
    [
        (Answer.of({"ok": True}), "delivered", '200 {"ok": true}'),
        (Answer(status=403, body=f"no such hook {TOKEN}".encode()), "not delivered", "403 no such hook ***"),
        (Answer.of({"ok": False, "error": "archived"}), "not delivered", "archived"),
        (answer_half, "cut", "200"),
    ],
    ids=["delivered", "refused", "refused with 200", "cut"],
)
def test_it_says_what_came_back(
    routes: Command, monkeypatch: pytest.MonkeyPatch, answer: Answer, outcome: str, says: str
) -> None:
    with in_place_of_hosts(cloud := Told(answer), monkeypatch):
        ran = routes("notify", "test", "team", "--json")
    [record] = ran.data["tests"]
    assert (ran.code, record["outcome"]) == (0 if outcome == "delivered" else 3, outcome)
    assert says in record["answer"]
    assert TOKEN not in ran.out + ran.err
    assert len(cloud.asked) == 1


def test_the_incident_that_it_opens_is_ended(routes: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with in_place_of_hosts(cloud := Told(Answer.of({"requestId": "r1"}, status=202)), monkeypatch):
        assert routes("notify", "test", "oncall").code == 0
    [opened, closed] = cloud.asked
    assert closed.path == f"{opened.path}/{opened.json()['alias']}/close"


def test_each_route_is_tested_and_one_that_fails_hides_no_other(routes: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHAT")
    with in_place_of_hosts(Told(Answer.of({"requestId": "r1"})), monkeypatch):
        ran = routes("notify", "test", "--json")
    assert [(one["route"], one["outcome"]) for one in ran.data["tests"]] == [("team", "not delivered"), ("oncall", "delivered")]
    assert "the variable CHAT is not set" in ran.data["tests"][0]["answer"]
    assert ran.code == 3
    routes("notify", "test", "tem").says("ROUTE", "tem", "team")
    routes("--offline", "notify", "test").says("--offline")


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("", "the variable CHAT is not set"),
        ("nosuch://a/b", "Apprise does not know such an address"),
        ("https://api.opsgenie.com/v2/alerts", "opsgenie://APIKEY"),
        ("dbus://", "use the console"),
    ],
    ids=["unset", "unknown", "of a service", "of a desktop"],
)
def test_doctor_and_lint_call_a_route_bad_that_cannot_be_used(
    routes: Command, monkeypatch: pytest.MonkeyPatch, address: str, says: str
) -> None:
    monkeypatch.setenv("CHAT", address)
    ran = routes("doctor", "--json")
    bad = [check for one in ran.data["routes"] for check in one["checks"] if check["outcome"] == "bad"]
    assert (ran.code, len(ran.data["routes"]), len(bad)) == (3, 2, 1)
    assert says in bad[0]["told"] + bad[0]["fix"]
    lint = routes("policy", "lint")
    assert (lint.code, "1 problem found" in lint.out) == (3, True)
    assert says in lint.out


def test_a_route_that_works_is_good_without_a_request(routes: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with in_place_of_hosts(cloud := Told(), monkeypatch):
        checks = [one["checks"][0] for one in routes("doctor", "--json").data["routes"]]
        assert routes("policy", "lint").code == 0
    assert [(one["outcome"], one["told"]) for one in checks] == [("good", "JSON"), ("good", "Opsgenie")]
    assert cloud.asked == []


def test_explain_names_the_route_of_a_notice_that_is_not_delivered_and_what_came_back(
    routes: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    monkeypatch.setenv("COSTGUARD_LEDGER__URL", url)
    now = overrides.get_now()
    with GuardStore(url, rails=Rails()) as book:
        for number, again in enumerate((True, False)):
            message = page("m1", id=str(number), channel="env:PAGER", at=now - timedelta(minutes=5))
            with book._begin_write() as (ask, tell):
                outbox.enqueue_messages(ask, tell, [message])
            book.settle_message(message.id, DeliveryResult(sent=False, why="it answered 403 no_service", again=again), now)
    ran = routes("explain", "untold")
    assert ran.code == 0, ran.err
    assert ran.out.count("not delivered to route oncall (env:PAGER): m1 is idle: it answered 403 no_service") == 2
    assert ("tried again at" in ran.out, "given up" in ran.out) == (True, True)


def test_init_sends_the_test_on_a_terminal(tmp_path: Path) -> None:
    with serving(cloud := Told()) as base:
        env = {**os.environ, "HOME": str(tmp_path), "CHAT": base.replace("http", "json") + f"/{TOKEN}"}
        _, follower = pty.openpty()
        command = [
            sys.executable,
            "-m",
            "costguard",
            "init",
            "--guard",
            "--to",
            "env:CHAT",
            "--budget",
            "1",
            "--zone",
            "UTC",
            "--idle",
            "tell",
        ]
        with subprocess.Popen(
            command, stdin=follower, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, cwd=tmp_path, text=True
        ) as process:
            out, _ = process.communicate(timeout=100)
    assert process.returncode == 0, out
    assert "Sent a test to env:CHAT: 200" in out
    assert len(cloud.asked) == 1
