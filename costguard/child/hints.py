"""Hints from the program: it tells its steps by datagram, and they are read twice a second.

The socket lies in a folder of this user's alone, and $COSTGUARD_HINTS tells the program where. Where an agent listens on this
machine, every hint is handed on to it as it came. Whatever comes is bounded, and what cannot be read is left out.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from costguard_agent.hints import HINT_MOST, PROGRESS, SOCKET_ENV

MOST_AT_ONCE = 512
"""Hints that are read at one look: more wait in the kernel, or are dropped there."""
MOST_PATH = 100
"""Bytes of a socket's path: Linux takes 108, with a NUL."""


class Hints:
    """Where the program's hints come in. `path`: of the socket, "" where none could be made: then there are no hints.

    `agents`: sockets of the agent, the first that is there is handed what comes.
    """

    def __init__(self, agents: Sequence[str] = ()) -> None:
        self._agent = next((path for path in agents if os.path.exists(path)), "")  # noqa: PTH110 - it may be unreadable
        self.path, self._folder = "", ""
        try:
            self._socket: socket.socket | None = self._made()
        except OSError:
            self._socket = None

    def steps(self) -> list[int]:
        """The steps that were told since the last look, in order."""
        found = []
        for data in self._datagrams():
            self._hand_on(data)
            step = _step(data)
            if step is not None:
                found.append(step)
        return found

    def environment(self) -> dict[str, str]:
        """What the program is told."""
        return {SOCKET_ENV: self.path} if self.path else {}

    def close(self) -> None:
        """Have no socket any more."""
        if self._socket is not None:
            self._socket.close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _made(self) -> socket.socket:
        base = os.environ.get("XDG_RUNTIME_DIR", "")
        fits = base and len(base) < MOST_PATH - 40 and os.access(base, os.W_OK)
        self._folder = tempfile.mkdtemp(prefix="costguard-run-", dir=base if fits else "/tmp")  # noqa: S108 - a folder of its own, 0700
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            made.setblocking(False)  # noqa: FBT003 - its own name for it
            made.bind(str(Path(self._folder) / "hints"))
        except OSError:
            made.close()
            raise
        self.path = str(Path(self._folder) / "hints")
        return made

    def _datagrams(self) -> list[bytes]:
        found: list[bytes] = []
        while self._socket is not None and len(found) < MOST_AT_ONCE:
            try:
                found.append(self._socket.recv(HINT_MOST + 1))
            except OSError:
                break
        return found

    def _hand_on(self, data: bytes) -> None:
        if self._agent and self._socket is not None:
            with suppress(OSError):
                self._socket.sendto(data, self._agent)


def _step(data: bytes) -> int | None:
    """The step that a datagram tells; None where it tells none."""
    if len(data) > HINT_MOST:
        return None
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return None
    step = said.get("step") if isinstance(said, dict) and said.get("hint") == PROGRESS else None
    if isinstance(step, bool) or not isinstance(step, int | float) or not math.isfinite(step):
        return None
    return int(step)
