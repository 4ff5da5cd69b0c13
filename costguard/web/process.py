"""The process of the HTTP server: started by the watchdog, or by a person, a service manager or a container.

The watchdog's child inherits the listening sockets. It bounds its own memory, is the first to be ended when the machine has
none left, and ends with the watchdog: the kernel ends it (Linux), and elsewhere it sees that its parent is gone.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from costguard.errors import InputError
from costguard.ledger.db.address import parse_ledger_address
from costguard.ledger.db.connection import refuse_writes
from costguard.ledger.db.reader import keep_log_open
from costguard.services.serving.web_backend import build_web_services, find_key_file
from costguard.settings import Settings, read_settings, resolve_ledger_url
from costguard.settings.fields import parse_duration
from costguard.settings.section_values import INTERVAL_MAX, INTERVAL_MIN
from costguard.settings.web import parse_listen_address
from costguard.system.file_security import disable_memory_dumps
from costguard.system.logs import configure_logging, get_log
from costguard.system.write_restriction import restrict_writes
from costguard.web.keeper import FILES_VARIABLE, SOCKET_VARIABLE
from costguard.web.listener import bind_listener, check_web_files
from costguard.web.server import build_server
from costguard.web.watchdog_client import WatchdogClient
from costguard.web.watchdog_socket import find_watchdog_socket

MEMORY_MOST = 3 << 29
"""Bytes of address space of the watchdog's child, of which it uses a fraction: code and threads count as well."""
PR_SET_PDEATHSIG = 1  # linux/prctl.h
OOM_SCORE = "800"
"""Of 1,000: of the two processes, this is the one to end."""
SWITCH_S = 0.0005
"""How long a status may be built before the event loop has its turn; the usual 5 ms, some times a request, add up."""


def run_server(*, config: str | None, listen: str | None, interval: str | None, json_log: bool) -> None:
    """Serve until a signal ends it, or the watchdog that started this process is gone."""
    configure_logging(as_json=json_log)
    files = os.environ.pop(FILES_VARIABLE, "")
    settings = read_settings(config)
    if listen is not None:
        parse_listen_address(listen, "--listen")
        settings = replace(settings, web=settings.web.model_copy(update={"listen": listen}))
    if settings.web.listen is None:
        raise InputError("is not set: there is no address to listen at", field="web.listen", hint="set it, or add --listen")
    every = parse_duration(interval, "--interval", least=INTERVAL_MIN, most=INTERVAL_MAX) if interval is not None else None
    sys.setswitchinterval(SWITCH_S)
    if files:
        sockets, link = _adopt_files(files), WatchdogClient(Path(os.environ.pop(SOCKET_VARIABLE)), is_child=True)
    else:
        check_web_files(settings.web, find_key_file(settings))
        sockets, link = [bind_listener(settings.web)], WatchdogClient(find_watchdog_socket(settings))
    is_outdated = restrict_web(settings)
    link.is_outdated = is_outdated or link.is_outdated
    disable_memory_dumps()  # it sees cookies and tokens; not before /proc/self/oom_score_adj is written, which is root's then
    server = build_server(build_web_services(settings, config=config, interval=every), sockets, link)
    gc.collect()
    gc.freeze()  # what is imported by now stays: looking through it took 0.1 s again and again, while beats waited
    get_log().info(
        "web_listens",
        address=settings.web.listen,
        tls=settings.web.tls_cert is not None,
        alone=not files,
        confined=is_outdated is not None,
    )
    server.run()


def restrict_web(settings: Settings) -> Callable[[], bool] | None:
    """Have the ledger refuse changes, and the kernel changes of files, signals to the watchdog, and looks into its memory.

    Returns whether the ledger's log was replaced, so that this process must start again to read it; None: the kernel refuses
    nothing. Left are the shared memory of the ledger's log, which who reads it writes to, and a folder for temporary files.
    """
    refuse_writes()
    log, folder = (
        keep_log_open(parse_ledger_address(resolve_ledger_url(settings))),
        find_watchdog_socket(settings).parent / "tmp",
    )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    tempfile.tempdir = os.environ["SQLITE_TMPDIR"] = str(folder)
    if not restrict_writes([folder, Path(os.devnull), *([log] if log else [])]):
        return None
    first = log.stat().st_ino if log else 0

    def is_outdated() -> bool:
        return log is not None and (not log.exists() or log.stat().st_ino != first)

    return is_outdated


def _adopt_files(files: str) -> list[socket.socket]:
    """Return the listening sockets that the watchdog left to this process, and bound this process."""
    sockets = [socket.socket(fileno=int(word)) for word in files.split(",")]
    for one in sockets:
        os.set_inheritable(one.fileno(), False)  # noqa: FBT003 - the function's own word
        one.setblocking(False)  # noqa: FBT003 - the socket's own word
    _end_with_parent()
    _bound_memory()
    return sockets


def _end_with_parent() -> None:
    """Have the kernel end this process with the thread that started it (Linux); elsewhere `WatchdogClient.run` does."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _bound_memory() -> None:
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE, encoding="ascii")
    with suppress(ImportError, OSError, ValueError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        most: Any = MEMORY_MOST if hard == resource.RLIM_INFINITY else min(MEMORY_MOST, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
