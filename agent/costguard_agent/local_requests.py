"""Requests of this machine to the watchdog (for a phase, for busy, for a lease), and the socket that receives them.

A request is stored until it is answered. A request that waits while the watchdog is away becomes shorter: three hours requested
an hour ago are two.

Jobs and commands of this machine send datagrams of JSON to the socket. Any local user may send hints about the machine: a hint
can only report work, or make a request within limits. Datagrams that are too long, no JSON or no hint are ignored. Each read
handles a limited number.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import socket
import threading
from pathlib import Path
from typing import Any, NamedTuple

from costguard_agent.diagnostics import AgentError, make_printable
from costguard_agent.hints import BEAT_HINT, HINT_MOST, PHASE_HINT, PROGRESS_HINT
from costguard_agent.protocol import ASKS, ASKS_MOST, PHASE, TEXT_MOST
from costguard_agent.signals import LARGEST
from costguard_agent.state_dir import ASKS as FILE
from costguard_agent.state_dir import parse_object, write_file

LEAST_S, MOST_S = 60.0, 7 * 86400.0
ENOUGH = 0.5
"""A hint to be let be is not passed on while this share of it would still be granted under the same name."""
NAME_MOST = 100
ID = re.compile(r"[0-9a-f]{16}")


class LocalRequest(NamedTuple):
    """One request.

    `at_ms`: when it was made, Unix milliseconds. `reply_to`: the socket address that waits for the answer, "" for none.
    """

    id: str
    what: str
    name: str
    for_s: float
    why: str
    at_ms: int
    reply_to: bytes | str = ""

    def compute_left_s(self, now_ms: int) -> float:
        """Return the seconds that are left of it."""
        return self.for_s - max(0, now_ms - self.at_ms) / 1000


class LocalRequestQueue:
    """The unanswered requests, and the latest end requested for each kind.

    Thread-safe.
    """

    def __init__(self, folder: Path) -> None:
        self._lock = threading.Lock()
        self._path = folder / FILE
        self._open: list[LocalRequest] = []
        self.until_ms: dict[str, int] = {}
        """Until when this machine was last asked to be let be, by kind: also where the watchdog never heard of it."""
        self.trouble = ""
        self._load()

    def add_request(self, hint: object, now_ms: int, reply_to: bytes | str = "") -> str:
        """Add a local user's request; returns "" or why it is refused."""
        request = _parse_request(hint, now_ms, reply_to)
        if isinstance(request, str):
            return request
        with self._lock:
            if len(self._open) >= ASKS_MOST:
                return f"{ASKS_MOST} requests already wait for the watchdog"
            self._open.append(request)
            self._note(request)
        return ""

    def add_phase_hint(self, name: str, for_s: float, now_ms: int) -> str:
        """Add a job's phase as a request, unless at least half of its length was already requested under that name."""
        name = make_printable(name, NAME_MOST)
        if self.until_ms.get(f"{PHASE} {name}", 0) - now_ms >= ENOUGH * for_s * 1000:
            return ""
        return self.add_request({"what": PHASE, "name": name, "for_s": for_s, "why": "a job said so"}, now_ms)

    def list_waiting(self, now_ms: int) -> list[dict[str, Any]]:
        """Return the waiting requests in the form of a beat."""
        with self._lock:
            self._open = [ask for ask in self._open if ask.compute_left_s(now_ms) >= LEAST_S]
            return [
                {"id": ask.id, "what": ask.what, "name": ask.name, "for_s": round(ask.compute_left_s(now_ms)), "why": ask.why}
                for ask in self._open
            ]

    def mark_answered(self, answers: object, sent: list[dict[str, Any]]) -> list[tuple[LocalRequest, str]]:
        """Remove the requests that were sent, and return each with "" or the reason of its refusal."""
        reasons = answers if isinstance(answers, dict) else {}
        ids = {ask["id"] for ask in sent}
        with self._lock:
            sent_requests = [ask for ask in self._open if ask.id in ids]
            self._open = [ask for ask in self._open if ask.id not in ids]
            if sent_requests:
                self._save()
        return [(ask, str(reasons.get(ask.id, "the watchdog gave no reason"))) for ask in sent_requests]

    def __len__(self) -> int:
        return len(self._open)

    def _note(self, ask: LocalRequest) -> None:
        until = ask.at_ms + int(ask.for_s * 1000)
        for kind in {ask.what, f"{ask.what} {ask.name}".strip()}:
            self.until_ms[kind] = max(until, self.until_ms.get(kind, 0))
        if len(self.until_ms) > 10 * ASKS_MOST:
            self.until_ms = {kind: end for kind, end in self.until_ms.items() if end > ask.at_ms}
        self._save()

    def _load(self) -> None:
        try:
            state = parse_object(self._path.read_bytes())
        except OSError:
            return
        waiting = state.get("open")
        for each in waiting if isinstance(waiting, list) else []:
            at_ms = each.get("at_ms") if isinstance(each, dict) else None
            request = _parse_request(each, at_ms, "") if isinstance(at_ms, int) else ""
            if not isinstance(request, str):
                self._open.append(request)
        until = state.get("until_ms")
        if isinstance(until, dict):
            self.until_ms = {str(kind): end for kind, end in until.items() if isinstance(end, int)}

    def _save(self) -> None:
        requests = [{**ask._asdict(), "reply_to": ""} for ask in self._open]
        try:
            write_file(self._path, json.dumps({"open": requests, "until_ms": self.until_ms}).encode())
            self.trouble = ""
        except OSError as error:
            self.trouble = f"the requests are lost at a restart: {self._path.parent} cannot be written ({error.strerror})"


