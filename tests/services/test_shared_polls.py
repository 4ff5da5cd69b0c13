"""Watchdogs that share the accounts of one ledger: each account is asked once an interval, and by somebody else if one dies."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from costguard.errors import InputError, LedgerError
from costguard.guard.policy import Rails
from costguard.ledger.db import connection, reader, schema
from costguard.ledger.db.connection import upgrade_schema
from costguard.ledger.db.maintenance import check_ledger
from costguard.ledger.db.schema import MIGRATIONS_FOLDER, REVISIONS
from costguard.ledger.duties import DutyStore, PollView
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Complete, Poll
from costguard.metering.observation import UNKNOWN_HANDLING, Handling
from costguard.metering.spending import ScopeCoverage
from costguard.providers.ports import InstanceSource
from costguard.services.guard_inputs import PollResults
from costguard.services.ledger_answers import answer_status
from costguard.services.poll_views import AccountView, decode_account_view, encode_account_view, find_twin_views
from costguard.services.setup import answer_doctor
from costguard.services.shared_polls import LeasedLedger, SharedPolls
from costguard.services.watchdog_context import SerializedLedger, name_sources
from costguard.settings import read_settings
from costguard.system.logs import get_log
from costguard.values.money import Money, PrepaidBalance, Rate
from costguard.values.resource import ResourceKey, ScopeKey
from tests.ledger.conftest import postgres_server, postgres_url
from tests.ledger.fleet import CEILINGS, RULES, asked, machine, rows
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
    """What `SharedPolls` needs of a watchdog."""

    ledger: SerializedLedger
    before_record: Callable[[], None] = lambda: None
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
        (source,) = sources
        found = source.poll()
        self.before_record()
        ledger.record_polls([found])
        self.seen[id(source)] = found

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
    workers: list[SharedPolls] = field(default_factory=list)
    ledgers: list[LedgerWriter] = field(default_factory=list)

    def join(self, *, ahead: timedelta = timedelta()) -> SharedPolls:
        ledger = LedgerWriter(self.url, rules=RULES, ceilings=CEILINGS)
        self.ledgers.append(ledger)
        accounts = {name: cast("InstanceSource", Cloud(name, self.asked)) for name in map(str, range(ACCOUNTS))}
        made = SharedPolls(
            room=cast("Any", Room(SerializedLedger(ledger), ahead=ahead)),
            store=DutyStore(self.url, f"worker {len(self.ledgers)}"),
            accounts=accounts,
            every=self.every,
            log=get_log(),
        )
        self.workers.append(made)
        return made

    def run(self, seconds: float, *, until: Callable[[], bool] = lambda: False) -> None:
        """Let all watchdogs tick for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():
            for one in self.workers:
                one.run()
            time.sleep(0.02)

    def hold_on(self) -> None:
        """Let all leases go on for a minute, however slow this machine is."""
        with psycopg.connect(self.url.replace("+psycopg", ""), autocommit=True) as hand:
            hand.execute("UPDATE duty SET until_us = until_us + 60000000 WHERE until_us > 0")

    @property
    def held(self) -> list[str]:
        return sorted(name for one in self.workers for name in one.held)


@pytest.fixture
def town(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Town]:
    monkeypatch.setattr("costguard.services.shared_polls.LEASE_MIN_S", 0.6)
    found = Town(postgres_url, timedelta(seconds=1.2))
    yield found
    for one in found.workers:
        one.close()
    for ledger in found.ledgers:
        ledger.close()


