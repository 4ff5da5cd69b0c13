"""A real agent in virtual time: its own loop, threads, records, spool and signed beats over HTTP; only waiting takes no time.

    python -m tests.agent.virtual CLOCK      one line of JSON on stdin for each agent to play, one on stdout when it is over

One thread of the agent runs at a time. When all of them wait, the clock goes on to the next moment that one waits for, and the
machine acts until then (acted.py). CLOCK is a file of eight bytes: Unix milliseconds, which the watchdog goes by as well.
What is not real: clocks, waiting, where /proc and /dev are, the number of cores, and looks at GPUs every 30 s instead of every
second. Signatures are made by `cryptography`: the same ones, sooner.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from costguard_agent import clock, collector, daemon, enrollment, sender, signals, state_dir
from costguard_agent import nvml as watching
from costguard_agent.gpu_processes import GpuProcessTrees
from costguard_agent.host import HostView
from costguard_agent.host_metrics import HostMetrics
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tests.agent.acted import CORES, MINUTE_S, Acted

BOOTED_S = 100_000.0
"""Seconds after boot at the trace's minute 0."""
GPU_LOOK_S = 30.0


@dataclass(eq=False)
class Waiter:
    """A thread that waits: `until` seconds (None: without end), or for `ready`."""

    until: float | None
    ready: Callable[[], bool]
    order: int
    woken: bool = False


