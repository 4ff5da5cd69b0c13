"""What watchdogs that share a ledger tell each other; nothing is recorded for a poll that was ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from procrastinate.schema import SchemaManager

from costguard.errors import ClockError, LeaseLostError
from costguard.ledger.db.connection import WriterLock, upgrade_schema
from costguard.ledger.db.maintenance import check_ledger
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.db.schema import HEAD_REVISION
from costguard.ledger.duties import DutyStore
from costguard.ledger.duty_records import CLOCK_OFF_MAX, Lease, load_duties, require_lease
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


def begin_poll(url: str, store: DutyStore, account: str) -> Lease:
    """Defer a poll of `account` and take it, as a worker does."""
    store.prepare_jobs(SchemaManager.get_schema())
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as hand:
        hand.execute("SET search_path TO costguard_jobs")
        ((job,),) = hand.execute(
            "INSERT INTO procrastinate_jobs (queue_name, task_name, lock, status, args)"
            " VALUES ('acme', 'poll', %s, 'doing', '{\"deferred_at\": 7}') RETURNING id",
            [account],
        ).fetchall()
    return Lease(account, job, 7, store.holder)


def end_poll(url: str, lease: Lease) -> None:
    """End the job of `lease` as failed, as another watchdog does with one that gives no sign of life."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as hand:
        hand.execute("SET search_path TO costguard_jobs")
        hand.execute("SELECT procrastinate_finish_job_v1(%s, 'failed', true)", [lease.job])


def test_what_a_poll_saw_and_who_polled_are_known(postgres_url: str, one: DutyStore, two: DutyStore) -> None:
    for store in (one, two):
        store.announce(["a", "b", "c"], LONG)
    lease = begin_poll(postgres_url, one, "a")
    one.finish_poll(lease, every=timedelta(seconds=60), at=START, body="seen")
    assert two.load_views({}, ["a", "b"])["a"].body == "seen"
    with LedgerReader(postgres_url) as reader, reader.snapshot() as ask:
        duties, now = load_duties(ask)
    assert [(duty.kind, duty.account) for duty in duties if duty.is_held(now)] == [
        ("poll", "a"),
        ("worker", "one"),
        ("worker", "two"),
    ]
    done = duties[0]
    assert (done.holder, done.epoch) == ("one", lease.deferred_at)
    assert timedelta(seconds=50) < done.due_at - now <= timedelta(seconds=60) < done.until - now <= timedelta(seconds=120)
    one.leave()
    with LedgerReader(postgres_url) as reader, reader.snapshot() as ask:
        duties, now = load_duties(ask)
    assert [(duty.kind, duty.account) for duty in duties if duty.is_held(now)] == [("worker", "two")]


def test_a_poll_that_was_ended_records_nothing(postgres_url: str, one: DutyStore) -> None:
    one.announce(["a"], LONG)
    old = begin_poll(postgres_url, one, "a")
    sample = Sample(key=key("i-1"), signal="gpu_util", at=START, value=1.0)
    with LedgerWriter(postgres_url, rules=RULES, ceilings=CEILINGS) as ledger:
        ledger.record_polls([poll(0, machine())], lease=old)
        others = [old._replace(account="b"), old._replace(deferred_at=8)]  # a number that was given again after a restore
        end_poll(postgres_url, old)
        before = rows(postgres_url)
        for late in (old, begin_poll(postgres_url, one, "a")._replace(job=old.job), *others):
            with pytest.raises(LeaseLostError):
                ledger.record_polls([poll(1, machine(state="stopped"))], lease=late)
            with pytest.raises(LeaseLostError):
                ledger.record_samples([sample], lease=late)
            with pytest.raises(LeaseLostError):
                one.finish_poll(late, every=LONG, at=START, body="late")
        assert rows(postgres_url) == before
        assert asked(postgres_url, lambda ask: ask("SELECT count(*) FROM sample", ())) == [(0,)]
        assert one.load_views({}, ["a"]) == {}
        assert ledger.record_polls([poll(1, machine(state="stopped"))])[0].fresh  # the control: who names no job gets in


def test_nobody_ends_a_poll_while_it_is_recorded(postgres_url: str, one: DutyStore) -> None:
    one.announce(["a"], LONG)
    lease = begin_poll(postgres_url, one, "a")
    with (
        LedgerWriter(postgres_url, rules=RULES, ceilings=CEILINGS) as ledger,
        psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as other,
    ):
        with ledger._pen.begin_transaction(WriterLock.ACCOUNTS) as (ask, _):
            require_lease(ask, lease)
            other.execute("SET lock_timeout = '200ms'; SET search_path TO costguard_jobs")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute("SELECT procrastinate_finish_job_v1(%s, 'failed', true)", [lease.job])
        other.execute("SELECT procrastinate_finish_job_v1(%s, 'failed', true)", [lease.job])


