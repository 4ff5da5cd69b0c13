"""Schedulers: fake commands and small servers that answer as the real ones do.

Outputs: Slurm 22.05.8 (a controller and a node that ran); Ray 2.60.0 (dashboard/modules/job/pydantic_models.py JobDetails);
SkyPilot 0.14.1 (sky/skylet/job_lib.py create_table); dstack 0.22.5 (server/schemas/runner.py TaskListResponse).
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from costguard_agent import host, schedulers
from costguard_agent.http_client import UnansweredError
from costguard_agent.schedulers import slurm
from costguard_agent.signals import ProbeResult
from costguard_agent.sqlite_snapshot import open_snapshot

from tests.agent.near import Machine, answering
from tests.fakes.server import Answer

NODE = {"SLURMD_NODENAME": "gpu7"}
SQUEUE = r"""
for word in "$@"; do case $word in
  --nodelist=gpu7) printf 'RUNNING|None\nSUSPENDED|None\n'; exit;;
  --partition=gpu,long) printf 'PENDING|%s\n' Resources JobHeldUser Dependency DependencyNeverSatisfied; exit;;
esac; done
echo "squeue: error: asked otherwise: $*" >&2; exit 1
"""
SINFO = r"""
case "$*" in *--Node*--nodes=gpu7*) printf 'gpu\nlong\ngpu\n';; *--Node*) ;; *) printf 'gpu\nlong\ncpu\n';; esac
"""


def test_without_a_scheduler_nothing_is_said(tmp_path: Path) -> None:
    assert schedulers.probe_schedulers(Machine(tmp_path).around) == ProbeResult({})


def test_slurm_counts_what_runs_here_and_what_waits_for_this_node(tmp_path: Path) -> None:
    machine = Machine(tmp_path, **NODE)
    machine.command("squeue", SQUEUE)
    machine.command("sinfo", SINFO)
    assert schedulers.probe_schedulers(machine.around) == ProbeResult({"queue_jobs": 4.0})


def test_slurm_with_nothing_to_do_is_zero(tmp_path: Path) -> None:
    machine = Machine(tmp_path, **NODE)
    machine.command("squeue", "true")
    machine.command("sinfo", SINFO)
    assert schedulers.probe_schedulers(machine.around) == ProbeResult({"queue_jobs": 0.0})


@pytest.mark.parametrize(
    ("squeue", "sinfo", "why"),
    [
        ("sleep 60", SINFO, "squeue did not end in time"),
        (
            "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1",
            SINFO,
            "squeue ended with 1: slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        ),
        ("yes PENDING", SINFO, "squeue printed more than"),
        ("true", "true", "gpu7 is not a node of this cluster"),
        ("true", "exec /nowhere/sinfo", "sinfo ended with 127"),
        ("kill -9 $$", SINFO, "squeue ended with -9"),
    ],
)
def test_slurm_that_fails_or_hangs_makes_the_count_unknown_and_never_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, squeue: str, sinfo: str, why: str
) -> None:
    monkeypatch.setattr(slurm, "WITHIN_S", 0.5)
    machine = Machine(tmp_path, **NODE)
    machine.command("squeue", squeue)
    machine.command("sinfo", sinfo)
    seen = schedulers.probe_schedulers(machine.around)
    assert seen.signals == {}
    assert seen.unknown == ("queue_jobs",)
    assert why in seen.troubles[0]


def test_a_name_of_a_node_cannot_carry_another_option(tmp_path: Path) -> None:
    machine = Machine(tmp_path, SLURMD_NODENAME="gpu7 --all")
    machine.command("squeue", "true")
    machine.command("sinfo", SINFO)
    assert "contains invalid characters" in schedulers.probe_schedulers(machine.around).troubles[0]


def job(status: str, type_: str = "SUBMISSION") -> dict[str, object]:
    """As Ray's dashboard lists one."""
    times = {"start_time": 1763830000000, "end_time": None}
    more: dict[str, object] = {"entrypoint": "python t.py", "message": None, "metadata": {}, "runtime_env": {}}
    return {"type": type_, "job_id": "02000000", "submission_id": "raysubmit_kHfLkQ", "status": status, **times, **more}


def ray_runs(machine: Machine, port: int, *more: str) -> None:
    folder = "/opt/venv/lib/python3.11/site-packages/ray"
    machine.process(800, "gcs_server", words=(f"{folder}/core/src/ray/gcs/gcs_server", "--session-name=session_1"))
    options = ("--host=127.0.0.1", f"--port={port}", "--port-retries=0", "--temp-dir=/tmp/ray", *more)
    machine.process(801, "python", words=("/opt/venv/bin/python", "-u", f"{folder}/dashboard/dashboard.py", *options))