@dataclass
class Time:
    """The clock that all threads of one agent go by. `frozen`: from when to when the whole process stands still."""

    machine: Acted
    began_s: float
    shared: mmap.mmap
    frozen: tuple[float, float] | None = None
    at_s: float = -MINUTE_S
    _running: int = 1
    _waiting: list[Waiter] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def wait(self, until: float | None, ready: Callable[[], bool], order: int) -> None:
        """Let others run until `ready` or until then."""
        with self._changed:
            one = Waiter(None if until is None else round(until, 6), ready, order)
            self._waiting.append(one)
            self._left()
            while not one.woken:
                self._changed.wait()

    def entered(self) -> None:
        """One more thread runs."""
        with self._changed:
            self._running += 1

    def left(self) -> None:
        """One thread less runs."""
        with self._changed:
            self._left()

    def _left(self) -> None:
        self._running -= 1
        if self._running:
            return
        one = self._ready() or self._next()
        one.woken, self._running = True, 1
        self._waiting.remove(one)
        self._changed.notify_all()

    def _ready(self) -> Waiter | None:
        return next((one for one in self._waiting if one.ready()), None)

    def _next(self) -> Waiter:
        """Whoever waits least, or is ready by then; of two that wait for the same moment the younger thread."""
        one = min((one for one in self._waiting if one.until is not None), key=lambda w: (w.until or 0.0, -w.order))
        self.set(max(self.at_s, one.until or 0.0))
        return self._ready() or one

    def set(self, at_s: float) -> None:
        """It is so late; nothing of this process runs while it is frozen."""
        if self.frozen and self.frozen[0] <= at_s < self.frozen[1]:
            at_s = self.frozen[1]
        self.at_s = at_s
        self.shared[:8] = struct.pack("<q", self.wall_ms)
        self.machine.to(at_s)

    @property
    def wall_ms(self) -> int:
        """Unix milliseconds."""
        return round((self.began_s + self.at_s) * 1000)

    def module(self) -> SimpleNamespace:
        """What the agent knows as `time`."""
        return SimpleNamespace(
            monotonic=lambda: BOOTED_S + self.at_s,
            clock_gettime=lambda _: BOOTED_S + self.at_s,
            CLOCK_BOOTTIME=0,
            time=lambda: self.wall_ms / 1000,
            time_ns=lambda: self.wall_ms * 1_000_000,
            sleep=lambda s: self.wait(self.at_s + s, lambda: False, _order()),
            thread_time=time.thread_time,
        )

    def select(
        self, reading: Sequence[Any], writing: Sequence[Any], failing: Sequence[Any], within_s: float
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """What the agent knows as `select.select`. The last that it reads from tells it to end: when all is acted."""

        def ready() -> bool:
            return self.machine.over or any(select.select(reading, writing, failing, 0))

        if within_s > 0 and not ready():
            self.wait(self.at_s + within_s, ready, _order())
        return ([reading[-1]], [], []) if self.machine.over else select.select(reading, writing, failing, 0)


class Thread(threading.Thread):
    """One that begins, ends and is joined in virtual time."""

    clock: Time
    made = 0

    def __init__(self, **more: Any) -> None:  # noqa: ANN401 - threading's own
        super().__init__(**more)
        Thread.made += 1
        self.order, self.ended = Thread.made, False

    def start(self) -> None:
        self.clock.entered()
        super().start()

    def run(self) -> None:
        self.clock.wait(None, lambda: True, self.order)
        try:
            super().run()
        finally:
            self.ended = True
            self.clock.left()

    def join(self, timeout: float | None = None) -> None:
        self.clock.wait(None if timeout is None else self.clock.at_s + timeout, lambda: self.ended, _order())

    def is_alive(self) -> bool:
        return not self.ended and super().is_alive()


class Event:
    """One that is waited for in virtual time."""

    clock: Time

    def __init__(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            self.clock.wait(None if timeout is None else self.clock.at_s + timeout, self.is_set, _order())
        return self._set


def _order() -> int:
    return getattr(threading.current_thread(), "order", 0)


def sign(secret: bytes, text: bytes) -> bytes:
    """As the agent's own module does."""
    return Ed25519PrivateKey.from_private_bytes(secret).sign(text)


def verify(public: bytes, text: bytes, signature: bytes) -> bool:
    """As the agent's own module does."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except InvalidSignature:
        return False
    return True


def play(plan: dict[str, Any], shared: mmap.mmap) -> None:
    """One agent that joins, lives through the trace of `plan`, and ends."""
    home = Path(plan["folder"])
    state, root, nvml = home / "state", home / "root", home / "nvml.json"
    state.mkdir(parents=True, mode=0o700)
    os.environ["FAKE_NVML"] = str(nvml)
    machine = Acted(root, nvml, state / state_dir.SOCKET, plan["minutes"], plan["began_s"])
    frozen = plan["frozen"]
    now = Time(machine, plan["began_s"], shared, (frozen[0], frozen[1]) if frozen else None)
    now.set(-MINUTE_S)
    Thread.clock = Event.clock = now
    near = HostView({"HOME": "/home/ubuntu"}, root)
    threads = SimpleNamespace(Thread=Thread, Event=Event, Lock=threading.Lock)
    for module in (collector, clock, daemon, collector, watching):
        vars(module)["time"] = now.module()
    for module in (collector, daemon, watching):
        vars(module)["threading"] = threads
    vars(daemon)["select"] = now
    vars(collector).update(
        GpuProcessTrees=partial(GpuProcessTrees, root / "proc"),
        HostMetrics=partial(HostMetrics, root),
        HostView=SimpleNamespace(real=lambda: near),
    )
    told = enrollment.join_watchdog(state, plan["url"], plan["code"])
    daemon.AgentDaemon(state, state, told, enrollment.load_key(state)).run()


def main() -> None:
    """Play whatever is asked for."""
    vars(watching)["LOOK_S"] = GPU_LOOK_S
    vars(signals)["FAR_S"] = 2 * GPU_LOOK_S
    vars(sender)["ed25519"] = SimpleNamespace(sign=sign, verify=verify)
    vars(os)["cpu_count"] = lambda: CORES
    with Path(sys.argv[1]).open("r+b") as file, mmap.mmap(file.fileno(), 8) as shared:
        for line in sys.stdin:
            play(json.loads(line), shared)
            print(json.dumps({"cpu_s": time.process_time()}), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    main()
