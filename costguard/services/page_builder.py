"""What pages, status and metrics are made of, built in a process beside the one that speaks HTTP.

    door: a reader after a guard run -> question -> builder: ledger -> fleet, status, metrics -> parts -> door

Building holds the interpreter: 0.4 s for 1,000 machines, 3 s for 10,000, and in the door agents would wait meanwhile (decision
0071). The builder starts with the first question and ends after IDLE_S without one, or with the door. It runs at a lower
priority, so that beats come first where cores are few. If it dies or hangs, its question fails, and the next starts another.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from typing import cast

from costguard import errors
from costguard.errors import CostguardError, LedgerError
from costguard.services.fleet_page import FleetHead, FleetPage, FleetPart, build_fleet_page, build_fleet_parts
from costguard.settings import Settings, read_settings
from costguard.system.process import pause_gc

STATUS, METRICS, FLEET = "status", "metrics", "fleet"
IDLE_S = 600.0
BUILD_MOST_S = 120.0
"""Seconds for one part of an answer: 10,000 machines take 3 s on a free core."""
NICENESS = 10
_END = b""


class PageBuilder:
    """Builds in this process, as tests and a demo do. `config`: the settings file; `stated`: the settings until it is read."""

    def __init__(self, config: str | None, stated: Settings | None = None) -> None:
        self._config, self._stated = config, stated

    def build_status(self) -> bytes:
        """Return the status as `costguard status --offline --json` prints it, by the settings as they are now."""
        return build_status_text(self._read_settings())

    def build_metrics(self) -> bytes:
        """Return the text for Prometheus."""
        return build_metrics_text(self._read_settings())

    def build_fleet(self, now: datetime) -> FleetPage:
        """Return the fleet as of `now`."""
        return build_fleet_page(self._read_settings(), now)

    def _read_settings(self) -> Settings:
        """Return the settings as the file has them now; if it is invalid, as they were."""
        if self._config is not None or self._stated is None:
            try:
                self._stated = read_settings(self._config)
            except CostguardError:
                if self._stated is None:
                    raise
        return self._stated


@dataclass(slots=True)
class BuilderProcess:
    """Has it built by a process of its own. `config`: the settings file that it reads for each answer; None: the usual one."""

    config: str | None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _process: subprocess.Popen[bytes] | None = None
    _wire: Connection | None = None

    def build_status(self) -> bytes:
        """Return the status; raises what building raised."""
        return b"".join(self._ask(STATUS))

    def build_metrics(self) -> bytes:
        """Return the text for Prometheus; raises what building raised."""
        return b"".join(self._ask(METRICS))

    def build_fleet(self, now: datetime) -> FleetPage:
        """Return the fleet as of `now`; raises what building raised. Its parts are unpacked one by one: others run between."""
        parts = (pickle.loads(one) for one in self._ask(FLEET, now))  # noqa: S301 - from our own process, over its own socket
        head = next(parts)
        assert isinstance(head, FleetHead)  # noqa: S101 - it comes first
        return FleetPage(head, cast("Iterator[FleetPart]", parts))

    def end(self) -> None:
        """End the process."""
        with self._lock:
            self._stop()

    def _ask(self, kind: str, now: datetime | None = None) -> Iterator[bytes]:
        """Ask for an answer, and yield its parts."""
        with self._lock:
            wire = self._connect()
            try:
                wire.send((kind, self.config, now))
                while True:
                    if not wire.poll(BUILD_MOST_S):
                        raise TimeoutError
                    failed, part = pickle.loads(wire.recv_bytes())  # noqa: S301 - see `build_fleet`
                    if failed is not None:
                        raise _make_error(*failed)
                    if part == _END:
                        return
                    yield part
            except (OSError, EOFError, GeneratorExit) as broken:
                self._stop()
                if isinstance(broken, GeneratorExit):
                    raise
                raise LedgerError("the process that reads it for pages ended; the next question starts another") from None

    def _connect(self) -> Connection:
        """Return the connection to the process, which is started if there is none."""
        if self._wire is None or self._process is None or self._process.poll() is not None:
            self._stop()
            ours, theirs = socket.socketpair()
            with theirs:
                code = f"from costguard.services.page_builder import run_builder; run_builder({theirs.fileno()})"
                self._process = subprocess.Popen(  # noqa: S603 - our own program
                    [sys.executable, "-c", code],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                )
            self._wire = Connection(ours.detach())
        return self._wire

    def _stop(self) -> None:
        if self._wire is not None:
            self._wire.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._wire = self._process = None


def run_builder(number: int) -> None:
    """Answer the questions that come on the socket `number`, until it ends or none comes for IDLE_S."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started this
    with suppress(OSError):
        os.nice(NICENESS)
    builders: dict[str | None, PageBuilder] = {}
    with suppress(EOFError, OSError), Connection(number) as wire:
        while wire.poll(IDLE_S):
            kind, config, now = wire.recv()
            builder = builders.setdefault(config, PageBuilder(config))
            failed = None
            try:
                for part in _ANSWERS[kind](builder, now):
                    wire.send((None, part))
            except CostguardError as error:
                failed = (type(error).__name__, error.what, error.field, error.hint)
            except (OSError, EOFError):
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, who asks gets an answer, and the next question is taken
                failed = (CostguardError.__name__, f"cannot be built: {type(error).__name__}: {error}", None, None)
            wire.send((failed, _END))


def build_status_text(settings: Settings) -> bytes:
    """Return the status as `costguard status --offline --json` prints it."""
    from costguard.providers.plugins import load_renderer
    from costguard.services.ledger_answers import load_current_status
    from costguard.views.status import build_status_document

    with pause_gc():
        found, head = load_current_status(settings, settings.defaults.zone, None)
        document = build_status_document(found, (), head, settings.display.find_exchange(found.at))
        return load_renderer("json")(document).encode()


def build_metrics_text(settings: Settings) -> bytes:
    """Return the text for Prometheus."""
    from costguard.services.metrics import load_metrics, render_metrics

    with pause_gc():
        return render_metrics(load_metrics(settings))


def _build_fleet(builder: PageBuilder, now: datetime | None) -> Iterator[bytes]:
    for part in build_fleet_parts(builder._read_settings(), now or datetime.now(UTC)):  # noqa: SLF001 - of this module
        yield pickle.dumps(part, pickle.HIGHEST_PROTOCOL)


_ANSWERS: dict[str, Callable[[PageBuilder, datetime | None], Iterator[bytes]]] = {
    STATUS: lambda builder, _: iter([builder.build_status()]),
    METRICS: lambda builder, _: iter([builder.build_metrics()]),
    FLEET: _build_fleet,
}


def _make_error(name: str, what: str, place: str | None, hint: str | None) -> CostguardError:
    """Return the error that the builder met, of the same class where that takes no more than a message."""
    kind = getattr(errors, name, CostguardError)
    simple = isinstance(kind, type) and issubclass(kind, CostguardError) and kind.__init__ is CostguardError.__init__
    return (kind if simple else CostguardError)(what, field=place, hint=hint)
