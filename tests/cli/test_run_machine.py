"""`costguard run` and its machine: the lease in the ledger, notices of its cloud, and what is done with it afterwards."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from costguard.data import ShippedFacts
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Complete, Poll
from costguard.metering.observation import Observation, Price
from costguard.services.run_jobs import job_run, machine_shutdown
from costguard.system.child.process import list_attempt_processes
from costguard.values.money import Rate
from costguard.values.resource import ResourceKey, ScopeKey
from tests.cli.ran import Bench
from tests.conftest import Command, Ran
from tests.system.child.terminals import terminal
from tests.system.child.test_notices import ACTION, metadata


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


TRAIN_1 = ResourceKey("aws", "123456789012", "us-east-1", "i-0a1b")


def listed(bench: Bench, key: ResourceKey = TRAIN_1) -> None:
    """The machine that we are on, in the ledger: a T4 of ada's at ten cents a second, for an hour."""
    now = datetime.now(UTC).replace(microsecond=0)
    seen = Observation(
        key=key,
        state="running",
        name="train-1",
        instance_type="g4dn.xlarge",
        gpu="T4",
        gpu_count=1,
        labels=(("owner", "ada"),),
        started_at=now - timedelta(hours=1),
        prices=(Price(Rate.parse("360")),),
    )
    polls = [
        Poll(scope=ScopeKey(*key[:3]), at=now - timedelta(minutes=m), inventory=Complete((seen,))) for m in range(60, -1, -4)
    ]
    with LedgerWriter(bench.url, rules=ShippedFacts().get_billing_rules(), ceilings={}) as ledger:
        ledger.record_polls(polls)


def leases(bench: Bench) -> list[tuple[str, str, bool]]:
    with sqlite3.connect(bench.folder / "ledger.db") as ledger:
        rows = ledger.execute("SELECT external_id, why, lifted_us IS NOT NULL FROM wish WHERE what = 'lease'").fetchall()
    return [(id_, why, bool(lifted)) for id_, why, lifted in rows]


def test_a_machine_of_the_ledger_is_priced_there_kept_meanwhile_and_let_go(bench: Bench) -> None:
    listed(bench)
    command = bench.command("--job", "job.toml", "--id", "train-1", "--yes", "--id-of-job", "demo", "--result", "r.json")
    ran = bench.run([*command, "--", sys.executable, "train.py", "0", "3", "0"])
    assert ran.returncode == 0, ran.stderr
    assert "at $360.0000/h (the ledger's train-1 (aws/123456789012/us-east-1/i-0a1b))" in ran.stderr
    assert "the machine is kept until" in ran.stderr
    assert leases(bench) == [("i-0a1b", "costguard run: job demo, attempt 1", True)]
    with sqlite3.connect(bench.folder / "ledger.db") as ledger:
        (found,) = ledger.execute("SELECT provider, account, owner, gpu, labels FROM hold").fetchall()
    assert found[:4] == ("aws", "123456789012", "ada", "T4")
    assert dict(json.loads(found[4])) == {"job": "demo", "owner": "ada"}


NVML = """
class NVMLError(Exception): pass
NAMES = {names!r}
def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlDeviceGetCount(): return len(NAMES)
def nvmlDeviceGetHandleByIndex(number): return number
def nvmlDeviceGetName(handle): return NAMES[handle]
"""
"""NVIDIA's library of a machine with these GPUs."""


@pytest.mark.parametrize(
    ("names", "on", "said"),
    [
        ([b"Tesla T4", b"Tesla T4"], (), "found here: T4:2"),
        (["Tesla T4", "NVIDIA A10G"], (), "several kinds of GPU were found here: NVIDIA A10G, Tesla T4"),
        (["NVIDIA A10G"], ("--on", "T4"), "--on says T4:1, but NVML finds 1 x NVIDIA A10G here"),
    ],
)
def test_the_gpus_are_those_that_nvml_finds(bench: Bench, names: list[str], on: tuple[str, ...], said: str) -> None:
    (bench.folder / "pynvml.py").write_text(NVML.format(names=names))
    env = bench.env | {"PYTHONPATH": f"{bench.folder}:{bench.env['PYTHONPATH']}"}
    ran = bench.run(bench.command("--job", "job.toml", "--rate", "1", "--yes", *on, "--", "true"), env=env)
    assert said in ran.stderr
    assert ran.returncode == (0 if said.startswith("found here:") or on else 2)


def test_the_machine_that_its_cloud_names_is_found_in_the_ledger(bench: Bench) -> None:
    listed(bench, ResourceKey("runpod", "main", "EU-RO-1", "k3v9x2m0000000"))
    env = bench.env | {"RUNPOD_POD_ID": "k3v9x2m0000000"}
    ran = bench.run(bench.command("--yes", "--", "true"), env=env)
    assert ran.returncode == 0, ran.stderr
    assert "on T4 x1, at $360.0000/h (the ledger's train-1 (runpod/main/EU-RO-1/k3v9x2m0000000))" in ran.stderr


