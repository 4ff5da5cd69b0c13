"""Work off the polls of accounts as jobs of procrastinate, beside other watchdogs of one PostgreSQL ledger.

    12:00:00  whichever watchdog is first defers the polls of this interval: a job an account, locked by its name
    12:00:00  every watchdog takes jobs, as many at once as it has threads
    12:00:07  one is killed. 12:00:22: its last heartbeat is 15 s old; another one ends its jobs as failed within 15 s more
    12:01:00  the polls of the next interval, those accounts included

A job that failed is not repeated: beside the one of the next interval it would break the queueing lock. What a poll records
names its job, and is refused once that has ended (`ledger.duty_records.require_lease`). A worker that was suspended and given
up ends when it next takes a job, and begins anew.

Jobs are asyncio's, in a thread of its own; polls are plain functions in threads beside it (decision 0094).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from procrastinate import App, JobContext, PsycopgConnector
from procrastinate.exceptions import AlreadyEnqueued, ConnectorException
from procrastinate.jobs import Job, Status

from costguard.errors import CostguardError
from costguard.ledger.duty_records import JOBS_SCHEMA, Lease
from costguard.watchdog.duty import Log

HEARTBEAT_S, DEAD_AFTER_S, SWEEP_EVERY_S = 5.0, 15.0, 15.0
LOOK_EVERY_S = 1.0
"""How often jobs are looked for that became free without a word: those whose account was locked."""
RESTART_AFTER_S = 1.0
POLLS_AT_ONCE = 16
"""Accounts that one process asks at the same time; each has threads of its own for its scopes."""
POLL, DEFER = "poll", "defer polls"
CONNECTION = {
    "options": f"-c search_path={JOBS_SCHEMA} -c idle_in_transaction_session_timeout=3s",
    "application_name": "costguard jobs",
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""Of connections to the server: one that does not answer is given up after 20 s. A process that is suspended between a
statement and its commit loses its session after 3 s: else it held its own row, and nobody could give it up."""


class WorkerEndedError(CostguardError):
    """The worker ended by itself: it was given up, or lost its server."""


