"""Writers of different accounts on one PostgreSQL: none waits for another's account, forgets its own, or harms the sums."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from costguard.errors import LedgerError
from costguard.guard.policy import Rails
from costguard.guard.run_facts import GuardRun
from costguard.ledger.db.codecs import Query
from costguard.ledger.db.connection import WriterLock, begin_write, open_engine
from costguard.ledger.db.maintenance import check_ledger
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans import writer as writing
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.scope_state import load_scopes
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Complete, Poll
from costguard.metering.observation import Disk, Observation
from costguard.values.calendar import Period
from costguard.values.resource import ResourceKey, ScopeKey
from tests.ledger.fleet import CEILINGS, DAY, HOUR, MINUTE, RULES, START, asked, machine

A, B, C = (ScopeKey("acme", name, "all") for name in ("a", "b", "c"))
NOVEMBER = Period(start=START - DAY, end=START + 30 * DAY)


def open_writer(url: str) -> LedgerWriter:
    return LedgerWriter(url, rules=RULES, ceilings=CEILINGS)


def listing(scope: ScopeKey, minute: float, *, usd: str = "2", state: str = "running", machines: int = 2) -> Poll:
    items = tuple(seen(scope, f"i-{number}", usd, state) for number in range(machines))
    return Poll(scope=scope, at=START + minute * MINUTE, inventory=Complete(items))


def seen(scope: ScopeKey, name: str, usd: str, state: str) -> Observation:
    key = ResourceKey(scope.provider, scope.account, "west-1", name)
    return machine(key=key, usd=usd, state=state, disks=(Disk(100, "ssd"),))


@contextmanager
def account_taken(url: str, scope: ScopeKey) -> Iterator[None]:
    """Another process is in the middle of recording a poll of the account of `scope`."""
    with psycopg.connect(url.replace("+psycopg", "")) as other:
        other.execute("SELECT pg_advisory_xact_lock_shared(%s)", [0x434F5354])
        found = other.execute("SELECT id FROM account_state WHERE account = %s FOR UPDATE", [scope.account]).fetchall()
        assert len(found) == 1
        yield


def test_a_record_waits_for_writers_of_its_own_account_alone(postgres_url: str) -> None:
    with open_writer(postgres_url) as ledger:
        ledger.record_polls([listing(A, 0), listing(B, 0)])
        with account_taken(postgres_url, B):
            assert ledger.record_polls([listing(A, 1, usd="3")])[0].fresh
            assert ledger.find_suspects(listing(A, 2)) == ()
            waiting = threading.Thread(target=ledger.record_polls, args=([listing(B, 1)],), daemon=True)
            waiting.start()
            waiting.join(0.3)
            assert waiting.is_alive()
        waiting.join(10)
        assert not waiting.is_alive()


def test_a_run_waits_for_no_poll(postgres_url: str) -> None:
    """Its rows name accounts: one that waited for these while it held others would be in a deadlock with a poll of both."""
    with (
        open_writer(postgres_url) as ledger,
        GuardStore(postgres_url, rails=Rails()) as book,
        open_writer(postgres_url) as other,
    ):
        ledger.record_polls([listing(A, 0), listing(B, 0)])
        with other._pen.begin_transaction(WriterLock.ACCOUNTS) as (ask, tell):
            writing._lock_account(ask, tell, ("acme", "a"), None, on_server=True)
            run = threading.Thread(target=record_run, args=(book, 0), daemon=True)
            run.start()
            run.join(5)
            assert not run.is_alive()


def test_what_is_remembered_of_an_account_outlives_the_polls_of_others(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = list[tuple[str, str]]()

    def counted(ask: Query, account: tuple[str, str]) -> object:
        loads.append(account)
        return load_scopes(ask, account)

    monkeypatch.setattr(writing, "load_scopes", counted)
    with open_writer(postgres_url) as mine, open_writer(postgres_url) as other:
        mine.record_polls([listing(A, 0)])
        other.record_polls([listing(B, 0)])
        mine.record_polls([listing(A, 1)])
        assert mine.find_suspects(listing(A, 2)) == ()
        assert loads == []
        other.record_polls([listing(A, 2, usd="3")])  # the account goes to another process, and comes back
        mine.record_polls([listing(A, 3, usd="4")])
        assert loads == [("acme", "a"), ("acme", "a")]
    assert check_ledger(postgres_url) == []


def test_processes_that_exchange_accounts_leave_what_one_process_leaves(postgres_url: str, sqlite_url: str) -> None:
    """Spans of all accounts end in the same hours, runs are recorded meanwhile, and each account goes from hand to hand."""
    scopes, rounds = (A, B, C), 12
    polls = {
        (scope, number): listing(scope, 7 * number, usd=str(2 + number % 3), state="stopped" if number % 5 == 4 else "running")
        for scope in scopes
        for number in range(rounds)
    }
    barrier, broken = threading.Barrier(4), list[BaseException]()

    def play(which: int) -> None:
        try:
            with open_writer(postgres_url) as ledger:
                for number in range(rounds):
                    barrier.wait(30)
                    ledger.record_polls([polls[scopes[(which + number) % 3], number]])
        except BaseException as error:  # noqa: BLE001 - the other threads wait for this one
            broken.append(error)
            barrier.abort()

    threads = [threading.Thread(target=play, args=(which,)) for which in range(3)]
    with open_writer(postgres_url) as ledger, GuardStore(postgres_url, rails=Rails()) as book:
        ledger.has_polls()
        for thread in threads:
            thread.start()
        for number in range(rounds):
            barrier.wait(30)
            record_run(book, number)
        for thread in threads:
            thread.join(30)
        assert broken == []
        record_run(book, rounds)
    with open_writer(sqlite_url) as ledger:
        for poll in sorted(polls.values(), key=lambda one: (one.at, one.scope)):
            ledger.record_polls([poll])
    assert check_ledger(postgres_url) == check_ledger(sqlite_url) == []
    assert spent(postgres_url) == spent(sqlite_url)
    hours = "SELECT hour, currency, sum(cost), sum(step) FROM hourly GROUP BY hour, currency ORDER BY hour"
    assert asked(postgres_url, lambda ask: ask(hours, ())) == asked(sqlite_url, lambda ask: ask(hours, ()))


def record_run(book: GuardStore, number: int) -> None:
    at = START + number * MINUTE
    epoch = book.acquire_leader_lease("one", at, HOUR)
    assert epoch
    assert book.record_run(GuardRun(id=f"r{number}", at=at, epoch=epoch, interval=timedelta(minutes=1), outcome="acting"))


def spent(url: str) -> list[str]:
    with SpendingReader(url, rules=RULES) as books:
        return sorted(map(repr, books.load_spending(NOVEMBER, START + 2 * HOUR)))


def test_a_transaction_that_waited_in_vain_says_so(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "open_engine", lambda url: open_engine(url, patience_s=0.2))
    with open_writer(postgres_url) as ledger:
        ledger.record_polls([listing(A, 0)])
        with account_taken(postgres_url, A), pytest.raises(LedgerError, match="another"):
            ledger.record_polls([listing(A, 1)])
        assert ledger.record_polls([listing(A, 1)])[0].fresh


def test_one_that_is_suspended_while_it_records_holds_up_the_others_for_seconds(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends its transaction; nothing of it is recorded, and the next poll is."""
    monkeypatch.setattr(writing, "IDLE_POLL_S", 0.2)
    whole = open_engine(postgres_url)
    compute = LedgerWriter._compute_changes

    def suspended(self: LedgerWriter, *rest: Any) -> Any:  # noqa: ANN401 - as the original
        with begin_write(whole):  # waits until the server has ended the other transaction
            pass
        return compute(self, *rest)

    with open_writer(postgres_url) as ledger:
        ledger.record_polls([listing(A, 0)])
        with monkeypatch.context() as suspension:
            suspension.setattr(LedgerWriter, "_compute_changes", suspended)
            with pytest.raises(LedgerError):
                ledger.record_polls([listing(A, 1)])
        assert ledger.record_polls([listing(A, 1)])[0].fresh
    whole.dispose()
    assert asked(postgres_url, lambda ask: ask("SELECT sum(polls) FROM coverage", ())) == [(2,)]
    assert check_ledger(postgres_url) == []
