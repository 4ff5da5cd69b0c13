"""Watchdogs that share the accounts of one ledger: each account is asked once an interval, and by somebody else if one dies."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from procrastinate.schema import SchemaManager

from costguard.errors import InputError, LedgerError
from costguard.guard.policy import Rails
from costguard.ledger.db import connection, reader, schema
from costguard.ledger.db.connection import upgrade_schema
from costguard.ledger.db.maintenance import check_ledger
from costguard.ledger.db.schema import MIGRATIONS_FOLDER, REVISIONS
from costguard.ledger.duties import DutyStore, PollView
from costguard.ledger.duty_records import Lease
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Complete, Poll
from costguard.metering.observation import UNKNOWN_HANDLING, Handling
from costguard.metering.spending import ScopeCoverage
from costguard.providers.ports import InstanceSource
from costguard.services.guarding.guard_inputs import PollResults
from costguard.services.guarding.shared_polls import LeasedLedger, SharedPolls
from costguard.services.guarding.watchdog_context import SerializedLedger
from costguard.services.poll.poll_views import AccountView, decode_account_view, encode_account_view, find_twin_views
from costguard.services.report.status_answer import answer_status
from costguard.services.watch_loop.setup import answer_doctor
from costguard.settings import read_settings
from costguard.system.logs import get_log
from costguard.values.money import Money, PrepaidBalance, Rate
from costguard.values.resource import ResourceKey, ScopeKey
from tests.ledger.conftest import postgres_server, postgres_url
from tests.ledger.fleet import CEILINGS, RULES, asked, machine
from tests.ledger.test_migrations import NEXT, SECOND

__all__ = ["postgres_server", "postgres_url"]

ACCOUNTS = 8
NOTHING = PollResults(handling={}, sources={}, balances=(), members=(), lags={}, measures=(), agents=())


@dataclass(eq=False)
class Cloud:
    """An account with one machine; it counts how often it was asked, by whomever."""

    name: str
    asked: Counter[str]

    @property
    def providers(self) -> tuple[str, ...]:
        return ("acme",)

    @property
    def scope(self) -> ScopeKey:
        return ScopeKey("acme", self.name, "all")

    def poll(self) -> Poll:
        self.asked[self.name] += 1
        key = ResourceKey("acme", self.name, "west-1", "i-1")
        seen = machine(key=key, handling=Handling(stops=True))
        return Poll(scope=self.scope, at=datetime.now(UTC), inventory=Complete((seen,)))


@dataclass
class Room:
    """What `SharedPolls` needs of a watchdog. `polled`: the leases of all watchdogs, each once it was recorded under."""

    ledger: SerializedLedger
    polled: list[Lease]
    busy: Counter[str]
    before_record: Callable[[Lease], None] = lambda _: None
    seen: dict[int, Poll] = field(default_factory=dict)
    ahead: timedelta = timedelta()
    resigned: int = 0

    @property
    def clock(self) -> Any:  # noqa: ANN401 - a clock
        return self

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def release_leadership(self) -> None:
        self.resigned += 1

    def poll(self, sources: list[Cloud], *, ledger: LeasedLedger) -> None:
        (source,), name = sources, ledger.lease.account
        self.busy[name] += 1
        assert self.busy[name] == 1  # else the job fails, and the test waits in vain
        found = source.poll()
        self.busy[name] -= 1
        self.before_record(ledger.lease)
        ledger.record_polls([found])
        self.seen[id(source)] = found
        self.polled.append(ledger.lease)

    def describe_account(self, source: Cloud) -> AccountView:
        items = cast("Complete", self.seen[id(source)].inventory).items
        return AccountView(scopes=(source.scope,), handling={one.key: one.handling for one in items})

    def log_polled(self, polled: object) -> None:
        assert polled is None


@dataclass
class Town:
    """A ledger, its accounts, and the watchdogs on it."""

    url: str
    every: timedelta
    asked: Counter[str] = field(default_factory=Counter)
    polled: list[Lease] = field(default_factory=list)
    busy: Counter[str] = field(default_factory=Counter)
    workers: list[SharedPolls] = field(default_factory=list)
    ledgers: list[LedgerWriter] = field(default_factory=list)

    def join(self, *, start: bool = True, ahead: timedelta = timedelta()) -> SharedPolls:
        ledger = LedgerWriter(self.url, rules=RULES, ceilings=CEILINGS)
        self.ledgers.append(ledger)
        accounts = {name: cast("InstanceSource", Cloud(name, self.asked)) for name in map(str, range(ACCOUNTS))}
        made = SharedPolls(
            room=cast("Any", Room(SerializedLedger(ledger), self.polled, self.busy, ahead=ahead)),
            store=DutyStore(self.url, f"worker {len(self.ledgers)}", group="acme"),
            group="acme",
            accounts=accounts,
            every=self.every,
            log=get_log(),
        )
        self.workers.append(made)
        if start:
            made.start()
        return made

    def wait(self, until: Callable[[], bool], limit_s: float = 60.0) -> None:
        """Wait until that is so; fail if it never is."""
        end = time.monotonic() + limit_s
        while not until():
            assert time.monotonic() < end, "it did not come"
            time.sleep(0.02)

    def wait_for_rounds(self, count: int) -> None:
        """Wait until every account was polled and recorded so many times more."""
        before = Counter(lease.account for lease in self.polled)
        self.wait(lambda: all(self.count()[name] >= before[name] + count for name in map(str, range(ACCOUNTS))))

    def count(self) -> Counter[str]:
        return Counter(lease.account for lease in self.polled)

    def run_sql(self, sql: str) -> None:
        with psycopg.connect(self.url.replace("+psycopg", ""), autocommit=True) as hand:
            hand.execute(f"SET search_path TO public, costguard_jobs; {sql}".encode())

    def end_polls(self) -> None:
        """Let all watchdogs finish what they do, and do no more."""
        for one in self.workers:
            if one._worker is not None:
                one._worker.close()


@pytest.fixture
def town(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Town]:
    for name, seconds in (("HEARTBEAT_S", 0.3), ("DEAD_AFTER_S", 5.0), ("SWEEP_EVERY_S", 0.5), ("RESTART_AFTER_S", 0.1)):
        monkeypatch.setattr(f"costguard.services.poll.poll_jobs.{name}", seconds)
    monkeypatch.setattr("costguard.services.poll.poll_jobs.LOOK_EVERY_S", 0.1)
    found = Town(postgres_url, timedelta(seconds=1))
    yield found
    for one in found.workers:
        one.close()
    for ledger in found.ledgers:
        ledger.close()


def test_watchdogs_share_the_accounts_and_ask_each_once_an_interval(town: Town, tmp_path: Path) -> None:
    town.join()
    town.join()
    town.wait_for_rounds(4)
    town.wait(lambda: {lease.holder for lease in town.polled} == {"worker 1", "worker 2"})
    town.end_polls()
    assert len({(lease.account, lease.deferred_at) for lease in town.polled}) == len(town.polled) == town.asked.total()
    assert asked_of(town.url, "SELECT count(*) FROM costguard_jobs.procrastinate_jobs WHERE status <> 'todo'") == 0
    assert asked_of(town.url, "SELECT count(*) FROM costguard_jobs.procrastinate_jobs") <= ACCOUNTS + 1
    assert check_ledger(town.url) == []
    planner = town.workers[0].collect_poll_results(NOTHING)  # what the other polled has come to this one
    assert len(planner.sources) == len(planner.handling) == ACCOUNTS
    assert all(one.stops for one in planner.handling.values())
    assert planner.sources[ScopeKey("acme", "3", "all")] is town.workers[0].accounts["3"]
    beside = town.workers[0].list_scopes_beside([town.workers[0].accounts["3"]])
    assert sorted(scope.account for scope in beside) == [str(number) for number in range(ACCOUNTS) if number != 3]
    town.run_sql("UPDATE duty SET holder = CASE WHEN account < '4' THEN 'worker 1' ELSE 'worker 2' END WHERE kind = 'poll'")
    town.run_sql("UPDATE duty SET until_us = until_us + 60000000, due_us = due_us + 60000000")  # however slow this machine is
    file = tmp_path / "costguard.toml"
    file.write_text(f'[ledger]\nurl = "{town.url}"\n')
    answer = answer_status(offline=True, config=str(file))
    assert "Accounts: 4 polled by worker 1, 4 polled by worker 2." in answer.document.notes
    assert any("no watchdog plans and acts" in warning for warning in answer.warnings)
    with GuardStore(town.url, rails=Rails()) as book:
        assert book.acquire_leader_lease("worker 2", datetime.now(UTC), timedelta(minutes=3))
    notes = answer_status(offline=True, config=str(file)).document.notes
    assert "Accounts: 4 polled by worker 2, which plans, 4 polled by worker 1." in notes
    checks = answer_doctor(config=str(file)).document.data["ledger"]["checks"]  # type: ignore[index]  # of JSON
    assert {one["check"]: one["outcome"] for one in checks} == {"ledger": "good", "clock": "good", "watchdogs": "good"}
    assert checks[-1]["told"] == "accounts: 4 polled by worker 2, which plans, 4 polled by worker 1"


def test_the_job_of_one_that_died_is_ended_and_its_account_polled_again(town: Town) -> None:
    town.join(start=False).store.prepare_jobs(SchemaManager.get_schema())
    town.run_sql(
        "INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - interval '1 minute');"
        "INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock, status, worker_id)"
        " SELECT 'acme', 'poll', '3', '3', 'doing', max(id) FROM procrastinate_workers"
    )
    town.join()
    town.wait_for_rounds(2)
    assert asked_of(town.url, "SELECT count(*) FROM costguard_jobs.procrastinate_jobs WHERE id = 1") == 0


def test_the_late_record_of_a_poll_that_was_ended_is_refused(town: Town) -> None:
    """As of a watchdog that was suspended between the cloud's answer and the record."""
    one, reached, ended = town.join(start=False), threading.Event(), threading.Event()

    def wait_at_three(lease: Lease) -> None:
        if lease.account == "3" and not reached.is_set():
            reached.set()
            assert ended.wait(60)

    cast("Room", one.room).before_record = wait_at_three
    one.start()
    assert reached.wait(60)
    town.run_sql("DELETE FROM costguard_jobs.procrastinate_jobs WHERE lock = '3' AND status = 'doing'")
    ended.set()
    town.wait_for_rounds(2)
    town.end_polls()
    assert town.asked["3"] == town.count()["3"] + 1
    assert asked_of(town.url, "SELECT sum(polls) FROM coverage") == len(town.polled)


