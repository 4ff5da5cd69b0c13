"""All measurements of one machine, put together as looks and as records of 15 seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from costguard_agent.around import ActivityProbe
from costguard_agent.clock import Moment
from costguard_agent.gpu_processes import GpuProcessTrees
from costguard_agent.host import HostView
from costguard_agent.host_metrics import HostMetrics
from costguard_agent.protocol import build_record
from costguard_agent.seen import CONNECTIONS, INPUT_AGE, QUEUE_JOBS, ProbeResult
from costguard_agent.signals import SignalReading, merge_readings
from costguard_agent.watching import BLIND, GpuWatcher

ResultT = TypeVar("ResultT")
UNSEEN = ProbeResult({}, (INPUT_AGE, CONNECTIONS, QUEUE_JOBS))
LEAST_S = 0.5
"""A record of less time than this says nothing."""


class MeasuredRecord(NamedTuple):
    """One record as a beat carries it. `unknown`: signals that there would be, and that could not be had."""

    record: dict[str, Any]
    over_s: float
    unknown: tuple[str, ...]
    troubles: tuple[str, ...]


class Collector:
    """Made into a record when one is due. `every_s`: how often."""

    def __init__(self, moment: Moment, every_s: float) -> None:
        self._gpus = GpuWatcher(every_s)
        self._trees = GpuProcessTrees()
        self._machine = HostMetrics(contained=self._trees.contained)
        self._around = ActivityProbe(HostView.real())
        self._troubles: dict[str, None] = {}
        self._before, self._latest = moment, BLIND
        self._take_gpu_readings()
        self._measure_host(moment)

    def finish_record(self, moment: Moment, at_ms: int, heard: dict[str, float]) -> MeasuredRecord | None:
        """The record that ends now, dated `at_ms`; None where hardly any time went by. `heard`: signals of hints."""
        over_s = moment.awake_s - self._before.awake_s
        if over_s < LEAST_S:
            return None
        looks = self._take_gpu_readings()
        seen = self._measure_safely("people and queues", lambda: self._around.look(time.time()), UNSEEN)
        signals = {**self._measure_host(moment), **seen.signals, **heard}
        looks.append(SignalReading(moment.boot_s, over_s, signals))
        found = build_record(at_ms, round(over_s, 3), merge_readings(looks, at_s=moment.boot_s))
        troubles = (*self._troubles, *self._machine.list_troubles(), *self._trees.troubles, *seen.troubles)
        self._begin_record(moment)
        return MeasuredRecord(found, over_s, seen.unknown, troubles)

    def forget(self, moment: Moment) -> None:
        """After a gap: nothing may be said of it, and all counters begin anew."""
        self._machine.forget()
        self._trees.forget()
        self._take_gpu_readings()
        self._measure_host(moment)
        self._begin_record(moment)

    def set_interval(self, every_s: float) -> None:
        """Records come so often from now on."""
        self._gpus.every_s = every_s

    def close(self) -> None:
        """Let go of the GPUs."""
        self._gpus.close()

    @property
    def outdated(self) -> bool:
        """Whether only a new process can read the driver."""
        return self._gpus.outdated

    def _measure_host(self, moment: Moment) -> dict[str, float]:
        pids, gpus = self._latest.pids, self._latest.gpus is not None
        cores = self._measure_safely("processes", lambda: self._trees.look(moment.boot_s, pids, gpus=gpus), None)
        nothing: dict[str, float] = {}
        found = self._measure_safely("the machine", lambda: self._machine.look(moment.boot_s, self._trees.members), nothing)
        if self._machine.here:
            found["agent_alive"] = 1.0
        return found if cores is None else {**found, "cpu_cores": cores}

    def _take_gpu_readings(self) -> list[SignalReading]:
        """What was seen of the GPUs since the last time."""
        taken = self._gpus.take()
        self._latest = taken.latest
        self._troubles.update(dict.fromkeys(taken.troubles))
        return taken.looks

    def _measure_safely(self, name: str, measure: Callable[[], ResultT], otherwise: ResultT) -> ResultT:
        """What `measure` finds. Whatever goes wrong in it, the rest is measured, and it is said."""
        try:
            return measure()
        except Exception as error:  # noqa: BLE001 - any: a binding, a driver, a file of the kernel that looks otherwise
            self._troubles[f"{name} cannot be measured: {type(error).__name__}: {str(error)[:100]}"] = None
            return otherwise

    def _begin_record(self, moment: Moment) -> None:
        self._before, self._troubles = moment, {}