def test_ray_counts_jobs_that_are_pending_or_running(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    jobs = [job("PENDING"), job("RUNNING"), job("RUNNING", "DRIVER"), job("SUCCEEDED"), job("FAILED"), job("STOPPED")]
    with answering({"GET /api/jobs/": Answer.of(jobs)}) as (_, port):
        ray_runs(machine, port)
        assert schedulers.probe_schedulers(machine.around) == ProbeResult({"queue_jobs": 3.0})


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer.of({"result": False}, 401), "requires a token"),
        (Answer(status=500, body=b"<html>"), "answered 500"),
        (Answer.of([job("DREAMING")]), "an unknown state"),
        (Answer.of([7]), "an unknown state"),
    ],
)
def test_a_dashboard_that_does_not_say_makes_the_count_unknown(tmp_path: Path, answer: Answer, why: str) -> None:
    machine = Machine(tmp_path)
    with answering({"GET /api/jobs/": answer}) as (_, port):
        ray_runs(machine, port)
        seen = schedulers.probe_schedulers(machine.around)
    assert (seen.signals, seen.unknown) == ({}, ("queue_jobs",))
    assert why in seen.troubles[0]


def test_a_worker_of_ray_does_not_know_of_jobs(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.process(800, "raylet", words=("/usr/lib/python3/ray/core/src/ray/raylet/raylet", "--node_ip_address=10.0.0.2"))
    seen = schedulers.probe_schedulers(machine.around)
    assert seen.unknown == ("queue_jobs",)
    assert "only the dashboard knows the jobs" in seen.troubles[0]


def sky(machine: Machine, *states: str) -> None:
    """The queue of a node, made by SkyPilot's own statements."""
    path = machine.file("home/ubuntu/.sky/jobs.db", "")
    path.unlink()
    ledger = sqlite3.connect(path)
    ledger.execute("PRAGMA journal_mode=WAL")
    ledger.execute(
        """CREATE TABLE IF NOT EXISTS jobs (
        job_id INTEGER PRIMARY KEY AUTOINCREMENT, job_name TEXT, username TEXT, submitted_at FLOAT, status TEXT,
        run_timestamp TEXT CANDIDATE KEY, start_at FLOAT DEFAULT -1, end_at FLOAT DEFAULT NULL, resources TEXT DEFAULT NULL,
        pid INTEGER DEFAULT -1, log_dir TEXT DEFAULT NULL, metadata TEXT DEFAULT '{}')"""
    )
    ledger.executemany("INSERT INTO jobs (job_name, status) VALUES ('train', ?)", [(state,) for state in states])
    ledger.commit()
    ledger.close()


def replaced(machine: Machine, *statements: str) -> None:
    """The queue of a user who means harm."""
    path = machine.file("home/ubuntu/.sky/jobs.db", "")
    path.unlink()
    ledger = sqlite3.connect(path)
    for statement in statements:
        ledger.execute(statement)
    ledger.commit()
    ledger.close()


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT 'RUNNING' AS status FROM n"


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        ((f"CREATE VIEW jobs AS {ENDLESS}",), "jobs is not a table"),
        (("CREATE VIRTUAL TABLE jobs USING fts4(status)",), "jobs is not a table"),
        (
            ("CREATE TABLE jobs (x, status AS (hex(zeroblob(x))))", "INSERT INTO jobs (x) VALUES (400000000)"),
            "status is not a column that jobs stores",
        ),
        (("CREATE TABLE other (status)",), "jobs is not a table"),
    ],
)
def test_a_queue_that_would_compute_for_ever_is_not_queried(tmp_path: Path, statements: tuple[str, ...], why: str) -> None:
    machine = Machine(tmp_path)
    replaced(machine, *statements)
    begun = time.process_time()
    seen = schedulers.probe_schedulers(machine.around)
    assert time.process_time() - begun < 10
    assert (seen.signals, seen.unknown) == ({}, ("queue_jobs",))
    assert why in seen.troubles[0]


def test_a_query_that_takes_long_ends_at_its_deadline(tmp_path: Path) -> None:
    replaced(Machine(tmp_path), "CREATE TABLE jobs (status)", "INSERT INTO jobs VALUES ('RUNNING')")
    until = time.monotonic() + 0.2
    with open_snapshot(tmp_path / "home/ubuntu/.sky/jobs.db", until) as ledger, pytest.raises(sqlite3.OperationalError):
        ledger.execute(ENDLESS.replace("SELECT 'RUNNING' AS status", "SELECT COUNT(*)")).fetchone()
    assert time.monotonic() - until < 60


def _make_fifo(path: Path) -> None:
    os.mkfifo(path)


def _make_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10 * 2**30)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_make_fifo, "is not a regular file"),
        (Path.mkdir, "is not a regular file"),
        (lambda path: path.symlink_to("/proc/self/environ"), "is not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
        (_make_sparse, "has 10737418240 bytes, more than"),
    ],
)
@pytest.mark.parametrize("name", ["jobs.db", "jobs.db-wal"])
def test_what_is_no_file_of_a_usual_size_is_not_opened(
    tmp_path: Path, name: str, make: Callable[[Path], None], why: str
) -> None:
    machine = Machine(tmp_path)
    sky(machine, "RUNNING")
    machine.process(900, "python", words=SKYLET)
    path = tmp_path / "home/ubuntu/.sky" / name
    path.unlink(missing_ok=True)
    make(path)
    begun = time.process_time()
    seen = schedulers.probe_schedulers(machine.around)
    assert time.process_time() - begun < 10
    assert seen.signals == {}
    assert f"{name} {why}" in seen.troubles[0]


