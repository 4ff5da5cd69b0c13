"""Signals and keys reach a program under costguard as they would without it: real processes on real terminals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from costguard.system.child.process import list_attempt_processes
from tests.system.child.terminals import CTRL_C, CTRL_Z, PATIENCE_S, terminal

ROOT = Path(__file__).parents[2]
DRIVER = [sys.executable, "-m", "tests.system.child.driver"]
ENV = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{ROOT / 'agent'}", "TERM": "xterm", "PYTHONDONTWRITEBYTECODE": "1"}

COUNTS = r"""
import os, signal, sys, time
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGWINCH, signal.SIGCONT):
    signal.signal(number, lambda number, frame: os.write(1, f"got {signal.Signals(number).name}\n".encode()))
os.write(1, b"ready\n")
for _ in range(1200):
    time.sleep(0.05)
"""
"""Says which signals it gets, and ends of none of them."""
WAITS = "import time; print('ready', flush=True); time.sleep(60)"


def code(text: str) -> list[str]:
    return [*DRIVER, sys.executable, "-c", text]


def started(command: list[str]) -> subprocess.Popen[bytes]:
    """Without a terminal, in a session of its own."""
    return subprocess.Popen(command, env=ENV, stdout=subprocess.PIPE, start_new_session=True)


def settle() -> None:
    """Long enough for a second copy of a signal to arrive, if there were one, and for the next key to count."""
    time.sleep(0.6)


def test_ctrl_c_reaches_the_program_once_and_its_exit_code_is_passed_on() -> None:
    with terminal(code(WAITS), ENV) as screen:
        screen.until(b"ready")
        screen.type(CTRL_C)
        assert screen.end() == 130
    with terminal(code(COUNTS), ENV) as screen:
        screen.until(b"ready")
        screen.type(CTRL_C)
        screen.until(b"got SIGINT")
        settle()
        screen.resize(40, 100)
        screen.until(b"got SIGWINCH")
        assert screen.seen.count(b"got SIGINT") == 1
        assert screen.seen.count(b"got SIGWINCH") == 1


def test_ctrl_c_again_asks_to_end_and_once_more_ends_all_that_it_began() -> None:
    begins = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']){COUNTS}"
    env = ENV | {"COSTGUARD_RUN": f"test-{os.getpid()}"}
    with terminal(code(begins), env) as screen:
        screen.until(b"ready")
        screen.type(CTRL_C)
        screen.until(b"got SIGINT")
        settle()
        screen.type(CTRL_C)
        screen.until(b"got SIGTERM")
        screen.until(b"A third time kills it")
        settle()
        screen.type(CTRL_C)
        assert screen.end() == 137
        assert list_attempt_processes(env["COSTGUARD_RUN"]) == []


def test_a_terminal_that_closes_ends_what_does_not_want_to_outlive_it() -> None:
    with terminal(code(WAITS), ENV) as screen:
        screen.until(b"ready")
        screen.hang_up()
        assert screen.end() == 129


def test_ctrl_z_stops_both_and_a_shell_brings_both_back(tmp_path: Path) -> None:
    script = tmp_path / "counts.py"
    script.write_text(COUNTS)
    with terminal(["bash", "--norc", "--noprofile", "-i"], ENV, cwd=str(tmp_path)) as screen:
        screen.type(f"{' '.join(DRIVER)} {sys.executable} {script}\n".encode())
        screen.until(b"ready")
        screen.type(CTRL_Z)
        screen.until(b"Stopped")
        screen.type(b"jobs -p; echo now\n")
        screen.until(b"now", times=2)
        screen.type(b"fg\n")
        screen.until(b"got SIGCONT")
        screen.type(CTRL_C)
        screen.until(b"got SIGINT")
        settle()
        screen.type(CTRL_C)
        screen.until(b"got SIGTERM")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_without_a_terminal_a_signal_to_costguard_is_passed_on_once(number: signal.Signals) -> None:
    process = started(code(COUNTS))
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.stdout.readline() == f"got {number.name}\n".encode()
        settle()
        process.send_signal(signal.SIGUSR1 if number != signal.SIGUSR1 else signal.SIGHUP)
        assert process.stdout.readline() in (b"got SIGUSR1\n", b"got SIGHUP\n"), "nothing came twice"
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # and so its program, by the kernel
        process.wait()
        process.stdout.close()


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    def ignoring() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    says = "import signal; print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, flush=True); import time; time.sleep(60)"
    process = subprocess.Popen(
        code(says),
        env=ENV,
        stdout=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=ignoring,  # noqa: PLW1509 - there is one thread
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"True\n"
        process.send_signal(signal.SIGHUP)
        settle()
        assert process.poll() is None
        process.terminate()
        assert process.wait(PATIENCE_S) == 143


@pytest.mark.parametrize("outlives", [False, True])
def test_where_costguard_is_ended_by_sigkill_the_kernel_asks_the_program_to_end_unless_it_was_to_outlive_it(
    outlives: bool,  # noqa: FBT001 - a parameter of a test
) -> None:
    run = f"test-{os.getpid()}-{outlives}"
    command = [*DRIVER, *(["--outlive"] if outlives else []), sys.executable, "-c", COUNTS]
    process = subprocess.Popen(command, env=ENV | {"COSTGUARD_RUN": run}, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.kill()
    process.wait()
    try:
        left = list_attempt_processes(run)
        assert len(left) == 1, "it handles SIGTERM, and so it lives"
        if outlives:
            os.kill(left[0], signal.SIGUSR1)
        assert process.stdout.readline() == (b"got SIGUSR1\n" if outlives else b"got SIGTERM\n")
    finally:
        for pid in list_attempt_processes(run):
            os.kill(pid, signal.SIGKILL)
        process.stdout.close()


def test_a_command_that_there_is_not_and_one_that_cannot_be_run_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("not a program\n")
    (tmp_path / "odd.sh").write_text("echo hello\n")
    (tmp_path / "odd.sh").chmod(0o755)
    cases = [
        ("nosuch", 127, "no such command"),
        ("./data.txt", 126, "cannot be executed"),
        ("./odd.sh", 126, "is not a program"),
    ]
    for command, status, said in cases:
        ran = subprocess.run([*DRIVER, command], env=ENV, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (ran.returncode, said in ran.stderr) == (status, True), ran


def test_streams_and_open_files_are_those_that_costguard_was_given(tmp_path: Path) -> None:
    says = "import os, sys; print(sys.stdin.read().upper(), end=''); os.write(3, b'three'); os.write(2, b'two')"
    command = f'exec {" ".join(DRIVER)} {sys.executable} -c "$CODE" 3> {tmp_path}/three'
    ran = subprocess.run(["sh", "-c", command], env=ENV | {"CODE": says}, input=b"typed\n", capture_output=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"TYPED\n", b"two"), ran
    assert (tmp_path / "three").read_bytes() == b"three"
