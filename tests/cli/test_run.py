"""`costguard run` from the quote to the settled hold, with real programs."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from costguard.system.child.process import list_attempt_processes
from tests.cli.ran import Bench
from tests.conftest import Command
from tests.system.child.terminals import CTRL_C, terminal

SECOND = 10**9
"""Nano-dollars that a second costs in these tests."""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_the_loop_quote_hold_run_ledger_and_a_closer_quote(bench: Bench) -> None:
    ran = bench.run(bench.training("--id-of-job", "demo", "--result", "first.json"))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("loss ")
    assert ran.stdout.endswith("job demo\n"), "what costguard says is not on standard output"
    first = json.loads((bench.folder / "first.json").read_text())
    (hold,) = bench.holds()
    spent = first["actual"]["seconds"] * SECOND
    assert hold == (first["hold"]["id"], hold[1], "committed", spent)
    assert first["progress"] == {**first["progress"], "first_step": 0, "last_step": 40, "not_learnt": None}
    told = first["progress"]["tokens_per_s"]
    said = {name: first[name]["hours"] for name in ("quoted", "next_quote")}
    true_hours = 40_960 / told / 3600
    distance = {name: abs(hours["expected"] - true_hours) for name, hours in said.items()}
    width = {name: hours["high"] / hours["low"] for name, hours in said.items()}
    # The first quote may be right by luck, and the next one holds overhead that these steps did not have.
    assert distance["next_quote"] < max(distance["quoted"], 0.2 * true_hours)
    assert width["next_quote"] < width["quoted"]

    again = bench.run(bench.training("--id-of-job", "demo-2", "--result", "second.json"))
    assert "calibrated on 1 run" in again.stderr
    second = json.loads((bench.folder / "second.json").read_text())
    assert second["quoted"]["hours"] == first["next_quote"]["hours"]

    report = bench.run([sys.executable, "-m", "costguard", "report", "--json"])
    quotes = json.loads(report.stdout)["quotes"]
    assert [one["job"] for one in quotes] == ["demo", "demo-2"]
    assert quotes[0]["actual"] == first["actual"]["money"]


def test_a_run_that_fails_passes_its_status_on_and_teaches_nothing(bench: Bench) -> None:
    ran = bench.run(bench.training("--id-of-job", "demo", last=3, ends=7))
    assert ran.returncode == 7
    assert "not used to calibrate later quotes: it ended with status 7" in ran.stderr
    assert [how for _, _, how, _ in bench.holds()] == ["committed"]
    assert not (bench.folder / "data" / "costguard" / "calibration.json").exists()


def test_a_command_that_there_is_not_leaves_nothing_behind(bench: Bench, here: Command) -> None:
    ran = here("run", "--job", "job.toml", "--on", "T4", "--rate", "2.49", "--yes", "--id-of-job", "d", "--", "nosuch")
    assert ran.code == 127
    assert "nosuch: no such command" in ran.err
    assert [how for _, _, how, _ in bench.holds()] == ["released"]
    assert bench.record("d") == []


@pytest.fixture
def here(bench: Bench, costguard: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`costguard` of this process, in the folder of the bench and without a terminal: for what is refused before it runs."""
    for name, value in bench.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    return costguard


def test_without_a_terminal_it_is_refused_before_anything_is_held(bench: Bench, here: Command) -> None:
    words = bench.training()[3:]
    here(*(word for word in words if word != "--yes")).says("costguard run --yes")
    here("run", "--then", "stop", *words[1:]).says("--then stop --yes-then")
    assert not (bench.folder / "ledger.db").exists() or bench.holds() == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("answer", "status"), [(b"y\n", 0), (b"\n", 3)])
def test_a_person_is_asked_and_what_they_type_next_is_the_programs(bench: Bench, answer: bytes, status: int) -> None:
    command = bench.command("--rate", "2.49", "--id-of-job", "d", "--", "sh", "-c", "read line; echo it read $line")
    with terminal(command, bench.env, cwd=str(bench.folder)) as screen:
        screen.until(b"[y/N]")
        screen.type(answer + b"theirs\n")
        if status == 0:
            screen.until(b"it read theirs")
        assert screen.end() == status
        assert (b"it was not run: declined" in screen.seen) == (status == 3)


@pytest.mark.proof
def test_the_title_says_what_it_costs_and_is_put_back(bench: Bench) -> None:
    command = bench.command("--rate", "3600", "--id-of-job", "d", "--yes", "--", "sleep", "2")
    with terminal(command, bench.env, cwd=str(bench.folder)) as screen:
        screen.until(b"\x1b[22;2t\x1b]2;d: ")
        assert screen.end() == 0
        assert b"\x1b[23;2t" in screen.seen


