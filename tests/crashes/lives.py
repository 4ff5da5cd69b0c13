"""Starting the process that records, and killing it at a moment that nothing in it can foresee."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.crashes.places import ROOT, environment
from tests.crashes.recorder import PHASE_BYTES, PHASE_FILE, PHASES

PATIENCE_S = 60.0
EVERYTHING = 10**9


@dataclass(slots=True)
class Life:
    """What one process said before it was killed. `phase`: what it was doing, by its own last word.

    `code`: how it ended, -9 where it was killed; 0: it had finished before that; anything else: an error. `windows`: where.
    """

    acknowledged: list[int] = field(default_factory=list)
    phase: str = ""
    code: int | None = None
    windows: list[str] = field(default_factory=list)

    def hear(self, line: str) -> None:
        """Take down one line of it."""
        word, _, number = line.partition(" ")
        if word == "ack":
            self.acknowledged.append(int(number))
        elif word == "ended":
            code, _, windows = number.partition(" ")
            self.code, self.windows = int(code), windows.split(",") if windows else []


@dataclass(frozen=True, slots=True)
class At:
    """Where a life dies by its own hand: `delay_us` after it came to `point` for the `nth` time. `pages`: see the recorder."""

    point: str = "-"
    nth: int = 1
    delay_us: int = 0
    pages: int = 1000


NOWHERE = At()


@dataclass(slots=True)
class Recorder:
    """A process that records, or forks others that do, over `ledger`. `rest`: what it said and nobody has read."""

    ledger: Path
    process: subprocess.Popen[bytes]
    rest: bytes = b""

    def lines(self, until: float) -> Iterator[str]:
        """Whole lines as they come, until that time on the monotonic clock. The last one of a process says how it ended."""
        assert self.process.stdout is not None
        while True:
            while b"\n" in self.rest:
                line, self.rest = self.rest.split(b"\n", maxsplit=1)
                yield line.decode()
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                return
            read = os.read(self.process.stdout.fileno(), 1 << 16)
            if not read:
                yield f"ended {self.process.wait(PATIENCE_S)}"
                return
            self.rest += read

    def line(self) -> str:
        """The next line, which must come."""
        return next(self.lines(time.monotonic() + PATIENCE_S))


@contextmanager
def fork_server(story: Path, ledger: Path) -> Iterator[Recorder]:
    """A process that imports everything once, and forks a life whenever it is asked."""
    with _started(["serve", str(story)], stdin=subprocess.PIPE) as process:
        yield Recorder(ledger, process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0


def forked(
    server: Recorder,
    after_s: float,
    *,
    task: str = "record",
    from_birth: bool = False,
    most: int = EVERYTHING,
    at: At = NOWHERE,
) -> Life:
    """One life of the fork server: killed `after_s` seconds after it began to record (`from_birth`: after it was born).

    Or once it has acknowledged `most` listings, so that there is something left for the lives to come, or where `at` says.
    """
    assert server.process.stdin is not None
    _no_phase(server.ledger)
    words = (task, server.ledger, at.point, at.nth, at.delay_us, at.pages)
    server.process.stdin.write(f"{'|'.join(map(str, words))}\n".encode())
    server.process.stdin.flush()
    return _lived(server, after_s, from_birth=from_birth, most=most)


def cold(story: Path, ledger: Path, after_s: float, *, task: str = "record", from_birth: bool = False) -> Life:
    """The same of a process that starts from nothing."""
    _no_phase(ledger)
    with _started(["once", task, str(story), str(ledger)]) as process:
        return _lived(Recorder(ledger, process), after_s, from_birth=from_birth, most=EVERYTHING)


def _lived(one: Recorder, after_s: float, *, from_birth: bool, most: int) -> Life:
    """Listen to a life until its time has come, and kill it. What it said before it died is still in the pipe."""
    life, pid = Life(), int(one.line().removeprefix("life "))
    if not from_birth:
        begun = one.line()
        assert begun == "ready", f"it did not come to record: {begun}"
    for line in one.lines(time.monotonic() + after_s):
        life.hear(line)
        if life.code is not None:
            break
        if len(life.acknowledged) >= most:
            time.sleep(after_s / 50)  # not at the acknowledgement itself
            break
    if life.code is None:
        with suppress(ProcessLookupError):  # it has just finished
            os.kill(pid, signal.SIGKILL)
        for line in one.lines(time.monotonic() + PATIENCE_S):
            life.hear(line)
            if life.code is not None:
                break
    life.phase = PHASES[one.ledger.with_name(PHASE_FILE).read_bytes()[0]]
    return life


def _no_phase(ledger: Path) -> None:
    """Forget what the life before was doing."""
    ledger.with_name(PHASE_FILE).write_bytes(bytes(PHASE_BYTES))


@contextmanager
def _started(words: list[str], stdin: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.crashes.recorder", *words]
    with subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, cwd=ROOT, env=environment()) as process:
        try:
            yield process
        finally:
            process.kill()