def test_jobs_that_stand_in_the_log_alone_are_counted_and_nothing_is_written_beside_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    sky(machine, "RUNNING")
    machine.process(900, "python", words=SKYLET)
    folder = tmp_path / "home/ubuntu/.sky"
    writer = sqlite3.connect(folder / "jobs.db")
    writer.execute("PRAGMA wal_autocheckpoint=0")
    writer.execute("INSERT INTO jobs (job_name, status) VALUES ('train', 'PENDING')")
    writer.commit()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert schedulers.probe_schedulers(machine.around) == ProbeResult({"queue_jobs": 2.0})
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    writer.close()


SKYLET = ("/home/ubuntu/skypilot-runtime/bin/python", "-m", "sky.skylet.skylet", "--port=46590")


def test_skypilot_counts_jobs_that_are_not_final(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    sky(
        machine, "INIT", "PENDING", "SETTING_UP", "RUNNING", "SUCCEEDED", "FAILED", "FAILED_SETUP", "FAILED_DRIVER", "CANCELLED"
    )
    machine.process(900, "python", words=SKYLET)
    assert schedulers.probe_schedulers(machine.around) == ProbeResult({"queue_jobs": 4.0})


def test_skypilots_own_ray_is_not_counted_beside_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    sky(machine, "RUNNING")
    machine.process(900, "python", words=SKYLET)
    with answering({"GET /api/jobs/": Answer.of([job("RUNNING")])}) as (server, port):
        ray_runs(machine, port, "--temp-dir=/tmp/ray_skypilot")
        machine.process(800, "gcs_server", words=("/x/ray/core/src/ray/gcs/gcs_server", "--temp-dir=/tmp/ray_skypilot"))
        assert schedulers.probe_schedulers(machine.around) == ProbeResult({"queue_jobs": 1.0})
    assert server.asked == []


def test_an_unfinished_job_that_nobody_would_end_is_unknown(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    sky(machine, "RUNNING")
    seen = schedulers.probe_schedulers(machine.around)
    assert (seen.signals, seen.unknown) == ({}, ("queue_jobs",))
    assert "skylet" in seen.troubles[0]


def test_a_queue_without_unfinished_jobs_is_zero_also_without_its_daemon(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    sky(machine, "SUCCEEDED")
    assert schedulers.probe_schedulers(machine.around) == ProbeResult({"queue_jobs": 0.0})


def test_dstack_counts_tasks_that_did_not_end(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.process(700, "dstack-shim", words=("/usr/local/bin/dstack-shim",))
    states = ("pending", "preparing", "pulling", "creating", "running", "terminated")
    tasks = {"ids": None, "tasks": [{"id": f"{n}", "status": state} for n, state in enumerate(states)]}
    with answering({"GET /api/tasks": Answer.of(tasks)}) as (_, port):
        machine.env["DSTACK_SHIM_HTTP_PORT"] = str(port)
        assert schedulers.probe_schedulers(machine.around) == ProbeResult({"queue_jobs": 5.0})


@pytest.mark.parametrize(
    "answer", [Answer.of({"ids": ["1"]}), Answer(status=404), Answer.of({"tasks": [{"id": "1", "status": "new"}]})]
)
def test_dstack_that_does_not_say_is_unknown(tmp_path: Path, answer: Answer) -> None:
    machine = Machine(tmp_path)
    machine.process(700, "dstack-shim", words=("/usr/local/bin/dstack-shim",))
    with answering({"GET /api/tasks": answer}) as (_, port):
        machine.env["DSTACK_SHIM_HTTP_PORT"] = str(port)
        assert schedulers.probe_schedulers(machine.around).unknown == ("queue_jobs",)


def test_what_is_known_of_one_scheduler_is_told_beside_what_is_unknown_of_another(tmp_path: Path) -> None:
    machine = Machine(tmp_path, **NODE)
    machine.command("squeue", SQUEUE)
    machine.command("sinfo", SINFO)
    sky(machine, "RUNNING")
    seen = schedulers.probe_schedulers(machine.around)
    assert seen.signals == {"queue_jobs": 4.0}
    assert seen.unknown == ("queue_jobs",)


def test_a_command_that_leaves_a_child_behind_is_ended_with_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    file = tmp_path / "pid"
    path = machine.command("slow", f"(sleep 300 & echo $! > {file}; wait)")
    with pytest.raises(UnansweredError, match="did not end in time"):
        host.run_command([str(path)], machine.around, within_s=1.0)
    child = int(file.read_text())
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"
    assert not host._hanging
