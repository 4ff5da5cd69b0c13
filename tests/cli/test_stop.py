"""`costguard stop` and `terminate` against RunPod's and Lambda's fakes over loopback: one request, or none and the reason."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costguard.data import ShippedFacts
from costguard.guard.action_intents import DONE, EXECUTING, READY, VERIFYING, Intent
from costguard.guard.overrides import STOP_AT, Override
from costguard.guard.policy import PERSON_RULE, STOP, Rails
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.reports.reader import ReportReader
from costguard.metering.observation import identify_incarnation
from costguard.services.guarding.act import by_hand
from costguard.services.guarding.overrides import find_machine
from costguard.settings import read_settings
from tests.conftest import Command
from tests.contract.rig import Rig
from tests.fakes.server import serving
from tests.providers.lambda_.rig import LambdaRig
from tests.providers.runpod.rig import RunpodRig

POD_STOP = r"POST /v2/pods/[^/]+/action"


class Lab:
    """Pods of one fake and an account of the other, polled once; `run` is the command line."""

    def __init__(self, run: Command, rigs: tuple[Rig, ...], ledger: str) -> None:
        self.run, self.rigs, self.ledger = run, rigs, ledger
        self.pods = rigs[0]

    @property
    def stops(self) -> int:
        return self.pods.fake.calls(POD_STOP)

    def book(self) -> GuardStore:
        return GuardStore(self.ledger, rails=Rails())

    def pod(self) -> dict[str, object]:
        """The first pod, as `status` says it."""
        ran = self.run("--offline", "status", "--json")
        return next(
            one for one in json.loads(ran.out)["resources"] if one["provider"] == "runpod" and one["kind"] == "instance"
        )


@pytest.fixture
def lab(costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    rigs: tuple[Rig, ...] = (RunpodRig(), LambdaRig())
    for rig in rigs:
        rig.clock.at = datetime.now(UTC)
        rig.put(2)
        for name, value in rig.environ().items():
            monkeypatch.setenv(name, value)

    def pass_time(_seconds: float) -> None:
        for rig in rigs:
            rig.clock.at += timedelta(seconds=60)

    monkeypatch.setattr("costguard.services.guarding.act.by_hand.time.sleep", pass_time)
    monkeypatch.setattr(by_hand, "PROVE_WITHIN_S", 15.0)
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    with serving(rigs[0].fake) as first, serving(rigs[1].fake) as second:
        tables = [(rig.provider, rig.table(base)) for rig, base in zip(rigs, (first, second), strict=True)]
        lines = [f'[ledger]\nurl = "{ledger}"\n']
        lines += [
            f"[providers.{name}]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in table.items()) for name, table in tables
        ]
        (tmp_path / "costguard.toml").write_text("\n".join(lines))
        assert costguard("status").code == 0
        yield Lab(costguard, rigs, ledger)


def test_a_stop_is_sent_once_proven_and_told_with_what_it_loses(lab: Lab) -> None:
    pod = lab.pod()
    ran = lab.run("stop", str(pod["id"]), "--yes", "--why", "the run is over")
    assert ran.code == 0, ran.err
    assert "done; verified after" in ran.out
    assert "Permanently lost: 50 GB of container disk." in ran.out
    assert "Still billed: $" in ran.out
    assert lab.stops == 1
    assert lab.pods.state_of(str(pod["id"])) == "stopped"
    with lab.book() as book:
        (intent,) = book.load_intents_since(datetime.now(UTC) - timedelta(minutes=5))
        assert (intent.state, intent.rule, intent.act) == (DONE, PERSON_RULE, STOP)
        assert "the run is over" in intent.why
    again = lab.run("stop", str(pod["id"]), "--yes")
    assert (again.code, lab.stops) == (3, 1)
    assert "is stopped already; nothing was sent" in again.err


def test_a_provider_without_a_stop_says_so_and_names_terminate(lab: Lab) -> None:
    ran = lab.run("--offline", "status", "--json")
    machine = next(one for one in json.loads(ran.out)["resources"] if one["provider"] == "lambda" and one["kind"] == "instance")
    refused = lab.run("stop", machine["id"], "--yes")
    assert refused.code == 3
    assert "lambda has no stop" in refused.err
    assert (
        f"costguard terminate lambda/{machine['account']}/{machine['region']}/{machine['id']} deletes it permanently"
        in refused.err
    )
    ended = lab.run("terminate", machine["id"], "--yes", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["result"] == "done"


@pytest.mark.parametrize(
    ("before", "told", "hint"),
    [
        (("protect",), "protects it", "costguard protect"),
        (("keep", "--for", "4h", "--why", "one more run"), "keeps it until", "costguard keep"),
        (("freeze",), "froze all acts", "costguard freeze --lift"),
    ],
)
def test_a_machine_that_must_stay_is_refused_with_why_and_the_way_on(
    lab: Lab, before: tuple[str, ...], told: str, hint: str
) -> None:
    pod = str(lab.pod()["id"])
    word, *rest = before
    assert lab.run(word, *([] if word == "freeze" else [pod]), *rest).code == 0
    ran = lab.run("stop", pod, "--yes")
    assert ran.code == 3
    assert told in ran.err
    assert hint in ran.err
    assert lab.stops == 0
    assert lab.run(word, *([] if word == "freeze" else [pod]), "--lift").code == 0
    assert lab.run("stop", pod, "--yes").code == 0


def test_a_provider_that_does_not_answer_is_asked_for_nothing(lab: Lab) -> None:
    pod = str(lab.pod()["id"])
    lab.pods.fake.fault("", "html", status=503)
    ran = lab.run("stop", pod, "--yes")
    assert ran.code == 3
    assert "cannot be looked up" in ran.err
    assert "nothing was sent" in ran.err
    assert lab.stops == 0


def test_an_answer_that_is_lost_is_proven_and_not_sent_again(lab: Lab) -> None:
    lab.pods.fake.fault(POD_STOP, "did", times=1)
    ran = lab.run("stop", str(lab.pod()["id"]), "--yes")
    assert ran.code == 0, ran.err
    assert lab.stops == 1


def test_a_stop_that_has_no_effect_is_told_as_not_proven(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_hand, "PROVE_WITHIN_S", 0.3)
    lab.pods.fake.deaf = True
    pod = str(lab.pod()["id"])
    ran = lab.run("stop", pod, "--yes")
    assert ran.code == 4
    assert "is not verified" in ran.err
    assert lab.stops == 1
    again = lab.run("stop", pod, "--yes")
    assert again.code == 3
    assert "with no result yet" in again.err
    assert lab.stops == 1


def test_the_guards_own_act_whose_outcome_is_open_is_not_doubled(lab: Lab) -> None:
    now = datetime.now(UTC)
    pod = str(lab.pod()["id"])
    life = identify_incarnation(find_machine(pod, read_settings(None), now).observation)
    with lab.book() as book:
        epoch = book.acquire_leader_lease("a:1", now, timedelta(minutes=3))
        intent = Intent(
            id="guard", life=life, act=STOP, policy="idle-gpu", rule="idle", why="", evidence="{}", state=READY,
            created_at=now, moved_at=now, epoch=epoch or 0,
        )  # fmt: skip
        assert book.plan_intent(intent)
        executing = book.move_intent(intent, EXECUTING, now, sends=1, sent_at=now, expires_at=now + timedelta(seconds=30))
        assert executing is not None
        assert book.move_intent(executing, VERIFYING, now, outcome="accepted")
    ran = lab.run("stop", pod, "--yes")
    assert ran.code == 3
    assert "with no result yet; nothing was sent again" in ran.err
    assert lab.stops == 0


def test_an_act_that_waits_for_its_grace_gives_way_to_the_person(lab: Lab) -> None:
    now = datetime.now(UTC)
    pod = str(lab.pod()["id"])
    life = identify_incarnation(find_machine(pod, read_settings(None), now).observation)
    with lab.book() as book:
        epoch = book.acquire_leader_lease("a:1", now, timedelta(minutes=3))
        waits = Intent(
            id="guard", life=life, act=STOP, policy="idle-gpu", rule="idle", why="", evidence="{}", state="grace",
            created_at=now, moved_at=now, epoch=epoch or 0,
        )  # fmt: skip
        assert book.plan_intent(waits)
    assert lab.run("stop", pod, "--yes").code == 0
    with lab.book() as book:
        states = {intent.id: intent.state for intent in book.load_intents_since(now - timedelta(minutes=1))}
    assert states.pop("guard") == "cancelled"
    assert list(states.values()) == [DONE]


def answer(lab: Lab, said: str, tmp_path: Path) -> str:
    """What `costguard stop` says on a real terminal to whom answers `said`."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "costguard", "stop", str(lab.pod()["id"])]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path, env=os.environ) as process:
        os.close(theirs)
        drawn = b""
        while b"[y/N]" not in drawn:
            drawn += os.read(ours, 1024)
        os.write(ours, said.encode())
        with suppress(OSError):  # the end of a terminal is an error
            while part := os.read(ours, 1024):
                drawn += part
        process.wait()
    os.close(ours)
    return " ".join(drawn.decode().split())


