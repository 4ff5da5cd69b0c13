"""A round of many accounts: all asked at once, none held up by another, twins refused, and an end to it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from costguard.errors import CostguardError
from costguard.metering.inventory import Complete, Poll
from costguard.metering.scope_state import AccrualResult
from costguard.services.poll.poll import poll_sources
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.values.sample import GPU_UTIL, Sample
from tests.metering.stories import SCOPE, key, machine, minute
from tests.services.test_poll import ALL, NAMES, Broken, Cloud, Hands, Looking, Memory

AWS = [ScopeKey("aws", "1", f"region-{number}") for number in range(200)]


@dataclass
class Wide(Cloud):
    """A cloud of many scopes."""

    names: Sequence[ScopeKey] = ()
    who: str | Exception | None = None
    asked: float = 1

    @property
    def providers(self) -> Sequence[str]:
        return (self.names[0].provider,)

    def list_scopes(self) -> Sequence[ScopeKey]:
        return self.names

    def fetch_identity(self) -> str | None:
        if isinstance(self.who, Exception):
            raise self.who
        return self.who

    def poll(self, scope: ScopeKey) -> Poll:
        return Poll(scope=scope, at=minute(self.asked), inventory=Complete(()))


def cloud(*names: str, provider: str = "aws", account: str = "1", who: str | Exception | None = None) -> Wide:
    return Wide([], names=[ScopeKey(provider, account, name) for name in names or ("here",)], who=who)


@dataclass
class Hung(Cloud):
    """A cloud that does not answer until `let_go`."""

    at: str = "poll"
    let_go: threading.Event = field(default_factory=threading.Event)

    def list_scopes(self) -> Sequence[ScopeKey]:
        if self.at == "scopes":
            self.let_go.wait(30)
        return super().list_scopes()

    def poll(self, scope: ScopeKey) -> Poll:
        if self.at == "poll":
            self.let_go.wait(30)
        return Poll(scope=scope, at=minute(1), inventory=ALL)


@pytest.fixture(params=["poll", "scopes"])
def hung(request: pytest.FixtureRequest) -> Iterator[Hung]:
    made = Hung([], at=request.param)
    yield made
    made.let_go.set()


def test_many_scopes_are_asked_at_the_same_time() -> None:
    together = threading.Barrier(len(AWS) // 4)

    class Meeting(Wide):
        def poll(self, scope: ScopeKey) -> Poll:
            together.wait(timeout=60)  # broken, unless a quarter of all is under way at once
            return super().poll(scope)

    done = poll_sources([Meeting([], names=AWS)], Memory(), Hands())
    assert len(done.accrued) == len(AWS)
    assert done.unseen == ()


def test_what_hangs_counts_as_not_seen_and_the_others_are_recorded_before_it(hung: Hung) -> None:
    ledger = Memory()
    ledger.record_polls([Poll(scope=SCOPE, at=minute(0), inventory=ALL)])
    order: list[ScopeKey] = []
    record = ledger.record_polls

    def noted(polls: Sequence[Poll]) -> Sequence[AccrualResult]:
        order.extend(one.scope for one in polls)
        return record(polls)

    ledger.record_polls = noted  # type: ignore[method-assign]
    done = poll_sources([hung, cloud("a")], ledger, Hands(), limit_s=2)
    assert [(one.outcome, "no answer within 2 s" in one.why) for one in done.accrued] == [
        ("failed", True),
        ("complete", False),
    ]
    assert order == [ScopeKey("aws", "1", "a"), SCOPE]
    assert all(known.open for known in ledger.states[SCOPE].resources.values())


def test_a_listing_whose_look_ups_take_too_long_is_recorded_as_it_is() -> None:
    @dataclass
    class Slow(Looking):
        let_go: threading.Event = field(default_factory=threading.Event)

        def look_up(self, key: ResourceKey) -> None:  # noqa: ARG002 - the port's signature
            self.let_go.wait(30)

    ledger, slow = Memory(), Slow([ALL, Complete(())])
    poll_sources([slow], ledger, Hands())
    done = poll_sources([slow], ledger, Hands(), limit_s=0.3)
    slow.let_go.set()
    assert done.accrued[0].outcome == "partial"
    assert sorted(k.id for k in ledger.states[SCOPE].resources) == list(NAMES)


def test_a_hung_provider_does_not_keep_the_process_alive() -> None:
    code = (
        "import time; from tests.services.test_round import *; began = time.monotonic(); hung = Hung([]);"
        "poll_sources([hung], Memory(), Hands(), limit_s=0.2)"
    )
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    assert time.monotonic() - began < 110


def test_a_scope_that_two_accounts_list_is_polled_once_and_both_are_named() -> None:
    ledger = Memory()
    done = poll_sources([cloud("a", "b"), cloud("b", "c")], ledger, Hands())
    assert [one.state.scope.name for one in done.accrued] == ["a", "b", "c"]
    assert done.twins == ("aws/1/b is listed by account 1 (aws) and by account 2 (aws): the second is not polled",)
    assert done.refused == done.twins
    assert len(ledger.polls) == 3


def test_two_accounts_that_their_provider_calls_the_same_are_one() -> None:
    done = poll_sources([cloud(account="work", who="user_7"), cloud(account="home", who="user_7")], Memory(), Hands())
    assert [one.state.scope.account for one in done.accrued] == ["work"]
    (said,) = done.twins
    assert "account 1 (aws) and account 2 (aws) are the same account, which the provider calls user_7" in said


def test_a_new_account_waits_where_nobody_can_say_today_whether_it_is_an_old_one() -> None:
    ledger = Memory()
    poll_sources([cloud(account="work", who="7")], ledger, Hands())
    both = [cloud(account="work", who=CostguardError("503")), cloud(account="home", who="7")]
    done = poll_sources(both, ledger, Hands(at=minute(19)))
    assert [one.state.scope.account for one in done.accrued] == ["work"]
    assert "is new and not polled: today it cannot be compared with account 1 (aws)" in done.twins[0]


def test_known_scopes_fail_where_one_account_breaks_but_not_those_that_another_lists() -> None:
    ledger = Memory()
    poll_sources([cloud("a"), cloud("b", account="2")], ledger, Hands())
    broken = Broken([], scope=ScopeKey("aws", "1", "a"), at="scopes")
    done = poll_sources([broken, replace(cloud("b", account="2"), asked=2)], ledger, Hands())
    assert [(one.state.scope.name, one.outcome) for one in done.accrued] == [("a", "failed"), ("b", "complete")]
    assert done.accrued[0].why.startswith("its accounts cannot be listed: ")


def test_an_answer_about_another_scope_is_no_answer() -> None:
    class Odd(Cloud):
        def poll(self, scope: ScopeKey) -> Poll:  # noqa: ARG002 - the port's signature
            return Poll(scope=ScopeKey("other", "x", "y"), at=minute(1), inventory=Complete(()))

    (one,) = poll_sources([Odd([])], Memory(), Hands()).accrued
    assert (one.state.scope, one.outcome, "did not return a listing" in one.why) == (SCOPE, "failed", True)


def test_measures_that_came_with_a_listing_are_kept_after_it_and_notes_are_told() -> None:
    sample = Sample(key=key("i-1"), signal=GPU_UTIL, at=minute(1), value=7.0)

    class Measured(Cloud):
        def poll(self, scope: ScopeKey) -> Poll:
            listing = Complete((machine("i-1"),))
            return Poll(scope=scope, at=minute(1), inventory=listing, samples=(sample,), notes=("i-1 has no price",))

    ledger = Memory()
    done = poll_sources([Measured([])], ledger, Hands())
    assert ledger.samples == [sample]
    assert done.notes == (f"{'/'.join(SCOPE)}: i-1 has no price",)


def test_an_account_waits_for_one_before_it_for_a_while_and_not_for_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("costguard.services.poll.poll.TWIN_WAIT_S", 0.1)
    slow = Hung([], at="scopes", scope=ScopeKey("aws", "1", "x"))
    done = poll_sources([slow, cloud("y", account="2")], Memory(), Hands(), limit_s=0.6)
    slow.let_go.set()
    assert [(one.state.scope.name, one.outcome) for one in done.accrued] == [("y", "complete")]
    assert done.refused == ("aws: its accounts cannot be listed: no answer within 0.6 s",)