def _parse_request(hint: object, now_ms: int, reply_to: bytes | str) -> LocalRequest | str:
    if not isinstance(hint, dict) or hint.get("what") not in ASKS:
        return f"one of {', '.join(ASKS)} can be asked for"
    for_s = hint.get("for_s")
    if isinstance(for_s, bool) or not isinstance(for_s, (int, float)):
        return "for how long?"
    if not LEAST_S <= for_s <= MOST_S:  # neither is NaN, nor a whole number that no float holds
        return f"between a minute and {MOST_S / 86400:.0f} days"
    name, why = make_printable(str(hint.get("name") or ""), NAME_MOST), make_printable(str(hint.get("why") or ""), TEXT_MOST)
    request_id = str(hint.get("id"))
    if not ID.fullmatch(request_id):
        request_id = os.urandom(8).hex()
    return LocalRequest(request_id, str(hint["what"]), name, float(for_s), why, now_ms, reply_to)


AT_ONCE = 64
ANYBODY = 0o666


class HintState(NamedTuple):
    """The latest hints: a step, and the time of the last sign of life (Unix seconds); None if there was none."""

    step: float | None = None
    heartbeat: float | None = None

    def to_signals(self) -> dict[str, float]:
        """Return them as signals; the last value is repeated, so that "flat" differs from "missing"."""
        pairs = {"step": self.step, "heartbeat": self.heartbeat}
        return {name: value for name, value in pairs.items() if value is not None}


class HintListener:
    """The agent's end of the socket; raises AgentError if it cannot be created."""

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
        """Return the file descriptor, for select."""
        return self._socket.fileno()

    def drain(self, now_ms: int) -> None:
        """Read and handle the waiting datagrams, at most 64."""
        for _ in range(AT_ONCE):
            try:
                data, sender = self._socket.recvfrom(HINT_MOST + 1)
            except OSError:
                return
            with contextlib.suppress(Exception):  # whatever it was: anybody may send anything, and the agent goes on
                self._handle_datagram(data, sender, now_ms)

    def answer(self, reply_to: bytes | str, answer: dict[str, Any]) -> None:
        """Send an answer to the waiting client; one that no longer waits is ignored."""
        if reply_to:
            with contextlib.suppress(OSError):
                self._socket.sendto(json.dumps(answer).encode()[:HINT_MOST], reply_to)

    def close(self) -> None:
        """Close and remove the socket."""
        self._socket.close()
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _handle_datagram(self, data: bytes, sender: bytes | str | None, now_ms: int) -> None:
        hint = _parse_hint(data)
        kind = hint.get("hint")
        if kind == PROGRESS_HINT:
            step = _parse_number(hint.get("step"))
            if step is not None:
                self.heard = self.heard._replace(step=step)
        elif kind == BEAT_HINT:
            self.heard = self.heard._replace(heartbeat=now_ms / 1000)
        elif kind == PHASE_HINT:
            for_s = _parse_number(hint.get("for_s"))
            if for_s is not None:
                self._asks.add_phase_hint(str(hint.get("name") or "phase"), for_s, now_ms)
        elif kind == "ask":
            why = self._asks.add_request(hint, now_ms, sender or "")
            self.asked = self.asked or not why
            if why:
                self.answer(sender or "", {"why": why})


def send_local_request(paths: list[str], ask: dict[str, Any], within_s: float) -> dict[str, Any] | None:
    """Send a request to this machine's agent and return its answer; None if there is none in time.

    Raises AgentError.
    """
    path = next((path for path in paths if Path(path).exists()), "")
    if not path:
        raise AgentError("no agent runs on this machine: costguard-agent run, or costguard-agent install")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client, contextlib.ExitStack() as stack:
        client.settimeout(within_s)
        try:
            client.bind(_make_reply_address(stack))
            client.sendto(json.dumps({**ask, "hint": "ask"}).encode(), path)
        except OSError as error:
            raise AgentError(f"no agent answers at {path} ({error.strerror or error}): costguard-agent status") from error
        try:
            return _parse_hint(client.recv(HINT_MOST))
        except OSError:
            return None


def _make_reply_address(stack: contextlib.ExitStack) -> str:
    """Return a reply address, on Linux without a file."""
    import sys

    if sys.platform.startswith("linux"):
        return ""
    import tempfile

    return os.path.join(stack.enter_context(tempfile.TemporaryDirectory()), "s")  # noqa: PTH118 - an address, a text


def _parse_hint(data: bytes) -> dict[str, Any]:
    if len(data) > HINT_MOST:
        return {}
    try:
        hint = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return hint if isinstance(hint, dict) else {}


def _parse_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and abs(number) <= LARGEST else None
