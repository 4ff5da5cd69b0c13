"""NVML looked at by a thread of its own: a driver that hangs, as it may when a GPU falls off the bus, makes nothing else wait.

Duty and power every second, what changes slowly about once a record. What is older than half a minute counts as unknown.
"""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

from costguard_agent.clock import read_clock
from costguard_agent.nvml import GpuReader, GpuReading
from costguard_agent.signals import SignalReading

LOOK_S, FIRST_S, STALE_S, LAST_S = 1.0, 5.0, 30.0, 0.1
"""Between looks; for how long a beginning waits for the first; after how long without one nothing is known; for an end."""
FULL_SHARE = 0.9
"""Of the time between records, so that each has a full look in it."""
BLIND = GpuReading(None, None, ())


class TakenReadings(NamedTuple):
    """All looks since the last time, the latest of them, and all that was in the way."""

    looks: list[SignalReading]
    latest: GpuReading
    troubles: tuple[str, ...]


class GpuWatcher:
    """The thread, and what it saw. `every_s`: seconds between records."""

    def __init__(self, every_s: float) -> None:
        self.every_s = every_s
        self._gpus = GpuReader()
        self._lock, self._first, self._ended = threading.Lock(), threading.Event(), threading.Event()
        self._looks: list[SignalReading] = []
        self._latest, self._latest_s = BLIND, time.monotonic()
        self._troubles: dict[str, None] = {}
        self._thread = threading.Thread(target=self._watch, name="gpus", daemon=True)
        self._thread.start()
        self._first.wait(FIRST_S)

    @property
    def outdated(self) -> bool:
        """Whether only a new process can read the driver."""
        return self._gpus.outdated

    def take(self) -> TakenReadings:
        """What was seen since the last time."""
        with self._lock:
            looks, troubles, latest = self._looks, tuple(self._troubles), self._latest
            silent_s = time.monotonic() - self._latest_s
            self._looks, self._troubles = [], {}
        if silent_s > STALE_S:
            return TakenReadings([], BLIND, (f"NVML has not answered for {silent_s:.0f} s",))
        return TakenReadings(looks, latest, troubles)

    def close(self) -> None:
        """End it; a thread that hangs ends with the process."""
        self._ended.set()
        self._thread.join(LAST_S)

    def _watch(self) -> None:
        full_s = 0.0
        while not self._ended.is_set():
            moment = read_clock()
            full = moment.awake_s >= full_s
            if full:
                full_s = moment.awake_s + FULL_SHARE * self.every_s
            look = self._look(moment.awake_s, full=full)
            with self._lock:
                self._latest, self._latest_s = look, time.monotonic()
                self._troubles.update(dict.fromkeys(look.troubles))
                if look.gpus is not None:
                    self._looks.append(SignalReading(moment.boot_s, 0.0, {}, look.gpus))
            self._first.set()
            self._ended.wait(min(LOOK_S, self.every_s) if look.gpus else FULL_SHARE * self.every_s)
        self._gpus.close()

    def _look(self, at_s: float, *, full: bool) -> GpuReading:
        try:
            return self._gpus.look(at_s, full=full)
        except Exception as error:  # noqa: BLE001 - any: a binding that does not fit, a driver that answers otherwise
            return BLIND._replace(troubles=(f"GPUs cannot be measured: {type(error).__name__}: {str(error)[:100]}",))
