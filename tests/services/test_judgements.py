"""What another watchdog judged of its accounts: the verdicts of one that judges alone, and nothing that is old or wrong."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from costguard.errors import InputError, LeaseLostError
from costguard.guard.context import GuardConfig
from costguard.guard.judged_machine import JudgedMachine
from costguard.guard.overrides import LEASE, PHASE, Override
from costguard.guard.policy import CANNOT_SAY, HOLDS, NOT_YET, Rails
from costguard.guard.signals import ACTIVE, IDLE, Activity
from costguard.ledger.duties import DutyStore
from costguard.ledger.duty_records import Lease
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.judgements import AccountReader, JudgementStore, StoredJudgement
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Complete, Poll
from costguard.metering.observation import Observation
from costguard.services.guard import GuardRunner, GuardRunResult
from costguard.services.guard_inputs import build_guard_config
from costguard.services.judgements import AccountJudge, JudgementLoader, decode_judgement, encode_judgement
from costguard.settings import read_settings
from costguard.testing.doubles import FakeClock
from costguard.values.agent import Agent
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.values.sample import CPU_UTIL, GPU_UTIL, NETWORK, STEP, Sample
from tests.blank import blank_latest
from tests.ledger.conftest import postgres_server, postgres_url
from tests.ledger.fleet import CEILINGS, MINUTE, RULES, START, machine

__all__ = ["postgres_server", "postgres_url"]

MINUTES = 90
NOW = START + MINUTES * MINUTE
ACCOUNTS = ("a", "b")
POLICIES = """
[[policy]]
name = "idle"
arm = "notify"
match = { gpu = true }
when = 'state == "idle" && confidence >= 0.6'
for = "45m"
then = [{ do = "notify" }, { after = "15m", do = "stop" }]

[[policy]]
name = "dear-idle"
arm = "notify"
match = { labels = { team = "red" } }
when = 'state == "idle" && waste >= usd(1.00)'
for = "20m"
then = [{ do = "notify", severity = "page" }]