def test_a_spot_notice_runs_the_hook_and_signals_the_job(bench: Bench) -> None:
    says = "import signal, sys, time; signal.signal(signal.SIGUSR1, lambda *_: sys.exit(75)); print('up'); time.sleep(60)"
    with metadata({ACTION: '{"action": "terminate", "time": "2026-11-22T19:02:00Z"}'}) as base:
        (bench.folder / "save.sh").write_text(
            'echo "$COSTGUARD_REASON for $COSTGUARD_NAME" > saved; '
            "grep SigBlk /proc/self/status > blocked; umask > mask; until grep -q ended data/*/runs/*; do sleep 0.1; done\n"
        )
        command = bench.command(
            "--yes", "--id-of-job", "demo", "--on-notice", "sh save.sh", "--signal-on-notice", "usr1", "--result", "r.json"
        )
        env = bench.env | {"AWS_EC2_METADATA_SERVICE_ENDPOINT": base}
        ran = bench.run([*command, "--", sys.executable, "-c", says], env=env)
    assert ran.returncode == 75, ran.stderr
    assert "aws will take this machine away soon: terminate at 2026-11-22T19:02:00Z" in ran.stderr
    assert "the job was sent SIGUSR1" in ran.stderr
    assert "--on-notice succeeded" in ran.stderr
    assert (bench.folder / "saved").read_text() == "terminate at 2026-11-22T19:02:00Z for demo\n"
    assert len(json.loads((bench.folder / "r.json").read_text())["notices"]) == 1
    assert int((bench.folder / "blocked").read_text().split()[1], 16) == 0, "it can be asked to end"
    assert int((bench.folder / "mask").read_text(), 8) == int(bench.run(["sh", "-c", "umask"]).stdout, 8)


