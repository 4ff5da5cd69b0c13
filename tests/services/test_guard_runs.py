"""When a run is the first one after a gap: what counts as one for a watchdog that stays, and for runs that a timer starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from costguard.budgets.budget import Budget
from costguard.guard.cap_forecast import build_cap_policy
from costguard.guard.context import GuardConfig
from costguard.guard.overrides import ARM, ArmedLevel, Override, find_armed_level
from costguard.guard.policy import NOTIFY, STOP, Rails
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import FAILED
from costguard.metering.spending import ScopeCoverage
from costguard.services.guarding.guard import GuardRunner, GuardRunResult
from costguard.services.guarding.guard_inputs import PollResults
from costguard.services.guarding.watchdog_context import keep_failing_since
from costguard.testing import FakeClock
from costguard.values.money import Money
from costguard.values.resource import ScopeKey
from tests.blank import blank_latest

S, MINUTE, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(days=1)
CAP = Budget(name="all", cap=Money.parse("20"), hard=True)
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


@dataclass
class Watch:
    """Guard runs on a ledger, each of which takes as long as it is told."""

    book: GuardStore
    url: str
    clock: FakeClock = field(default_factory=lambda: FakeClock(NOON))
    takes: timedelta = timedelta()

    def process(self, interval: timedelta, *, name: str = "one", resident: bool = False) -> GuardRunner:
        """A new one, that remembers nothing."""
        return GuardRunner(
            book=self.book,
            books=partial(SpendingReader, self.url, rules={}),
            rules=GuardConfig(admin_route=True, interval=interval),
            latest=self._long,
            clock=self.clock,
            holder=name,
            holds=lambda _: (),
            resident=resident,
            seconds=lambda: self.clock.now().timestamp(),
        )

    def _long(self) -> PollResults:
        """What the last listings told; the time that the run's deeds take goes by meanwhile."""
        self.clock.advance(self.takes)
        self.takes = timedelta()
        return blank_latest()


def held(of: GuardRunResult) -> str:
    """What holds every act of this run."""
    assert of.committed, of.broken
    assert of.sight is not None
    return "; ".join(says for _, says in of.sight.held)


def alarms(of: GuardRunResult) -> list[str]:
    return [notice.what for notice in of.notices]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with LedgerWriter(url, rules={}, ceilings={}), GuardStore(url, rails=Rails()) as book:
        yield Watch(book, url)


def runs(watch: Watch, guard: Callable[[], GuardRunner], apart: timedelta, times: int) -> list[GuardRunResult]:
    """So many runs, each by what `guard` gives then, and whatever a process gives back when it ends is given back."""
    found = []
    for _ in range(times):
        found.append(guard().run())
        watch.clock.advance(apart)
    return found


def test_a_deed_longer_than_three_intervals_is_no_gap(watch: Watch) -> None:
    guard = watch.process(S, resident=True)
    runs(watch, lambda: guard, S, 2)
    watch.takes = 40 * S
    assert held(guard.run()) == ""
    watch.clock.advance(S)
    assert held(guard.run()) == ""


@pytest.mark.parametrize(
    ("takes", "then"), [(40 * S, 4 * S), (100 * S, S)], ids=["idle after it", "longer than a deed may take"]
)
def test_what_follows_a_deed_by_more_than_three_intervals_is_a_gap(watch: Watch, takes: timedelta, then: timedelta) -> None:
    guard = watch.process(S, resident=True)
    runs(watch, lambda: guard, S, 2)
    watch.takes = takes
    guard.run()
    watch.clock.advance(then)
    assert held(guard.run()).startswith("no run for ")


def test_one_whose_clock_is_wrong_takes_no_turn_and_evaluates_nothing(watch: Watch) -> None:
    """By a clock that is hours ahead, the turn of another one has run out."""
    watch.process(MINUTE, name="right").run()
    wrong = watch.process(MINUTE, name="wrong", resident=True)
    wrong.clock_doubt = lambda: "this machine's clock: is 2 h ahead of the ledger server's"
    watch.clock.advance(120 * MINUTE)
    found = wrong.run()
    assert (found.committed, found.acting, found.sight) == (False, False, None)
    assert "2 h ahead" in found.broken
    turn = watch.book.load_leader_lease()
    assert turn is not None
    assert turn.holder == "right"


def test_the_first_run_only_observes_where_more_of_them_follow_by_themselves(watch: Watch) -> None:
    runs(watch, lambda: watch.process(MINUTE), MINUTE, 1)
    assert held(watch.process(MINUTE).run()) == ""
    watch.clock.advance(MINUTE)
    assert held(watch.process(MINUTE, resident=True).run()) == "the first run after a start only observes"


