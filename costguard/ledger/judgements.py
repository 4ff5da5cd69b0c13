"""What watchdogs that share the accounts of a PostgreSQL ledger judge of them, and what they read for it.

A judgement is left under the lease of its account's poll, which the transaction checks (`ledger.duties`): a watchdog that was
suspended leaves nothing. Its age is measured by the server's clock, so that watchdogs whose clocks differ agree on it.
Decision 0086.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from costguard.errors import LedgerError
from costguard.guard.signals import SampleColumns
from costguard.ledger.db.codecs import Query
from costguard.ledger.db.connection import WriteConnection, WriterLock, open_engine
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.duty_records import Lease, read_server_time, require_lease
from costguard.ledger.guard_records import SnapshotRecords
from costguard.ledger.spans import observations
from costguard.ledger.spans.scope_state import load_books, load_running_in
from costguard.metering.accrual import find_last_seen
from costguard.metering.spending import LiveResource
from costguard.values.instant import from_micros, to_micros
from costguard.values.money import Money, MoneyInterval
from costguard.values.resource import ResourceKey, ScopeKey

Found = TypeVar("Found")
NOTHING_SPENT = MoneyInterval(low=Money(nano=0), expected=Money(nano=0), high=Money(nano=0))


class StoredJudgement(NamedTuple):
    """What was judged of an account. `read_at`: when its samples were read, by the server's clock. `body`: of services."""

    account: str
    read_at: datetime
    epoch: int
    body: str


class JudgementStore:
    """The judgements in the ledger at `url`. Several threads may use it. Close it."""

    def __init__(self, url: str) -> None:
        self._pen = WriteConnection(open_engine(url))

    def close(self) -> None:
        """Close the database."""
        self._pen.close()

    def leave(self, lease: Lease, read_at: datetime, body: str) -> None:
        """Replace the judgement of an account. Raises LeaseLostError unless `lease` is in force.

        `read_at`: by the server's clock, before the samples were read.
        """
        with self._pen.begin_transaction(WriterLock.ACCOUNTS) as (ask, tell):
            require_lease(ask, lease)
            tell(_LEAVE, [(lease.account, to_micros(read_at), lease.epoch, body)])

    def load(
        self, known: Mapping[str, StoredJudgement], accounts: Collection[str], within: timedelta
    ) -> tuple[dict[str, StoredJudgement], datetime]:
        """Return the judgement of each of `accounts` whose samples were read `within` that time, and the server's time now.

        Those in `known` are not read again.
        """
        with self._pen.begin_read() as ask:
            now = read_server_time(ask)
            rows = ask("SELECT account, read_us, epoch FROM poll_judgement WHERE read_us > ?", (to_micros(now - within),))
            stamps = {account: (from_micros(read_us), epoch) for account, read_us, epoch in rows if account in accounts}
            found = {name: one for name, one in known.items() if stamps.get(name) == (one.read_at, one.epoch)}
            if changed := sorted(stamps.keys() - found.keys()):
                rows = ask("SELECT account, read_us, epoch, body FROM poll_judgement WHERE account = ANY(?)", (changed,))
                found |= {name: StoredJudgement(name, from_micros(read_us), epoch, body) for name, read_us, epoch, body in rows}
        return found, now


class AccountReader:
    """Reads what the judgement of an account stands on. One connection is kept; several threads take turns."""

    def __init__(self, url: str) -> None:
        self._url, self._lock = url, threading.Lock()
        self._reader: LedgerReader | None = None

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._drop()

    def read_server_time(self) -> datetime:
        """Return the time of the server's clock."""
        with self._ask() as ask:
            return read_server_time(ask)

    def load_running(self, scopes: Collection[ScopeKey]) -> list[LiveResource]:
        """Return the resources of `scopes` that run, without what they cost."""
        with self._ask() as ask:
            books = {
                number: book
                for account in sorted({scope[:2] for scope in scopes})
                for number, book in load_books(ask, account).items()
                if book.state.scope in scopes
            }
            return [
                LiveResource(
                    scope=books[one.scope_id].state.scope,
                    observation=one.known.observation,
                    first_seen_at=one.known.first_seen_at,
                    seen_at=find_last_seen(one.known, books[one.scope_id].state),
                    open=(),
                    spent=NOTHING_SPENT,
                )
                for one in load_running_in(ask, sorted(books))
            ]

    def load_columns_since(self, at: datetime, keys: Collection[ResourceKey] | None = None) -> dict[ResourceKey, SampleColumns]:
        """Return the samples at or after `at` of `keys` (None: of all), in columns."""
        with self._ask() as ask:
            return observations.load_columns_since(ask, at, keys)

    def read_records(self, read: Callable[[SnapshotRecords], Found]) -> Found:
        """Return what `read` takes from the records of guard runs and people, in one snapshot."""
        with self._ask() as ask:
            return read(SnapshotRecords(ask))

    @contextmanager
    def _ask(self) -> Iterator[Query]:
        with self._lock:
            try:
                self._reader = self._reader or LedgerReader(self._url, any_thread=True)
                with self._reader.snapshot() as ask:
                    yield ask
            except LedgerError:
                self._drop()
                raise

    def _drop(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = None


_LEAVE = """
INSERT INTO poll_judgement (account, read_us, epoch, body) VALUES (?, ?, ?, ?)
ON CONFLICT (account) DO UPDATE SET read_us = excluded.read_us, epoch = excluded.epoch, body = excluded.body
"""