@dataclass(slots=True, kw_only=True)
class PollWorker:
    """Takes the polls of `accounts`, and has them deferred once every `every`.

    `conninfo`: of the server. `prepare`: makes the tables of jobs if they are gone. `group`: of the watchdogs that poll the
    same accounts. `poll`: polls one account and records that; it raises nothing. `list_paused`: the accounts that are not to be
    polled. `may_work`: called with each heartbeat; False: this process takes part in nothing now.
    """

    conninfo: str
    prepare: Callable[[], None]
    holder: str
    group: str
    accounts: Collection[str]
    every: timedelta
    poll: Callable[[Lease], None]
    list_paused: Callable[[], Collection[str]]
    may_work: Callable[[], bool]
    log: Log
    _closing: bool = False
    _began: threading.Event = field(default_factory=threading.Event)
    _loop: asyncio.AbstractEventLoop | None = None
    _task: asyncio.Task[None] | None = None
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="poll jobs", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more jobs, and wait for those in progress."""
        if self._thread is None:
            return
        self._closing = True
        self._began.wait()
        if self._loop is not None and self._task is not None:
            with suppress(RuntimeError):  # the loop is closed: it has ended already
                self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()
        self._thread = None

    def _run(self) -> None:
        with asyncio.Runner() as runner, suppress(asyncio.CancelledError):
            pool = ThreadPoolExecutor(max_workers=POLLS_AT_ONCE + 4, thread_name_prefix="poll")
            runner.get_loop().set_default_executor(pool)
            runner.run(self._keep_working())

    async def _keep_working(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._began.set()
        while not self._closing:
            try:
                if await asyncio.to_thread(self.may_work):
                    await asyncio.to_thread(self.prepare)  # a ledger that was restored may lack them
                    await self._work()
            except Exception as error:  # noqa: BLE001 - whatever ended it, it begins anew
                self.log.warning("poll_worker_ended", why=_describe_first(error), next_try_s=RESTART_AFTER_S)
            await asyncio.sleep(RESTART_AFTER_S)

    async def _work(self) -> None:
        """Take jobs until one of the tasks below ends, which is an error."""
        connector = PsycopgConnector(conninfo=self.conninfo, kwargs=CONNECTION, min_size=1, max_size=4, timeout=10.0)
        app = App(connector=connector)

        def poll(context: JobContext, account: str, deferred_at: int) -> None:
            self.poll(Lease(account, context.job.id or 0, deferred_at, self.holder))

        async def defer_polls(timestamp: int) -> None:
            await self._defer_polls(app, timestamp)

        app.task(name=POLL, pass_context=True)(poll)
        app.task(name=DEFER)(defer_polls)
        async with app.open_async(), asyncio.TaskGroup() as tasks:
            for task in (self._take_jobs(app), self._keep_time(app), self._sweep(app), self._keep_looking()):
                tasks.create_task(task)

    async def _take_jobs(self, app: App) -> None:
        await app.run_worker_async(
            queues=[self.group],
            name=self.holder,
            concurrency=POLLS_AT_ONCE,
            fetch_job_polling_interval=LOOK_EVERY_S,
            delete_jobs="always",
            update_heartbeat_interval=HEARTBEAT_S,
            stalled_worker_timeout=DEAD_AFTER_S,
            install_signal_handlers=False,
        )
        raise WorkerEndedError("the worker ended unexpectedly")

    async def _keep_time(self, app: App) -> None:
        """Have the polls of each interval deferred, once, whichever watchdog is first."""
        every_s, lock = self.every.total_seconds(), f"{self.group} {DEFER}"
        while True:
            count = int(time.time() // every_s)
            stamp = round(count * every_s * 1000)
            job = Job(
                id=None, queue=self.group, lock=lock, queueing_lock=lock, task_name=DEFER, task_kwargs={"timestamp": stamp}
            )
            with suppress(AlreadyEnqueued):  # nobody has come to it since the last interval
                await app.job_manager.defer_periodic_job(job, periodic_id=self.group, defer_timestamp=stamp)
            await asyncio.sleep(max(0.0, (count + 1) * every_s - time.time()))

    async def _defer_polls(self, app: App, timestamp: int) -> None:
        """Defer a poll of each account, but of those whose last one nobody has come to."""
        waiting = await app.job_manager.list_jobs_async(queue=self.group, task=POLL, status="todo")
        left_out = {job.lock for job in waiting} | set(await asyncio.to_thread(self.list_paused))
        jobs = [
            Job(
                id=None,
                queue=self.group,
                lock=name,
                queueing_lock=name,
                task_name=POLL,
                task_kwargs={"account": name, "deferred_at": timestamp},
            )
            for name in self.accounts
            if name not in left_out
        ]
        if jobs:
            await app.job_manager.batch_defer_jobs_async(jobs)

    async def _sweep(self, app: App) -> None:
        """End the jobs of workers without a heartbeat as failed."""
        while True:
            for job in await app.job_manager.get_stalled_jobs(queue=self.group, seconds_since_heartbeat=DEAD_AFTER_S):
                with suppress(ConnectorException):  # another watchdog was first
                    await app.job_manager.finish_job(job, Status.FAILED, delete_job=True)
                    self.log.warning("poll_ended", job=job.lock, why="its watchdog did not report for 15 s")
            await app.job_manager.prune_stalled_workers(DEAD_AFTER_S)
            await asyncio.sleep(SWEEP_EVERY_S)

    async def _keep_looking(self) -> None:
        """End the others once this process may not work."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if not await asyncio.to_thread(self.may_work):
                raise WorkerEndedError("this process may not poll now")


def _describe_first(error: BaseException) -> str:
    """Return what went wrong first, in words."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    cause = error.__cause__ if isinstance(error, ConnectorException) and error.__cause__ else error
    return str(cause) if isinstance(cause, CostguardError) else f"{type(cause).__name__}: {cause}"