def test_watchdogs_share_the_accounts_and_ask_each_once_an_interval(town: Town, tmp_path: Path) -> None:
    town.join()
    town.join()
    town.run(10, until=lambda: len(town.asked) == ACCOUNTS and [len(one.held) for one in town.workers] == [4, 4])
    assert [len(one.held) for one in town.workers] == [4, 4]
    assert town.held == sorted(map(str, range(ACCOUNTS)))
    began, before = time.monotonic(), town.asked.total()
    town.run(3.6)
    intervals = (time.monotonic() - began) / town.every.total_seconds()
    assert ACCOUNTS * (intervals - 1.5) <= town.asked.total() - before <= ACCOUNTS * (intervals + 1.1)
    planner = town.workers[0].collect_poll_results(NOTHING)  # what the other polled has come to this one
    assert len(planner.sources) == len(planner.handling) == ACCOUNTS
    assert all(one.stops for one in planner.handling.values())
    assert planner.sources[ScopeKey("acme", "3", "all")] is town.workers[0].accounts["3"]
    town.hold_on()
    beside = town.workers[0].list_scopes_beside([town.workers[0].accounts["3"]])
    assert sorted(scope.account for scope in beside) == [str(number) for number in range(ACCOUNTS) if number != 3]
    file = tmp_path / "costguard.toml"
    file.write_text(f'[ledger]\nurl = "{town.url}"\n')
    answer = answer_status(offline=True, config=str(file))
    assert "Accounts: 4 held by worker 1, 4 held by worker 2." in answer.document.lead
    assert any("no watchdog plans and acts" in warning for warning in answer.warnings)
    with GuardStore(town.url, rails=Rails()) as book:
        assert book.acquire_leader_lease("worker 2", datetime.now(UTC), timedelta(minutes=3))
    lead = answer_status(offline=True, config=str(file)).document.lead
    assert "Accounts: 4 held by worker 2, which plans, 4 held by worker 1." in lead
    checks = answer_doctor(config=str(file)).document.data["ledger"]["checks"]  # type: ignore[index]  # of JSON
    assert {one["check"]: one["outcome"] for one in checks} == {"ledger": "good", "clock": "good", "watchdogs": "good"}
    assert checks[-1]["told"] == "accounts: 4 held by worker 2, which plans, 4 held by worker 1"


def test_the_accounts_of_one_that_dies_go_to_the_others_and_its_late_record_is_refused(town: Town) -> None:
    town.join()
    town.join()
    town.run(10, until=lambda: [len(one.held) for one in town.workers] == [4, 4])
    town.run(5, until=lambda: len(town.asked) == ACCOUNTS)
    dead = town.workers.pop()  # it neither renews nor gives back: suspended
    lost = dead.held
    town.run(10, until=lambda: len(town.held) == ACCOUNTS)
    assert town.held == sorted(map(str, range(ACCOUNTS)))
    dead._pool.shutdown(wait=True)
    for one in town.workers:  # nothing else writes from here on
        one._pool.shutdown(wait=True)
    state = rows(town.url)
    for name in lost:
        dead._poll(name, dead._held[name])
    assert rows(town.url) == state
    assert dead.held == ()
    dead.store.close()


def test_an_account_that_was_polled_late_is_not_polled_twice_in_an_interval(town: Town) -> None:
    one = town.join()
    town.run(5, until=lambda: len(town.asked) == ACCOUNTS and not any(held.busy for held in one._held.values()))
    every_s = town.every.total_seconds()
    for late_s, next_s in ((0.2 * every_s, 0.8 * every_s), (5 * every_s, every_s)):
        held, now = one._held["3"], time.monotonic()
        held.due_s = now - late_s
        one._poll("3", held)
        assert held.due_s - now == pytest.approx(next_s, abs=0.2)


