"""The socket that jobs and commands of this machine speak to: datagrams of JSON, whatever is in them.

Whoever runs on this machine may give hints about it: that is what they are for, and a hint can only say that there is work, or
ask within bounds. What is too long, no JSON or no hint is passed over. At each look a bounded number is read.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
from pathlib import Path
from typing import Any, NamedTuple

from costguard_agent.diagnostics import AgentError
from costguard_agent.hints import BEAT_HINT, HINT_MOST, PHASE_HINT, PROGRESS_HINT
from costguard_agent.local_requests import LocalRequestQueue
from costguard_agent.signals import LARGEST

AT_ONCE = 64
ANYBODY = 0o666


class HintState(NamedTuple):
    """What jobs told last: a step, and when one gave a sign of life (Unix seconds); None where none ever did."""

    step: float | None = None
    heartbeat: float | None = None

    def to_signals(self) -> dict[str, float]:
        """As signals: the last value goes on being told, so that "flat" can be told from "missing"."""
        pairs = {"step": self.step, "heartbeat": self.heartbeat}
        return {name: value for name, value in pairs.items() if value is not None}


class HintListener:
    """The agent's end of it. Raises AgentError where the socket cannot be made."""

    def __init__(self, path: Path, asks: LocalRequestQueue) -> None:
        self._path, self._asks = path, asks
        self.heard = HintState()
        self.asked = False
        """Somebody waits for what becomes of an ask: worth a beat of its own."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)  # noqa: FBT003 - its own name for it
        try:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            self._socket.bind(str(path))
            path.chmod(ANYBODY)
        except OSError as error:
            self._socket.close()
            raise AgentError(f"cannot listen for hints at {path}: {error.strerror or error}") from error

    def fileno(self) -> int:
        """For select."""
        return self._socket.fileno()

    def drain(self, now_ms: int) -> None:
        """Read what waits there."""
        for _ in range(AT_ONCE):
            try:
                data, sender = self._socket.recvfrom(HINT_MOST + 1)
            except OSError:
                return
            with contextlib.suppress(Exception):  # whatever it was: anybody may send anything, and the agent goes on
                self._handle_datagram(data, sender, now_ms)

    def answer(self, reply_to: bytes | str, said: dict[str, Any]) -> None:
        """Tell who waits; who does not wait any more is not told."""
        if reply_to:
            with contextlib.suppress(OSError):
                self._socket.sendto(json.dumps(said).encode()[:HINT_MOST], reply_to)

    def close(self) -> None:
        """Listen no longer."""
        self._socket.close()
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _handle_datagram(self, data: bytes, sender: bytes | str | None, now_ms: int) -> None:
        found = _parse_hint(data)
        kind = found.get("hint")
        if kind == PROGRESS_HINT:
            step = _parse_number(found.get("step"))
            if step is not None:
                self.heard = self.heard._replace(step=step)
        elif kind == BEAT_HINT:
            self.heard = self.heard._replace(heartbeat=now_ms / 1000)
        elif kind == PHASE_HINT:
            for_s = _parse_number(found.get("for_s"))
            if for_s is not None:
                self._asks.add_phase_hint(str(found.get("name") or "phase"), for_s, now_ms)
        elif kind == "ask":
            why = self._asks.add_request(found, now_ms, sender or "")
            self.asked = self.asked or not why
            if why:
                self.answer(sender or "", {"why": why})


def send_local_request(paths: list[str], ask: dict[str, Any], within_s: float) -> dict[str, Any] | None:
    """The other end: what the agent of this machine answers to an ask; None where none answers in time. Raises AgentError."""
    path = next((path for path in paths if Path(path).exists()), "")
    if not path:
        raise AgentError("no agent runs on this machine: costguard-agent run, or costguard-agent install")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours, contextlib.ExitStack() as after:
        ours.settimeout(within_s)
        try:
            ours.bind(_make_reply_address(after))
            ours.sendto(json.dumps({**ask, "hint": "ask"}).encode(), path)
        except OSError as error:
            raise AgentError(f"no agent answers at {path} ({error.strerror or error}): costguard-agent status") from error
        try:
            return _parse_hint(ours.recv(HINT_MOST))
        except OSError:
            return None


def _make_reply_address(after: contextlib.ExitStack) -> str:
    """An address to be answered at: without a file where the system can do that."""
    import sys

    if sys.platform.startswith("linux"):
        return ""
    import tempfile

    return os.path.join(after.enter_context(tempfile.TemporaryDirectory()), "s")  # noqa: PTH118 - an address, a text


def _parse_hint(data: bytes) -> dict[str, Any]:
    if len(data) > HINT_MOST:
        return {}
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _parse_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) and abs(found) <= LARGEST else None
