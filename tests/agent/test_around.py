"""What is around an agent as one look: what shows work is told, that nothing works only where all was asked."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from costguard_agent.collector import ActivityProbe, BackgroundQuery
from costguard_agent.signals import ProbeResult, merge_probe_results
from costguard_agent.user_sessions import SessionProbe

from tests.agent.near import Machine, answering
from tests.agent.test_kernels import kernel, listed, runs
from tests.agent.test_people import NOW, PTS


@pytest.mark.parametrize(
    ("seen", "signals"),
    [
        ([ProbeResult({"input_age_s": 9000.0}), ProbeResult({"input_age_s": 20.0})], {"input_age_s": 20.0}),
        ([ProbeResult({"input_age_s": 9000.0}), ProbeResult({}, ("input_age_s",))], {}),
        ([ProbeResult({"input_age_s": 20.0}), ProbeResult({}, ("input_age_s",))], {"input_age_s": 20.0}),
        ([ProbeResult({"connections": 1.0}), ProbeResult({"connections": 2.0})], {"connections": 3.0}),
        ([ProbeResult({"connections": 1.0}), ProbeResult({}, ("connections",))], {}),
        ([ProbeResult({"queue_jobs": 0.0}), ProbeResult({}, ("queue_jobs",))], {}),
        ([ProbeResult({"queue_jobs": 2.0}, ("queue_jobs",))], {"queue_jobs": 2.0}),
        ([ProbeResult({"queue_jobs": 0.0})], {"queue_jobs": 0.0}),
        (
            [ProbeResult(), ProbeResult({"server_requests": 0.0, "server_tokens": 7.0})],
            {"server_requests": 0.0, "server_tokens": 7.0},
        ),
        ([], {}),
    ],
)
def test_no_work_is_told_only_where_all_was_asked(seen: list[ProbeResult], signals: dict[str, float]) -> None:
    found = merge_probe_results(seen)
    assert found.signals == signals
    assert found.unknown == tuple(sorted({name for one in seen for name in one.unknown} - signals.keys()))


def test_a_terminal_and_a_notebook_come_to_one_age(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.process(700, "bash", tty=PTS | 3)
    machine.terminal("pts/3", time.time() - 500)
    last = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    with answering({"GET /api/kernels": listed(kernel("busy", last=last))}) as (_, port):  # type: ignore[dict-item]
        runs(machine, port)
        seen = ActivityProbe(machine.around).look(time.time(), within_s=20)
    assert seen.signals["connections"] == 2.0
    assert 0.0 <= seen.signals["input_age_s"] < 60
    assert (seen.unknown, seen.troubles) == ((), ())


def test_a_look_never_waits_for_a_scheduler_that_hangs(tmp_path: Path) -> None:
    machine = Machine(tmp_path, SLURMD_NODENAME="gpu7")
    machine.command("squeue", "sleep 60")
    machine.command("sinfo", f"until [ -e {tmp_path}/go ]; do sleep 0.05; done; exit 1")
    near = ActivityProbe(machine.around)
    assert "queue_jobs" in near.look(time.time()).unknown
    machine.file("go", "")
    seen = near.look(time.time(), within_s=20)
    assert seen.unknown == ("queue_jobs",)
    assert "Slurm is installed, but its jobs are unknown" in seen.troubles[0]


def test_an_answer_grows_older_and_is_none_after_three_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    at_s = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: at_s[0])
    go, asked = threading.Event(), []

    def ask(now: float) -> ProbeResult:
        asked.append(now)
        if len(asked) > 1:
            go.wait(20)
        return ProbeResult({"input_age_s": 10.0, "connections": 1.0})

    inquiry = BackgroundQuery("notebook servers", ask, ("connections", "input_age_s"))
    inquiry.read_latest(0.0)
    inquiry.wait(20)
    at_s[0] += 59
    assert inquiry.read_latest(59.0).signals == {"input_age_s": 69.0, "connections": 1.0}
    for _ in range(3):
        at_s[0] += 61
        late = inquiry.read_latest(0.0)
    go.set()
    inquiry.wait(20)
    assert len(asked) == 2
    assert (late.signals, late.unknown) == ({}, ("connections", "input_age_s"))
    assert late.troubles == ("notebook servers did not answer for 242 s",)


def test_between_two_looks_at_people_only_the_age_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_s = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: at_s[0])
    machine = Machine(tmp_path)
    machine.process(700, "bash", tty=PTS | 3)
    machine.terminal("pts/3", NOW - 500)
    near = ActivityProbe(machine.around)
    assert near.look(NOW).signals["input_age_s"] == 500.0
    machine.terminal("pts/3", NOW)
    at_s[0] += 4
    assert near.look(NOW + 4).signals["input_age_s"] == 504.0
    at_s[0] += 600
    assert near.look(NOW + 604).signals["input_age_s"] == 604.0


def test_what_cannot_even_be_asked_is_told_and_unknown() -> None:
    def ask(_: float) -> ProbeResult:
        raise KeyError("surprise")

    inquiry = BackgroundQuery("schedulers", ask, ("queue_jobs",))
    inquiry.read_latest(0.0)
    inquiry.wait(20)
    assert inquiry.read_latest(0.0) == ProbeResult({}, ("queue_jobs",), ("schedulers could not be asked: KeyError",))


def test_people_of_this_machine_are_looked_at_in_milliseconds() -> None:
    from costguard_agent.host import HostView

    people = SessionProbe(HostView.real())
    people.look(time.time())
    before = time.thread_time()
    seen = people.look(time.time())
    assert seen.signals["input_age_s"] >= 0
    assert time.thread_time() - before < 5
