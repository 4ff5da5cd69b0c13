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

from sqlalchemy import delete, func, update
from sqlalchemy.schema import CreateSchema, DropSchema
from sqlmodel import col, select

from costguard.errors import InputError
from costguard.ledger.db.codecs import Execute, Query
from costguard.ledger.db.connection import IDLE_POLL_S, WriteConnection, WriterLock, begin_write, open_engine
from costguard.ledger.db.rows import insert_new, make_insert, upsert_rows
from costguard.ledger.db.session import open_query
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
from costguard.ledger.tables.duties import DutyRow, PollViewRow
from costguard.values.instant import MICROSECOND, from_micros, to_micros

NO_TIME = timedelta()
GONE_AFTER = timedelta(minutes=10)
"""After which a watchdog that has stopped saying that it is there is removed."""
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
            if _has_jobs(ask(_JOBS_DIGEST), digest, replace=replace):
                return
        with begin_write(self._engine) as connection:
            if _has_jobs(open_query(connection)(_JOBS_DIGEST), digest, replace=replace):
                return  # another watchdog was first
            connection.execute(DropSchema(JOBS_SCHEMA, cascade=True, if_exists=True))
            connection.execute(CreateSchema(JOBS_SCHEMA))
            plain = connection.execution_options(no_parameters=True)
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
            new = set(accounts).difference(ask(select(DutyRow.account).where(col(DutyRow.kind) == POLL)))
            now_us: int = ask(select(SERVER_NOW_US))[0]
            tell(insert_new(DutyRow), [_make_duty(POLL, account, due_us=now_us) for account in sorted(new)])
            duty = _make_duty(self._worker, self.holder, epoch=1, holder=self.holder)
            duty |= {"until_us": now_us + lasts // MICROSECOND, "clock_us": clock_off // MICROSECOND}
            appear = make_insert(DutyRow)
            over = {name: appear.excluded[name] for name in ("until_us", "clock_us")}
            tell(appear.on_conflict_do_update(index_elements=["kind", "account"], set_=over), [duty])
            tell(delete(DutyRow).where(col(DutyRow.kind) != POLL, col(DutyRow.until_us) < now_us - GONE_AFTER // MICROSECOND))
            _remove_left_behind(ask, tell, accounts, now_us)

    def leave(self) -> None:
        """Say that this one is gone."""
        with self._pen.begin_transaction(WriterLock.ACCOUNTS, idle_s=IDLE_POLL_S) as (_, tell):
            is_own = col(DutyRow.holder) == self.holder
            tell(update(DutyRow).where(is_own, col(DutyRow.kind) == POLL).values(holder="", until_us=0))
            tell(delete(DutyRow).where(is_own, col(DutyRow.kind) == self._worker))

    def finish_poll(self, lease: Lease, *, every: timedelta, at: datetime, body: str) -> None:
        """Say that the account was polled at `at`: it is due again `every` later. Raises LeaseLostError.

        `body`: for `load_views`.
        """
        micros = every // MICROSECOND
        with self._pen.begin_transaction(WriterLock.ACCOUNTS, idle_s=IDLE_POLL_S) as (ask, tell):
            now_us = to_micros(require_lease(ask, lease))
            statement = update(DutyRow).where(col(DutyRow.kind) == POLL, col(DutyRow.account) == lease.account)
            epoch = func.greatest(DutyRow.epoch, lease.deferred_at)
            until_us = now_us + COUNTS_FOR * micros
            tell(statement.values(due_us=now_us + micros, until_us=until_us, epoch=epoch, holder=lease.holder))
            upsert_rows(tell, PollViewRow, {(lease.account,): (to_micros(at), lease.deferred_at, body)})

    def load_clocks(self) -> dict[str, timedelta]:
        """Return the watchdogs of all groups whose clock is wrong, and by how much each is ahead of the server's."""
        with self._pen.begin_read() as ask:
            wrong = select(DutyRow.holder, DutyRow.clock_us).where(col(DutyRow.clock_us) != 0)
            rows = ask(wrong.where(col(DutyRow.until_us) > SERVER_NOW_US))
        return {holder: clock_us * MICROSECOND for holder, clock_us in rows}

    def load_views(self, views: Mapping[str, PollView], accounts: Collection[str]) -> dict[str, PollView]:
        """Return the newest view of each of `accounts` that was ever polled; those in `views` are not read again."""
        with self._pen.begin_read() as ask:
            stamps = {
                account: (from_micros(at_us), epoch)
                for account, at_us, epoch in ask(select(PollViewRow.account, PollViewRow.at_us, PollViewRow.epoch))
                if account in accounts
            }
            same = {name: view for name, view in views.items() if stamps.get(name) == (view.at, view.epoch)}
            if changed := sorted(set(stamps) - set(same)):
                rows: Sequence[PollViewRow] = ask(select(PollViewRow).where(col(PollViewRow.account).in_(changed)))
                same |= {row.account: PollView(row.account, from_micros(row.at_us), row.epoch, row.body) for row in rows}
        return same


def _make_duty(kind: str, account: str, *, due_us: int = 0, epoch: int = 0, holder: str = "") -> dict[str, object]:
    return DutyRow(kind=kind, account=account, due_us=due_us, epoch=epoch, holder=holder, until_us=0).model_dump()


def _remove_left_behind(ask: Query, tell: Execute, accounts: Collection[str], now_us: int) -> None:
    """Remove the polls of other accounts that nobody does any more, but for those that another transaction has locked."""
    old = func.greatest(DutyRow.due_us, DutyRow.until_us) < now_us - LEFT_BEHIND_AFTER // MICROSECOND
    of_polls = col(DutyRow.kind) == POLL
    left = select(DutyRow.account).where(of_polls, col(DutyRow.account).not_in(accounts), old)
    if rows := ask(left.order_by(col(DutyRow.account)).with_for_update(skip_locked=True)):
        tell(delete(DutyRow).where(of_polls, col(DutyRow.account).in_(rows)))
        tell(delete(PollViewRow).where(col(PollViewRow.account).in_(rows)))


def _has_jobs(rows: Sequence[object], digest: str, *, replace: bool) -> bool:
    """Return whether the digest in `rows` is `digest`, or any one if none is to be replaced."""
    (exists,) = rows
    return exists == digest or (bool(exists) and not replace)


_JOBS_DIGEST = select(func.obj_description(func.to_regnamespace(JOBS_SCHEMA), "pg_namespace"))
