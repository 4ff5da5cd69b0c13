"""The watchdog: runs its duties, each at its own interval, until a signal ends it.

It depends on neither ledger nor clouds.

    SIGTERM, SIGINT   no new run starts, runs in progress finish within `patience`, and it ends: 0, or 130 after SIGINT;
                      1 if a run did not finish, which is logged. A second signal ends it without waiting.
    SIGHUP            `reload` builds new duties; if it refuses, the old ones stay in force and the reason is logged.

A duty that raises is logged and stops no other duty. systemd receives WATCHDOG=1 after a committed guard run only, never from a
timer: a guard that hangs, or that cannot write, is restarted although its threads are still running.
"""

from __future__ import annotations

import queue
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from threading import Lock, Thread
from types import FrameType
from typing import Any

from apscheduler.events import EVENT_JOB_MAX_INSTANCES
from apscheduler.executors.base import BaseExecutor, run_job
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

from costguard.errors import CostguardError
from costguard.system.process import ALIVE, READY, STOPPING, build_reload_facts, notify_systemd
from costguard.watchdog.duty import Duties, Duty, DutyHealth, Log

__all__ = ["UNFINISHED", "Duties", "Duty", "Log", "Watchdog"]

PATIENCE = timedelta(seconds=60)
"""How long runs under way may take to finish: longer than a send may wait; the unit's TimeoutStopSec is longer still."""
UNFINISHED, INTERRUPTED = 1, 130
JUMP_S, LOOK_S = 2.0, 5.0
"""How far the wall clock may leave the boot clock, and how often they are compared, in seconds."""
FINISHED = 0
"""Stands among the signals for "a duty has finished"."""


class DaemonThreadExecutor(BaseExecutor):  # type: ignore[misc]  # APScheduler ships no types
    """Runs each job in a daemon thread, so that a run that hangs on a socket does not keep the process alive."""

    def _do_submit_job(self, job: Any, run_times: list[datetime]) -> None:  # noqa: ANN401 - APScheduler ships no types
        def played() -> None:
            self._run_job_success(job.id, run_job(job, job._jobstore_alias, run_times, self._logger.name))  # noqa: SLF001 - as its own executors do

        Thread(target=played, name=job.id, daemon=True).start()


