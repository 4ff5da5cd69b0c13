"""Hints from jobs: two lines of Python with which a job reports its progress to this machine's agent.

    import costguard_agent
    costguard_agent.progress(step)

A hint is a datagram of JSON to the agent's socket: {"hint": "progress", "step": 1200}, {"hint": "beat"} or {"hint": "phase",
"name": "download", "for_s": 10800}. Nothing blocks, nothing raises, and without a listening agent nothing happens, so that
reporting cannot harm a job. At most one hint of a kind a second leaves the process. COSTGUARD_HINTS names another socket than
the agent's own (`costguard run` listens itself if no agent does).
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from typing import Any

SOCKET_ENV = "COSTGUARD_HINTS"
EVERY_S = 1.0
LOOKED_S = 10.0
"""For how long a socket that was not there is not looked for."""
HINT_MOST = 2048
"""Bytes of a datagram."""
PROGRESS_HINT, BEAT_HINT, PHASE_HINT = "progress", "beat", "phase"

_last_sent_s: dict[str, float] = {}
_socket_cache: dict[str, Any] = {}


def progress(step: float) -> None:
    """Report that the job is at `step` (any counter that changes while it works): the strongest sign of work."""
    if _is_due(PROGRESS_HINT):
        with contextlib.suppress(Exception):
            _send({"hint": PROGRESS_HINT, "step": _require_finite(step)})


def beat() -> None:
    """Report that the job is working without a step to report: a checkpoint was written, a request answered."""
    if _is_due(BEAT_HINT):
        _send({"hint": BEAT_HINT})


def phase(name: str, for_s: float) -> None:
    """Ask to be left running for `for_s` seconds, within limits, in a phase that looks idle (a download, a compilation)."""
    if _is_due(PHASE_HINT):
        with contextlib.suppress(Exception):
            _send({"hint": PHASE_HINT, "name": str(name)[:100], "for_s": _require_finite(for_s)})


def list_hint_sockets() -> list[str]:
    """Return the possible paths of a hint socket, most specific first."""
    from costguard_agent.state_dir import SOCKET, list_runtime_dirs

    env_path = os.environ.get(SOCKET_ENV)
    return ([env_path] if env_path else []) + [str(folder / SOCKET) for folder in list_runtime_dirs()]


def _is_due(kind: str) -> bool:
    now = time.monotonic()
    if now - _last_sent_s.get(kind, -math.inf) < EVERY_S:
        return False
    _last_sent_s[kind] = now
    return True


def _send(hint: dict[str, Any]) -> None:
    with contextlib.suppress(Exception):  # whatever it is: the job goes on
        import json

        path = _find_socket_path()
        if path:
            _open_socket().sendto(json.dumps(hint).encode(), path)


def _find_socket_path() -> str:
    """Return the socket that existed at the last check, at most 10 s ago; "" if there was none."""
    now = time.monotonic()
    if now - _socket_cache.get("looked", -math.inf) >= LOOKED_S or _socket_cache.get("pid") != os.getpid():
        _socket_cache.update(looked=now, pid=os.getpid(), path=next(filter(os.path.exists, list_hint_sockets()), ""))
    return str(_socket_cache["path"])


def _open_socket() -> Any:  # noqa: ANN401 - the module socket is imported by those only who send
    if _socket_cache.get("owner") != os.getpid():
        import socket

        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sock.setblocking(False)  # noqa: FBT003 - its own name for it
        _socket_cache.update(socket=sock, owner=os.getpid())
    return _socket_cache["socket"]


def _require_finite(value: float) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("not a finite number")
    return number