@contextmanager
def runpod(asked: list[str]) -> Iterator[dict[str, str]]:
    """RunPod's GraphQL for one pod, and the variables of that pod."""

    class Pod(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["query"]
            asked.append("stop" if "podStop" in query else "terminate" if "podTerminate" in query else "read")
            pod = {"id": "k3v9x2m0000000", "desiredStatus": "RUNNING", "networkVolumeId": None, "volumeInGb": 20}
            name = "podStop" if asked[-1] == "stop" else "pod"
            said = {**pod, "desiredStatus": "EXITED"} if asked[-1] == "stop" else pod
            body = json.dumps({"data": {name: said}}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    served = ThreadingHTTPServer(("127.0.0.1", 0), Pod)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{served.server_address[1]}"
    try:
        yield {
            "RUNPOD_POD_ID": "k3v9x2m0000000",
            "RUNPOD_API_KEY": "of-this-pod",
            "COSTGUARD_RUNPOD_GRAPHQL": f"{base}/graphql",
            "COSTGUARD_RUNPOD_REST": f"{base}/v2",
        }
    finally:
        served.shutdown()
        served.server_close()


SOON = """
import os, sys
from functools import partial
from costguard.services.run_jobs import job_run, machine_shutdown
job_run.perform_end_action = partial(machine_shutdown.perform_end_action, seconds=int(os.environ.get("SECONDS", "1")))
machine_shutdown.find_others = lambda attempt: iter(())
from costguard.cli import run_cli
sys.exit(run_cli(["run", *sys.argv[1:]]))
"""
"""The command with a countdown of a second, and blind for other runs: those of other tests live beside it."""
POD = ResourceKey("runpod", "main", "EU-RO-1", "k3v9x2m0000000")


@pytest.fixture
def soon(bench: Bench, costguard: Command, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """`costguard run` of this process, as SOON has it."""
    monkeypatch.setattr(job_run, "perform_end_action", partial(machine_shutdown.perform_end_action, seconds=1))
    monkeypatch.setattr(machine_shutdown, "find_others", lambda _: iter(()))

    def run(variables: dict[str, str], *words: str) -> Ran:
        for name, value in (bench.env | variables).items():
            monkeypatch.setenv(name, value)
        return costguard("run", *words)

    return run


def test_any_key_keeps_the_machine(bench: Bench) -> None:
    asked: list[str] = []
    with runpod(asked) as variables:
        command = [sys.executable, "-c", SOON, "--yes", "--then", "stop", "--", "true"]
        with terminal(command, bench.env | variables | {"SECONDS": "60"}, cwd=str(bench.folder)) as screen:
            screen.until(b"any key keeps it")
            assert b"Lost: its container disk" in screen.seen.replace(b"\r\n", b" ")
            screen.type(b" ")
            screen.until(b"it is kept")
            assert screen.end() == 0
    assert "stop" not in asked


def test_nobody_keeps_it_and_it_is_stopped_once(bench: Bench, soon: Callable[..., Ran]) -> None:
    asked: list[str] = []
    listed(bench, POD)
    with runpod(asked) as variables:
        words = ("--yes", "--id", "train-1", "--then", "stop", "--yes-then", "--result", "r.json", "--", "true")
        ran = soon(variables, *words)
    assert ran.code == 0, ran.err
    assert asked.count("stop") == 1
    assert json.loads((bench.folder / "r.json").read_text())["then"]["done"] is True


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("said", "why"),
    [
        (("protect", "train-1", "--why", "demo on Monday"), "protects it: demo on Monday"),
        (("keep", "train-1", "--for", "2h", "--why", "my notebook"), "my notebook"),
        (("phase", "download", "--id", "train-1", "--for", "2h"), "download"),
        (("freeze", "--why", "we look into it"), "froze all acts: we look into it"),
    ],
    ids=lambda said: said[0] if isinstance(said, tuple) else "",
)
@pytest.mark.parametrize("stated", [("--id", "train-1"), ()], ids=["stated", "by-its-cloud"])
def test_what_somebody_wants_to_stay_is_not_stopped_after_the_job(
    bench: Bench, soon: Callable[..., Ran], said: tuple[str, ...], why: str, stated: tuple[str, ...]
) -> None:
    asked: list[str] = []
    listed(bench, POD)
    wished = bench.run([sys.executable, "-m", "costguard", *said])
    assert wished.returncode == 0, wished.stderr
    with runpod(asked) as variables:
        words = ("--yes", *stated, "--then", "stop", "--yes-then", "--result", "r.json", "--", "true")
        ran = soon(variables, *words)
    assert ran.code == 0, ran.err
    assert "stop" not in asked
    then = json.loads((bench.folder / "r.json").read_text())["then"]
    assert (then["done"], why in then["why"]) == (False, True), then


def test_an_id_of_another_machine_than_this_is_refused_before_anything_is_asked_of_it(
    bench: Bench, soon: Callable[..., Ran]
) -> None:
    asked: list[str] = []
    listed(bench)
    with runpod(asked) as variables:
        words = ("--yes", "--id", "train-1", "--then", "terminate", "--yes-then", "--", "true")
        ran = soon(variables, *words)
    assert ran.code == 2, ran.err
    assert "--id: is train-1 (aws/123456789012/us-east-1/i-0a1b), and this machine is runpod's k3v9x2m0000000" in ran.err
    assert "terminate" not in asked


def test_a_freeze_holds_for_a_machine_that_the_ledger_does_not_know(bench: Bench, soon: Callable[..., Ran]) -> None:
    asked: list[str] = []
    frozen = bench.run([sys.executable, "-m", "costguard", "freeze", "--why", "we look into it"])
    assert frozen.returncode == 0, frozen.stderr
    with runpod(asked) as variables:
        words = ("--yes", "--then", "stop", "--yes-then", "--result", "r.json", "--", "true")
        ran = soon(variables, *words)
    then = json.loads((bench.folder / "r.json").read_text())["then"]
    assert (ran.code, then["done"], "froze all acts: we look into it" in then["why"]) == (0, False, True), then
    assert "stop" not in asked


LEFT = SOON.replace(
    "machine_shutdown.find_others = lambda attempt: iter(())",
    "machine_shutdown.LINGER_LIMIT_S, machine_shutdown.list_command_lines = 0.0, lambda around: ()\n"
    "seen = machine_shutdown.list_attempts\n"
    "machine_shutdown.list_attempts = lambda: {one: pids for one, pids in seen().items() if one.startswith('left-')}",
)
"""The command as it is, but for a shorter wait, and with eyes for this test's own processes alone."""


def test_what_the_job_left_running_keeps_the_machine_after_a_moment(bench: Bench) -> None:
    asked: list[str] = []
    job = f"left-{os.getpid()}"
    with runpod(asked) as variables:
        words = ("--yes", "--id-of-job", job, "--then", "stop", "--yes-then", "--", "sh", "-c", "sleep 60 >/dev/null 2>&1 &")
        ran = bench.run([sys.executable, "-c", LEFT, *words], env=bench.env | variables)
    (attempt,) = bench.record(job)
    for pid in list_attempt_processes(attempt["id"]):
        os.kill(pid, signal.SIGKILL)
    assert (ran.returncode, "processes of the job are still running" in ran.stderr) == (0, True), ran.stderr
    assert "stop" not in asked


def test_it_is_kept_after_a_failure(bench: Bench, soon: Callable[..., Ran]) -> None:
    asked: list[str] = []
    with runpod(asked) as variables:
        words = ("--yes", "--then", "stop", "--yes-then", "--result", "r.json", "--", "false")
        assert soon(variables, *words).code == 1
        then = json.loads((bench.folder / "r.json").read_text())["then"]
        assert (then["done"], "the job ended with status 1" in then["why"]) == (False, True), then
        assert (soon(variables, "--then-always", *words).code, asked.count("stop")) == (1, 1)


def test_it_is_kept_where_nothing_is_certain(bench: Bench, soon: Callable[..., Ran]) -> None:
    words = ("--yes", "--then", "terminate", "--yes-then", "--result", "r.json", "--", "true")
    assert soon({}, *words).code == 0
    then = json.loads((bench.folder / "r.json").read_text())["then"]
    assert (then["done"], "not a known machine" in then["why"]) == (False, True), then
