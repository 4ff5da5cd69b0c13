"""The key of another account: nothing of it is recorded, where its provider says whose it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from costguard.guard.alerts.watchdog import build_other_account_alert
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.guard_state import load_open_overrides
from costguard.ledger.spans.account_identities import load_identities
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import COMPLETE, FAILED, OTHER_ACCOUNT, SHARES_NOTHING, Complete, Poll
from costguard.metering.observation import Observation
from costguard.metering.spending import ScopeCoverage
from costguard.services.poll.account_identity import IdentityCache
from costguard.services.poll.poll import PollCycleResult, poll_sources
from costguard.values.money import Rate
from costguard.values.resource import ResourceKey, ScopeKey
from tests.metering.stories import minute
from tests.services.test_poll import Hands


@dataclass(kw_only=True)
class Account:
    """An account with `machines`, whose provider says `who` it is; `questions` counts how often."""

    account: str = "main"
    who: str | Exception | None = None
    machines: tuple[str, ...] = ("a", "b")
    questions: int = 0
    at: float = 0
    providers: Sequence[str] = ("acme",)

    def list_scopes(self) -> Sequence[ScopeKey]:
        return (ScopeKey("acme", self.account, "all"),)

    def fetch_identity(self) -> str | None:
        self.questions += 1
        if isinstance(self.who, Exception):
            raise self.who
        return self.who

    def look_up(self, key: ResourceKey) -> Observation | None:
        return Observation(key=key, state="running") if key.id in self.machines else None

    def poll(self, scope: ScopeKey) -> Poll:
        listed = (Observation(key=ResourceKey(*scope[:2], "r", name), state="running") for name in self.machines)
        return Poll(scope=scope, at=minute(self.at), inventory=Complete(tuple(listed)))


@dataclass(kw_only=True)
class SelfNamed(Account):
    """One that its provider names, as AWS does."""

    key_name: str = "profile default"


@dataclass
class Watch:
    """Polls a minute apart into a real ledger."""

    url: str
    minutes: int = 0
    identities: IdentityCache = field(default_factory=IdentityCache)

    def poll(self, account: Account, *, cached: bool = False) -> PollCycleResult:
        self.minutes += 1
        account.at = self.minutes
        identities = self.identities if cached else None
        with LedgerWriter(self.url, rules={}, ceilings={}) as ledger:
            return poll_sources([account], ledger, Hands(at=minute(self.minutes)), identities=identities)

    def list_outcomes(self, account: Account) -> list[str]:
        return [one.outcome for one in self.poll(account).accrued]

    def load_identities(self) -> dict[str, str]:
        with LedgerReader(self.url) as reader, reader.snapshot() as ask:
            return load_identities(ask, "acme")


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    return Watch(f"sqlite:///{tmp_path}/ledger.db")


def test_an_identity_is_remembered_and_nothing_of_another_one_is_recorded(watch: Watch) -> None:
    assert watch.list_outcomes(Account(who="user_a")) == [COMPLETE]
    assert watch.load_identities() == {"main": "user_a"}
    assert watch.list_outcomes(Account(who="user_a", machines=("c", "a"))) == [COMPLETE]  # a key that was rotated
    swapped = watch.poll(Account(who="user_b", machines=("x",)))
    assert [(one.outcome, one.why.startswith(OTHER_ACCOUNT), one.logged) for one in swapped.accrued] == [(FAILED, True, ())]
    assert "--accept-account acme/main" in swapped.accrued[0].why
    assert (swapped.seen, len(swapped.others)) == ((), 1)
    assert watch.list_outcomes(Account(account="new", who="user_b")) == [COMPLETE]  # a name of its own
    with LedgerReader(watch.url) as reader, reader.snapshot() as ask:
        overrides = load_open_overrides(ask, minute(99))
    assert [(one.what, one.who, one.subject, one.value) for one in overrides] == [
        ("account", "costguard", "acme/main", "user_a"),
        ("account", "costguard", "acme/new", "user_b"),
    ]


@pytest.mark.parametrize("who", [None, RuntimeError("no answer")])
def test_an_unknown_identity_is_no_other_one_and_is_asked_seldom(watch: Watch, who: Exception | None) -> None:
    watch.poll(Account(who="user_a"))
    account = Account(who=who)
    for _ in range(3):
        assert [one.outcome for one in watch.poll(account, cached=True).accrued] == [COMPLETE]
    assert account.questions == 1


def test_a_first_identity_is_remembered_once_its_listing_is_believed(watch: Watch) -> None:
    """The key was swapped while nobody knew whose it was. Each poll is by a process of its own."""
    watch.poll(Account())
    swapped = Account(who="user_b", machines=("x", "y", "z"))
    for _ in range(3):
        assert [one.why for one in watch.poll(swapped).accrued] == [SHARES_NOTHING]
        assert watch.load_identities() == {}
    assert watch.list_outcomes(swapped) == [COMPLETE]
    assert watch.load_identities() == {"main": "user_b"}


def test_one_pod_a_day_is_not_doubted_for_ever(watch: Watch) -> None:
    outcomes = [watch.list_outcomes(Account(machines=(str(day),)))[0] for day in range(6)]
    assert outcomes == [COMPLETE, "partial", "partial", "partial", COMPLETE, "partial"]


def test_an_account_that_its_provider_names_is_not_replaced_in_silence(watch: Watch) -> None:
    assert watch.list_outcomes(SelfNamed(account="111", who="111")) == [COMPLETE]
    swapped = watch.poll(SelfNamed(account="222", who="222"))
    assert [(one.outcome, one.logged) for one in swapped.accrued] == [(FAILED, ())]
    assert "'acme/profile default'" in swapped.accrued[0].why
    assert watch.list_outcomes(SelfNamed(account="222", who="222", key_name="profile other")) == [COMPLETE]


@pytest.mark.parametrize(("why", "severity"), [(f"{OTHER_ACCOUNT}, user_b", "page"), (SHARES_NOTHING, "warning")])
def test_the_alert_names_the_account_and_what_it_costs(why: str, severity: str) -> None:
    scope, at = ScopeKey("runpod", "default", "account"), minute(1)
    coverage = ScopeCoverage(scope=scope, outcome=FAILED, at=at, since=at, last_complete_at=None, why=why)
    rate = Rate(nano_per_hour=3_000_000_000)
    alert = build_other_account_alert(coverage, rate=rate, at=at + timedelta(minutes=1))
    assert (alert.severity, alert.subject, dict(alert.facts)["per hour"]) == (severity, "runpod/default", "$3.0000")
