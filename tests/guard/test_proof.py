"""What one look says about an act: doubt sends nothing, and only what was seen proves anything."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from costguard.guard.action_intents import (
    CANCELLED,
    CONTRADICTING_STATES,
    DONE,
    EXECUTING,
    FAILED,
    PROVING_STATES,
    READY,
    TRANSITIONS,
    UNCONFIRMED,
    VERIFYING,
    Intent,
    IntentUpdate,
    confirm_outcome,
    describe_difference,
    explain_refusal,
)
from costguard.guard.policy import STOP, TERMINATE
from costguard.metering.observation import Handling, Observation
from costguard.values.resource import ARRIVING_STATES, STATES
from tests.services.deeds import BEGAN, LIFE, MIN, START, S, intent, machine

SENT = intent(state=VERIFYING, sends=1, sent_at=START)


def look(one: Intent, seen: Observation | None, *, after: timedelta = 3 * MIN, absences: int = 0) -> IntentUpdate:
    at = START + after
    return confirm_outcome(one, seen, absences=absences, asked_at=at, now=at, settling=MIN)


@pytest.mark.parametrize("act", [STOP, TERMINATE])
@pytest.mark.parametrize("state", STATES)
def test_each_state_proves_an_act_contradicts_it_or_says_nothing(act: str, state: str) -> None:
    one, seen = replace(SENT, act=act, irreversible=True), machine(state=state)
    finding = look(one, seen)
    assert (finding.state == DONE) == (state in PROVING_STATES[act])
    assert finding.again == (state in CONTRADICTING_STATES[act])
    assert (explain_refusal(replace(one, state=READY), seen) == "") == (state in (*CONTRADICTING_STATES[act], *ARRIVING_STATES))


@pytest.mark.parametrize("act", [STOP, TERMINATE])
@pytest.mark.parametrize("state", ARRIVING_STATES)
def test_what_is_on_its_way_is_stopped_only_where_its_provider_says_that_it_can_be(act: str, state: str) -> None:
    why = f"it is {state}: the act's result would be unknown"
    assert explain_refusal(intent(act=act, irreversible=True), machine(state=state, handling=Handling())) == why


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (machine(started_at=BEGAN + S), "the machine was restarted or replaced: this act was for an earlier run"),
        (machine(started_at=None), "the machine was restarted or replaced: this act was for an earlier run"),
        (machine(created_at=None), "the machine was restarted or replaced: this act was for an earlier run"),
        (machine(handling=Handling(controller="EKS node group a")), "EKS node group a would start it again"),
        (machine(handling=Handling(protected=("stop",))), "its provider protects it from stop"),
        (machine(handling=Handling(stops=False)), "its provider has no stop for it in its present state"),
        (machine(handling=Handling(stop_loses=("a", "b", "c"))), "it would lose a, c, and that was not allowed"),
        (machine(handling=Handling(protected=("terminate",), terminates=False, terminate_loses=("x",))), ""),
        (machine(handling=Handling()), ""),
    ],
    ids=range(9),
)
def test_a_refusal_says_what_stands_against_a_stop(seen: Observation, why: str) -> None:
    assert explain_refusal(intent(lose=("b",)), seen) == why


def test_a_terminate_that_its_provider_lacks_is_refused() -> None:
    one = intent(act=TERMINATE, irreversible=True)
    assert (
        explain_refusal(one, machine(handling=Handling(terminates=False)))
        == "its provider has no terminate for it in its present state"
    )
    assert explain_refusal(one, machine(handling=Handling(stop_loses=("x",), terminate_loses=("y",)))) == ""


def test_two_looks_that_differ_say_in_what() -> None:
    assert describe_difference(machine(), machine()) == ""
    assert describe_difference(machine(), machine(state="stopping")) == "it went from running to stopping while it was checked"
    changed = machine(name="b", labels=(("a", "b"),), handling=Handling())
    assert describe_difference(machine(), changed) == "its name and labels and handling changed while it was checked"


def test_a_listing_that_was_asked_for_before_the_send_proves_nothing() -> None:
    seen, now = machine(state="stopped"), START + MIN
    assert confirm_outcome(SENT, seen, absences=9, asked_at=START - S, now=now, settling=MIN).state == ""
    assert confirm_outcome(SENT, seen, absences=0, asked_at=START, now=now, settling=MIN).state == DONE


def test_a_crash_is_not_judged_by_an_older_listing_but_paged_in_time() -> None:
    one = replace(SENT, state=EXECUTING, expires_at=START + 30 * S)
    for minutes, state in ((1, ""), (9, ""), (10, UNCONFIRMED)):
        finding = confirm_outcome(one, machine(), absences=0, asked_at=START - S, now=START + minutes * MIN, settling=MIN)
        assert finding == IntentUpdate(state=state, why="not checked since it was sent")


@pytest.mark.parametrize(
    "seen",
    [
        machine(started_at=BEGAN - S, state="stopped"),
        machine(created_at=BEGAN - S),
        machine(state="stopped", started_at=None, stopped_at=BEGAN - S),
    ],
    ids=["an earlier start", "an earlier machine", "a stop before it began"],
)
def test_what_may_be_of_an_earlier_life_proves_nothing(seen: Observation) -> None:
    assert look(SENT, seen) == IntentUpdate(why="the observation may be of an earlier run or of another machine")


@pytest.mark.parametrize("seen", [machine(started_at=BEGAN + S), machine(created_at=BEGAN + S)], ids=["restart", "new"])
def test_a_later_life_is_the_end_of_the_one_it_was_for(seen: Observation) -> None:
    assert look(SENT, seen).state == DONE


def test_not_found_ends_a_terminate_only_after_three_complete_listings() -> None:
    one = replace(SENT, act=TERMINATE)
    assert [look(one, None, absences=n).state for n in range(5)] == ["", "", "", DONE, DONE]


def test_a_stopped_one_that_is_gone_is_told_and_then_a_failure() -> None:
    assert look(SENT, None, absences=9).state == ""
    assert look(SENT, None, absences=9, after=10 * MIN).state == UNCONFIRMED
    assert look(replace(SENT, state=UNCONFIRMED), None, absences=2).state == ""
    assert look(replace(SENT, state=UNCONFIRMED), None, absences=3).state == FAILED


@pytest.mark.parametrize(
    ("sends", "after", "again"),
    [
        (0, 59 * S, False),
        (1, 59 * S, False),
        (1, MIN, True),
        (2, 119 * S, False),
        (2, 2 * MIN, True),
        (3, 239 * S, False),
        (3, 4 * MIN, True),
        (4, 179 * S, False),
    ],
    ids=str,
)
def test_a_send_that_is_contradicted_is_repeated_after_1_2_and_4_minutes(sends: int, after: timedelta, again: bool) -> None:  # noqa: FBT001 - a column of the table
    finding = look(replace(SENT, sends=sends), machine(), after=after)
    assert (finding.again, finding.state) == (again, "")


@pytest.mark.parametrize(("sends", "after"), [(1, 10), (2, 9), (3, 7), (4, 3), (9, 3)])
def test_ten_minutes_after_the_first_send_it_is_unconfirmed(sends: int, after: int) -> None:
    for seen in (machine(), machine(state="stopping"), machine(started_at=BEGAN - S), None):
        assert look(replace(SENT, sends=sends), seen, after=after * MIN).state == UNCONFIRMED
        assert look(replace(SENT, sends=sends), seen, after=after * MIN - S).state == ""
        assert look(replace(SENT, sends=sends, state=UNCONFIRMED), seen, after=99 * MIN).state == ""


def test_nothing_is_sent_again_where_its_provider_states_no_start_but_what_ends_for_good() -> None:
    life = LIFE._replace(started_at=None)
    seen = machine(started_at=None)
    assert not look(replace(SENT, life=life), seen).again
    assert look(replace(SENT, life=life, act=TERMINATE), seen).again


def test_a_longer_settling_holds_the_second_send_back() -> None:
    at = START + 4 * MIN
    assert not confirm_outcome(SENT, machine(), absences=0, asked_at=at, now=at, settling=5 * MIN).again


def test_what_a_crash_left_is_left_alone_until_it_cannot_be_sent_any_more() -> None:
    one = replace(SENT, state=EXECUTING, expires_at=START + 30 * S)
    gone = machine(state="stopped")
    assert look(one, gone, after=29 * S) == IntentUpdate(why="it may be sent at any moment")
    assert look(one, gone, after=30 * S).state == DONE
    assert look(one, machine(), after=31 * S) == IntentUpdate(why="it is still running, and the change may be in progress")
    assert look(one, machine(), after=MIN) == IntentUpdate(state=READY, why="it is still running", again=True)
    assert look(one, machine(state="stopping"), after=31 * S).state == VERIFYING
    assert look(one, None, after=31 * S).state == VERIFYING
    unknown = replace(one, life=LIFE._replace(started_at=None))
    assert look(unknown, machine(started_at=None), after=MIN).state == CANCELLED


@pytest.mark.parametrize("state", [EXECUTING, VERIFYING, UNCONFIRMED])
def test_every_finding_is_a_move_that_an_intent_can_make(state: str) -> None:
    for seen in (None, *(machine(state=one) for one in STATES), machine(started_at=BEGAN + S), machine(started_at=BEGAN - S)):
        for act in (STOP, TERMINATE):
            for minutes in (1, 2, 5, 11):
                for absences in (0, 3):
                    one = replace(SENT, state=state, act=act, expires_at=START + 30 * S)
                    finding = look(one, seen, after=minutes * MIN, absences=absences)
                    assert finding.state in {"", *TRANSITIONS[state]}
                    assert finding.why