def test_on_a_terminal_it_says_what_is_lost_and_no_means_no(lab: Lab, tmp_path: Path) -> None:
    drawn = answer(lab, "n\n", tmp_path)
    assert "Permanently lost: 50 GB of container disk." in drawn
    assert "nothing was sent" in drawn
    assert lab.stops == 0


def test_a_person_does_not_pass_for_the_guard_in_the_report_of_savings(lab: Lab) -> None:
    assert lab.run("stop", str(lab.pod()["id"]), "--yes").code == 0
    now = datetime.now(UTC)
    with ReportReader(lab.ledger, rules=ShippedFacts().get_billing_rules()) as books:
        assert books.load_actions(now - timedelta(hours=1), now + timedelta(minutes=1)) == []
    with lab.book() as book:
        assert [one.state for one in book.load_intents_since(now - timedelta(hours=1))] == [DONE]


def plans(lab: Lab) -> list[Override]:
    """The planned stops of the ledger that are not lifted."""
    with lab.book() as book:
        return [wish for wish in book.load_open_overrides(datetime.now(UTC)) if wish.what == STOP_AT]


def test_a_stop_is_planned_with_what_it_loses_and_shown_and_nothing_is_sent(lab: Lab) -> None:
    pod = str(lab.pod()["id"])
    ran = lab.run("stop", pod, "--after", "6h", "--yes", "--why", "the run is over")
    assert ran.code == 0, ran.err
    assert "is to be stopped at" in ran.out
    assert "(in 5 h 59 min)" in ran.out or "(in 6 h)" in ran.out
    assert "Permanently lost: 50 GB of container disk." in ran.out
    assert f"/{pod} --cancel" in ran.out
    (made,) = plans(lab)
    assert (made.why, made.value) == ("the run is over", "50 GB of container disk")
    assert lab.pod()["stops_at"] == made.subject
    shown = lab.run("--offline", "--wide", "status").out
    assert "1 act due " in shown.splitlines()[0]
    assert re.search(r"running .* stops (\d{4}-\d\d-\d\d )?\d\d:\d\d UTC", shown)
    assert lab.stops == 0


