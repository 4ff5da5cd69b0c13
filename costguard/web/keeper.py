"""Start the web as a child process, and restart it when it ends or when its health is not answered (decision 0091).

    started -> answers /healthz every second -> ended, or silent for SILENT_S: killed -> pause -> started again

The listening socket belongs to the watchdog: while there is no web, the kernel keeps who connects. Health is asked at a Unix
socket of its own, on which the same server answers, so that a flood of connections does not look like a hang. The pause grows
as that of a failing account does (`watchdog/duty.py`), up to LONGEST_PAUSE_S; a web that ran for STEADY_S starts without one.
"""

from __future__ import annotations

import http.client
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
from pathlib import Path

from costguard.guard.alerts.alert import Alert
from costguard.guard.alerts.watchdog import build_door_alert
from costguard.settings.environment import CONFIG_VARIABLE, VARIABLE_PREFIX
from costguard.system.logs import get_log
from costguard.system.process import build_child_environment
from costguard.watchdog.duty import DutyHealth

SILENT_S, STARTS_WITHIN_S = 10.0, 180.0
"""Seconds without an answer after which it hangs: once it answered, and while it starts, which takes 50 s at a load of 14."""
STEADY_S, LONGEST_PAUSE_S, LOOK_S, ASK_S = 10.0, 60.0, 1.0, 3.0
FILES_VARIABLE, SOCKET_VARIABLE = "COSTGUARD_WEB_FILES", "COSTGUARD_WATCHDOG_SOCKET"
"""In the environment of the child: the descriptors of its listening sockets, as `5,6`, and the watchdog's Unix socket."""
ENDS_WITHIN_S = 5.0
PASSED_VARIABLES = ("VIRTUAL_ENV", CONFIG_VARIABLE)
PASSED_PREFIXES = ("LC_", "PYTHON", "XDG_", "SSL_CERT_", "PG")
"""What of the environment the child gets besides settings (COSTGUARD_SECTION__FIELD): no key of a provider, and no secret of a
channel or of an identity provider. PG has what PostgreSQL's client reads."""


@dataclass(slots=True, kw_only=True)
class DoorKeeper:
    """Keeps the web running. `words`: the command. `listener`: the bound socket. `socket`: the watchdog's.

    `health_listener`: the listening Unix socket at which health is asked.

    `restarts`: how often it was started again. `pid`: of the running one, 0 while there is none. `trouble`: why it keeps
    failing, "" if it does not.
    """

    words: Sequence[str]
    listener: socket.socket
    health_listener: socket.socket
    watchdog: Path
    silent_s: float = SILENT_S
    restarts: int = 0
    pid: int = 0
    trouble: str = ""
    _health: DutyHealth = field(default_factory=DutyHealth)
    _ending: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, which starts the door."""
        self._thread = threading.Thread(target=self._keep, name="door", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the door, and keep it no longer."""
        self._ending.set()
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
        """Run the web until it ends or hangs; return why it ended."""
        files = (self.listener.fileno(), self.health_listener.fileno())
        process = subprocess.Popen(  # noqa: S603 - our own program
            list(self.words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=files,
            process_group=0,  # Ctrl-C is for the watchdog, which then ends it
            env=_build_environment(os.environ, files, self.watchdog),
        )
        self.pid = process.pid
        try:
            return self._watch(process)
        finally:
            self.pid = 0
            _end_process(process, kindly=self._ending.is_set())

    def _watch(self, process: subprocess.Popen[bytes]) -> str:
        began, answered_at = time.monotonic(), 0.0
        while not self._ending.is_set():
            with suppress(subprocess.TimeoutExpired):
                return _describe_end(process.wait(LOOK_S))
            if is_health_answered(self.health_listener.getsockname()):
                answered_at = time.monotonic()
            now = time.monotonic()
            if answered_at and now - answered_at > self.silent_s:
                return f"it hung: its health check had no answer for {self.silent_s:g} s"
            if not answered_at and now - began > STARTS_WITHIN_S:
                return f"it did not start within {STARTS_WITHIN_S:g} s"
            if now - began >= STEADY_S:
                self.trouble = ""
        return ""


def is_health_answered(path: str) -> bool:
    """Return whether GET /healthz is answered at the Unix socket `path`, with whatever status."""
    with suppress(OSError, http.client.HTTPException), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
        wire.settimeout(ASK_S)
        wire.connect(path)
        connection = http.client.HTTPConnection("localhost")
        connection.sock = wire
        connection.request("GET", "/healthz")
        return connection.getresponse().status > 0
    return False


@contextmanager
def keep_door(keeper: DoorKeeper) -> Iterator[DoorKeeper]:
    """Keep the door running while the block runs."""
    keeper.start()
    try:
        yield keeper
    finally:
        keeper.end()
        keeper.listener.close()
        keeper.health_listener.close()


def build_words(*, config: str | None, interval_s: float, json_log: bool) -> list[str]:
    """Return the command of the child."""
    words = [sys.executable, "-m", "costguard", *(["--json-log"] if json_log else [])]
    return [*words, *(["--config", config] if config else []), "serve", "--interval", f"{interval_s:g}s"]


def _build_environment(environ: Mapping[str, str], files: tuple[int, int], watchdog: Path) -> dict[str, str]:
    settings = [name for name in environ if name.startswith(VARIABLE_PREFIX) and "__" in name]
    passed = build_child_environment(environ, names=(*PASSED_VARIABLES, *settings), prefixes=PASSED_PREFIXES)
    return {**passed, "MALLOC_ARENA_MAX": "2", FILES_VARIABLE: ",".join(map(str, files)), SOCKET_VARIABLE: str(watchdog)}


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
