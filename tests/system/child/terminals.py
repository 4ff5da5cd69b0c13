"""A terminal that a test types into, with a real program on it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

CTRL_C, CTRL_Z = b"\x03", b"\x1a"
PATIENCE_S = 120.0
"""Until a test gives up: nothing here is measured by the clock."""


@dataclass(slots=True)
class Screen:
    """The master side. `seen`: everything that came so far."""

    master: int
    process: subprocess.Popen[bytes]
    seen: bytes = field(default=b"")

    def type(self, keys: bytes) -> None:
        """Type."""
        os.write(self.master, keys)

    def until(self, wanted: bytes, *, times: int = 1) -> bytes:
        """Everything that was seen, once `wanted` stands in it so many times."""
        until = time.monotonic() + PATIENCE_S
        while self.seen.count(wanted) < times:
            assert time.monotonic() < until, (wanted, self.seen)
            ended = self.process.poll() is not None
            assert self._read() or not ended, (wanted, self.seen)
        return self.seen

    def resize(self, rows: int, columns: int) -> None:
        """Another size of the window."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def end(self) -> int:
        """The exit code of the program, once it has ended, as a shell has it."""
        until = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < until, self.seen
            self._read()
        self._read()
        return self.process.returncode if self.process.returncode >= 0 else 128 - self.process.returncode

    def _read(self) -> bool:
        """Return whether anything came."""
        if self.master >= 0 and select.select([self.master], [], [], 0.05)[0]:
            with suppress(OSError):
                self.seen += (came := os.read(self.master, 65536))
                return bool(came)
        return False

    def hang_up(self) -> None:
        """The window is closed."""
        os.close(self.master)
        self.master = -1


@contextmanager
def terminal(command: Sequence[str], env: Mapping[str, str], cwd: str | None = None) -> Iterator[Screen]:
    """`command` as the leader of a session on a terminal of its own."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        command,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=dict(env),
        cwd=cwd,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - there is one thread
    )
    os.close(slave)
    screen = Screen(master, process)
    try:
        yield screen
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, 9)
        process.wait()
        if screen.master >= 0:
            os.close(screen.master)
