"""Leases on duties: one holder at a time, by the server's clock, and nothing is recorded by whoever lost one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from costguard.errors import InputError, LeaseLostError
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.duties import DutyStore
from costguard.ledger.duty_records import load_duties
from costguard.ledger.spans.writer import LedgerWriter
from costguard.values.sample import Sample
from tests.ledger.fleet import CEILINGS, RULES, START, asked, key, machine, poll, rows

LONG = timedelta(minutes=10)


@pytest.fixture
def one(postgres_url: str) -> Iterator[DutyStore]:
    with DutyStore(postgres_url, "one") as found:
        yield found


@pytest.fixture
def two(postgres_url: str) -> Iterator[DutyStore]:
    with DutyStore(postgres_url, "two") as found:
        yield found


def run_out(url: str, account: str) -> None:
    """Let the lease of `account` run out, as if its holder had been suspended for so long."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as hand:
        hand.execute("UPDATE duty SET until_us = 1 WHERE account = %s", [account])


def test_a_duty_has_one_holder_and_each_taking_raises_its_epoch(postgres_url: str, one: DutyStore, two: DutyStore) -> None:
    assert one.announce(["a", "b", "c"], LONG) == 1
    assert two.announce(["a", "b", "c"], LONG) == 2
    mine = one.take(["a", "b", "c"], 2, LONG)
    assert [lease[:3] for lease, _ in mine] == [("poll", "a", 1), ("poll", "b", 1)]
    assert all(due_in_s < 0 for _, due_in_s in mine)  # never polled: due since ever
    assert [lease.account for lease, _ in two.take(["a", "b", "c"], 9, LONG)] == ["c"]
    one.finish_poll(mine[0][0], next_in=timedelta(seconds=60), at=START, body="seen")
    assert 50 < next(due for lease, due in one.renew(LONG) if lease.account == "a") <= 60
    one.release([mine[0][0]])
    assert [lease[1:3] for lease, _ in two.take(["a", "b", "c"], 9, LONG)] == [("a", 2)]
    run_out(postgres_url, "b")
    assert one.renew(LONG) == []  # not renewed although nobody took it: what was heard meanwhile is old
    assert [lease[1:3] for lease, _ in two.take(["b"], 9, LONG)] == [("b", 2)]
    assert two.load_views({}, ["a", "b"])["a"].body == "seen"
    two.leave()
    assert one.announce(["a"], LONG) == 1
    with LedgerReader(postgres_url) as reader, reader.snapshot() as ask:
        duties, now = load_duties(ask)
    assert [(duty.kind, duty.account, duty.epoch) for duty in duties if duty.is_held(now)] == [("worker", "one", 1)]


def test_a_late_holder_records_nothing(postgres_url: str, one: DutyStore, two: DutyStore) -> None:
    one.announce(["a"], LONG)
    ((old, _),) = one.take(["a"], 1, LONG)
    sample = Sample(key=key("i-1"), signal="gpu_util", at=START, value=1.0)
    with LedgerWriter(postgres_url, rules=RULES, ceilings=CEILINGS) as ledger:
        ledger.record_polls([poll(0, machine())], lease=old)
        run_out(postgres_url, "a")
        before = rows(postgres_url)
        for _ in range(2):  # nobody else has it yet; then somebody has
            with pytest.raises(LeaseLostError):
                ledger.record_polls([poll(1, machine(state="stopped"))], lease=old)
            with pytest.raises(LeaseLostError):
                ledger.record_samples([sample], lease=old)
            with pytest.raises(LeaseLostError):
                one.finish_poll(old, next_in=LONG, at=START, body="late")
            two.take(["a"], 1, LONG)
        assert rows(postgres_url) == before
        assert asked(postgres_url, lambda ask: ask("SELECT count(*) FROM sample", ())) == [(0,)]
        assert two.load_views({}, ["a"]) == {}
        assert ledger.record_polls([poll(1, machine(state="stopped"))])[0].fresh  # the control: who ignores its epoch gets in


def test_nobody_takes_a_duty_while_its_holder_records(postgres_url: str, one: DutyStore, two: DutyStore) -> None:
    one.announce(["a"], LONG)
    ((lease, _),) = one.take(["a"], 1, LONG)
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as recording:
        assert recording.execute("SELECT 1 FROM duty WHERE account = 'a' AND epoch = 1 FOR KEY SHARE").fetchall()
        assert [again for again, _ in one.renew(LONG)] == [lease]
        run_out(postgres_url, "a")
        assert two.take(["a"], 1, LONG) == []
    assert [taken.epoch for taken, _ in two.take(["a"], 1, LONG)] == [2]


def test_a_file_is_shared_by_nobody(sqlite_url: str) -> None:
    with pytest.raises(InputError, match="PostgreSQL"):
        DutyStore(sqlite_url, "one")
    with LedgerWriter(sqlite_url, rules=RULES, ceilings=CEILINGS), LedgerReader(sqlite_url) as reader, reader.snapshot() as ask:
        assert load_duties(ask)[0] == []


def test_watchdogs_of_other_accounts_are_not_counted(postgres_url: str) -> None:
    """Or each would hold its share of all, and leave accounts that nobody polls."""
    with DutyStore(postgres_url, "old", group="1") as old, DutyStore(postgres_url, "new", group="2") as new:
        assert old.announce(["1/a", "1/b"], LONG) == new.announce(["2/a", "2/b"], LONG) == old.announce(["1/a"], LONG) == 1
