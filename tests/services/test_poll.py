"""One round of polls: what is asked, what is looked up, and what the ledger is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import pytest

from costguard.errors import CostguardError
from costguard.metering.accrual import accrue_poll, find_suspect_absences
from costguard.metering.inventory import Complete, Failed, Inventory, Poll
from costguard.metering.observation import Observation
from costguard.metering.scope_state import AccrualResult, ScopeState
from costguard.services.poll.poll import poll_sources
from costguard.values.resource import RUNNING, VOLUME, ResourceKey, ScopeKey
from costguard.values.sample import Sample
from tests.metering.stories import RULE, SCOPE, machine, minute


@dataclass
class Memory:
    """A ledger that keeps states and nothing else."""

    states: dict[ScopeKey, ScopeState] = field(default_factory=dict)
    polls: list[Poll] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def record_polls(self, polls: Sequence[Poll]) -> Sequence[AccrualResult]:
        found = []
        for one in polls:
            self.polls.append(one)
            accrued = accrue_poll(self.states.get(one.scope) or ScopeState(scope=one.scope), one, RULE, {})
            self.states[one.scope] = accrued.state
            found.append(accrued)
        return found

    def find_suspects(self, poll: Poll) -> Sequence[ResourceKey]:
        state = self.states.get(poll.scope)
        return find_suspect_absences(state, poll.inventory) if state else ()

    def list_scopes_of(self, provider: str) -> Sequence[ScopeKey]:
        return [scope for scope in self.states if scope.provider == provider]

    def record_samples(self, samples: Sequence[Sample]) -> frozenset[ResourceKey]:
        self.samples += samples
        return frozenset()


@dataclass
class Hands:
    """A clock that is set."""

    at: datetime = field(default_factory=lambda: minute(9))

    def now(self) -> datetime:
        return self.at


@dataclass
class Cloud:
    """A provider that says what it is told to say."""

    said: list[Inventory]
    scope: ScopeKey = SCOPE
    number: int = 0

    @property
    def providers(self) -> Sequence[str]:
        return (self.scope.provider,)

    def list_scopes(self) -> Sequence[ScopeKey]:
        return (self.scope,)

    def poll(self, scope: ScopeKey) -> Poll:
        self.number += 1
        return Poll(scope=scope, at=minute(self.number), inventory=self.said[self.number - 1])


@dataclass
class Looking(Cloud):
    """The same, and it can look up one resource. `there`: ids that answer; `broken`: ids that cannot be asked for."""

    there: frozenset[str] = frozenset()
    state: str = RUNNING
    broken: frozenset[str] = frozenset()
    looked: list[str] = field(default_factory=list)

    def look_up(self, key: ResourceKey) -> Observation | None:
        self.looked.append(key.id)
        if key.id in self.broken:
            raise CostguardError("timeout")
        return replace(machine(key.id), state=self.state) if key.id in self.there else None


@dataclass
class Broken(Cloud):
    """The same, until it raises `error`: when asked for its scopes, or for a listing."""

    error: Exception = field(default_factory=lambda: CostguardError("403", field="cloud", hint="a new key"))
    at: str = "poll"

    def list_scopes(self) -> Sequence[ScopeKey]:
        if self.at == "scopes":
            raise self.error
        return super().list_scopes()

    def poll(self, scope: ScopeKey) -> Poll:
        if self.at == "poll":
            raise self.error
        return super().poll(scope)


NAMES = ("i-1", "i-2", "i-3")
ALL = Complete(tuple(machine(name) for name in NAMES))
OTHER = ScopeKey("other", "lab", "here")
THEIRS = Complete(tuple(replace(machine(name), key=ResourceKey("other", "lab", "here", name)) for name in NAMES))


def test_a_broken_provider_stops_no_other() -> None:
    done = poll_sources([Cloud([Failed("503")]), Cloud([THEIRS], scope=OTHER)], Memory(), Hands())
    assert [one.outcome for one in done.accrued] == ["failed", "complete"]
    assert [one.why for one in done.unseen] == ["503"]


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (CostguardError("403", field="cloud", hint="a new key"), "cloud: 403; hint: a new key"),
        (KeyError("the secret"), "unexpected KeyError"),
    ],
)
def test_a_listing_that_raises_is_recorded_as_failed_and_stops_no_other(error: Exception, why: str) -> None:
    ledger = Memory()
    done = poll_sources([Broken([], error=error), Cloud([THEIRS], scope=OTHER)], ledger, Hands())
    assert [(one.state.scope, one.outcome, one.why) for one in done.accrued] == [
        (SCOPE, "failed", why),
        (OTHER, "complete", ""),
    ]
    assert {one.scope: one.at for one in ledger.polls} == {SCOPE: minute(9), OTHER: minute(1)}


def test_scopes_that_cannot_be_listed_count_as_not_seen_where_the_ledger_knows_them() -> None:
    ledger = Memory()
    poll_sources([Cloud([ALL])], ledger, Hands())
    done = poll_sources([Broken([], at="scopes"), Cloud([THEIRS], scope=OTHER)], ledger, Hands())
    why = "its accounts cannot be listed: cloud: 403; hint: a new key"
    assert [(one.state.scope, one.why) for one in done.accrued] == [(SCOPE, why), (OTHER, "")]
    assert (ledger.states[SCOPE].at, ledger.states[SCOPE].complete_at, done.refused) == (minute(9), minute(1), ())


def test_an_account_that_cannot_be_listed_leaves_alone_what_accounts_that_are_not_asked_now_have() -> None:
    """Each account is polled by itself: without this, one refused key would count every account of its provider as not seen."""
    ledger = Memory()
    poll_sources([Cloud([ALL]), Cloud([THEIRS], scope=OTHER)], ledger, Hands())
    done = poll_sources([Broken([], at="scopes")], ledger, Hands(), elsewhere=lambda: {OTHER})
    assert [one.state.scope for one in done.accrued] == [SCOPE]
    assert ledger.states[OTHER].complete_at == ledger.states[OTHER].at


def test_a_listing_dated_ahead_of_the_clock_is_refused_and_said() -> None:
    cloud, ledger, clock = Cloud([ALL] * 7), Memory(), Hands(at=minute(0))
    for _ in range(5):
        assert poll_sources([cloud], ledger, clock).refused == ()
    (said,) = poll_sources([cloud], ledger, clock).refused
    assert said.startswith(f"{'/'.join(SCOPE)}: its listing is dated {minute(6):%Y-%m-%d %H:%M} UTC, ahead of this clock")
    assert ledger.states[SCOPE].at == minute(5)


def test_a_listing_that_is_not_after_the_last_one_counts_as_unseen() -> None:
    ledger = Memory()
    poll_sources([Cloud([ALL] * 2, number=1)], ledger, Hands())
    (late,) = poll_sources([Cloud([ALL])], ledger, Hands()).unseen
    assert (late.fresh, late.why) == (False, "not after the last poll")


def test_an_empty_listing_that_lies_is_caught_and_closes_nothing() -> None:
    cloud, ledger = Looking([ALL, Complete(())], there=frozenset(NAMES)), Memory()
    poll_sources([cloud], ledger, Hands())
    done = poll_sources([cloud], ledger, Hands())
    assert cloud.looked == list(NAMES)
    assert done.accrued[0].outcome == "partial"
    assert "lacks 3 machines that exist when looked up" in done.accrued[0].why
    assert (done.accrued[0].closed, done.accrued[0].logged) == ((), ())


@pytest.mark.parametrize("few", [1, 2])
def test_an_empty_listing_of_a_small_account_is_looked_into_as_well(few: int) -> None:
    cloud, ledger = Looking([Complete(ALL.items[:few]), Complete(())], there=frozenset(NAMES)), Memory()
    poll_sources([cloud], ledger, Hands())
    done = poll_sources([cloud], ledger, Hands())
    assert cloud.looked == list(NAMES[:few])
    assert (done.accrued[0].outcome, done.accrued[0].closed, done.accrued[0].logged) == ("partial", (), ())


def test_the_last_machine_of_an_account_is_settled_once_a_look_finds_nothing() -> None:
    cloud, ledger = Looking([Complete(ALL.items[:1]), Complete(()), Complete(())]), Memory()
    poll_sources([cloud], ledger, Hands())
    done = poll_sources([cloud], ledger, Hands())
    assert (done.accrued[0].outcome, [span.key.id for span in done.accrued[0].closed]) == ("complete", ["i-1"])
    poll_sources([cloud], ledger, Hands())
    assert cloud.looked == ["i-1"]


def test_all_of_a_kind_that_is_missing_is_looked_into_though_others_are_listed() -> None:
    disk = replace(machine("vol-1"), kind=VOLUME, started_at=None)
    cloud, ledger = Looking([Complete((machine("i-1"), disk)), Complete((disk,))], there=frozenset(NAMES)), Memory()
    poll_sources([cloud], ledger, Hands())
    assert poll_sources([cloud], ledger, Hands()).accrued[0].outcome == "partial"
    assert cloud.looked == ["i-1"]


LOST: list[Inventory] = [Complete(ALL.items[:1]), *[Complete(())] * 3]


@pytest.mark.parametrize(
    "cloud", [Cloud(LOST), Looking(LOST, broken=frozenset(NAMES))], ids=["cannot be asked", "does not answer"]
)
def test_an_empty_listing_that_nobody_can_confirm_is_not_believed(cloud: Cloud) -> None:
    ledger = Memory()
    poll_sources([cloud], ledger, Hands())
    for _ in range(3):
        done = poll_sources([cloud], ledger, Hands())
        assert (done.accrued[0].outcome, done.accrued[0].closed) == ("partial", ())


def test_what_is_really_gone_is_settled_at_once() -> None:
    cloud, ledger = Looking([ALL, Complete(())]), Memory()
    poll_sources([cloud], ledger, Hands())
    done = poll_sources([cloud], ledger, Hands())
    assert done.accrued[0].outcome == "complete"
    assert sorted(span.key.id for span in done.accrued[0].closed) == list(NAMES)