def test_a_planned_stop_stands_in_the_plan_with_who_planned_it(lab: Lab) -> None:
    assert lab.run("stop", str(lab.pod()["id"]), "--after", "6h", "--yes", "--why", "the run is over").code == 0
    said = json.loads(lab.run("plan", "--offline", "--json").out)
    (row,) = [one for one in said["rows"] if one["policy"] == "stop-at"]
    assert (row["rule"], row["level"], [step["do"] for step in row["steps"]]) == ("timed", "stop", ["notify", "stop"])
    assert "planned it at" in row["reasons"][0]
    assert row["reasons"][0].endswith(": the run is over")


def test_another_plan_replaces_the_first_and_cancel_ends_it(lab: Lab) -> None:
    pod = str(lab.pod()["id"])
    assert lab.run("stop", pod, "--after", "6h", "--yes").code == 0
    again = lab.run("stop", pod, "--after", "2h", "--yes")
    assert "The stop that" in again.out
    assert len(plans(lab)) == 1
    ended = lab.run("stop", pod, "--cancel")
    assert ended.code == 0
    assert "is no longer to be stopped" in ended.out
    assert (plans(lab), lab.pod()["stops_at"]) == ([], None)


def test_keep_ends_a_planned_stop_and_says_so(lab: Lab) -> None:
    pod = str(lab.pod()["id"])
    assert lab.run("stop", pod, "--after", "6h", "--yes").code == 0
    kept = lab.run("keep", pod, "--for", "1h", "--why", "one more run")
    assert "planned for" in kept.out
    assert "is cancelled." in kept.out
    assert plans(lab) == []
    assert "is planned" in lab.run("stop", pod, "--cancel").err