@pytest.mark.sampled(2, first=1)
@pytest.mark.parametrize(("how", "status"), [("ctrl-c", 130), ("hang-up", 129)])
def test_a_key_or_a_terminal_that_closes_ends_the_job_and_leaves_nothing_open(bench: Bench, how: str, status: int) -> None:
    stated = ("--rate", "3600", "--max-usd", "50", "--yes", "--id-of-job", "d")
    with terminal(
        bench.command(*stated, "--", "sh", "-c", "echo up; exec sleep 60"), bench.env, cwd=str(bench.folder)
    ) as screen:
        screen.until(b"up\r\n")
        if how == "ctrl-c":
            screen.type(CTRL_C)
        else:
            screen.hang_up()
        assert screen.end() == status
    (attempt,) = bench.record("d")
    assert (attempt["state"], attempt["status"], list_attempt_processes(attempt["id"])) == ("ended", status, [])
    assert [how for _, _, how, _ in bench.holds()] == ["committed"]


def test_a_budget_without_room_refuses_and_nothing_runs(bench: Bench, here: Command) -> None:
    (bench.folder / "costguard.toml").write_text('[[budget]]\nname = "lab"\ncap = "5 USD"\nperiod = "month"\n')
    ran = here(*bench.training("--id-of-job", "demo")[3:])
    assert ran.code == 3
    assert "budget lab: $5.00 of $5.00 left, not enough for" in ran.err
    assert (ran.out, bench.holds(), bench.record("demo")) == ("", [], [])


def test_a_job_over_its_own_cap_is_refused(bench: Bench, here: Command) -> None:
    ran = here(*bench.training("--max-usd", "1")[3:])
    assert (ran.code, "over the cap" in ran.err) == (3, True), ran.err
    assert not (bench.folder / "ledger.db").exists() or bench.holds() == []


