"""Who else works on a machine that is to be ended after a job: real processes, and a GPU of a machine that is a folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from costguard.services.run_jobs.machine_shutdown import find_others
from costguard.system.child.process import RUN_ENV

WAITS = "import sys; sys.stdout.write('up\\n'); sys.stdout.flush(); sys.stdin.read()"


@contextmanager
def waiting(**env: str) -> Iterator[int]:
    """A process that waits, of this command line and these variables."""
    command = [sys.executable, "-c", WAITS]
    with subprocess.Popen(command, env=os.environ | env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"up\n"
        yield process.pid
        process.stdin.close()


def told(attempt: str, pid: int, **machine: Path) -> list[str]:
    """What is told of this process, beside other tests' runs."""
    return [line for line in find_others(attempt, **machine) if str(pid) in line.replace(":", " ").split()]


def test_what_the_job_left_and_other_runs_are_told_apart(tmp_path: Path) -> None:
    with waiting(**{RUN_ENV: "job.1-a"}) as pid:
        assert told("job.1-a", pid, devices=tmp_path) == [f"processes of the job are still running: {pid}"]
        assert told("job.2-b", pid, devices=tmp_path) == [f"attempt job.1-a also runs here: {pid}"]


def test_a_run_whose_record_lies_anywhere_and_of_any_user_is_seen_by_its_command_line(tmp_path: Path) -> None:
    script = tmp_path / "costguard"
    script.write_text(WAITS)
    with subprocess.Popen([sys.executable, script, "run"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        assert told("job.1-a", process.pid, devices=tmp_path) == [f"another costguard run is active here: {process.pid}"]
        process.stdin.close()


def test_a_run_within_a_run_ends_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(RUN_ENV, "outer.1-a")
    assert "attempt outer.1-a, which started this run, is still running" in list(find_others("inner.1-b", devices=tmp_path))


def nvml(pids: list[int]) -> ModuleType:
    """NVIDIA's library of one GPU on which it sees these processes."""
    made = ModuleType("pynvml")
    made.NVMLError = type("NVMLError", (Exception,), {"value": 3})  # type: ignore[attr-defined]
    made.nvmlInit = made.nvmlShutdown = lambda: None  # type: ignore[attr-defined]
    made.nvmlDeviceGetCount = lambda: 1  # type: ignore[attr-defined]
    made.nvmlDeviceGetHandleByIndex = lambda number: number  # type: ignore[attr-defined]
    made.nvmlDeviceGetUUID = lambda _: "GPU-1"  # type: ignore[attr-defined]
    made.nvmlDeviceGetComputeRunningProcesses = lambda _: [SimpleNamespace(pid=pid) for pid in pids]  # type: ignore[attr-defined]
    made.nvmlDeviceGetGraphicsRunningProcesses = lambda _: []  # type: ignore[attr-defined]
    return made


@pytest.mark.parametrize(
    ("by_nvml", "there", "said"),
    [
        ([], ("jupyter", "/dev/nvidia0"), "1 other processes use the GPUs: 77"),
        ([], ("nvidia-persiste", "/dev/nvidia0"), ""),
        ([], ("jupyter", "/dev/nvidiactl"), ""),
        ([4711], ("jupyter", "/dev/null"), "1 other processes use the GPUs: 4711"),
    ],
    ids=["open", "daemon", "control", "nvml"],
)
def test_whoever_has_a_gpu_open_is_seen_where_nvml_tells_of_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, by_nvml: list[int], there: tuple[str, str], said: str
) -> None:
    devices, proc = tmp_path / "dev", tmp_path / "proc"
    devices.mkdir()
    (devices / "nvidia0").touch()
    (proc / "77" / "fd").mkdir(parents=True)
    (proc / "77" / "fd" / "3").symlink_to(there[1])
    (proc / "77" / "stat").write_text(f"77 ({there[0]}) S 1 {' '.join(['0'] * 17)} 5 0\n")
    (proc / "self" / "ns").mkdir(parents=True)
    (proc / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
    monkeypatch.setitem(sys.modules, "pynvml", nvml(by_nvml))
    found = [line for line in find_others("job.1-a", devices=devices, proc=proc) if "GPU" in line]
    assert found == ([said] if said else [])
