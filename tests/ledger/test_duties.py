"""Leases on duties: one holder at a time, by the server's clock, and nothing is recorded by whoever lost one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from costguard.errors import ClockError, InputError, LeaseLostError
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.duties import DutyStore
from costguard.ledger.duty_records import CLOCK_OFF_MAX, load_duties
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import POLL_AHEAD_MAX
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
    assert [lease[:2] for lease, _ in mine] == [("poll", "a"), ("poll", "b")]
    assert all(-60 < due_in_s <= 0 for _, due_in_s in mine)  # never polled: due since it is known
    first = {lease.account: lease.epoch for lease, _ in mine}
    assert [lease.account for lease, _ in two.take(["a", "b", "c"], 9, LONG)] == ["c"]
    one.finish_poll(mine[0][0], next_in=timedelta(seconds=60), at=START, body="seen")
    assert 50 < next(due for lease, due in one.renew(LONG) if lease.account == "a") <= 60
    one.release([mine[0][0]])
    ((again, _),) = two.take(["a", "b", "c"], 9, LONG)
    assert (again.account, again.epoch > first["a"]) == ("a", True)
    run_out(postgres_url, "b")
    assert one.renew(LONG) == []  # not renewed although nobody took it: what was heard meanwhile is old
    ((again, _),) = two.take(["b"], 9, LONG)
    assert (again.account, again.epoch > first["b"]) == ("b", True)
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
        assert recording.execute("SELECT 1 FROM duty WHERE account = 'a' AND holder = 'one' FOR KEY SHARE").fetchall()
        assert [again for again, _ in one.renew(LONG)] == [lease]
        run_out(postgres_url, "a")
        assert two.take(["a"], 1, LONG) == []
    assert [taken.epoch > lease.epoch for taken, _ in two.take(["a"], 1, LONG)] == [True]


def test_a_file_is_shared_by_nobody(sqlite_url: str) -> None:
    with pytest.raises(InputError, match="PostgreSQL"):
        DutyStore(sqlite_url, "one")
    with LedgerWriter(sqlite_url, rules=RULES, ceilings=CEILINGS), LedgerReader(sqlite_url) as reader, reader.snapshot() as ask:
        assert load_duties(ask)[0] == []


def test_watchdogs_of_other_accounts_are_not_counted(postgres_url: str) -> None:
    """Or each would hold its share of all, and leave accounts that nobody polls."""
    with DutyStore(postgres_url, "old", group="1") as old, DutyStore(postgres_url, "new", group="2") as new:
        assert old.announce(["1/a", "1/b"], LONG) == new.announce(["2/a", "2/b"], LONG) == old.announce(["1/a"], LONG) == 1


def age(url: str, account: str, hours: float) -> None:
    """Let everything that happened to `account` have happened so many hours earlier."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as hand:
        micros = int(hours * 3600 * 1e6)
        sql = "UPDATE duty SET due_us = due_us - %s, until_us = greatest(0, until_us - %s) WHERE account = %s"
        hand.execute(sql, [micros, micros, account])


def test_what_old_settings_left_behind_is_removed_after_a_day_and_comes_back_with_them(postgres_url: str) -> None:
    with DutyStore(postgres_url, "old", group="1") as old, DutyStore(postgres_url, "new", group="2") as new:
        old.announce(["1/a", "1/held", "1/young"], LONG)
        leases = {lease.account: lease for lease, _ in old.take(["1/a", "1/held", "1/young"], 3, LONG)}
        for lease in leases.values():
            old.finish_poll(lease, next_in=timedelta(minutes=1), at=START, body="seen")
        old.release([leases["1/a"], leases["1/young"]])
        for account, hours in (("1/a", 25), ("1/young", 20)):
            age(postgres_url, account, hours)
        with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as hand:
            hand.execute("UPDATE duty SET due_us = 1 WHERE account = '1/held'")  # its lease is in force
        new.announce(["2/a"], LONG)
        assert set(old.load_views({}, ["1/a", "1/held", "1/young"])) == {"1/held", "1/young"}
        with pytest.raises(LeaseLostError):
            old.finish_poll(leases["1/a"], next_in=LONG, at=START, body="late")
        age(postgres_url, "2/a", 1000)
        new.announce(["2/a"], LONG)  # its own accounts stay, however long they were not polled
        assert [lease.account for lease, _ in new.take(["2/a"], 1, LONG)] == ["2/a"]
        old.announce(["1/a", "1/held", "1/young"], LONG)  # the rollout goes back
        ((back, due_in_s),) = old.take(["1/a"], 1, LONG)
        assert due_in_s <= 0
        assert back.epoch > datetime.now(UTC).timestamp() - 60  # so what the same watchdog asked a day ago is refused
        day_old = leases["1/a"]._replace(epoch=leases["1/a"].epoch - 25 * 3600)
        with pytest.raises(LeaseLostError):
            old.finish_poll(day_old, next_in=LONG, at=START, body="late")


def test_a_row_that_somebody_records_under_is_not_removed(postgres_url: str, one: DutyStore, two: DutyStore) -> None:
    one.announce(["a"], LONG)
    one.take(["a"], 1, LONG)
    run_out(postgres_url, "a")
    age(postgres_url, "a", 48)
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as recording:
        recording.execute("SELECT 1 FROM duty WHERE account = 'a' FOR KEY SHARE")
        two.announce(["b"], LONG)
    assert [lease.account for lease, _ in two.take(["a"], 1, LONG)] == ["a"]


def test_the_clock_is_measured_against_the_servers(one: DutyStore) -> None:
    assert one.measure_clock(lambda: datetime.now(UTC)) == timedelta()
    for hours in (2, -3):
        off = one.measure_clock(lambda hours=hours: datetime.now(UTC) + timedelta(hours=hours))  # type: ignore[misc]  # bound now
        assert abs(off - timedelta(hours=hours)) < timedelta(seconds=10)


def test_one_whose_clock_is_wrong_is_not_counted(postgres_url: str, one: DutyStore, two: DutyStore) -> None:
    assert one.announce(["a"], LONG) == 1
    assert two.announce(["a"], LONG, clock_off=timedelta(hours=2)) == 1
    with LedgerReader(postgres_url) as reader, reader.snapshot() as ask:
        assert {duty.account: duty.clock_off for duty in load_duties(ask)[0] if duty.kind == "worker"} == {
            "one": timedelta(),
            "two": timedelta(hours=2),
        }
    assert two.announce(["a"], LONG) == 2


def test_no_poll_from_the_future_lands_whoever_records_it(postgres_url: str, one: DutyStore) -> None:
    one.announce(["a"], LONG)
    ((lease, _),) = one.take(["a"], 1, LONG)
    now, second = datetime.now(UTC), timedelta(seconds=1)
    with LedgerWriter(postgres_url, rules=RULES, ceilings=CEILINGS) as ledger:
        ledger.record_polls([poll(0, machine())], lease=lease)
        before = rows(postgres_url)
        for held, most in ((lease, CLOCK_OFF_MAX), (None, POLL_AHEAD_MAX)):
            with pytest.raises(ClockError, match="ahead of the ledger server's"):
                ledger.record_polls([replace(poll(1, machine()), at=now + most + 60 * second)], lease=held)
        assert rows(postgres_url) == before
        assert ledger.record_polls([replace(poll(1, machine()), at=now + second)], lease=lease)[0].fresh