def test_a_watchdog_that_cannot_renew_polls_nothing(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    one = town.join()
    town.run(5, until=lambda: len(town.asked) == ACCOUNTS)

    def fail(*_: object) -> int:
        raise LedgerError("does not answer")

    with monkeypatch.context() as broken:
        broken.setattr(one.store, "announce", fail)
        town.run(one.lease_s + 0.1)
        asked = town.asked.total()
        town.run(2)
        assert town.asked.total() == asked
    town.run(5, until=lambda: town.asked.total() >= asked + ACCOUNTS)  # what ran out is taken again
    assert town.asked.total() >= asked + ACCOUNTS


def test_one_whose_clock_is_hours_off_polls_nothing_and_says_so(town: Town, tmp_path: Path) -> None:
    """What it recorded would hold up the account's newer listings for so long."""
    right, wrong = town.join(), town.join(ahead=timedelta(hours=2))
    room = cast("Room", wrong.room)
    town.run(10, until=lambda: len(right.held) == ACCOUNTS and len(town.asked) == ACCOUNTS)
    assert (len(right.held), wrong.held) == (ACCOUNTS, ())
    assert "2 h ahead of the ledger server's" in wrong.explain_clock_doubt()
    assert room.resigned
    town.hold_on()
    file = tmp_path / "costguard.toml"
    file.write_text(f'[ledger]\nurl = "{town.url}"\n')
    answer = answer_doctor(config=str(file))
    checks = {one["check"]: one for one in answer.document.data["ledger"]["checks"]}  # type: ignore[index]  # of JSON
    assert checks["clock"]["outcome"] == "good"  # this machine's
    assert checks["watchdogs"]["outcome"] == "bad"
    assert "the clock of the watchdog worker 2 is 2 h ahead" in checks["watchdogs"]["told"]
    assert (wrong.explain_clock_doubt(), right.explain_clock_doubt()) != ("", "")
    with psycopg.connect(town.url.replace("+psycopg", ""), autocommit=True) as hand:
        hand.execute("UPDATE duty SET until_us = until_us - 60000000 WHERE until_us > 0")
    room.ahead = timedelta()  # somebody set it
    town.run(10, until=lambda: [len(one.held) for one in town.workers] == [4, 4])
    assert [len(one.held) for one in town.workers] == [4, 4]
    assert wrong.explain_clock_doubt() == ""
    asked = town.asked.total()
    room.ahead = timedelta(hours=2)  # it jumps while it holds accounts: whatever comes first, nothing lands
    town.run(4)
    assert wrong.held == ()
    assert town.asked.total() > asked
    assert asked_of(town.url, "SELECT count(*) FROM coverage WHERE end_us > extract(epoch FROM now()) * 1000000 + 5000000") == 0


def test_accounts_that_nobody_holds_or_polls_are_shown(town: Town, tmp_path: Path) -> None:
    one = town.join()
    town.run(10, until=lambda: len(one.held) == ACCOUNTS and len(town.asked) == ACCOUNTS)
    one._pool.shutdown(wait=True)
    town.hold_on()
    with psycopg.connect(town.url.replace("+psycopg", ""), autocommit=True) as hand:
        hand.execute("UPDATE duty SET until_us = 1 WHERE account = '3'")
        hand.execute("UPDATE duty SET due_us = due_us - 600000000 WHERE account IN ('3', '5')")
    file = tmp_path / "costguard.toml"
    file.write_text(f'[ledger]\nurl = "{town.url}"\n')
    answer = answer_status(offline=True, config=str(file))
    mine, free = cast("list[dict[str, object]]", answer.document.data["watchdogs"])
    assert (mine["name"], mine["accounts"], mine["overdue"]) == ("worker 1", 7, ["5"])
    assert (free["name"], free["held"], free["overdue"]) == (None, ["3"], ["3"])
    assert "not polled for two intervals by anybody: 3" in answer.warnings
    refusal = answer_doctor(config=str(file)).refusal
    assert "ledger: watchdogs" in str(refusal)


def test_one_that_polls_every_account_once_beside_them_doubles_and_freezes_nothing(town: Town) -> None:
    """`watch --once` takes no lease: what it records counts once, and those that share go on from there."""
    one, two = town.join(), town.join()
    town.run(10, until=lambda: [len(one.held), len(two.held)] == [4, 4] and len(one._load_views()) == ACCOUNTS)
    with LedgerWriter(town.url, rules=RULES, ceilings=CEILINGS) as ledger:
        for _ in range(2):
            for source in one.accounts.values():
                ledger.record_polls([cast("Cloud", source).poll()])
            before = town.asked.total()
            town.run(5, until=lambda before=before: town.asked.total() >= before + ACCOUNTS)  # type: ignore[misc]  # bound now
    for worker in town.workers:
        worker._pool.shutdown(wait=True)
    assert asked_of(town.url, "SELECT sum(polls) FROM coverage") == town.asked.total()
    newest = "SELECT min(last) FROM (SELECT max(end_us) AS last FROM coverage GROUP BY scope_id) AS scopes"
    assert asked_of(town.url, newest) > (datetime.now(UTC) - 3 * town.every).timestamp() * 1e6
    assert check_ledger(town.url) == []
    assert asked_of(town.url, "SELECT count(*) FROM span WHERE end_us IS NULL AND charge = 'compute'") == ACCOUNTS


def test_after_an_upgrade_old_watchdogs_take_nothing_and_new_ones_go_on(
    town: Town, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first new watchdog migrates the ledger while an old one polls: nothing is lost, and every account changes hands."""
    old = town.join()
    town.run(5, until=lambda: len(town.asked) == ACCOUNTS and not any(one.busy for one in old._held.values()))
    before = rows(town.url)
    with monkeypatch.context() as version:
        become_newer(version, tmp_path)
        assert upgrade_schema(town.url).before == REVISIONS[-1]
    for name, held in dict(old._held.items()).items():  # its leases are still in force, and it has heard something
        old._poll(name, held)
    town.run(old.lease_s + 1)
    with monkeypatch.context() as version:
        become_newer(version, tmp_path)
        assert {table: [row[: len(before[table][0])] for row in kept] for table, kept in rows(town.url).items()} == before
        town.workers.clear()
        new = town.join()
        town.run(5, until=lambda: len(new.held) == ACCOUNTS)
        asked = town.asked.total()
        town.run(5, until=lambda: town.asked.total() >= asked + ACCOUNTS)
        new.close()
        town.workers.clear()
        assert check_ledger(town.url) == []
        polls = "SELECT min(polls) FROM coverage"
        assert asked_of(town.url, polls) >= 2
    old._pool.shutdown(wait=True)
    old.store.close()


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


def test_accounts_that_nobody_polled_are_told_of_and_never_taken_for_empty(town: Town) -> None:
    one = town.join()
    assert one.list_unreached() == ()
    one._began -= 3 * one.every
    assert {scope.why for scope in one.list_unreached()} == {"no watchdog has polled it yet"}
    assert len(one.list_unreached()) == ACCOUNTS
    assert one.collect_poll_results(NOTHING).handling == {}


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
    """Whichever watchdogs hold the two: the one that plans compares what both saw."""
    one, two = town.join(), town.join()
    cast("Cloud", two.accounts["6"]).name = cast("Cloud", one.accounts["6"]).name = "2"
    town.run(10, until=lambda: len(one._load_views()) == ACCOUNTS)
    (alert,) = one.list_alerts(datetime.now(UTC))
    assert alert.what == "the account 2 and the account 6 are the same account"
    assert ("both are", "acme/2/all") in alert.facts
    seen = one.collect_poll_results(NOTHING)
    assert (len(seen.sources), seen.sources[ScopeKey("acme", "2", "all")]) == (ACCOUNTS - 1, one.accounts["2"])
    town.run(1.5)  # both have renewed
    town.asked.clear()
    town.run(3)
    assert max(town.asked.values()) == town.asked["3"] >= town.asked["2"] - 1  # not twice as often as others


def test_accounts_are_one_by_what_they_list_or_are_called() -> None:
    def seen(account: str, identity: str = "") -> AccountView:
        return AccountView(scopes=(ScopeKey("acme", account, "all"),), handling={}, identity=identity)

    views = {"a": seen("1", "u7"), "b": seen("2", "u8"), "c": seen("3", "u7"), "d": seen("2"), "e": seen("4"), "f": seen("5")}
    assert find_twin_views(views) == [("a", "c", "u7"), ("b", "d", "acme/2/all")]
    assert decode_account_view(PollView("a", datetime.now(UTC), 1, encode_account_view(views["a"]))) == views["a"]


def test_accounts_are_named_by_the_settings() -> None:
    sources = [cast("InstanceSource", Cloud(name, Counter())) for name in "ab"]
    assert [name for name, _ in name_sources(sources)] == ["acme 1", "acme 2"]
    assert [name for name, _ in name_sources(sources[:1])] == ["acme"]


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