def test_the_tables_of_jobs_are_not_the_ledgers_and_are_made_anew_for_another_version(
    postgres_url: str, one: DutyStore
) -> None:
    schema, count = SchemaManager.get_schema(), "SELECT count(*) FROM costguard_jobs.procrastinate_jobs"
    begin_poll(postgres_url, one, "a")
    one.prepare_jobs(schema)
    assert asked(postgres_url, lambda ask: ask(count, ())) == [(1,)]
    one.prepare_jobs(f"{schema}-- of the next version\n", replace=False)
    assert asked(postgres_url, lambda ask: ask(count, ())) == [(1,)]
    one.prepare_jobs(f"{schema}-- of the next version\n")
    assert asked(postgres_url, lambda ask: ask(count, ())) == [(0,)]
    assert check_ledger(postgres_url) == []
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tablename LIKE 'procrastinate%%'"
    assert asked(postgres_url, lambda ask: ask(tables, ())) == [(0,)]
    assert upgrade_schema(postgres_url).before == HEAD_REVISION


def age(url: str, account: str, hours: float) -> None:
    """Let everything that happened to `account` have happened so many hours earlier."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as hand:
        micros = int(hours * 3600 * 1e6)
        sql = "UPDATE duty SET due_us = due_us - %s, until_us = greatest(0, until_us - %s) WHERE account = %s"
        hand.execute(sql, [micros, micros, account])


def test_what_old_settings_left_behind_is_removed_after_a_day(postgres_url: str) -> None:
    with DutyStore(postgres_url, "old", group="1") as old, DutyStore(postgres_url, "new", group="2") as new:
        old.announce(["1/a", "1/young"], LONG)
        for account in ("1/a", "1/young"):
            lease = begin_poll(postgres_url, old, account)
            old.finish_poll(lease, every=timedelta(minutes=1), at=START, body="seen")
        for account, hours in (("1/a", 25), ("1/young", 20)):
            age(postgres_url, account, hours)
        new.announce(["2/a"], LONG)
        assert set(old.load_views({}, ["1/a", "1/young"])) == {"1/young"}
        age(postgres_url, "2/a", 1000)
        new.announce(["2/a"], LONG)  # its own accounts stay, however long they were not polled
        assert list_polled(postgres_url) == ["1/young", "2/a"]
        old.announce(["1/a", "1/young"], LONG)  # the rollout goes back
        assert list_polled(postgres_url) == ["1/a", "1/young"]


def list_polled(url: str) -> list[str]:
    """Return the accounts that have a duty."""
    with LedgerReader(url) as reader, reader.snapshot() as ask:
        return [duty.account for duty in load_duties(ask)[0] if duty.kind == "poll"]


def test_the_clock_is_measured_against_the_servers(one: DutyStore) -> None:
    assert one.measure_clock(lambda: datetime.now(UTC)) == timedelta()
    for hours in (2, -3):
        off = one.measure_clock(lambda hours=hours: datetime.now(UTC) + timedelta(hours=hours))  # type: ignore[misc]  # bound now
        assert abs(off - timedelta(hours=hours)) < timedelta(seconds=10)


def test_one_whose_clock_is_wrong_says_so(postgres_url: str, one: DutyStore, two: DutyStore) -> None:
    one.announce(["a"], LONG)
    two.announce(["a"], LONG, clock_off=timedelta(hours=2))
    with LedgerReader(postgres_url) as reader, reader.snapshot() as ask:
        assert {duty.account: duty.clock_off for duty in load_duties(ask)[0] if duty.kind == "worker"} == {
            "one": timedelta(),
            "two": timedelta(hours=2),
        }
    assert one.load_clocks() == {"two": timedelta(hours=2)}


def test_no_poll_from_the_future_lands_whoever_records_it(postgres_url: str, one: DutyStore) -> None:
    one.announce(["a"], LONG)
    lease = begin_poll(postgres_url, one, "a")
    now, second = datetime.now(UTC), timedelta(seconds=1)
    with LedgerWriter(postgres_url, rules=RULES, ceilings=CEILINGS) as ledger:
        ledger.record_polls([poll(0, machine())], lease=lease)
        before = rows(postgres_url)
        for held, most in ((lease, CLOCK_OFF_MAX), (None, POLL_AHEAD_MAX)):
            with pytest.raises(ClockError, match="ahead of the ledger server's"):
                ledger.record_polls([replace(poll(1, machine()), at=now + most + 60 * second)], lease=held)
        assert rows(postgres_url) == before
        assert ledger.record_polls([replace(poll(1, machine()), at=now + second)], lease=lease)[0].fresh
