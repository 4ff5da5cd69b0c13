"""Leases on standing duties in a PostgreSQL ledger, so that several watchdogs share the accounts to be polled.

A duty is a row: what is to be done (`kind`), for which account, when it is next due, and who holds it until when. A watchdog
takes duties that nobody holds and renews them; one that dies or hangs stops renewing, and others take its duties. Each taking
raises the duty's epoch. Whoever records something names its epoch, and the transaction that records checks it:

    12:00:00  one holds aws/epoch 4 until 12:00:30, asks the cloud, and is suspended
    12:00:31  two takes aws/epoch 5, and polls it
    12:05:00  one wakes up, and wants to record what it heard at 12:00: refused, nothing is written

Times are those of the server's clock, so that watchdogs on several machines need not agree on theirs. A transaction that
records keeps the duty's row locked (FOR KEY SHARE) until it commits: meanwhile nobody can take the duty, because those who take
skip locked rows, and its holder can renew it.

Epochs are numbers of seconds of the server's clock, or one more than the epoch before: so none is given twice, also after a row
was removed that nobody used for a day, and after an older backup of the ledger was restored.

A holder that is suspended within a transaction holds the row, and loses its session to the server's limit on idle transactions
(`connection.IDLE_POLL_S`): then nothing of it is recorded, and the duty is free.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import NamedTuple, Self

from costguard.errors import InputError
from costguard.ledger.db.connection import IDLE_POLL_S, WriteConnection, WriterLock, open_engine
from costguard.ledger.duty_records import (
    LEFT_BEHIND_AFTER,
    MICROS,
    POLL,
    SERVER_NOW_US,
    WORKER,
    Lease,
    measure_clock,
    require_lease,
)
from costguard.values.instant import MICROSECOND, from_micros, to_micros

NO_TIME = timedelta()


class PollView(NamedTuple):
    """What the watchdog that polled an account last leaves for the one that plans: `body` is text that only services read."""

    account: str
    at: datetime
    epoch: int
    body: str


class DutyStore:
    """The duties in the ledger at `url`, as `holder` (one process) takes and holds them.

    `group`: of the watchdogs that poll the same accounts; those of others are not counted.

    Close it, or use it in a `with` statement. Several threads may use it. Raises InputError for a ledger that is a SQLite file.
    """

    def __init__(self, url: str, holder: str, *, group: str = "") -> None:
        self.holder, self._worker = holder, f"{WORKER} {group}".strip()
        engine = open_engine(url)
        self._where = engine.get_execution_options()["ledger"].where
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

    def measure_clock(self, now: Callable[[], datetime]) -> timedelta:
        """Return by how much the clock `now` is ahead of the server's, as `duty_records.measure_clock`."""
        with self._pen.begin_read() as ask:
            return measure_clock(ask, now)

    def announce(self, accounts: Collection[str], lasts: timedelta, *, clock_off: timedelta = NO_TIME) -> int:
        """Make sure that each of `accounts` has its duty, say that this one is there, and return how many of its group are.

        `lasts`: for how long it counts without saying so again. `clock_off`: its clock is wrong by so much, and it takes part
        in nothing: it is not counted.
        """
        with self._pen.begin_transaction(WriterLock.ACCOUNTS, idle_s=IDLE_POLL_S) as (ask, tell):
            known = {account for (account,) in ask("SELECT account FROM duty WHERE kind = ?", (POLL,))}
            if new := sorted(set(accounts) - known):
                tell(_ADD, [(POLL, account) for account in new])
            tell(_APPEAR, [(self._worker, self.holder, self.holder, lasts // MICROSECOND, clock_off // MICROSECOND)])
            tell(_DISAPPEAR, [(POLL,)])
            if removed := list(ask(_REMOVE_LEFT_BEHIND, (POLL, list(accounts)))):
                tell("DELETE FROM poll_view WHERE account = ?", removed)
                tell("DELETE FROM poll_judgement WHERE account = ?", removed)
            ((count,),) = ask(_COUNT_WORKERS, (self._worker,))
        return int(count)

    def take(self, accounts: Collection[str], most: int, lasts: timedelta) -> list[tuple[Lease, float]]:
        """Take at most `most` duties of `accounts` that nobody holds, the most overdue first.

        Returns each with the seconds until it is due, which are negative if it is overdue.
        """
        if most <= 0 or not accounts:
            return []
        with self._pen.begin_transaction(WriterLock.ACCOUNTS, idle_s=IDLE_POLL_S) as (ask, _):
            rows = ask(_TAKE, (POLL, list(accounts), most, self.holder, lasts // MICROSECOND))
        return [(Lease(POLL, account, epoch, self.holder), due_us / MICROS) for account, epoch, due_us in rows]

    def renew(self, lasts: timedelta) -> list[tuple[Lease, float]]:
        """Renew the duties that this watchdog holds; return them as `take` does.

        One whose time has run out is not renewed, even if nobody else has taken it.
        """
        with self._pen.begin_transaction(WriterLock.ACCOUNTS, idle_s=IDLE_POLL_S) as (ask, _):
            rows = ask(_RENEW, (lasts // MICROSECOND, POLL, self.holder))
        return [(Lease(POLL, account, epoch, self.holder), due_us / MICROS) for account, epoch, due_us in rows]

    def release(self, leases: Iterable[Lease]) -> None:
        """Give `leases` back, so that others need not wait until they run out."""
        rows = [(one.kind, one.account, one.epoch, one.holder) for one in leases]
        if rows:
            with self._pen.begin_transaction(WriterLock.ACCOUNTS, idle_s=IDLE_POLL_S) as (_, tell):
                tell(_RELEASE, rows)

    def leave(self) -> None:
        """Give everything back."""
        with self._pen.begin_transaction(WriterLock.ACCOUNTS, idle_s=IDLE_POLL_S) as (_, tell):
            tell("UPDATE duty SET holder = '', until_us = 0 WHERE holder = ? AND kind = ?", [(self.holder, POLL)])
            tell("DELETE FROM duty WHERE holder = ? AND kind = ?", [(self.holder, self._worker)])

    def finish_poll(self, lease: Lease, *, next_in: timedelta, at: datetime, body: str) -> None:
        """Say that the account was polled at `at`: it is due again `next_in` later. Raises LeaseLostError.

        `body`: for `load_views`.
        """
        with self._pen.begin_transaction(WriterLock.ACCOUNTS, idle_s=IDLE_POLL_S) as (ask, tell):
            require_lease(ask, lease)
            tell(_DONE, [(next_in // MICROSECOND, lease.kind, lease.account)])
            tell(_LEAVE_VIEW, [(lease.account, to_micros(at), lease.epoch, body)])

    def postpone(self, accounts: Collection[str], by: timedelta) -> None:
        """Have `accounts` polled `by` from now at the earliest, whoever holds them."""
        with self._pen.begin_transaction(WriterLock.ACCOUNTS, idle_s=IDLE_POLL_S) as (_, tell):
            tell(_POSTPONE, [(by // MICROSECOND, POLL, account) for account in sorted(accounts)])

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


_ADD = f"""
INSERT INTO duty (kind, account, due_us, epoch, holder, until_us) VALUES (?, ?, {SERVER_NOW_US}, 0, '', 0)
ON CONFLICT DO NOTHING
"""  # noqa: S608 - our own words
_APPEAR = f"""
INSERT INTO duty (kind, account, due_us, epoch, holder, until_us, clock_us) VALUES (?, ?, 0, 1, ?, {SERVER_NOW_US} + ?, ?)
ON CONFLICT (kind, account) DO UPDATE SET until_us = excluded.until_us, clock_us = excluded.clock_us
"""  # noqa: S608 - our own words
_COUNT_WORKERS = f"SELECT count(*) FROM duty WHERE kind = ? AND until_us > {SERVER_NOW_US} AND clock_us = 0"  # noqa: S608 - our own words
_DISAPPEAR = f"DELETE FROM duty WHERE kind <> ? AND until_us < {SERVER_NOW_US} - 600000000"  # noqa: S608 - our own words
_REMOVE_LEFT_BEHIND = f"""
DELETE FROM duty USING (
    SELECT kind, account FROM duty
    WHERE kind = ? AND account <> ALL(?) AND greatest(due_us, until_us) < {SERVER_NOW_US} - {LEFT_BEHIND_AFTER // MICROSECOND}
    ORDER BY kind, account FOR UPDATE SKIP LOCKED
) AS old WHERE duty.kind = old.kind AND duty.account = old.account RETURNING duty.account
"""  # noqa: S608 - our own words
_TAKE = f"""
WITH free AS (
    SELECT kind, account FROM duty
    WHERE kind = ? AND account = ANY(?) AND until_us <= {SERVER_NOW_US} ORDER BY due_us, account LIMIT ? FOR UPDATE SKIP LOCKED
)
UPDATE duty SET holder = ?, epoch = greatest(duty.epoch + 1, {SERVER_NOW_US} / {MICROS}), until_us = {SERVER_NOW_US} + ?
FROM free WHERE duty.kind = free.kind AND duty.account = free.account
RETURNING duty.account, duty.epoch, duty.due_us - {SERVER_NOW_US}
"""  # noqa: S608 - our own words
_RENEW = f"""
UPDATE duty SET until_us = {SERVER_NOW_US} + ? WHERE kind = ? AND holder = ? AND until_us > {SERVER_NOW_US}
RETURNING account, epoch, due_us - {SERVER_NOW_US}
"""  # noqa: S608 - our own words
_RELEASE = "UPDATE duty SET holder = '', until_us = 0 WHERE kind = ? AND account = ? AND epoch = ? AND holder = ?"
_DONE = f"UPDATE duty SET due_us = {SERVER_NOW_US} + ? WHERE kind = ? AND account = ?"  # noqa: S608 - our own words
_POSTPONE = f"UPDATE duty SET due_us = {SERVER_NOW_US} + ? WHERE kind = ? AND account = ?"  # noqa: S608 - our own words
_LEAVE_VIEW = """
INSERT INTO poll_view (account, at_us, epoch, body) VALUES (?, ?, ?, ?)
ON CONFLICT (account) DO UPDATE SET at_us = excluded.at_us, epoch = excluded.epoch, body = excluded.body
"""
