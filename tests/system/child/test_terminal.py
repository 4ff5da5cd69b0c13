"""The countdown before a machine is ended, on real terminals: whoever cannot have seen it end has not let it end."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.system.child.terminals import CTRL_C, CTRL_Z, terminal
from tests.system.child.test_attending import ENV, settle

COUNTS = """
import sys
from costguard.system.child.process import block_signals
from costguard.system.child.terminal import run_countdown
with block_signals() as heard:
    gone = run_countdown(int(sys.argv[1]), "stop", heard)
print("gone" if gone else "kept", flush=True)
"""
STOP, GO = b"\x13", b"\x11"
"""Ctrl-S and Ctrl-Q: the terminal takes nothing in between."""


@pytest.mark.parametrize("key", [b" ", CTRL_C, CTRL_Z, b"\x1c"], ids=["space", "ctrl-c", "ctrl-z", "quit"])
def test_any_key_keeps_it(key: bytes) -> None:
    with terminal([sys.executable, "-c", COUNTS, "60"], ENV) as screen:
        screen.until(b"any key keeps it")
        screen.type(key)
        screen.until(b"kept")


def test_seconds_in_which_it_was_stopped_do_not_count() -> None:
    with terminal([sys.executable, "-c", COUNTS, "3"], ENV) as screen:
        screen.until(b"in 3 s")
        os.kill(screen.process.pid, signal.SIGSTOP)
        for _ in range(6):
            settle()
        os.kill(screen.process.pid, signal.SIGCONT)
        screen.until(b"in 2 s")
        screen.type(b" ")
        screen.until(b"kept")


def test_seconds_in_which_the_terminal_takes_nothing_count_no_key_as_lost() -> None:
    with terminal([sys.executable, "-c", COUNTS, "2"], ENV) as screen:
        screen.until(b"in 2 s")
        screen.type(STOP)
        settle()
        screen.type(b"x")
        for _ in range(5):
            settle()
        screen.type(GO)
        screen.until(b"kept")


def test_nobody_keeps_it() -> None:
    with terminal([sys.executable, "-c", COUNTS, "1"], ENV) as screen:
        screen.until(b"gone")


@pytest.mark.proof
def test_what_is_said_is_not_waited_for_where_nobody_reads(tmp_path: Path) -> None:
    """A pipe that is full, as of a reader that sleeps."""
    says = "import os; from costguard.system.child import terminal; terminal.WRITABLE_WITHIN_S = 0.05\n"
    says += "for _ in range(1100): taken = terminal.write_stderr('x' * 64)\nos._exit(0 if not taken else 1)"
    reading, writing = os.pipe()
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-c", says],
            {**ENV, "HOME": str(tmp_path)},
            file_actions=[(os.POSIX_SPAWN_DUP2, writing, 2)],
        )
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        os.close(reading)
        os.close(writing)