@pytest.mark.parametrize("minutes", [1, 2, 3])
def test_runs_that_a_timer_starts_within_three_intervals_may_all_act_but_the_first(watch: Watch, minutes: int) -> None:
    first, *others = runs(watch, lambda: watch.process(MINUTE), minutes * MINUTE, 5)
    assert held(first) == "this is the first run"
    assert [held(one) for one in others] == [""] * 4
    assert [alarm for one in (first, *others) for alarm in alarms(one)] == []


def test_a_timer_that_is_slower_than_the_settings_say_never_acts_and_says_what_to_write(watch: Watch) -> None:
    found = runs(watch, lambda: watch.process(MINUTE), 5 * MINUTE, 4)
    assert [held(one) for one in found[1:]] == ["no run for 0:05:00"] * 3
    assert [alarms(one) for one in found] == [
        [],
        *[['observing only: runs are 5 min apart; set interval = "5m"']] * 3,
    ]
    (notice,) = found[-1].notices
    assert 'write [watch] interval = "5m" where a timer runs it that often' in dict(notice.facts)["next"]

    slow = runs(watch, lambda: watch.process(5 * MINUTE), 5 * MINUTE, 3)
    assert [(held(one), alarms(one)) for one in slow] == [("", [])] * 3


def test_a_watchdog_whose_own_runs_all_come_after_a_gap_is_told_so(watch: Watch) -> None:
    resident = watch.process(S, resident=True)
    said = runs(watch, lambda: resident, 4 * MINUTE, 3)
    assert "observing only: runs are 4 min apart" in "; ".join(alarms(said[2]))


def find_level(watch: Watch, guard: GuardRunner) -> ArmedLevel:
    """How far the hard budget may go after one more run."""
    assert guard.run().committed
    wishes = watch.book.load_overrides_since(NOON - DAY)
    return find_armed_level(build_cap_policy(CAP), wishes, watch.clock.now())


def test_a_hard_budget_stays_armed_and_obeys_who_lowers_it_as_long_as_that_lasts(watch: Watch) -> None:
    guard = watch.process(MINUTE)
    guard.rules = replace(guard.rules, budgets=(CAP,))
    assert find_level(watch, guard).level == STOP
    watch.clock.advance(91 * DAY)  # the arming by the settings has run out
    assert find_level(watch, guard).level == STOP
    now = watch.clock.now()
    lowered = Override(
        id="w", what=ARM, who="ada", why="", at=now + S, until=now + 90 * DAY, subject="budget:all", value=NOTIFY
    )
    watch.book.add_override(lowered)
    for days, level in ((1, NOTIFY), (88, NOTIFY), (1, STOP)):
        watch.clock.advance(days * DAY)
        assert find_level(watch, guard).level == level, days


def test_a_plan_before_the_first_run_takes_a_hard_budget_for_armed_and_records_nothing(watch: Watch) -> None:
    guard = watch.process(MINUTE)
    guard.rules, guard.dry_run = replace(guard.rules, budgets=(CAP,)), True
    found = guard.run()
    assert found.sight is not None
    assert find_armed_level(build_cap_policy(CAP), found.sight.wishes, NOON).level == STOP
    assert watch.book.load_overrides_since(NOON - DAY) == []


def test_an_account_that_could_never_be_asked_is_an_alarm_after_a_quarter_of_an_hour_until_it_answers(watch: Watch) -> None:
    unreached: tuple[ScopeCoverage, ...] = ()

    def fail(why: str) -> None:
        nonlocal unreached
        now = watch.clock.now()
        scope = ScopeKey("runpod", "", "")
        failed = ScopeCoverage(scope=scope, outcome=FAILED, at=now, since=now, last_complete_at=None, why=why)
        unreached = keep_failing_since((failed,), unreached)

    guard = watch.process(MINUTE)
    guard.unreached = lambda: unreached
    found = []
    for _ in range(17):
        fail("its accounts cannot be listed: no answer within 10 s")
        found.append(alarms(guard.run()))
        watch.clock.advance(MINUTE)
    assert found[:15] == [[]] * 15
    assert found[15:] == [["runpod cannot be reached (1 scope)"]] * 2
    unreached = ()
    assert alarms(guard.run()) == []
    fail("its accounts cannot be listed: RunPod refused the key (401)")
    assert alarms(guard.run()) == ["runpod refuses the credentials (1 scope)"]