@pytest.mark.proof
def test_attempts_of_one_job_add_up_and_the_next_holds_what_is_left(bench: Bench) -> None:
    first = bench.run(bench.training("--record", "ckpt/run.json", "--id-of-job", "demo", last=24, ends=1))
    assert first.returncode == 1
    again = bench.run(bench.training("--record", "ckpt/run.json", "--result", "r.json", first=24))
    assert again.returncode == 0, again.stderr
    assert "job demo, attempt 2" in again.stderr
    assert "40% that are left" in again.stderr
    result = json.loads((bench.folder / "r.json").read_text())
    spents = [spent or 0 for _, _, _, spent in bench.holds()]
    holds = [money for _, money, _, _ in bench.holds()]
    assert holds[1] == -(-holds[0] * 40 // 100)
    assert result["all_attempts"]["seconds"] * SECOND == sum(spents)
    assert result["all_attempts"]["attempts"] == 2


def test_one_job_is_attended_to_once(bench: Bench) -> None:
    first = bench.start(bench.command("--yes", "--id-of-job", "d", "--", "sh", "-c", "echo up; sleep 60"))
    with first:
        assert first.stdout is not None
        assert first.stdout.readline() == "up\n"
        ran = bench.run(bench.command("--yes", "--id-of-job", "d", "--", "true"))
        assert (ran.returncode, "another costguard run is running this job now" in ran.stderr) == (3, True), ran.stderr
        first.terminate()
        assert first.wait(20) == 143


@pytest.mark.proof
def test_a_run_ended_by_sigkill_ends_its_program_and_the_next_one_settles_it(bench: Bench) -> None:
    first = bench.start(bench.training("--id-of-job", "demo", last=3000))
    with first:
        while not any(one["state"] == "open" for one in _record(bench, "demo")):
            time.sleep(0.05)
        (attempt,) = bench.record("demo")
        first.kill()
        first.wait()
    while list_attempt_processes(attempt["id"]):
        time.sleep(0.05)
    (hold,) = bench.holds()
    assert hold[2] is None, "it counts until somebody looks, or its time runs out"
    ran = bench.run(bench.training("--id-of-job", "demo"))
    assert ran.returncode == 0, ran.stderr
    assert "attempt 1 was lost: costguard ended while the job was running" in ran.stderr
    assert [how for _, _, how, _ in bench.holds()] == ["committed", "committed"]
    assert [one["state"] for one in bench.record("demo")] == ["lost", "ended"]


def test_one_that_was_to_outlive_costguard_is_found_and_not_begun_twice(bench: Bench) -> None:
    first = bench.start(bench.command("--yes", "--outlive", "--id-of-job", "d", "--", "sh", "-c", "echo up; exec sleep 60"))
    with first:
        assert first.stdout is not None
        assert first.stdout.readline() == "up\n"
        while not any(one["state"] == "open" for one in _record(bench, "d")):
            time.sleep(0.05)
        first.kill()
        first.wait()
        (pid,) = list_attempt_processes(bench.record("d")[0]["id"])
        ran = bench.run(bench.command("--yes", "--id-of-job", "d", "--", "true"))
        other = bench.run(bench.command("--yes", "--id-of-job", "e", "--", "true"))
        os.kill(pid, signal.SIGKILL)
    assert ran.returncode == 3
    assert f"end it: kill {pid}" in ran.stderr
    assert (other.returncode, "job d: attempt 1 still runs without costguard" in other.stderr) == (0, True)


def test_the_program_has_the_umask_and_the_limits_that_costguard_was_given(bench: Bench) -> None:
    says = "import os, resource; print(oct(os.umask(0)), resource.getrlimit(resource.RLIMIT_CORE)[0] != 0)"
    ran = subprocess.run(
        ["sh", "-c", 'umask 027; ulimit -S -c 1; exec "$@"', "sh", *bench.command("--yes", "--", sys.executable, "-c", says)],
        env=bench.env, cwd=bench.folder, capture_output=True, text=True, check=False, start_new_session=True,
    )  # fmt: skip
    assert ran.stdout == "0o27 True\n", ran.stderr


def test_the_arguments_of_the_command_are_its_own(bench: Bench) -> None:
    says = "import sys; print(sys.argv[1:])"
    ran = bench.run(bench.command("--yes", "--", sys.executable, "-c", says, "", "--debug", "--", "-y", "a b"))
    assert ran.stdout == "['', '--debug', '--', '-y', 'a b']\n", ran.stderr
    none = bench.run(bench.command("--yes", "--", "nosuch", "--debug"))
    assert (none.returncode, "Traceback" in none.stderr) == (127, False)


def test_bad_input_is_told_and_nothing_runs(bench: Bench, costguard: Command) -> None:
    (bench.folder / "notes.txt").write_text("mine")
    for arguments, said in (
        (("--result", "notes.txt", "--", "true"), "already exists and is not a run result"),
        (("--record", "notes.txt", "--", "true"), "cannot be read as the record of a job"),
        (("--rate", "cheap", "--", "true"), "is not an amount of money"),
    ):
        costguard("run", "--yes", *arguments).says(said)
    assert (bench.folder / "notes.txt").read_text() == "mine"


DIES = """
import os, signal, sys
from costguard.services.run_jobs import job_run, record_store
module, name = sys.argv[1].rsplit(".", 1)
place = {"job_run": job_run, "RunRecordStore": record_store.RunRecordStore}[module]
original = getattr(place, name)
def dying(*given, **named):
    original(*given, **named)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(place, name, dying)
from costguard.cli import run_cli
sys.exit(run_cli(["run", *sys.argv[2:]]))
"""
"""The command, ended by SIGKILL right after it has done one thing."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("point", "state", "hold"),
    [
        ("RunRecordStore.put_attempt", "never", None),
        ("job_run.set_money_aside", "never", "released"),
        ("job_run.start_child", "never", "released"),
        ("job_run.settle_attempt", "lost", "committed"),
    ],
)
def test_whenever_it_is_ended_by_sigkill_the_next_one_settles_what_is_open(
    bench: Bench, point: str, state: str, hold: str | None
) -> None:
    stated = ("--rate", "3600", "--max-usd", "50", "--yes", "--id-of-job", "d")
    slow = ("--", "sleep", "60" if point == "job_run.start_child" else "0.1")
    ran = bench.run([sys.executable, "-c", DIES, point, *stated, *slow])
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    (attempt,) = bench.record("d")
    while list_attempt_processes(attempt["id"]):
        time.sleep(0.05)
    again = bench.run(bench.command(*stated, "--", "true"))
    assert again.returncode == 0, again.stderr
    assert f"attempt 1 was {state}" in again.stderr
    assert [one["state"] for one in bench.record("d")] == [state, "ended"]
    assert [how for _, _, how, _ in bench.holds()] == [*([hold] if hold else []), "committed"]


def _record(bench: Bench, job: str) -> list[dict[str, object]]:
    try:
        return bench.record(job)
    except (FileNotFoundError, json.JSONDecodeError):
        return []