def test_a_watchdog_that_the_ledger_refuses_polls_nothing(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    one, refused = town.join(), threading.Event()
    town.wait_for_rounds(1)

    def fail(*_: object, **__: object) -> None:
        refused.set()
        raise LedgerError("does not answer")

    with monkeypatch.context() as broken:
        broken.setattr(one.store, "announce", fail)
        assert refused.wait(60)
        no_worker = "SELECT count(*) FROM costguard_jobs.procrastinate_workers"
        town.wait(lambda: asked_of(town.url, no_worker) == 0)  # the polls in progress were waited for
        asked = town.asked.total()
        refused.clear()
        assert refused.wait(60)
        assert town.asked.total() == asked
    town.wait_for_rounds(1)


def test_one_whose_clock_is_hours_off_polls_nothing_and_says_so(town: Town, tmp_path: Path) -> None:
    """What it recorded would hold up the account's newer listings for so long."""
    right, wrong = town.join(), town.join(ahead=timedelta(hours=2))
    room = cast("Room", wrong.room)
    town.wait_for_rounds(2)
    town.wait(lambda: bool(room.resigned))
    assert {lease.holder for lease in town.polled} == {"worker 1"}
    assert "2 h ahead of the ledger server's" in wrong.explain_clock_doubt()
    file = tmp_path / "costguard.toml"
    file.write_text(f'[ledger]\nurl = "{town.url}"\n')
    answer = answer_doctor(config=str(file))
    checks = {one["check"]: one for one in answer.document.data["ledger"]["checks"]}  # type: ignore[index]  # of JSON
    assert checks["clock"]["outcome"] == "good"  # this machine's
    assert checks["watchdogs"]["outcome"] == "bad"
    assert "the clock of the watchdog worker 2 is 2 h ahead" in checks["watchdogs"]["told"]
    assert (wrong.explain_clock_doubt(), right.explain_clock_doubt()) != ("", "")
    room.ahead = timedelta()  # somebody set it
    town.wait(lambda: "worker 2" in {lease.holder for lease in town.polled})
    assert wrong.explain_clock_doubt() == ""
    room.ahead = timedelta(hours=2)  # it jumps while it polls: whatever comes first, nothing lands
    town.wait(lambda: wrong.explain_clock_doubt() != "")
    town.wait_for_rounds(1)
    assert asked_of(town.url, "SELECT count(*) FROM coverage WHERE end_us > extract(epoch FROM now()) * 1000000 + 5000000") == 0


def test_accounts_that_nobody_polls_are_shown(town: Town, tmp_path: Path) -> None:
    town.join()
    town.wait_for_rounds(1)
    town.end_polls()
    town.run_sql("UPDATE duty SET until_us = until_us + 60000000 WHERE until_us > 0")
    town.run_sql("UPDATE duty SET due_us = due_us + 60000000")
    town.run_sql("UPDATE duty SET until_us = 1 WHERE account = '3'")
    town.run_sql("UPDATE duty SET due_us = due_us - 600000000 WHERE account IN ('3', '5')")
    file = tmp_path / "costguard.toml"
    file.write_text(f'[ledger]\nurl = "{town.url}"\n')
    answer = answer_status(offline=True, config=str(file))
    mine, free = cast("list[dict[str, object]]", answer.document.data["watchdogs"])
    assert (mine["name"], mine["accounts"], mine["overdue"]) == ("worker 1", 7, ["5"])
    assert (free["name"], free["held"], free["overdue"]) == (None, ["3"], ["3"])
    assert "not polled for two intervals by anybody: 3" in answer.warnings
    refusal = answer_doctor(config=str(file)).refusal
    assert "ledger: watchdogs" in str(refusal)


def test_after_an_upgrade_old_watchdogs_record_nothing_and_new_ones_go_on(
    town: Town, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first new watchdog migrates the ledger while an old one polls: nothing is lost."""
    old = town.join(start=False)
    waiting, migrated = set[str](), threading.Event()

    def wait_for_the_upgrade(lease: Lease) -> None:
        if lease.account in town.count():
            waiting.add(lease.account)
            assert migrated.wait(60)

    cast("Room", old.room).before_record = wait_for_the_upgrade
    old.start()
    town.wait(lambda: len(waiting) == ACCOUNTS)
    with monkeypatch.context() as version:
        become_newer(version, tmp_path)
        assert upgrade_schema(town.url).before == REVISIONS[-1]
    before = asked_newer(town.url, version=monkeypatch, folder=tmp_path)
    migrated.set()  # its jobs are running, and it has heard something
    town.wait(lambda: old._cut_off)
    town.end_polls()
    town.workers.clear()
    assert asked_newer(town.url, version=monkeypatch, folder=tmp_path) == before == ACCOUNTS
    with monkeypatch.context() as version:
        become_newer(version, tmp_path)
        new = town.join()
        town.wait_for_rounds(2)
        new.close()
        town.workers.clear()
        assert check_ledger(town.url) == []
    old.store.close()


def asked_newer(url: str, *, version: pytest.MonkeyPatch, folder: Path) -> int:
    """Return how many polls a newer ledger has."""
    with version.context() as newer:
        become_newer(newer, folder)
        return asked_of(url, "SELECT sum(polls) FROM coverage")


def become_newer(version: pytest.MonkeyPatch, folder: Path) -> None:
    """From here on this process is of a version that has a revision more."""
    if not (folder / "migrations").exists():
        shutil.copytree(MIGRATIONS_FOLDER, folder / "migrations", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "migrations/versions" / f"{NEXT}_more.py").write_text(SECOND)
    version.setattr(schema, "MIGRATIONS_FOLDER", folder / "migrations")
    for module in (schema, reader):
        version.setattr(module, "REVISIONS", (*REVISIONS, NEXT))
    for module in (schema, reader, connection):
        version.setattr(module, "HEAD_REVISION", NEXT)


def asked_of(url: str, sql: str) -> int:
    ((found,),) = asked(url, lambda ask: ask(sql, ()))
    return int(found)


def test_what_a_poll_saw_comes_through_the_ledger_whole() -> None:
    at = datetime(2026, 11, 28, tzinfo=UTC)
    whole = Handling(
        controller="group train",
        stops=True,
        terminates=False,
        protected=("stop",),
        stop_loses=("1900 GB",),
        terminate_loses=("all",),
        restart_doubtful=True,
        committed="a reservation",
        ends_at=at,
    )
    one, two = machine("i-1", handling=whole), machine("i-2", handling=UNKNOWN_HANDLING)
    view = AccountView(
        scopes=(ScopeKey("acme", "lab", "all"),),
        handling={one.key: one.handling, two.key: two.handling},
        members=(one,),
        balance=PrepaidBalance(
            provider="acme", account="lab", at=at, amount=Money.parse("5"), burn=Rate.parse("1"), burn_limit=None, why=""
        ),
        unreached=(
            ScopeCoverage(scope=ScopeKey("acme", "x", ""), outcome="failed", at=at, since=at, last_complete_at=None, why="503"),
        ),
    )
    found = decode_account_view(PollView("a", at, 1, encode_account_view(view)))
    assert found == view
    assert found is not None
    assert found.members[0].handling == whole
    assert decode_account_view(PollView("a", at, 1, "of another version")) is None


def test_accounts_that_are_one_are_told_of_and_the_second_is_not_polled(town: Town) -> None:
    """Whichever watchdogs poll the two: the one that plans compares what both saw."""
    one, two = town.join(start=False), town.join(start=False)
    for worker in town.workers:
        cast("Cloud", worker.accounts["6"]).name = "2"
        worker.start()
    town.wait(lambda: len(one._load_views()) == ACCOUNTS)
    (alert,) = one.list_alerts(datetime.now(UTC))
    assert alert.what == "the account 2 and the account 6 are the same account"
    assert ("both are", "acme/2/all") in alert.facts
    seen = one.collect_poll_results(NOTHING)
    assert (len(seen.sources), seen.sources[ScopeKey("acme", "2", "all")]) == (ACCOUNTS - 1, one.accounts["2"])
    last = max(lease.deferred_at for lease in town.polled)
    town.wait(lambda: max(lease.deferred_at for lease in town.polled) >= last + 3000)
    assert all(lease.deferred_at <= last + 1000 for lease in town.polled if lease.account == "6")
    two.close()
    town.workers.remove(two)


def test_accounts_are_one_by_what_they_list_or_are_called() -> None:
    def seen(account: str, identity: str = "") -> AccountView:
        return AccountView(scopes=(ScopeKey("acme", account, "all"),), handling={}, identity=identity)

    views = {"a": seen("1", "u7"), "b": seen("2", "u8"), "c": seen("3", "u7"), "d": seen("2"), "e": seen("4"), "f": seen("5")}
    assert find_twin_views(views) == [("a", "c", "u7"), ("b", "d", "acme/2/all")]
    assert decode_account_view(PollView("a", datetime.now(UTC), 1, encode_account_view(views["a"]))) == views["a"]


def test_sharing_needs_a_server(tmp_path: Path) -> None:
    file = tmp_path / "costguard.toml"
    file.write_text('[scale]\nworkers = "share"\n')
    with pytest.raises(InputError, match="PostgreSQL server"):
        read_settings(str(file))
    file.write_text('[scale]\nworkers = "share"\n[ledger]\nurl = "postgresql+psycopg://db/costs"\n')
    assert read_settings(str(file)).scale.workers == "share"
    file.write_text('[scale]\nworkers = "many"\n')
    with pytest.raises(InputError, match="alone"):
        read_settings(str(file))
    assert replace(read_settings(None)).scale.workers == "alone"


def test_a_watchdog_by_itself_imports_nothing_of_it() -> None:
    said = "import sys, costguard.services.watch_loop.watch; sys.exit('procrastinate' in sys.modules)"
    subprocess.run([sys.executable, "-c", said], check=True, timeout=60)
