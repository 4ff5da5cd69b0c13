"""The agent's status in a file that every local user may read: no key, no code, no record but the last."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from costguard_agent import __version__
from costguard_agent.diagnostics import AgentError, make_printable
from costguard_agent.enrollment import Enrollment
from costguard_agent.sender import ANSWERED, BeatResult
from costguard_agent.state_dir import OPEN_FILE, STATUS, list_runtime_dirs, parse_object, write_file

FRESH_BEATS, FRESH_LEAST_S = 4, 120.0
"""Beats that may be missing before the watchdog counts as silent, and the least time for it."""
NOTICES_MOST = 8


class StatusFile:
    """The status file, written after each beat."""

    def __init__(self, path: Path, joined: Enrollment) -> None:
        self._path = path
        self._said: dict[str, Any] = {
            "version": __version__,
            "pid": os.getpid(),
            "url": joined.url,
            "agent": joined.agent,
            "name": joined.name,
            "every_s": joined.every_s,
            "answered_at": None,
            "notices": [],
            "machine": "",
            "kept_until": None,
        }
        self.record: dict[str, Any] | None = None
        self.trouble = ""

    def record_beat(self, beat: BeatResult, at_ms: int, *, waiting: int, dropped: int, troubles: Sequence[str]) -> None:
        """Record the result of a beat."""
        status = self._said
        status.update(at=at_ms / 1000, state=beat.state, why=beat.why, waiting=waiting, dropped=dropped, record=self.record)
        status["troubles"] = list(troubles)
        if beat.state == ANSWERED:
            notices = beat.answer.get("notices")
            status["answered_at"] = at_ms / 1000
            status["notices"] = (
                [make_printable(str(text)) for text in notices[:NOTICES_MOST]] if isinstance(notices, list) else []
            )
            status["machine"] = make_printable(str(beat.answer.get("state") or ""))
            status["kept_until"] = beat.answer.get("kept_until")
        self._write()

    def record_end(self, at_ms: int) -> None:
        """Record that the agent ends."""
        self._said.update(at=at_ms / 1000, state="ended", why="", pid=0)
        self._write()

    def _write(self) -> None:
        try:
            write_file(self._path, json.dumps(self._said).encode() + b"\n", OPEN_FILE)
            self.trouble = ""
        except OSError as error:
            self.trouble = f"costguard-agent status is old: {self._path.parent} cannot be written ({error.strerror})"


def read_status() -> dict[str, Any]:
    """Return the last status of this machine's agent; raises AgentError if there is none."""
    for folder in list_runtime_dirs():
        try:
            status = parse_object((folder / STATUS).read_bytes())
        except OSError:
            continue
        if status:
            return {**status, "running": _is_running(status.get("pid")), "guarded": _is_guarded(status)}
    raise AgentError("no agent runs on this machine: costguard-agent run, or costguard-agent install")


def format_status(status: dict[str, Any]) -> str:
    """Return the status as text for people."""
    lines = [
        f"{'runs' if status['running'] else 'does not run'}: costguard-agent {status.get('version')} for {status.get('url')}"
    ]
    answered = status.get("answered_at")
    last_answer = f"{_format_age(answered)} ago" if answered else "never"
    lines.append(f"the watchdog answered {last_answer}" + (f"; {status['why']}" if status.get("why") else ""))
    if status.get("machine"):
        lines.append(f"it calls this machine {status.get('name') or status.get('agent')}: {status['machine']}")
    if status.get("waiting") or status.get("dropped"):
        lines.append(f"{status.get('waiting')} records wait to be sent, {status.get('dropped')} were lost")
    record = status.get("record") or {}
    lines += [f"  {name:22} {value:g}" for name, value in sorted((record.get("signals") or {}).items())]
    lines += [f"trouble: {each}" for each in status.get("troubles") or []]
    lines += [f"notice: {each}" for each in status.get("notices") or []]
    return "\n".join(lines)


def _is_guarded(status: dict[str, Any]) -> bool:
    """Return whether the agent runs and the watchdog answered recently."""
    answered = status.get("answered_at")
    every = status.get("every_s") or 0
    fresh_s = max(FRESH_LEAST_S, FRESH_BEATS * every)
    return bool(_is_running(status.get("pid")) and answered and time.time() - answered < fresh_s)


def _is_running(pid: object) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def _format_age(at: float) -> str:
    seconds = max(0, int(time.time() - at))
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"  # noqa: PLR2004 - two minutes
