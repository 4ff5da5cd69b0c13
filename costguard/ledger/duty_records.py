"""Leases on duties as values, and reads of them in transactions of others. `ledger.duties` takes and holds them."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from costguard.errors import LeaseLostError
from costguard.ledger.db.codecs import Query
from costguard.values.instant import from_micros

POLL, WORKER = "poll", "worker"
"""Kinds of duties: poll an account; and being there at all, of which each watchdog holds its own."""

MICROS = 1_000_000
SERVER_NOW_US = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
"""The time of the server's clock in microseconds, as SQL."""


class Lease(NamedTuple):
    """A duty that `holder` took, the `epoch`-th time that it was taken."""

    kind: str
    account: str
    epoch: int
    holder: str


class Duty(NamedTuple):
    """A duty as it stands. `due_at`: when it is next to be done. `holder`: "" if nobody holds it."""

    kind: str
    account: str
    due_at: datetime
    epoch: int
    holder: str
    until: datetime

    def is_held(self, now: datetime) -> bool:
        """Return whether a process holds it at `now`."""
        return bool(self.holder) and now < self.until


def require_lease(ask: Query, lease: Lease) -> None:
    """Raise LeaseLostError unless `lease` is in force; in a write transaction, keep it in force until that ends."""
    if not ask(_CHECK, (lease.kind, lease.account, lease.epoch, lease.holder)):
        raise LeaseLostError(
            f"{lease.kind} of {lease.account} is another watchdog's by now: nothing was recorded",
            field="lease",
            hint="this watchdog was suspended or cut off for too long; it goes on with the accounts that it holds",
        )


def load_duties(ask: Query) -> tuple[list[Duty], datetime]:
    """Return every duty, and the time of the server's clock. None, and 1970, on a SQLite file."""
    rows = ask("SELECT kind, account, due_us, epoch, holder, until_us FROM duty ORDER BY kind, account", ())
    if not rows:
        return [], from_micros(0)
    ((now_us,),) = ask(f"SELECT {SERVER_NOW_US}", ())
    return [
        Duty(kind, account, from_micros(due), epoch, holder, from_micros(until))
        for kind, account, due, epoch, holder, until in rows
    ], from_micros(now_us)


_CHECK = f"""
SELECT 1 FROM duty WHERE kind = ? AND account = ? AND epoch = ? AND holder = ? AND until_us > {SERVER_NOW_US} FOR KEY SHARE
"""  # noqa: S608 - our own words
