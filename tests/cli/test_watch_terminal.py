"""Closing the terminal of a `costguard watch` ends it; one that runs as a service reads its settings again."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

COMMAND = [sys.executable, "-m", "costguard", "watch", "--interval", "5s"]
LONGEST_S = 300.0


def wait_until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + LONGEST_S
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


def settings(folder: Path) -> dict[str, str]:
    (folder / "costguard.toml").write_text('[ledger]\nurl = "sqlite:///ledger.db"\n')
    return {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CACHE_HOME": str(folder)}


def test_a_closed_terminal_ends_the_watch(tmp_path: Path) -> None:
    environ = settings(tmp_path)
    pid, terminal = pty.fork()
    if not pid:  # the child, whose controlling terminal this is
        os.chdir(tmp_path)
        os.execve(sys.executable, COMMAND, environ)  # noqa: S606 - that is what is tested
    drawn = b""
    while b"an hour" not in drawn and b"started" not in drawn:
        drawn += os.read(terminal, 4096)
    os.close(terminal)
    ended: list[int] = []

    def over() -> bool:
        found, status = os.waitpid(pid, os.WNOHANG)
        ended.extend([status] if found else [])
        return bool(found)

    try:
        wait_until(over)
    finally:
        if not ended:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(ended[0]) in {0, 1}, "it ends by itself, and is not killed by the signal"


def test_a_service_goes_on_after_sighup(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        log.open("wb") as file,
        subprocess.Popen(
            [*COMMAND[:3], "--json-log", *COMMAND[3:]],
            stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=tmp_path, env=settings(tmp_path), start_new_session=True,
        ) as process,
    ):  # fmt: skip
        wait_until(lambda: b"started" in log.read_bytes())
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: b"reload" in log.read_bytes() or b"settings" in log.read_bytes())
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=LONGEST_S) == 0
