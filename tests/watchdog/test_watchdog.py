"""The watchdog in a process of its own, with real signals, and told of by a real socket."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from costguard.watchdog import Duties, Duty, Watchdog
from tests.watchdog.child import SECOND

ROOT = Path(__file__).parents[2]


@dataclass(slots=True)
class Child:
    """A story being played. `facts`: what it logged so far."""

    process: subprocess.Popen[str]
    facts: list[dict[str, Any]] = field(default_factory=list)

    def until(self, event: str, **fields: object) -> dict[str, Any]:
        """The next fact that is so; a process that ends before it fails the test."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            fact = json.loads(line)
            self.facts.append(fact)
            if fact["event"] == event and fields.items() <= fact.items():
                return dict(fact)
        raise AssertionError(f"it never said {event} {fields}: {self.facts}")

    def ended(self, *signals: signal.Signals) -> int:
        """Its exit code, after these signals."""
        for one in signals:
            self.process.send_signal(one)
        assert self.process.stderr is not None
        self.facts += [json.loads(line) for line in self.process.stderr]
        return self.process.wait()

    def events(self) -> list[str]:
        return [str(fact["event"]) for fact in self.facts]


@contextmanager
def playing(story: str, **environment: str) -> Iterator[Child]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.watchdog.child", story],
        cwd=ROOT,
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Child(process)
        finally:
            process.kill()


