"""Start the door as a child process, and restart it when it ends or hangs (decision 0057).

    started -> connected (it sends a Pulse every second) -> ended, or silent for SILENT_S: killed -> pause -> started again

The listening socket belongs to the watchdog: while there is no door, the kernel keeps who connects. The pause grows as that of
a failing account does (`watchdog/duty.py`), up to LONGEST_PAUSE_S; a door that ran for STEADY_S starts without one again.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime

from costguard.guard.alerts.alert import Alert
from costguard.guard.alerts.rules import build_door_alert
from costguard.services.door_channel import DoorChannel, DoorConnection
from costguard.services.door_messages import FILES_VARIABLE
from costguard.system.logs import get_log
from costguard.watchdog.duty import DutyHealth

SILENT_S, STARTS_WITHIN_S = 10.0, 180.0
"""Seconds without a Pulse after which it hangs: once it was heard, and while it starts, which takes 50 s at a load of 14."""
STEADY_S, LONGEST_PAUSE_S, LOOK_S = 10.0, 60.0, 0.5
ENDS_WITHIN_S = 5.0
PASSED_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "VIRTUAL_ENV")
PASSED_PREFIXES = ("LC_", "PYTHON", "XDG_", "COSTGUARD_", "SSL_CERT_", "PG")
"""What of the environment the child gets: no provider's keys. PG has what PostgreSQL's client reads."""


@dataclass(slots=True, kw_only=True)
class DoorKeeper:
    """Keeps the door running. `words`: the command. `listener`: the bound socket.

    `restarts`: how often it was started again. `pid`: of the running one, 0 while there is none. `trouble`: why it keeps
    failing, "" if it does not.
    """

    words: Sequence[str]
    listener: socket.socket
    channel: DoorChannel
    silent_s: float = SILENT_S
    restarts: int = 0
    pid: int = 0
    trouble: str = ""
    _health: DutyHealth = field(default_factory=DutyHealth)
    _ending: threading.Event = field(default_factory=threading.Event)
    _changed: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, which starts the door."""
        self._thread = threading.Thread(target=self._keep, name="door", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the door, and keep it no longer."""
        self._ending.set()
        self._changed.set()
        if self._thread is not None:
            self._thread.join(2 * ENDS_WITHIN_S)

    def _keep(self) -> None:
        while not self._ending.is_set():
            began, why = time.monotonic(), ""
            try:
                why = self._run_once()
            except OSError as error:
                why = f"it cannot be started: {error.strerror or error}"
            except Exception as error:  # noqa: BLE001 - whatever it is, the guard goes on, and the door is tried again
                why = f"{type(error).__name__}: {error}"
            if self._ending.is_set():
                return
            lasted = time.monotonic() - began
            if lasted >= STEADY_S:
                self._health = DutyHealth()
            pause = min(self._health.failed(1.0, time.monotonic()), LONGEST_PAUSE_S)
            get_log().error("door_ended", why=why, lasted_s=round(lasted, 1), failures=self._health.failures, next_try_s=pause)
            self.trouble = why if self._health.degraded else ""
            self._ending.wait(pause)
            self.restarts += 1

    def _run_once(self) -> str:
        """Run the door until it ends or hangs; return why it ended."""
        ours, theirs = socket.socketpair()
        with theirs:
            files = (self.listener.fileno(), theirs.fileno())
            process = subprocess.Popen(  # noqa: S603 - our own program
                list(self.words),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=files,
                process_group=0,  # Ctrl-C is for the watchdog, which then ends it
                env=_build_environment(os.environ, files),
            )
        self.pid = process.pid
        self._changed.clear()
        door = self.channel.attach(ours, closed=self._changed.set)
        try:
            return self._watch(process, door)
        finally:
            self.pid = 0
            _end_process(process, kindly=self._ending.is_set() and door.open)
            ours.close()

    def _watch(self, process: subprocess.Popen[bytes], door: DoorConnection) -> str:
        began = time.monotonic()
        while not self._ending.is_set():
            if process.poll() is not None:
                return _describe_end(process.returncode)
            now = time.monotonic()
            if not door.open:
                with suppress(subprocess.TimeoutExpired):
                    return _describe_end(process.wait(ENDS_WITHIN_S))
                return "it closed its channel"
            if door.heard and not door.throttled and now - door.heard_at > self.silent_s:
                return f"it hung: nothing was heard for {self.silent_s:g} s"
            if not door.heard and now - began > STARTS_WITHIN_S:
                return f"it did not start within {STARTS_WITHIN_S:g} s"
            if now - began >= STEADY_S:
                self.trouble = ""
            self._changed.wait(LOOK_S)
            self._changed.clear()
        return ""


@contextmanager
def keep_door(keeper: DoorKeeper) -> Iterator[DoorKeeper]:
    """Keep the door running while the block runs."""
    keeper.start()
    try:
        yield keeper
    finally:
        keeper.end()
        keeper.listener.close()


def build_words(*, config: str | None, interval_s: float, json_log: bool) -> list[str]:
    """Return the command of the child."""
    words = [sys.executable, "-m", "costguard", *(["--json-log"] if json_log else [])]
    return [*words, *(["--config", config] if config else []), "serve", "--interval", f"{interval_s:g}s"]


def _build_environment(whole: Mapping[str, str], files: tuple[int, int]) -> dict[str, str]:
    passed = {name: value for name, value in whole.items() if name in PASSED_VARIABLES or name.startswith(PASSED_PREFIXES)}
    return {**passed, "MALLOC_ARENA_MAX": "2", FILES_VARIABLE: ",".join(map(str, files))}


def _end_process(process: subprocess.Popen[bytes], *, kindly: bool) -> None:
    """End the process, which may be stopped or hang, and wait for it."""
    if kindly and process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(ENDS_WITHIN_S)
    if process.poll() is None:
        process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(ENDS_WITHIN_S)


def _describe_end(code: int) -> str:
    if code < 0:
        with suppress(ValueError):
            return f"it was ended by {signal.Signals(-code).name}"
    return f"it ended with exit code {code}"


def list_door_alerts(keeper: DoorKeeper, now: datetime) -> tuple[Alert, ...]:
    """Return the alert that the door keeps failing; empty if it does not."""
    why = keeper.trouble
    return (build_door_alert(why=why, at=now),) if why else ()
