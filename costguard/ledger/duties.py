"""What watchdogs that share the accounts of a PostgreSQL ledger tell each other: who is there, and what each poll saw.

The polls themselves are jobs (`services.poll_jobs`); whatever is written for an account names its job, which the transaction
checks (`ledger.duty_records`). Times are those of the server's clock, so that watchdogs need not agree on theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from types import TracebackType
from typing import NamedTuple, Self

from costguard.errors import InputError
from costguard.ledger.db.connection import IDLE_POLL_S, WriteConnection, WriterLock, begin_write, open_engine
from costguard.ledger.duty_records import (
    JOBS_SCHEMA,
    LEFT_BEHIND_AFTER,
    POLL,
    SERVER_NOW_US,
    WORKER,
    Lease,
    measure_clock,
    require_lease,
)
from costguard.values.instant import MICROSECOND, from_micros, to_micros

NO_TIME = timedelta()
COUNTS_FOR = 2
"""Intervals for which whoever polled an account last counts as the one that polls it."""


class PollView(NamedTuple):
    """What the watchdog that polled an account last leaves for the one that plans: `body` is text that only services read."""

    account: str
    at: datetime
    epoch: int
    body: str


class DutyStore:
    """The duties in the ledger at `url`, as `holder` (one process) does them.

    `group`: of the watchdogs that poll the same accounts.

    Close it, or use it in a `with` statement. Several threads may use it. Raises InputError for a ledger that is a SQLite file.
    """

    def __init__(self, url: str, holder: str, *, group: str = "") -> None:
        self.holder, self._worker = holder, f"{WORKER} {group}".strip()
        engine = open_engine(url)
        self._engine, self.conninfo = engine, engine.get_execution_options()["ledger"].where.conninfo
        self._pen = WriteConnection(engine)
        if not self._pen.on_server:
            self._pen.close()
            hint = 'leave [scale] workers out, or set [ledger] url = "postgresql+psycopg://..."'
            raise InputError("needs a ledger on a PostgreSQL server", field='scale.workers = "share"', hint=hint)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self._pen.close()

    def prepare_jobs(self, schema: str, *, replace: bool = True) -> None:
        """Make the tables that the statements of `schema` create, unless they are there.

        `replace`: those of another version are made anew: what was in them is deferred again within an interval.
        """
        digest = sha256(schema.encode()).hexdigest()
        with self._pen.begin_read() as ask:
            if _has_jobs(ask(_READ_JOBS_DIGEST, ()), digest, replace=replace):
                return
        with begin_write(self._engine) as connection:
            if _has_jobs(connection.exec_driver_sql(_READ_JOBS_DIGEST).all(), digest, replace=replace):
                return  # another watchdog was first
            plain = connection.execution_options(no_parameters=True)
            plain.exec_driver_sql(f"DROP SCHEMA IF EXISTS {JOBS_SCHEMA} CASCADE; CREATE SCHEMA {JOBS_SCHEMA}")
            plain.exec_driver_sql(f"SET LOCAL search_path TO {JOBS_SCHEMA}")
            plain.exec_driver_sql(schema)
            plain.exec_driver_sql(f"COMMENT ON SCHEMA {JOBS_SCHEMA} IS '{digest}'")

    def measure_clock(self, now: Callable[[], datetime]) -> timedelta:
        """Return by how much the clock `now` is ahead of the server's, as `duty_records.measure_clock`."""
        with self._pen.begin_read() as ask:
            return measure_clock(ask, now)

    def announce(self, accounts: Collection[str], lasts: timedelta, *, clock_off: timedelta = NO_TIME) -> None:
        """Make sure that each of `accounts` has its duty, and say that this one is there.

        `lasts`: for how long it counts without saying so again. `clock_off`: its clock is wrong by so much, and it takes part
        in nothing.
        """
        with self._pen.begin_transaction(WriterLock.ACCOUNTS, idle_s=IDLE_POLL_S) as (ask, tell):
            known = {account for (account,) in ask("SELECT account FROM duty WHERE kind = ?", (POLL,))}
            if new := sorted(set(accounts) - known):
                tell(_ADD, [(POLL, account) for account in new])
            tell(_APPEAR, [(self._worker, self.holder, self.holder, lasts // MICROSECOND, clock_off // MICROSECOND)])
            tell(_DISAPPEAR, [(POLL,)])
            if removed := list(ask(_REMOVE_LEFT_BEHIND, (POLL, list(accounts)))):
                tell("DELETE FROM poll_view WHERE account = ?", removed)

    def leave(self) -> None:
        """Say that this one is gone."""
        with self._pen.begin_transaction(WriterLock.ACCOUNTS, idle_s=IDLE_POLL_S) as (_, tell):
            tell("UPDATE duty SET holder = '', until_us = 0 WHERE holder = ? AND kind = ?", [(self.holder, POLL)])
            tell("DELETE FROM duty WHERE holder = ? AND kind = ?", [(self.holder, self._worker)])

    def finish_poll(self, lease: Lease, *, every: timedelta, at: datetime, body: str) -> None:
        """Say that the account was polled at `at`: it is due again `every` later. Raises LeaseLostError.

        `body`: for `load_views`.
        """
        micros = every // MICROSECOND
        with self._pen.begin_transaction(WriterLock.ACCOUNTS, idle_s=IDLE_POLL_S) as (ask, tell):
            require_lease(ask, lease)
            tell(_DONE, [(micros, COUNTS_FOR * micros, lease.deferred_at, lease.holder, POLL, lease.account)])
            tell(_LEAVE_VIEW, [(lease.account, to_micros(at), lease.deferred_at, body)])

    def load_clocks(self) -> dict[str, timedelta]:
        """Return the watchdogs of all groups whose clock is wrong, and by how much each is ahead of the server's."""
        with self._pen.begin_read() as ask:
            rows = ask(f"SELECT holder, clock_us FROM duty WHERE clock_us <> 0 AND until_us > {SERVER_NOW_US}", ())  # noqa: S608 - our own words
        return {holder: clock_us * MICROSECOND for holder, clock_us in rows}

    def load_views(self, known: Mapping[str, PollView], accounts: Collection[str]) -> dict[str, PollView]:
        """Return the newest view of each of `accounts` that was ever polled; those in `known` are not read again."""
        with self._pen.begin_read() as ask:
            stamps = {
                account: (from_micros(at_us), epoch)
                for account, at_us, epoch in ask("SELECT account, at_us, epoch FROM poll_view", ())
                if account in accounts
            }
            same = {name: view for name, view in known.items() if stamps.get(name) == (view.at, view.epoch)}
            if changed := sorted(set(stamps) - set(same)):
                rows = ask("SELECT account, at_us, epoch, body FROM poll_view WHERE account = ANY(?)", (changed,))
                same |= {account: PollView(account, from_micros(at_us), epoch, body) for account, at_us, epoch, body in rows}
        return same


def _has_jobs(rows: Sequence[Sequence[object]], digest: str, *, replace: bool) -> bool:
    """Return whether the digest in `rows` is `digest`, or any one if none is to be replaced."""
    ((there,),) = rows
    return there == digest or (bool(there) and not replace)


_ADD = f"""
INSERT INTO duty (kind, account, due_us, epoch, holder, until_us) VALUES (?, ?, {SERVER_NOW_US}, 0, '', 0)
ON CONFLICT DO NOTHING
"""  # noqa: S608 - our own words
_APPEAR = f"""
INSERT INTO duty (kind, account, due_us, epoch, holder, until_us, clock_us) VALUES (?, ?, 0, 1, ?, {SERVER_NOW_US} + ?, ?)
ON CONFLICT (kind, account) DO UPDATE SET until_us = excluded.until_us, clock_us = excluded.clock_us
"""  # noqa: S608 - our own words
_DISAPPEAR = f"DELETE FROM duty WHERE kind <> ? AND until_us < {SERVER_NOW_US} - 600000000"  # noqa: S608 - our own words
_REMOVE_LEFT_BEHIND = f"""
DELETE FROM duty USING (
    SELECT kind, account FROM duty
    WHERE kind = ? AND account <> ALL(?) AND greatest(due_us, until_us) < {SERVER_NOW_US} - {LEFT_BEHIND_AFTER // MICROSECOND}
    ORDER BY kind, account FOR UPDATE SKIP LOCKED
) AS old WHERE duty.kind = old.kind AND duty.account = old.account RETURNING duty.account
"""  # noqa: S608 - our own words
_DONE = f"""
UPDATE duty SET due_us = {SERVER_NOW_US} + ?, until_us = {SERVER_NOW_US} + ?, epoch = greatest(epoch, ?), holder = ?
WHERE kind = ? AND account = ?
"""  # noqa: S608 - our own words
_READ_JOBS_DIGEST = f"SELECT obj_description(to_regnamespace('{JOBS_SCHEMA}'), 'pg_namespace')"
_LEAVE_VIEW = """
INSERT INTO poll_view (account, at_us, epoch, body) VALUES (?, ?, ?, ?)
ON CONFLICT (account) DO UPDATE SET at_us = excluded.at_us, epoch = excluded.epoch, body = excluded.body
"""
