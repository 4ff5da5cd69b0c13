"""Who polls which account of a PostgreSQL ledger that several watchdogs share, and the check of a poll that is recorded.

A poll is a job of procrastinate, whose tables lie in a schema of their own. Whoever records something names its job, and the
transaction that records checks it:

    12:00:00  one fetches job 4 of the account aws, asks the cloud, and is suspended
    12:00:31  its heartbeat is missing: two ends job 4 as failed; 12:01:00 it polls aws by job 9
    12:05:00  one wakes up, and wants to record what it heard at 12:00: refused, nothing is written

A transaction that records keeps the job's row locked (FOR SHARE) until it commits: meanwhile nobody can end the job. A holder
that is suspended within a transaction loses its session to the server's limit on idle transactions (`connection.IDLE_POLL_S`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import BigInteger, Text, cast, column, extract, func, table
from sqlalchemy.dialects.postgresql import JSONB
from sqlmodel import col, select

from costguard.errors import ClockError, LeaseLostError
from costguard.ledger.db.codecs import Query
from costguard.ledger.tables.duties import DutyRow
from costguard.metering.inventory import Poll
from costguard.values.instant import MICROSECOND, from_micros
from costguard.values.resource import ScopeKey
from costguard.values.text_format import format_length, format_scope

POLL, WORKER = "poll", "worker"
"""Kinds of duties: poll an account; and being there at all, of which each watchdog holds its own."""

SERVER_NOW_US = cast(extract("epoch", func.clock_timestamp()) * 1_000_000, BigInteger)
"""The time of the server's clock in microseconds."""


CLOCK_OFF_MAX = timedelta(seconds=5)
"""By how much the clock of a watchdog that shares accounts may differ from the server's: a hundred times what NTP leaves."""
LEFT_BEHIND_AFTER = timedelta(days=1)
"""After which a duty that nobody does and that is not due any more is removed, unless whoever looks has its account: settings
that are a day old and come back find their accounts as new ones, which are polled at once."""
JOBS_SCHEMA = "costguard_jobs"
"""Where procrastinate's tables lie: so neither migrations nor `db check` take them for the ledger's."""


class Lease(NamedTuple):
    """The poll of an account by `holder`, which is in force while its `job` is running.

    `deferred_at`: of the job, in milliseconds: after a backup was restored, numbers are given again.
    """

    account: str
    job: int
    deferred_at: int
    holder: str


class Duty(NamedTuple):
    """A duty as it stands. `due_at`: when it is next to be done. `holder`: who did it last, and counts for it `until` then.

    `epoch`: when the job by which it was done last was deferred, in milliseconds. Jobs' numbers begin anew with their tables.

    `clock_off`: of a watchdog whose clock is wrong, by how much it is ahead of the server's; zero of all others.
    """

    kind: str
    account: str
    due_at: datetime
    epoch: int
    holder: str
    until: datetime
    clock_off: timedelta = timedelta()

    def is_held(self, now: datetime) -> bool:
        """Return whether a process counts for it at `now`."""
        return bool(self.holder) and now < self.until


def require_lease(ask: Query, lease: Lease) -> datetime:
    """Return the time of the server's clock. Raise LeaseLostError unless the job of `lease` is running.

    In a write transaction it stays so until that ends.
    """
    running = (
        select(SERVER_NOW_US)
        .select_from(_JOBS)
        .where(
            _JOBS.c.id == lease.job,
            cast(_JOBS.c.status, Text) == "doing",
            _JOBS.c.lock == lease.account,
            cast(_JOBS.c.args["deferred_at"].astext, BigInteger) == lease.deferred_at,
        )
    )
    rows = ask(running.with_for_update(read=True))
    if not rows:
        raise LeaseLostError(
            f"the poll of {lease.account} was ended: nothing was recorded",
            field="lease",
            hint="this watchdog was suspended or cut off for too long; it continues with the next polls",
        )
    return from_micros(rows[0])


def read_server_time(ask: Query) -> datetime:
    """Return the time of the server's clock."""
    return from_micros(ask(select(SERVER_NOW_US))[0])


def measure_clock(ask: Query, now: Callable[[], datetime]) -> timedelta:
    """Return by how much the clock `now` is certainly ahead of the server's; negative: behind, zero: no difference is sure.

    What the question took is not held against it.
    """
    read_server_time(ask)  # opens the connection
    start, server_now, end = now(), read_server_time(ask), now()
    return max(start - server_now, timedelta()) or min(end - server_now, timedelta())


def require_present(polls: Iterable[Poll], server_now: datetime, most: timedelta) -> None:
    """Raise ClockError for a poll that is dated more than `most` after `server_now`.

    It would hold up all listings of its account until that time, whoever makes them.
    """
    for poll in polls:
        if poll.at - server_now > most:
            raise build_clock_error(poll.at - server_now, poll.scope)


def build_clock_error(off: timedelta, scope: ScopeKey | None = None) -> ClockError:
    """Return the error of a clock that is `off` from the ledger server's, ahead if that is positive."""
    length = format_length(timedelta(seconds=round(abs(off).total_seconds())))
    what = f"is {length} {'ahead of' if off > timedelta() else 'behind'} the ledger server's"
    if scope is not None:
        what += f": the poll of {format_scope(scope)} was not recorded"
    return ClockError(what, field="this machine's clock", hint="set it, and keep it with NTP (timedatectl set-ntp true)")


def load_duties(ask: Query) -> tuple[list[Duty], datetime]:
    """Return every duty, and the time of the server's clock. None, and 1970, on a SQLite file."""
    rows: Sequence[DutyRow] = ask(select(DutyRow).order_by(col(DutyRow.kind), col(DutyRow.account)))
    if not rows:
        return [], from_micros(0)
    return [
        Duty(
            row.kind,
            row.account,
            from_micros(row.due_us),
            row.epoch,
            row.holder,
            from_micros(row.until_us),
            row.clock_us * MICROSECOND,
        )
        for row in rows
    ], read_server_time(ask)


_JOBS = table(
    "procrastinate_jobs",
    *(column("id", BigInteger), column("status", Text), column("lock", Text), column("args", JSONB)),
    schema=JOBS_SCHEMA,
)
"""Of procrastinate's own tables: the columns that the check of a lease reads."""
