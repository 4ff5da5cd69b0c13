"""Due acts of one run: those of different accounts overlap, each account keeps to its number, and no limit is exceeded."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import count
from pathlib import Path

import pytest

from costguard.guard.action_intents import READY, VERIFYING, Intent
from costguard.guard.overrides import ARM, Override
from costguard.guard.policy import IDLE_RULE, STOP, Rails
from costguard.ledger.guard.store import GuardStore
from costguard.metering.observation import Handling, Observation
from costguard.services.guarding.act import lanes
from costguard.services.guarding.act.lanes import FAULTS_MAX, DueAct, LaneResults, perform_in_lanes
from costguard.services.guarding.act.send_action import (
    LATE,
    UNANSWERED,
    ActionPorts,
    ActionResult,
    find_action_ports,
    send_action,
)
from costguard.testing import FakeClock
from costguard.values.provider import ACCEPTED, REFUSED, ActionResponse
from costguard.values.resource import RUNNING, Incarnation, ResourceKey

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
PATIENCE_S = 10.0


def intended(id_: str, provider: str = "aws") -> Intent:
    key = ResourceKey(provider, "main", "us", id_)
    return Intent(
        id=f"of {provider} {id_}",
        life=Incarnation(key, started_at=NOW - timedelta(hours=2)),
        act=STOP,
        policy="idle-gpu",
        rule=IDLE_RULE,
        why="",
        evidence="{}",
        state=READY,
        created_at=NOW,
        moved_at=NOW,
        epoch=1,
    )


def done(intent: Intent) -> ActionResult:
    return ActionResult(intent=replace(intent, state=VERIFYING, sends=1), sent=True)


def kept(intent: Intent) -> ActionResult:
    return ActionResult(intent=intent, held="ada keeps it")


def failed(fault: str) -> Callable[[Intent], ActionResult]:
    return lambda intent: ActionResult(intent=intent, held=f"it is {fault}", fault=fault)


@dataclass
class Stage:
    """Acts, and in which order they began. `most`: how many of each account were under way at once."""

    acts: list[DueAct] = field(default_factory=list)
    began: list[str] = field(default_factory=list)
    most: Counter[str] = field(default_factory=Counter)
    _busy: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(
        self,
        id_: str,
        provider: str = "aws",
        ends: Callable[[Intent], ActionResult] = done,
        *,
        at_once: int = 1,
        wait: Callable[[], object] = lambda: None,
    ) -> None:
        intent = intended(id_, provider)

        def perform() -> ActionResult:
            with self._lock:
                self.began.append(id_)
                self._busy[provider] += 1
                self.most[provider] = max(self.most[provider], self._busy[provider])
            wait()
            with self._lock:
                self._busy[provider] -= 1
            return ends(intent)

        self.acts.append(DueAct(intent=intent, account=(provider, "main"), at_once=at_once, perform=perform))

    def play(self, room: int = 100, may_begin: Callable[[], bool] = lambda: True) -> LaneResults:
        return perform_in_lanes(self.acts, room=room, may_begin=may_begin)


def test_acts_on_two_accounts_overlap_and_those_of_one_account_do_not() -> None:
    stage, both = Stage(), threading.Barrier(2)
    for number in range(3):
        stage.add(f"a{number}", "aws", wait=lambda: both.wait(PATIENCE_S))
        stage.add(f"l{number}", "lambda", wait=lambda: both.wait(PATIENCE_S))
    assert len(stage.play().results) == 6
    assert stage.most == {"aws": 1, "lambda": 1}
    assert [id_ for id_ in stage.began if id_[0] == "a"] == ["a0", "a1", "a2"]


def test_an_account_that_allows_four_at_once_has_four_under_way() -> None:
    stage, four = Stage(), threading.Barrier(4)
    for number in range(8):
        stage.add(f"a{number}", at_once=4, wait=lambda: four.wait(PATIENCE_S))
    assert len(stage.play().results) == 8
    assert stage.most == {"aws": 4}


def test_the_most_urgent_keep_their_places_while_their_account_is_busy() -> None:
    stage, looks, searched = Stage(), count(), threading.Event()

    def may_begin() -> bool:
        if next(looks) == 1:  # the search for a second act while the first one is under way
            searched.set()
        return True

    stage.add("a0", wait=lambda: searched.wait(PATIENCE_S))
    stage.add("a1")
    stage.add("l0", "lambda")
    stage.play(room=2, may_begin=may_begin)
    assert stage.began == ["a0", "a1"]


def test_an_act_that_was_refused_leaves_its_place_to_the_next() -> None:
    stage = Stage()
    stage.add("kept", ends=kept)
    for number in range(3):
        stage.add(f"a{number}")
    stage.play(room=2)
    assert stage.began == ["kept", "a0", "a1"]


def test_results_stand_in_the_order_of_the_acts_whichever_ends_first() -> None:
    stage, last = Stage(), threading.Event()
    stage.add("first", "lambda", wait=lambda: last.wait(PATIENCE_S))
    stage.add("second", "aws", wait=last.set)
    assert [one.intent.life.key.id for one in stage.play().results] == ["first", "second"]


@pytest.mark.parametrize("fault", [UNANSWERED, LATE, REFUSED])
def test_an_account_that_fails_three_times_in_a_row_is_left_for_this_run_and_no_other_is(fault: str) -> None:
    stage = Stage()
    for number in range(8):
        stage.add(f"a{number}", ends=failed(fault))
        stage.add(f"l{number}", "lambda")
    results = stage.play()
    assert [id_ for id_ in stage.began if id_[0] == "a"] == [f"a{number}" for number in range(FAULTS_MAX)]
    assert sum(one.sent for one in results.results) == 8
    assert results.notes == (f"aws/main: 5 more wait for the next run, because 3 in a row failed: it is {fault}",)


@pytest.mark.parametrize(
    "between", [(kept, kept, kept), (failed(LATE), done, failed(LATE)), (failed(LATE), failed(UNANSWERED), failed(LATE))]
)
def test_what_holds_single_machines_leaves_no_account_out(between: tuple[Callable[[Intent], ActionResult], ...]) -> None:
    stage = Stage()
    for number in range(6):
        stage.add(f"a{number}", ends=between[number % 3])
    stage.add("last")
    stage.play()
    assert stage.began[-1] == "last"


def test_a_ledger_that_broke_lets_no_other_act_begin() -> None:
    stage = Stage()
    stage.add("first", ends=lambda intent: ActionResult(intent=intent, broken="the disk is full"))
    stage.add("second")
    assert [one.broken for one in stage.play().results] == ["the disk is full"]
    assert stage.began == ["first"]


def test_nothing_begins_after_the_time_of_the_run() -> None:
    stage = Stage()
    for number in range(3):
        stage.add(f"a{number}")
    stage.play(may_begin=lambda: not stage.began)
    assert stage.began == ["a0"]


def test_an_error_in_one_act_is_raised_after_those_under_way_have_ended() -> None:
    stage, both, ended = Stage(), threading.Barrier(2), list[str]()

    def end_late() -> None:
        both.wait(PATIENCE_S)
        ended.append("l0")

    def fail() -> None:
        both.wait(PATIENCE_S)
        raise ValueError("a mistake")

    stage.add("a0", wait=fail)
    stage.add("l0", "lambda", wait=end_late)
    stage.add("a1")
    with pytest.raises(ValueError, match="a mistake"):
        stage.play()
    assert ended == ["l0"]
    assert "a1" not in stage.began


def test_an_act_that_hangs_does_not_hold_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "ANSWER_WITHIN_S", -39.8)
    stage, over = Stage(), threading.Event()
    stage.add("a0", wait=lambda: over.wait(PATIENCE_S))
    stage.add("l0", "lambda")
    results = stage.play()
    over.set()
    assert [one.intent.life.key.id for one in results.results] == ["l0"]
    assert results.notes == ("a0: its stop had not ended 0 s after the run began to act",)


@dataclass
class Town:
    """An account whose machines all run. `asked`: which it was asked to stop. `acts_at_once`: as a port."""

    acts_at_once: int = 4
    asked: list[str] = field(default_factory=list)

    def look_up(self, key: ResourceKey) -> Observation:
        handling = Handling(stops=True, terminates=True)
        return Observation(key=key, state=RUNNING, started_at=NOW - timedelta(hours=2), handling=handling)

    def stop(self, key: ResourceKey, *, lose: frozenset[str] = frozenset()) -> ActionResponse:
        assert not lose
        self.asked.append(key.id)
        return ActionResponse(said=ACCEPTED)


def test_the_limits_of_the_ledger_hold_among_acts_that_run_at_the_same_time(tmp_path: Path) -> None:
    clock, town, all_machines = FakeClock(NOW), Town(), Fraction(10**6)
    rails = Rails(acts_per_run=3, acts_per_10m=3, fleet_share_10m=all_machines, fleet_share_day=all_machines)
    with GuardStore(f"sqlite:///{tmp_path / 'ledger.db'}", rails=rails) as book:
        assert book.acquire_leader_lease("me", NOW, timedelta(hours=1)) == 1
        until = NOW + timedelta(hours=1)
        book.add_override(
            Override(id="armed", what=ARM, who="ada", why="", at=NOW, until=until, subject="idle-gpu", value=STOP)
        )
        acts = []
        for number in range(16):
            intent = intended(f"i-{number}", provider=f"cloud{number % 4}")
            assert book.plan_intent(intent)
            hands = find_action_ports(town)
            acts.append(_build_act(intent, hands, book, clock))
        results = perform_in_lanes(acts, room=16, may_begin=lambda: True).results
        states = Counter(one.state for one in book.load_intents_since(NOW))
    assert len(town.asked) == len(set(town.asked)) == 3
    assert states == {VERIFYING: 3, READY: 13}
    assert sum(one.sent for one in results) == 3


def _build_act(intent: Intent, hands: ActionPorts, book: GuardStore, clock: FakeClock) -> DueAct:
    def perform() -> ActionResult:
        return send_action(intent, hands, book, clock, lambda _: "", epoch=1, seconds=lambda: 0.0)

    return DueAct(intent=intent, account=(intent.life.key.provider, "main"), at_once=hands.at_once, perform=perform)