[[policy]]
name = "group"
arm = "notify"
when = 'group_state == "idle" && time_in_state >= duration("30m")'
for = "30m"
then = [{ do = "notify" }]
"""


@dataclass
class Log:
    """Lines that a watchdog would log."""

    lines: list[tuple[str, Mapping[str, object]]] = field(default_factory=list)

    def warning(self, event: str, /, **facts: object) -> None:
        self.lines.append((event, facts))

    info = error = warning


def describe_machine(account: str, number: int, **more: Any) -> Observation:  # noqa: ANN401 - any field
    """Machines 0-2 are idle, 3 works, 4 is measured no more, 5 was never measured, 6 and 7 are a cluster of which 7 works."""
    labels = (("team", "red"),) if number % 2 else ()
    cluster = (("cluster", "exp"),) if number in {6, 7} else ()
    key = ResourceKey("acme", account, "west-1", f"i-{account}-{number}")
    return machine(key=key, labels=tuple(sorted((*labels, *cluster))), started_at=START - 60 * MINUTE, **more)


def measure(one: Observation, first: int, last: int) -> Iterator[Sample]:
    number = int(one.key.id[-1])
    for minute in range(first, last + 1):
        quiet = number in {0, 1, 2, 4, 6} and minute > 10 * number
        if number == 5 or (number == 4 and minute > 60):
            continue
        for signal, value in ((GPU_UTIL, 95.0), (CPU_UTIL, 40.0), (NETWORK, 5e6)):
            yield Sample(key=one.key, signal=signal, at=START + minute * MINUTE, value=0.0 if quiet else value)


@dataclass
class Town:
    """A ledger with two accounts, the watchdog that polls and judges them, and one that plans."""

    url: str
    rules: GuardConfig
    writer: LedgerWriter
    judge: AccountJudge
    duties: DutyStore
    leases: dict[str, Lease]
    agents: tuple[Agent, ...] = ()
    log: Log = field(default_factory=Log)
    every: timedelta = MINUTE

    def poll(self, account: str, minute: float, *items: Observation) -> None:
        at = START + minute * MINUTE
        self.writer.record_polls([Poll(scope=ScopeKey("acme", account, "west"), at=at, inventory=Complete(tuple(items)))])

    def judge_all(self) -> int:
        return sum(self.judge.judge(lease, [ScopeKey("acme", name, "west")]) for name, lease in self.leases.items())

    def load(self, now: datetime = NOW, rules: GuardConfig | None = None) -> dict[ResourceKey, JudgedMachine]:
        store = self.judge.store
        loader = JudgementLoader(store=store, accounts=ACCOUNTS, every=self.every, log=self.log)
        return loader.load(rules or self.rules, {}, now)

    def plan(self, judged: Mapping[ResourceKey, JudgedMachine], now: datetime = NOW) -> GuardRunResult:
        with GuardStore(self.url, rails=Rails()) as book:
            made = GuardRunner(
                book=book,
                books=lambda: SpendingReader(self.url, rules=RULES),
                rules=self.rules,
                latest=lambda: blank_latest(agents=self.agents),
                clock=FakeClock(now),
                holder="planner",
                holds=lambda _: (),
                dry_run=True,
                judged=lambda *_: judged,
            ).run()
        assert not made.broken
        return made

    def compare(self, judged: Mapping[ResourceKey, JudgedMachine], now: datetime = NOW) -> GuardRunResult:
        """Plan with and without `judged`, and expect the same of both."""
        shared, alone = self.plan(judged, now), self.plan({}, now)
        assert shared.survey is not None
        assert alone.survey is not None
        assert shared.survey.works == alone.survey.works
        assert shared.survey.cases == alone.survey.cases
        assert shared.survey.proposals == alone.survey.proposals
        assert shared.notices == alone.notices
        assert (shared.plan_hash, shared.survey) == (alone.plan_hash, alone.survey)
        return shared

    def change_row(self, statement: str, *values: object) -> None:
        import psycopg

        with psycopg.connect(self.url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute(statement.encode(), values)


def key_of(account: str, number: int) -> ResourceKey:
    return describe_machine(account, number).key


@pytest.fixture
def town(postgres_url: str, tmp_path: Path) -> Iterator[Town]:
    settings = tmp_path / "costguard.toml"
    settings.write_text(f'[defaults]\ngroup_from = ["label:cluster"]\n{POLICIES}')
    rules = build_guard_config(read_settings(str(settings)), MINUTE)
    with LedgerWriter(postgres_url, rules=RULES, ceilings=CEILINGS) as writer, DutyStore(postgres_url, "worker") as duties:
        judge = AccountJudge(
            reader=AccountReader(postgres_url),
            store=JudgementStore(postgres_url),
            rules=lambda: made.rules,
            lags={},
            agents=lambda: made.agents,
            clock=FakeClock(NOW),
        )
        duties.announce(ACCOUNTS, timedelta(minutes=5))
        leases = {lease.account: lease for lease, _ in duties.take(ACCOUNTS, 2, timedelta(minutes=5))}
        made = Town(postgres_url, rules, writer, judge, duties, leases)
        for account in ACCOUNTS:
            items = [describe_machine(account, number) for number in range(8)]
            for minute in (0, MINUTES):
                made.poll(account, minute, *items)
            writer.record_samples([sample for one in items for sample in measure(one, 1, MINUTES)])
        yield made
        judge.close()


def test_what_others_judged_gives_the_same_verdicts_steps_and_alerts_without_reading_samples(town: Town) -> None:
    assert town.judge_all() == 16
    judged = town.load()
    found = town.compare(judged)
    assert found.sight is not None
    assert found.survey is not None
    assert len(found.sight.judged) == 16
    assert not found.sight.samples
    assert {work.state for work in found.survey.works.values()} == {"idle", "active", "unknown"}
    assert found.survey.works[key_of("a", 6)].state == ACTIVE  # its cluster works
    assert {case.verdict.finding for case in found.survey.cases} >= {HOLDS, CANNOT_SAY}
    assert found.survey.proposals
    assert found.notices


def test_an_old_judgement_makes_nothing_idle_for_longer_than_its_samples_say(town: Town) -> None:
    town.judge_all()
    later = NOW + timedelta(seconds=40)
    shared, alone = town.plan(town.load(), later).survey, town.plan({}, later).survey
    assert shared is not None
    assert alone is not None
    key = key_of("b", 2)
    work = shared.works[key]
    assert (work.state, work.since) == (IDLE, alone.works[key].since)
    assert work.get_known_until(later) == NOW
    ages = {case.verdict.policy.name: case.verdict for case in shared.cases if case.live.observation.key == key}
    assert ages["idle"].finding == HOLDS


def test_a_wait_is_over_only_when_samples_cover_it(town: Town) -> None:
    town.judge_all()
    key = key_of("b", 2)
    since = town.plan({}).survey.works[key].since  # type: ignore[union-attr]  # it ran
    assert since is not None
    hold = NOW - since + timedelta(seconds=10)
    town.rules = replace(town.rules, policies=tuple(replace(one, hold=hold) for one in town.rules.policies))
    town.judge_all()
    later = NOW + timedelta(seconds=30)
    found = []
    for judged in (town.load(), {}):
        survey = town.plan(judged, later).survey
        assert survey is not None
        cases = [case for case in survey.cases if case.live.observation.key == key]
        found.append({case.verdict.finding for case in cases if case.verdict.policy.name == "idle"})
    assert found == [{NOT_YET}, {HOLDS}]


def decode_all(town: Town) -> dict[ResourceKey, JudgedMachine]:
    stored, _ = town.judge.store.load({}, ACCOUNTS, timedelta(hours=1))
    return {key: found for one in stored.values() for key, found in decode_judgement(one).machines.items()}


def test_a_stale_judgement_is_not_used(town: Town) -> None:
    town.judge_all()
    town.change_row("UPDATE poll_judgement SET read_us = read_us - 91000000 WHERE account = 'a'")
    assert {key.account for key in town.load()} == {"b"}
    found = town.compare(town.load()).sight
    assert found is not None
    assert {key.account for key in found.samples} == {"a"}


def test_a_judgement_by_another_clock_is_not_used(town: Town) -> None:
    town.judge.clock = FakeClock(NOW + 20 * MINUTE)  # all would be idle for longer
    town.judge_all()
    assert town.load() == {}
    assert [event for event, _ in town.log.lines] == ["judgement_refused"] * 2
    town.judge.clock = FakeClock(NOW - 20 * MINUTE)
    town.judge_all()
    assert town.load() == {}


def test_a_judgement_of_other_settings_is_not_used(town: Town) -> None:
    before = replace(town.rules, policies=tuple(replace(one, hold=5 * MINUTE) for one in town.rules.policies))
    town.rules, after = before, town.rules
    town.judge_all()
    town.rules = after
    assert town.load() == {}
    assert len(town.load(rules=before)) == 16
    assert town.load(rules=replace(before, interval=2 * MINUTE)) == {}


def test_a_watchdog_that_was_suspended_leaves_no_judgement(town: Town) -> None:
    town.judge_all()
    before = decode_all(town)
    lease = town.leases["a"]
    town.change_row("UPDATE duty SET until_us = 1 WHERE account = 'a'")
    with DutyStore(town.url, "other") as other:
        ((taken, _),) = other.take(["a"], 1, timedelta(minutes=5))
        assert taken.epoch == lease.epoch + 1
        with pytest.raises(LeaseLostError):
            town.judge.judge(lease, [ScopeKey("acme", "a", "west")])
        assert decode_all(town) == before


def test_machines_that_come_go_or_restart_are_judged_by_the_one_that_plans(town: Town) -> None:
    town.judge_all()
    judged = town.load()
    items = [describe_machine("a", number) for number in range(8) if number != 1]
    items[0] = replace(items[0], started_at=NOW)
    items[2] = replace(items[2], gpu_count=8)
    born = describe_machine("a", 9, created_at=NOW)
    town.poll("a", MINUTES + 0.5, *items, born)
    now = NOW + timedelta(seconds=30)
    found = town.plan(judged, now)
    assert found.sight is not None
    assert found.survey is not None
    changed = {key_of("a", 0), items[2].key, born.key}
    assert changed.isdisjoint(found.sight.judged)
    alone = town.plan({}, now).survey
    assert alone is not None
    assert {key: found.survey.works[key] for key in changed} == {key: alone.works[key] for key in changed}
    assert found.survey.works[key_of("a", 0)].state != IDLE
    assert key_of("a", 1) not in {one.verdict.life.key for one in found.survey.proposals}, "one listing lacks it"


def test_a_beat_that_comes_after_the_judgement_makes_the_machine_active(town: Town) -> None:
    key = key_of("a", 0)
    town.agents = (Agent(id="agent", key=key, public_key="", joined_at=START, seq=7),)
    town.judge_all()
    assert key in town.plan(town.load()).sight.judged  # type: ignore[union-attr]  # it ran
    busy = [Sample(key=key, signal=GPU_UTIL, at=NOW + timedelta(seconds=n), value=99.0) for n in range(1, 60)]
    later = NOW + MINUTE
    town.writer.record_samples(busy)
    unheard = town.plan(town.load(), later).survey
    town.agents = (replace(town.agents[0], seq=8),)
    found = town.plan(town.load(), later)
    assert unheard is not None
    assert found.survey is not None
    assert found.sight is not None
    assert unheard.works[key].state == IDLE  # that is why its number is looked at
    assert found.survey.works[key].state == ACTIVE
    assert set(found.sight.samples) == {key}


def test_one_busy_sample_of_a_later_poll_has_the_machine_judged_anew(town: Town) -> None:
    town.judge_all()
    items = [describe_machine("b", number) for number in range(8)]
    later = NOW + timedelta(seconds=50)
    town.poll("b", MINUTES + 0.75, *items)
    town.writer.record_samples([Sample(key=items[0].key, signal=GPU_UTIL, at=later, value=80.0)])
    town.writer.record_samples([Sample(key=items[1].key, signal=GPU_UTIL, at=later, value=0.0)])
    town.writer.record_samples([Sample(key=items[5].key, signal=STEP, at=later, value=3.0)])
    found = town.plan(town.load(), later).sight
    assert found is not None
    assert set(found.samples) == {items[0].key, items[5].key}  # of the last one nothing had been measured


@pytest.mark.parametrize("what", [PHASE, LEASE])
def test_what_people_say_in_between_counts(town: Town, what: str) -> None:
    town.judge_all()
    until = NOW + 30 * MINUTE if what == PHASE else NOW - timedelta(seconds=1)  # a lease that ended: older samples do not count
    wish = Override(
        id="w", what=what, who="ada", why="work", at=NOW - 5 * MINUTE, until=until, key=key_of("a", 0), subject="download"
    )
    with GuardStore(town.url, rails=Rails()) as book:
        book.add_override(wish)
    found = town.compare(town.load()).sight
    assert found is not None
    assert key_of("a", 0) not in found.judged
    assert len(found.judged) == 15


def test_a_damaged_judgement_is_refused_and_said(town: Town) -> None:
    town.judge_all()
    town.change_row("UPDATE poll_judgement SET body = left(body, length(body) - 8) WHERE account = 'a'")
    town.change_row(
        "UPDATE poll_judgement SET body = (SELECT p.body FROM poll_judgement AS p WHERE p.account = 'a') WHERE account = 'b'"
    )
    assert town.compare(town.load()).sight.judged == {}  # type: ignore[union-attr]  # it ran
    assert [(event, facts["account"]) for event, facts in town.log.lines] == [("judgement_refused", name) for name in "ab"]


def test_no_damage_to_a_judgement_passes(town: Town) -> None:
    town.judge_all()
    stored, _ = town.judge.store.load({}, ACCOUNTS, timedelta(hours=1))
    one = stored["a"]
    whole = b64decode(one.body)
    for n in range(0, len(whole), 7):
        damaged = whole[:n] + bytes([whole[n] ^ 0x41]) + whole[n + 1 :]
        for body in (damaged, whole[:n]):
            with pytest.raises(InputError):
                decode_judgement(one._replace(body=b64encode(body).decode()))
    with pytest.raises(InputError):
        decode_judgement(one._replace(account="b"))


def test_what_is_encoded_is_decoded(town: Town) -> None:
    town.judge_all()
    found = decode_all(town)
    body = encode_judgement("a", "digest", NOW, found)
    again = decode_judgement(StoredJudgement("a", NOW, 1, body))
    assert (again.machines, again.at) == (found, NOW)
    assert all(isinstance(work, Activity) and work.as_of == NOW for one in found.values() for work in one.works.values())