class Watchdog:
    """Runs `duties` until a signal ends it.

    `reload`: returns new duties, or raises an error that describes what is wrong with the settings; None: SIGHUP ends like
    SIGTERM. `heartbeat`: called after each committed guard run. `patience`: how long runs in progress may take at the end.
    `tell`: notifies systemd. `wall` and `boot`: clocks in seconds.
    """

    def __init__(
        self,
        duties: Duties,
        *,
        log: Log,
        reload: Callable[[], Duties] | None = None,
        heartbeat: Callable[[], object] | None = None,
        patience: timedelta = PATIENCE,
        tell: Callable[..., object] = notify_systemd,
        wall: Callable[[], float] = time.time,
        boot: Callable[[], float] | None = None,
    ) -> None:
        self._duties, self._log, self._make, self._heartbeat = duties, log, reload, heartbeat
        self._patience, self._tell, self._wall, self._boot = patience, tell, wall, boot or _choose_boot_clock()
        self._asked: queue.SimpleQueue[int] = queue.SimpleQueue()  # a signal may put into it at any moment
        self._lock, self._health, self._first_polls = Lock(), dict[str, DutyHealth](), set[str]()
        self._scheduler: Any = BackgroundScheduler(timezone=UTC, executors={"default": DaemonThreadExecutor()})
        self._apart = self._wall() - self._boot()
        self._stopping = False

    @property
    def stopping(self) -> bool:
        """Whether it is ending: a long duty can check this and start nothing new."""
        return self._stopping

    @property
    def degraded(self) -> tuple[str, ...]:
        """The accounts whose polls fail repeatedly."""
        with self._lock:
            return tuple(duty.name for duty in self._duties.polls if self._of(duty).degraded)

    def run(self) -> int:
        """Run until a signal ends it, and return the exit code.

        Call it in the main thread, which alone receives signals.
        """
        old_handlers = {one: signal.signal(one, self._heard) for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
        try:
            self._scheduler.add_listener(self._not_started, EVENT_JOB_MAX_INSTANCES)
            self._assign(self._duties)
            self._scheduler.start(paused=True)
            self._log.info("started", accounts=len(self._duties.polls), interval_s=self._duties.guard.every.total_seconds())
            self._tell(READY, f"STATUS={self._status('started')}")
            self._scheduler.resume()  # after READY: the first run tells systemd that it is alive
            return self._obey()
        finally:
            for one, old in old_handlers.items():
                signal.signal(one, old)

    def _heard(self, number: int, _frame: FrameType | None) -> None:
        self._asked.put(number)

    def _obey(self) -> int:
        while True:
            signal_number = FINISHED
            with suppress(queue.Empty):
                signal_number = self._asked.get(timeout=LOOK_S)
            self.compare_clocks()
            if signal_number == signal.SIGHUP and self._make is not None:
                self._reload(self._make)
            elif signal_number != FINISHED:
                return self._end(signal_number)

    def _assign(self, duties: Duties) -> None:
        """Replace the duties by `duties`: poll the accounts at once, then run the guard."""
        now = datetime.now(UTC)
        with self._lock:
            self._duties, self._first_polls = duties, {duty.name for duty in duties.polls}
            self._health = {duty.name: self._health.get(duty.name, DutyHealth()) for duty in duties.every}
        self._scheduler.remove_all_jobs()
        for duty in duties.every:
            at_once = duty is not duties.guard or not duties.polls
            self._scheduler.add_job(
                self._play,
                IntervalTrigger(seconds=duty.every.total_seconds(), jitter=duty.jitter.total_seconds() or None, timezone=UTC),
                args=(duty,),
                id=duty.name,
                coalesce=True,
                max_instances=1,
                misfire_grace_time=None,  # a run that was missed, by a suspension too, is run once, however late
                next_run_time=now if at_once else now + duty.every,
            )

    def _play(self, duty: Duty) -> None:
        """Run `duty` once, in a separate thread."""
        health, now = self._of(duty), self._boot()
        self._warn_if_late(duty, health, now)
        with self._lock:
            health.started = now
            if self._stopping or now < health.not_before:
                return
            health.running = True
        try:
            result = duty.run()
        except BaseException as error:  # noqa: BLE001 - whatever a plug-in raises, SystemExit too, concerns this duty alone
            self._failed(duty, health, error)
        else:
            self._record_success(duty, health, result)
        finally:
            with self._lock:
                health.running = False
            self._asked.put(FINISHED)
            self._polled(duty)

    def _failed(self, duty: Duty, health: DutyHealth, error: BaseException) -> None:
        account = duty in self._duties.polls
        with self._lock:
            was = health.degraded
            pause = health.failed(duty.every.total_seconds(), self._boot())
            if duty.name in self._duties.tried_always:  # money and messages wait for them
                health.not_before, pause = 0.0, duty.every.total_seconds()
        text = str(error) if isinstance(error, CostguardError) else f"{type(error).__name__}: {error}"
        self._log.error(
            "job_failed",
            job=duty.name,
            error=text,
            raised_in=_format_raise_place(error),
            failures=health.failures,
            next_try_s=pause,
        )
        if account and health.degraded and not was:
            self._log.error("account_degraded", account=duty.name, failures=health.failures, next_try_s=pause)
            self._tell(f"STATUS={self._status('degraded')}")

    def _record_success(self, duty: Duty, health: DutyHealth, result: object) -> None:
        with self._lock:
            was, health.failures, health.not_before = health.degraded, 0, 0.0
        if was:
            self._log.info("recovered", job=duty.name)
        if duty.name != self._duties.guard.name:
            return
        if not result:
            self._log.warning("guard_not_committed", job=duty.name)
            return
        self._tell(ALIVE, f"STATUS={self._status('last guard run ' + format(datetime.now(UTC), '%H:%M:%S UTC'))}")
        if self._heartbeat is not None:
            try:
                self._heartbeat()
            except Exception as error:  # noqa: BLE001 - that nobody hears the heartbeat stops no guard
                self._log.warning("heartbeat_failed", error=f"{type(error).__name__}: {error}")

    def _polled(self, duty: Duty) -> None:
        """Run the guard at once if this was the last of the first polls."""
        with self._lock:
            last = self._first_polls == {duty.name}
            self._first_polls.discard(duty.name)
        if last and not self._stopping:
            self._now(self._duties.guard)

    def _now(self, duty: Duty) -> None:
        with suppress(JobLookupError):  # a reload has just taken it away
            self._scheduler.modify_job(duty.name, next_run_time=datetime.now(UTC))

    def _warn_if_late(self, duty: Duty, health: DutyHealth, now: float) -> None:
        allowed = 2 * duty.every.total_seconds() + duty.jitter.total_seconds()
        if health.started is not None and now - health.started > allowed:
            seconds = round(now - health.started, 1)
            self._log.warning("job_late", job=duty.name, seconds=seconds, interval_s=duty.every.total_seconds())

    def _not_started(self, event: Any) -> None:  # noqa: ANN401 - APScheduler ships no types
        """Log a run that was due and did not start, because the previous one is still running."""
        duty = next((one for one in self._duties.every if one.name == event.job_id), None)
        if duty is not None:
            health = self._of(duty)
            running_s = round(self._boot() - (health.started or self._boot()), 1)
            if running_s > 2 * duty.every.total_seconds():
                self._log.warning("job_overdue", job=duty.name, seconds=running_s, interval_s=duty.every.total_seconds())

    def compare_clocks(self) -> None:
        """Run everything now if the wall clock was set, because by the new clock the next run might be hours away."""
        apart = self._wall() - self._boot()
        jump, self._apart = apart - self._apart, apart
        if abs(jump) > JUMP_S:
            self._log.warning("clock_jumped", seconds=round(jump, 1))
            for duty in self._duties.every:
                self._now(duty)

    def _reload(self, make: Callable[[], Duties]) -> None:
        self._tell(*build_reload_facts())
        try:
            duties = make()
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the new settings, the old ones stay in force
            kind = type(error).__name__
            self._log.error("reload_refused", error=str(error), kind=kind, in_force="the settings from before")
        else:
            self._assign(duties)
            self._log.info("reloaded", accounts=len(duties.polls))
        self._tell(READY, f"STATUS={self._status('settings read')}")

    def _end(self, signal_number: int) -> int:
        self._stopping = True
        self._tell(STOPPING, "STATUS=finishing acts in progress")
        self._log.info("stopping", signal=signal.Signals(signal_number).name, under_way=list(self._under_way()))
        self._scheduler.shutdown(wait=False)
        limit = self._boot() + self._patience.total_seconds()
        while self._under_way():
            try:
                again = self._asked.get(timeout=max(0.0, limit - self._boot()))
            except queue.Empty:
                break
            if again in (signal.SIGTERM, signal.SIGINT):
                break
        unfinished = self._under_way()
        if unfinished:
            self._log.error("unfinished", jobs=list(unfinished), waited_s=self._patience.total_seconds())
        self._log.info("stopped")
        return UNFINISHED if unfinished else INTERRUPTED if signal_number == signal.SIGINT else 0

    def _under_way(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(sorted(name for name, health in self._health.items() if health.running))

    def _of(self, duty: Duty) -> DutyHealth:
        return self._health.get(duty.name) or DutyHealth()

    def _status(self, what: str) -> str:
        degraded = self.degraded
        failing = f", {len(degraded)} degraded: {', '.join(degraded)}" if degraded else ""
        return f"{what}; {len(self._duties.polls)} accounts{failing}"


def _choose_boot_clock() -> Callable[[], float]:
    """Return a clock of the seconds since boot, including suspended time if the system counts it."""
    which = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return lambda: time.clock_gettime(which)


def _format_raise_place(error: BaseException) -> str:
    """Return where an error was raised, such as `round.py:81 played`, without any values."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code if trace is not None else None
    return f"{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno} {code.co_name}" if code and trace is not None else ""
