"""Receive progress hints from the program: datagrams with its current step, read in a separate thread.

A sender blocks when the kernel's queue of ten datagrams is full, and a job must never wait for costguard. The socket is in a
folder that only this user can access, and $COSTGUARD_HINTS holds its path. If an agent listens on this machine, every hint is
forwarded to it unchanged. The size of a datagram is limited, and datagrams that cannot be parsed are ignored.
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
    """Receives the program's hints on a socket.

    `path`: of the socket, "" if none could be created; then no hints are received. `agents`: possible socket paths of the
    agent; hints are forwarded to the first that exists.
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
        """Start to read hints."""
        if self._socket is not None:
            self._reader = threading.Thread(target=self._read, args=(self._socket,), daemon=True, name="hints")
            self._reader.start()

    def take_steps(self) -> list[int]:
        """Return the first and the latest of the steps received since the last call."""
        with self._lock:
            steps = [step for step in (self._first, self._last) if step is not None]
            self._first = self._last = None
        return steps

    def build_environment(self) -> dict[str, str]:
        """Return the environment variables that the program gets."""
        return {SOCKET_ENV: self.path} if self.path else {}

    def close(self) -> None:
        """Read the remaining datagrams, and remove the socket."""
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
        hint_socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            hint_socket.bind(str(Path(self._folder) / "hints"))
        except OSError:
            hint_socket.close()
            raise
        self.path = str(Path(self._folder) / "hints")
        return hint_socket

    def _read(self, hint_socket: socket.socket) -> None:
        with suppress(OSError):
            while (data := hint_socket.recv(HINT_MOST + 1)) or not self._closing:
                if self._agent:
                    with suppress(OSError):
                        hint_socket.sendto(data, socket.MSG_DONTWAIT, self._agent)
                step = _parse_step(data)
                if step is not None:
                    with self._lock:
                        self._first, self._last = step if self._first is None else self._first, step


def _parse_step(data: bytes) -> int | None:
    """Return the step in a datagram; None if it contains none."""
    if len(data) > HINT_MOST:
        return None
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return None
    step = message.get("step") if isinstance(message, dict) and message.get("hint") == PROGRESS_HINT else None
    if isinstance(step, bool) or not isinstance(step, int | float) or not math.isfinite(step):
        return None
    return int(step)