def test_a_lease_that_ends_before_the_stop_is_no_objection_and_one_that_lasts_longer_is(lab: Lab) -> None:
    pod = str(lab.pod()["id"])
    assert lab.run("keep", pod, "--for", "4h", "--why", "one more run").code == 0
    held = lab.run("stop", pod, "--after", "2h", "--yes")
    assert (held.code, plans(lab)) == (3, [])
    assert "keeps it until" in held.err
    assert lab.run("stop", pod, "--after", "5h", "--yes").code == 0


BAD_TIMES = [
    (("--after", "-1h"), "--after: must be a duration, not '-1h'"), (("--after", "0"), "--after: must have a unit"),
    (("--after", "1m"), "--after: must be at least 5m"), (("--after", "31d"), "--after: must be at most 30d"),
    (("--after", ""), "--after: is empty"), (("--at", "25:00"), "--at: is not a day or a time: '25:00'"),
    (("--at", "tomorrow"), "--at: is not a day or a time"), (("--at", "22:00Z"), "--at: is not a day or a time"),
    (("--at", "2026-01-01T22:00"), "is in the past"), (("--at", "2099-01-01"), "is not between 5 min and 30 d from now"),
    (("--after", "6h", "--at", "22:00"), "--after and --at: cannot be given together"), (("--cancel",), "is planned"),
    (("--cancel", "--after", "6h"), "--cancel: cannot be given with --after or --at"),
]  # fmt: skip


def test_a_time_that_cannot_be_meant_is_named_with_what_to_write(lab: Lab) -> None:
    pod = str(lab.pod()["id"])
    for stated, told in BAD_TIMES:
        ran = lab.run("stop", pod, *stated, "--yes")
        assert (ran.code, ran.out) == (2, ""), stated
        assert told in " ".join(ran.err.split())
        assert "hint: " in ran.err
        assert stated[0] != "--at" or "22:00" in ran.err
    assert (plans(lab), lab.stops) == ([], 0)


def test_no_stop_is_planned_where_there_is_none_or_it_is_stopped_or_protected(lab: Lab) -> None:
    rows = json.loads(lab.run("--offline", "status", "--json").out)["resources"]
    rented = next(one for one in rows if one["provider"] == "lambda" and one["kind"] == "instance")["id"]
    refused = lab.run("stop", rented, "--after", "6h", "--yes")
    assert refused.code == 3
    assert f"/{rented} deletes it permanently" in refused.err
    pod = str(lab.pod()["id"])
    assert lab.run("protect", pod).code == 0
    assert "protects it" in lab.run("stop", pod, "--after", "6h", "--yes").err
    assert lab.run("protect", pod, "--lift").code == 0
    assert lab.run("stop", pod, "--yes").code == 0
    assert "is stopped already" in lab.run("stop", pod, "--after", "6h", "--yes").err
    assert plans(lab) == []