@pytest.mark.parametrize(("asked", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_with_the_exit_code_of_the_contract(asked: signal.Signals, code: int) -> None:
    with playing("plain") as child:
        child.until("ran", job="good")
        child.until("ran", job="guard")
        assert child.ended(asked) == code
        assert "stopping" in child.events()
        assert child.events()[-1] == "stopped"


def test_a_run_under_way_is_finished_before_the_end() -> None:
    with playing("long") as child:
        child.until("ran", job="long")
        assert child.ended(signal.SIGTERM) == 0
        stopping = next(fact for fact in child.facts if fact["event"] == "stopping")
        assert "long" in stopping["under_way"]
        assert child.events().index("done") > child.events().index("stopping")


def test_a_run_that_does_not_finish_is_named_and_holds_nothing_back() -> None:
    with playing("stuck") as child:
        child.until("ran", job="stuck")
        assert child.ended(signal.SIGTERM) == 1
        assert (
            "stuck" in next(fact for fact in child.facts if fact["event"] == "unfinished")["jobs"]
        )  # a slow machine: others too


def test_a_run_that_hangs_stops_no_other_and_is_called_overdue() -> None:
    with playing("stuck") as child:
        child.until("ran", job="guard")
        child.until("ran", job="good")
        assert child.until("job_overdue")["job"] == "stuck"


def test_accounts_that_raise_are_logged_degraded_and_stop_nothing() -> None:
    with playing("raises") as child:
        degraded = child.until("account_degraded", account="bad")
        child.until("ran", job="guard")
        child.until("ran", job="good")
        child.ended(signal.SIGTERM)
    failed = [fact for fact in child.facts if fact["event"] == "job_failed"]
    assert (degraded["failures"], degraded["next_try_s"]) == (3, 2.0)
    assert {fact["job"] for fact in failed} == {"bad", "exits"}
    first = next(fact for fact in failed if fact["job"] == "bad")
    assert first["error"] == "runpod me: said no to Bearer [secret]"
    assert first["raised_in"].startswith("child.py:")


def test_settings_that_cannot_be_used_change_nothing_and_are_said_once() -> None:
    with playing("refused") as child:
        child.until("ran", job="guard")
        child.process.send_signal(signal.SIGHUP)
        refused = child.until("reload_refused")
        child.until("ran", job="good")
        assert child.ended(signal.SIGTERM) == 0
    assert "costguard.toml: unknown key 'polcy'" in refused["error"]
    assert child.events().count("reload_refused") == 1


def test_without_settings_to_read_again_a_hang_up_ends_it() -> None:
    with playing("plain") as child:
        child.until("ran", job="guard")
        assert child.ended(signal.SIGHUP) == 0


def test_systemd_hears_ready_then_alive_and_in_the_end_stopping(tmp_path: Path) -> None:
    with listening(tmp_path) as (place, heard), playing("reloads", NOTIFY_SOCKET=place) as child:
        assert heard()[0] == "READY=1"
        alive = heard()
        assert alive[0] == "WATCHDOG=1"
        assert alive[1].startswith("STATUS=last guard run ")
        child.until("beat")
        child.process.send_signal(signal.SIGHUP)
        said = told_until(heard, "READY=1")
        assert said[-2][0] == "RELOADING=1"
        assert said[-2][1].startswith("MONOTONIC_USEC=")
        child.ended(signal.SIGTERM)
        told_until(heard, "STOPPING=1")


def test_a_guard_that_commits_nothing_keeps_nobody_believing_that_it_lives(tmp_path: Path) -> None:
    with listening(tmp_path) as (place, heard), playing("uncommitted", NOTIFY_SOCKET=place) as child:
        child.until("guard_not_committed")
        child.until("guard_not_committed")
        child.ended(signal.SIGTERM)
        said = told_until(heard, "STOPPING=1")
    assert not any("WATCHDOG=1" in lines for lines in said)
    assert "beat" not in child.events()


@contextmanager
def listening(folder: Path) -> Iterator[tuple[str, Callable[[], list[str]]]]:
    """A socket as systemd has one, and how to take the next message from it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(folder / "notify"))
        ear.settimeout(300)
        yield str(folder / "notify"), lambda: ear.recv(4096).decode().split("\n")


def told_until(heard: Callable[[], list[str]], last: str) -> list[list[str]]:
    said = [heard()]
    while said[-1][0] != last:
        said.append(heard())
    return said


class Told:
    """A log in memory."""

    def __init__(self) -> None:
        self.facts: list[tuple[str, dict[str, object]]] = []

    def info(self, event: str, /, **fields: object) -> None:
        self.facts.append((event, fields))

    warning = error = info


def watchdog(run: Callable[[], object], told: Told, clock: list[float]) -> tuple[Watchdog, Duty]:
    duty = Duty(name="aws", run=run, every=10 * SECOND)
    duties = Duties(polls=(duty,), guard=Duty(name="guard", run=lambda: True, every=10 * SECOND))
    made = Watchdog(duties, log=told, wall=lambda: clock[1], boot=lambda: clock[0], tell=lambda *_: None)
    made._assign(duties)
    return made, duty


def test_a_run_that_comes_late_is_called_late() -> None:
    told, clock = Told(), [0.0, 0.0]
    made, duty = watchdog(lambda: None, told, clock)
    made._play(duty)
    clock[0] = 20
    made._play(duty)
    assert told.facts == []
    clock[0] = 40.5
    made._play(duty)
    assert told.facts == [("job_late", {"job": "aws", "seconds": 20.5, "interval_s": 10.0})]


def test_a_run_that_was_missed_for_an_hour_is_run_once() -> None:
    ran = SimpleQueue[int]()
    made, duty = watchdog(lambda: ran.put(1), Told(), [0.0, 0.0])
    made._scheduler.start(paused=True)
    made._scheduler.modify_job(duty.name, next_run_time=datetime.now(UTC) - timedelta(hours=1))
    made._scheduler.resume()
    assert ran.get(timeout=120) == 1
    made._scheduler.shutdown()
    assert ran.empty()


def test_an_account_that_fails_again_and_again_is_tried_more_rarely_and_comes_back() -> None:
    told, clock, tries, works = Told(), [0.0, 0.0], list[float](), list[bool]()

    def run() -> None:
        tries.append(clock[0])
        if not works:
            raise OSError("no network")

    made, duty = watchdog(run, told, clock)
    for second in range(0, 400, 10):
        clock[0] = second
        made._play(duty)
    assert tries == [0, 10, 20, 40, 80, 160, 320]
    assert made.degraded == ("aws",)
    assert [fields["next_try_s"] for event, fields in told.facts if event == "job_failed"] == [10, 10, 20, 40, 80, 160, 320]
    works.append(True)
    clock[0] = 640
    made._play(duty)
    assert not any(made.degraded)
    assert told.facts[-1] == ("recovered", {"job": "aws"})


def test_what_may_wait_is_tried_more_rarely_and_the_guard_and_the_outbox_every_time() -> None:
    told, clock, tries = Told(), [0.0, 0.0], list[str]()

    def failing(name: str) -> Duty:
        def run() -> None:
            tries.append(name)
            raise OSError("no space")

        return Duty(name=name, run=run, every=10 * SECOND)

    duties = Duties(polls=(), guard=failing("guard"), outbox=failing("outbox"), others=(failing("reports"),))
    made = Watchdog(duties, log=told, wall=lambda: clock[1], boot=lambda: clock[0], tell=lambda *_: None)
    made._assign(duties)
    for second in range(0, 400, 10):
        clock[0] = second
        for duty in duties.every:
            made._play(duty)
    assert (tries.count("guard"), tries.count("outbox"), tries.count("reports")) == (40, 40, 7)
    assert made.degraded == ()


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_clock_that_was_set_makes_everything_due(jump: float) -> None:
    told, clock = Told(), [100.0, 5000.0]
    made, _ = watchdog(lambda: None, told, clock)
    clock[0], clock[1] = 105, 5005
    made.compare_clocks()
    assert told.facts == []
    clock[1] += jump
    made.compare_clocks()
    made.compare_clocks()
    assert told.facts == [("clock_jumped", {"seconds": jump})]
