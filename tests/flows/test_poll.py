"""One round of polls: what is asked, what is looked up, and what the ledger is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from costguard.core.metering.accrual import accrue, suspects
from costguard.core.metering.accrued import Accrued, ScopeState
from costguard.core.metering.inventory import Complete, Failed, Inventory, Partial, Poll
from costguard.core.metering.observation import Observation
from costguard.core.metering.resource import ResourceKey, ScopeKey
from costguard.errors import CostguardError
from costguard.flows.poll import poll
from tests.core.stories import RULE, SCOPE, key, machine, minute


@dataclass
class Memory:
    """A ledger that keeps states and nothing else."""

    states: dict[ScopeKey, ScopeState] = field(default_factory=dict)
    polls: list[Poll] = field(default_factory=list)

    def record(self, polls: Sequence[Poll]) -> Sequence[Accrued]:
        found = []
        for one in polls:
            self.polls.append(one)
            accrued = accrue(self.states.get(one.scope) or ScopeState(scope=one.scope), one, RULE, {})
            self.states[one.scope] = accrued.state
            found.append(accrued)
        return found

    def suspects(self, poll: Poll) -> Sequence[ResourceKey]:
        state = self.states.get(poll.scope)
        return suspects(state, poll.inventory) if state else ()


@dataclass
class Cloud:
    """A provider that says what it is told to say."""

    said: list[Inventory]
    scope: ScopeKey = SCOPE
    number: int = 0

    def scopes(self) -> Sequence[ScopeKey]:
        return (self.scope,)

    def poll(self, scope: ScopeKey) -> Poll:
        self.number += 1
        return Poll(scope=scope, at=minute(self.number), inventory=self.said[self.number - 1])


@dataclass
class Looking(Cloud):
    """The same, and it can look up one resource. `there`: ids that answer; `broken`: ids that cannot be asked for."""

    there: frozenset[str] = frozenset()
    broken: frozenset[str] = frozenset()
    looked: list[str] = field(default_factory=list)

    def look(self, key: ResourceKey) -> Observation | None:
        self.looked.append(key.id)
        if key.id in self.broken:
            raise CostguardError("timeout")
        return machine(key.id) if key.id in self.there else None


NAMES = ("i-1", "i-2", "i-3")
ALL = Complete(tuple(machine(name) for name in NAMES))


def test_a_broken_provider_stops_no_other() -> None:
    ledger, other = Memory(), ScopeKey("other", "lab", "here")
    done = poll([Cloud([Failed("503")]), Cloud([ALL], scope=other)], ledger)
    assert [one.outcome for one in done.accrued] == ["failed", "complete"]
    assert [one.why for one in done.unseen] == ["503"]


def test_a_usual_listing_is_not_looked_into() -> None:
    cloud = Looking([ALL, Complete(ALL.items[:2])])
    ledger = Memory()
    poll([cloud], ledger)
    poll([cloud], ledger)
    assert cloud.looked == []


def test_an_empty_listing_that_lies_is_caught_and_closes_nothing() -> None:
    cloud, ledger = Looking([ALL, Complete(())], there=frozenset(NAMES)), Memory()
    poll([cloud], ledger)
    done = poll([cloud], ledger)
    assert cloud.looked == list(NAMES)
    assert done.accrued[0].outcome == "partial"
    assert "lacks 3 that answer by themselves" in done.accrued[0].why
    assert (done.accrued[0].closed, done.accrued[0].logged) == ((), ())


def test_what_is_really_gone_is_settled_at_once() -> None:
    cloud, ledger = Looking([ALL, Complete(())]), Memory()
    poll([cloud], ledger)
    done = poll([cloud], ledger)
    assert done.accrued[0].outcome == "complete"
    assert sorted(span.key.id for span in done.accrued[0].closed) == list(NAMES)


def test_one_that_cannot_be_looked_up_stays_unknown() -> None:
    cloud, ledger = Looking([ALL, Complete(())], broken=frozenset(NAMES[:1])), Memory()
    poll([cloud], ledger)
    done = poll([cloud], ledger)
    assert done.accrued[0].outcome == "partial"
    assert sorted(span.key.id for span in done.accrued[0].closed) == ["i-2", "i-3"]
    assert ledger.states[SCOPE].resources[key("i-1")].observation.state == "running"


def test_without_single_look_ups_too_much_gone_is_never_believed() -> None:
    cloud, ledger = Cloud([ALL, *[Complete(())] * 9]), Memory()
    for _ in range(10):
        done = poll([cloud], ledger)
    assert done.accrued[0].outcome == "partial"
    assert all(known.open for known in ledger.states[SCOPE].resources.values())


def test_a_partial_answer_is_handed_on_as_it_is() -> None:
    ledger = Memory()
    done = poll([Looking([Partial(ALL.items[:1], "page 2 was lost")])], ledger)
    assert (done.accrued[0].outcome, done.accrued[0].why) == ("partial", "page 2 was lost")
