"""All measurements of one machine, combined into readings and records of 15 seconds.

Users, notebooks and schedulers are probed for the agent's loop by one call, which never waits:

    around = ActivityProbe(HostView.real())
    seen = around.look(time.time())       # seen.signals (input_age_s, connections, queue_jobs), seen.troubles

Terminals are read at each call. Notebook servers, schedulers and inference servers are queried once a minute, each in a thread
of its own; their answers are valid for three minutes. A query that hangs is not repeated, and its signals are missing from then
on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from costguard_agent import notebooks, schedulers
from costguard_agent.clock import CpuThrottle, Moment
from costguard_agent.gpu_processes import GpuProcessTrees
from costguard_agent.host import HostView
from costguard_agent.host_metrics import HostMetrics
from costguard_agent.inference_servers import ServerProbe
from costguard_agent.nvml import BLIND, GpuWatcher
from costguard_agent.protocol import build_record
from costguard_agent.signals import (
    CONNECTIONS,
    INPUT_AGE,
    QUEUE_JOBS,
    SERVER_CORES,
    SERVER_REQUESTS,
    ProbeResult,
    SignalReading,
    merge_probe_results,
    merge_readings,
)
from costguard_agent.user_sessions import SessionProbe

ResultT = TypeVar("ResultT")
UNSEEN = ProbeResult({}, (INPUT_AGE, CONNECTIONS, QUEUE_JOBS))
LEAST_S = 0.5
"""A record of less time than this says nothing."""


class MeasuredRecord(NamedTuple):
    """One record as sent in a beat.

    `unknown`: signals that exist here and could not be measured.
    """

    record: dict[str, Any]
    over_s: float
    unknown: tuple[str, ...]
    troubles: tuple[str, ...]


class Collector:
    """Collects measurements and builds a record from them.

    `every_s`: seconds between records.
    """

    def __init__(self, moment: Moment, every_s: float) -> None:
        self._gpus = GpuWatcher(every_s)
        self._trees = GpuProcessTrees()
        self._machine = HostMetrics(contained=self._trees.contained)
        self._around = ActivityProbe(HostView.real())
        self._troubles: dict[str, None] = {}
        self._before, self._latest = moment, BLIND
        self._take_gpu_readings()
        self._measure_host(moment)

    def finish_record(self, moment: Moment, at_ms: int, hint_signals: dict[str, float]) -> MeasuredRecord | None:
        """Return the record that ends now, dated `at_ms`; None if less than half a second passed.

        `hint_signals`: signals from hints.
        """
        over_s = moment.awake_s - self._before.awake_s
        if over_s < LEAST_S:
            return None
        looks = self._take_gpu_readings()
        probe_result = self._measure_safely("people and queues", lambda: self._around.look(time.time()), UNSEEN)
        signals = {**self._measure_host(moment), **probe_result.signals, **hint_signals}
        if SERVER_REQUESTS in signals and "cpu_cores" in signals:
            signals[SERVER_CORES] = self._trees.sum_cores(self._around.servers.pids)
        looks.append(SignalReading(moment.boot_s, over_s, signals))
        record = build_record(at_ms, round(over_s, 3), merge_readings(looks, at_s=moment.boot_s))
        troubles = (*self._troubles, *self._machine.list_troubles(), *self._trees.troubles, *probe_result.troubles)
        self._begin_record(moment)
        return MeasuredRecord(record, over_s, probe_result.unknown, troubles)

    def forget(self, moment: Moment) -> None:
        """Discard everything after a gap, which cannot be judged, and restart all counters."""
        self._machine.forget()
        self._trees.forget()
        self._take_gpu_readings()
        self._measure_host(moment)
        self._begin_record(moment)

    def set_interval(self, every_s: float) -> None:
        """Set the seconds between records."""
        self._gpus.every_s = every_s

    def close(self) -> None:
        """Release the GPUs."""
        self._gpus.close()

    @property
    def outdated(self) -> bool:
        """Whether only a new process can read the driver."""
        return self._gpus.outdated

    def _measure_host(self, moment: Moment) -> dict[str, float]:
        pids, gpus = self._latest.pids, self._latest.gpus is not None
        cores = self._measure_safely("processes", lambda: self._trees.look(moment.boot_s, pids, gpus=gpus), None)
        nothing: dict[str, float] = {}
        signals = self._measure_safely("the machine", lambda: self._machine.look(moment.boot_s, self._trees.members), nothing)
        if self._machine.here:
            signals["agent_alive"] = 1.0
        return signals if cores is None else {**signals, "cpu_cores": cores}

    def _take_gpu_readings(self) -> list[SignalReading]:
        """Return the GPU readings since the last call."""
        batch = self._gpus.take()
        self._latest = batch.latest
        self._troubles.update(dict.fromkeys(batch.troubles))
        return batch.looks

    def _measure_safely(self, name: str, measure: Callable[[], ResultT], otherwise: ResultT) -> ResultT:
        """Return the result of `measure`; on any error record it as a trouble and return `otherwise`."""
        try:
            return measure()
        except Exception as error:  # noqa: BLE001 - any: a binding, a driver, a file of the kernel that looks otherwise
            self._troubles[f"{name} cannot be measured: {type(error).__name__}: {str(error)[:100]}"] = None
            return otherwise

    def _begin_record(self, moment: Moment) -> None:
        self._before, self._troubles = moment, {}


EVERY_S, KEPT_S = 60.0, 180.0
PEOPLE_EVERY_S, PEOPLE_SHARE = 5.0, 0.001
"""All processes are read for it, so it is bounded by what it costs, too: a share of a core."""


class BackgroundQuery:
    """One query that a separate thread runs at most once a minute."""

    def __init__(self, name: str, ask: Callable[[float], ProbeResult], unknown: tuple[str, ...]) -> None:
        self._name, self._ask, self._unknown = name, ask, unknown
        self._asked_s, self._answered_s = float("-inf"), float("-inf")
        self._begun_s = time.monotonic()
        self._answer = ProbeResult()
        self._thread: threading.Thread | None = None

    def read_latest(self, now: float) -> ProbeResult:
        """Return the last answer with its age added, and start the next query if it is due.

        An answer that is too old is dropped.
        """
        at_s = time.monotonic()
        if at_s - self._asked_s >= EVERY_S and (self._thread is None or not self._thread.is_alive()):
            self._asked_s = at_s
            self._thread = threading.Thread(target=self._run_once, args=(now,), name=self._name, daemon=True)
            self._thread.start()
        old_s = at_s - self._answered_s
        if old_s <= KEPT_S:
            return _age_signals(self._answer, old_s)
        late = (f"{self._name} did not answer for {at_s - max(self._answered_s, self._begun_s):.0f} s",)
        return ProbeResult({}, self._unknown, late if at_s - self._begun_s > KEPT_S else ())

    def wait(self, within_s: float) -> None:
        """Wait for the query in progress, at most `within_s` seconds."""
        if self._thread is not None:
            self._thread.join(within_s)

    def _run_once(self, now: float) -> None:
        try:
            self._answer = self._ask(now)
        except Exception as error:  # noqa: BLE001 - whatever stands in others' files: it is told, and asked again
            self._answer = ProbeResult({}, self._unknown, (f"{self._name} could not be asked: {type(error).__name__}",))
        self._answered_s = time.monotonic()


class ActivityProbe:
    """Probes users, notebook servers, schedulers and inference servers in one call."""

    def __init__(self, surroundings: HostView) -> None:
        self._people, self._pace = SessionProbe(surroundings), CpuThrottle(PEOPLE_EVERY_S, PEOPLE_SHARE)
        self._seen, self._seen_s = ProbeResult(), 0.0
        self.servers = ServerProbe(surroundings)
        self._inquiries = (
            BackgroundQuery(
                "notebook servers", lambda now: notebooks.probe_notebooks(surroundings, now), (CONNECTIONS, INPUT_AGE)
            ),
            BackgroundQuery("schedulers", lambda _: schedulers.probe_schedulers(surroundings), (QUEUE_JOBS,)),
            BackgroundQuery("inference servers", lambda _: self.servers.probe(), ()),
        )

    def look(self, now: float, *, within_s: float = 0.0) -> ProbeResult:
        """Return what is known at `now` (Unix seconds).

        `within_s`: seconds to wait for first answers, for a command that looks only once.
        """
        answers = [one.read_latest(now) for one in self._inquiries]
        if within_s > 0:
            for one in self._inquiries:
                one.wait(within_s)
            answers = [one.read_latest(now) for one in self._inquiries]
        return merge_probe_results([self._probe_people(now), *answers])

    def _probe_people(self, now: float) -> ProbeResult:
        at_s = time.monotonic()
        if self._pace.is_due(at_s):
            self._seen, self._seen_s = self._pace.run_measured(at_s, lambda: self._people.look(now)), at_s
        return _age_signals(self._seen, at_s - self._seen_s)


def _age_signals(probe_result: ProbeResult, by_s: float) -> ProbeResult:
    """Return a result of `by_s` seconds ago as of now: only the input age grows."""
    return probe_result._replace(signals={n: v + (by_s if n == INPUT_AGE else 0.0) for n, v in probe_result.signals.items()})
