"""`costguard status --watch`: redrawn on a terminal until Ctrl-C; the clouds are asked at most once a minute."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from costguard.cli import status
from costguard.services import CommandAnswer
from costguard.views.document import Document
from tests.cli.test_watch_terminal import LONGEST_S, settings
from tests.conftest import Command

COMMAND = [sys.executable, "-m", "costguard", "status", "--watch", "--every", "1s"]


def test_ctrl_c_ends_it_with_zero_and_leaves_the_last_drawing(tmp_path: Path) -> None:
    environ = settings(tmp_path)
    subprocess.run([*COMMAND[:3], "db", "upgrade"], cwd=tmp_path, env=environ, check=True, stdout=subprocess.DEVNULL)
    pid, terminal = pty.fork()
    if not pid:  # the child, whose controlling terminal this is
        os.chdir(tmp_path)
        os.execve(sys.executable, COMMAND, environ)  # noqa: S606 - that is what is tested
    drawn, until = b"", time.monotonic() + LONGEST_S
    while drawn.count(b"an hour") < 2:
        assert time.monotonic() < until, drawn
        drawn += os.read(terminal, 4096)
    os.write(terminal, b"\x03")
    try:
        while True:
            drawn += os.read(terminal, 4096)
    except OSError:  # the terminal of a process that ended
        pass
    _, ended = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(ended) == 0, drawn
    assert b"\x1b[?25h" in drawn, "the cursor is shown again"


def test_the_clouds_are_asked_at_most_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = [1000.0], []

    def answer(*, offline: bool) -> CommandAnswer:
        asked.append((now[0] - 1000, not offline))
        return CommandAnswer(document=Document(data={}, lead=("[providers.acme]: $1.00 an hour.",)))

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if now[0] > 1130:
            raise KeyboardInterrupt

    monkeypatch.setattr(status, "monotonic", lambda: now[0])
    monkeypatch.setattr(status, "sleep", sleep)
    status._redraw_until_interrupted(answer, status.DEFAULT_PAUSE, offline=False, wide=False)
    assert [at for at, clouds in asked if clouds] == [0, 60, 120]
    assert len(asked) == 14


def test_it_needs_a_terminal_and_tables_and_knows_its_flags(costguard: Command) -> None:
    costguard("status", "--watch").says("--watch", "needs a terminal")
    costguard("status", "--watch", "--json").says("--watch", "draws tables")
    costguard("status", "--watch", "--strict").says("--strict", "--watch does not have")
    costguard("status", "--every", "5s").says("--every", "add --watch")
