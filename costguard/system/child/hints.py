"""Hints from the program: it tells its steps by datagram, each read as it comes, in a thread of its own.

Whoever sends more than are read waits (the kernel holds ten), and a job must never wait for us. The socket lies in a folder of
this user's alone, and $COSTGUARD_HINTS tells the program where. Where an agent listens on this machine, every hint is handed on
to it as it came. Whatever comes is bounded, and what cannot be read is left out.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from costguard_agent.hints import HINT_MOST, PROGRESS_HINT, SOCKET_ENV

MOST_PATH = 100
"""Bytes of a socket's path: Linux takes 108, with a NUL."""
CLOSES_WITHIN_S = 2.0


class HintReceiver:
    """Where the program's hints come in. `path`: of the socket, "" where none could be made: then there are no hints.

    `agents`: sockets of the agent, the first that is there is handed what comes.
    """

    def __init__(self, agents: Sequence[str] = ()) -> None:
        self._agent = next((path for path in agents if os.path.exists(path)), "")  # noqa: PTH110 - it may be unreadable
        self.path, self._folder = "", ""
        self._first: int | None = None
        self._last: int | None = None
        self._lock = threading.Lock()
        self._reader: threading.Thread | None = None
        self._closing = False
        try:
            self._socket: socket.socket | None = self._open_socket()
        except OSError:
            self._socket = None

    def begin(self) -> None:
        """Read from now on."""
        if self._socket is not None:
            self._reader = threading.Thread(target=self._read, args=(self._socket,), daemon=True, name="hints")
            self._reader.start()

    def take_steps(self) -> list[int]:
        """The first and the newest of the steps that were told since the last look."""
        with self._lock:
            found = [step for step in (self._first, self._last) if step is not None]
            self._first = self._last = None
        return found

    def build_environment(self) -> dict[str, str]:
        """What the program is told."""
        return {SOCKET_ENV: self.path} if self.path else {}

    def close(self) -> None:
        """Read what has come, and have no socket any more."""
        if self._socket is not None:
            self._closing = True
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RD)  # the reader is told so after the last datagram
            if self._reader is not None:
                self._reader.join(CLOSES_WITHIN_S)
            self._socket.close()
            self._socket = None
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _open_socket(self) -> socket.socket:
        base = os.environ.get("XDG_RUNTIME_DIR", "")
        fits = base and len(base) < MOST_PATH - 40 and os.access(base, os.W_OK)
        self._folder = tempfile.mkdtemp(prefix="costguard-run-", dir=base if fits else "/tmp")  # noqa: S108 - a folder of its own, 0700
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            made.bind(str(Path(self._folder) / "hints"))
        except OSError:
            made.close()
            raise
        self.path = str(Path(self._folder) / "hints")
        return made

    def _read(self, made: socket.socket) -> None:
        with suppress(OSError):
            while (data := made.recv(HINT_MOST + 1)) or not self._closing:
                if self._agent:
                    with suppress(OSError):
                        made.sendto(data, socket.MSG_DONTWAIT, self._agent)
                step = _parse_step(data)
                if step is not None:
                    with self._lock:
                        self._first, self._last = step if self._first is None else self._first, step


def _parse_step(data: bytes) -> int | None:
    """The step that a datagram tells; None where it tells none."""
    if len(data) > HINT_MOST:
        return None
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return None
    step = said.get("step") if isinstance(said, dict) and said.get("hint") == PROGRESS_HINT else None
    if isinstance(step, bool) or not isinstance(step, int | float) or not math.isfinite(step):
        return None
    return int(step)
